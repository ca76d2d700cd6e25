// Package monitoring counts the requests of a local registry, and serves the
// counts and the state of its server to Prometheus.
//
// A label never has a value that a client can make up. Its values are methods,
// patterns of routes, classes of statuses and kinds of archives, so the number
// of series has a limit. Addresses, versions and callers are in the request log
// only.
package monitoring

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/local"
)

// Metrics are the metrics of one server. Create them with [New].
type Metrics struct {
	counts *metrics.Set
	// state returns the state of the server. It is nil before Watch.
	state func(context.Context) *metrics.Set
}

// durations are the upper limits of the histogram's buckets in seconds. An
// upload or a download can take minutes.
var durations = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 600}

// methods are the values of the label method. All others are counted as other.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// help adds the descriptions of metrics to the empty ones of the library.
var help = func() *strings.Replacer {
	var pairs []string
	for name, text := range map[string]string{
		"larder_requests_total":                       "Requests, by method, route and class of the status.",
		"larder_request_duration_seconds":             "Time until the end of the response, by route.",
		"larder_downloads_total":                      "Responses that locate an archive, by kind.",
		"larder_refusals_total":                       "Responses with 401 or 403.",
		"larder_build_info":                           "Always 1. The label has the release.",
		"larder_ready":                                "1 if the server is ready, as for /readyz, and 0 otherwise.",
		"larder_open_connections":                     "Open connections of clients.",
		"larder_connections_max":                      "Maximum number of open connections.",
		"larder_rejected_connections_total":           "Connections closed, and requests refused, because their client had too many.",
		"larder_certificate_expiry_timestamp_seconds": "Time at which the first certificate of the chain expires.",
		"larder_certificate_renewals_total":           "New certificates that the server uses.",
		"larder_certificate_failures_total":           "New certificates that the server cannot use.",
		"larder_access_file_valid":                    "1 if the server can use its access file or has none, and 0 otherwise.",
		"larder_database_bytes":                       "Size of the database and of its log.",
		"larder_disk_free_bytes":                      "Free space for the database and for the objects.",
		"larder_disk_size_bytes":                      "Size of the disks of the database and of the objects.",
		"larder_disk_reserve_bytes":                   "Space that is reserved for withdrawals on a full disk.",
		"larder_last_backup_timestamp_seconds":        "Time of the last complete backup, or 0.",
		"larder_last_verify_timestamp_seconds":        "Time of the last complete check without a fault, or 0.",
		"larder_mirror_copies":                        "Mirrored versions that are being copied or wait for it.",
		"larder_mirror_bounds_total":                  "How often a bound of the mirror had an effect.",
	} {
		pairs = append(pairs, "# HELP "+name+"\n", "# HELP "+name+" "+text+"\n")
	}
	return strings.NewReplacer(pairs...)
}()

// New returns the metrics of a server of a release. It has no counts yet.
func New(version string) *Metrics {
	metrics.ExposeMetadata(true)
	m := &Metrics{counts: metrics.NewSet()}
	// A series that begins at zero lets Prometheus see its first increase.
	for _, kind := range kinds {
		m.downloads(kind)
	}
	for _, status := range refusals {
		m.refusals(status)
	}
	m.counts.GetOrCreateGauge(fmt.Sprintf("larder_build_info{version=%q}", version), nil).Set(1)
	return m
}

func (m *Metrics) downloads(kind requestlog.Download) *metrics.Counter {
	return m.counts.GetOrCreateCounter(fmt.Sprintf("larder_downloads_total{kind=%q}", kind))
}

func (m *Metrics) refusals(status int) *metrics.Counter {
	return m.counts.GetOrCreateCounter(fmt.Sprintf("larder_refusals_total{status=\"%d\"}", status))
}

var (
	kinds = []requestlog.Download{
		requestlog.ModuleDownload, requestlog.ProviderDownload, requestlog.MirrorDownload,
	}
	refusals = []int{http.StatusUnauthorized, http.StatusForbidden}
)

// Observe counts a request. It is safe for concurrent use.
func (m *Metrics) Observe(e *requestlog.Entry) {
	method, route := e.Method, e.Route
	if !slices.Contains(methods, method) {
		method = "other"
	}
	if route == "" {
		route = "none"
	}
	m.counts.GetOrCreateCounter(fmt.Sprintf("larder_requests_total{method=%q,route=%q,status=%q}",
		method, route, class(e.Status))).Inc()
	m.counts.GetOrCreatePrometheusHistogramExt(fmt.Sprintf("larder_request_duration_seconds{route=%q}", route),
		durations).Update(e.Duration.Seconds())
	if slices.Contains(kinds, e.Download) {
		m.downloads(e.Download).Inc()
	}
	if slices.Contains(refusals, e.Status) {
		m.refusals(e.Status).Inc()
	}
}

// class returns 1xx, 2xx, 3xx, 4xx or 5xx for any status.
func class(status int) string { return strconv.Itoa(min(max(status/100, 1), 5)) + "xx" }

// Watch adds the state of a server, and the number of copies that its mirror
// has queued. Both functions are called for each request for the metrics. Call
// Watch once.
func (m *Metrics) Watch(status func(context.Context) local.Status, copies func() int) {
	m.state = func(ctx context.Context) *metrics.Set {
		now, state := status(ctx), metrics.NewSet()
		gauge := func(name string, value float64) { state.GetOrCreateGauge(name, nil).Set(value) }
		counter := func(name string, value uint64) { state.GetOrCreateCounter(name).Set(value) }
		gauge("larder_ready", number(now.Ready))
		gauge("larder_open_connections", float64(now.Connections))
		gauge("larder_connections_max", float64(now.MaxConnections))
		counter("larder_rejected_connections_total", uint64(now.RejectedConnections))
		if !now.CertificateExpires.IsZero() { // otherwise a proxy has the certificate
			gauge("larder_certificate_expiry_timestamp_seconds", float64(now.CertificateExpires.Unix()))
		}
		counter("larder_certificate_renewals_total", uint64(now.CertificateRenewals))
		counter("larder_certificate_failures_total", uint64(now.CertificateFailures))
		gauge("larder_access_file_valid", number(now.AccessFileValid))
		gauge("larder_database_bytes", float64(now.DatabaseBytes))
		for of, free := range now.DiskFree {
			gauge(fmt.Sprintf("larder_disk_free_bytes{of=%q}", of), float64(free))
		}
		for of, size := range now.DiskSize {
			gauge(fmt.Sprintf("larder_disk_size_bytes{of=%q}", of), float64(size))
		}
		gauge("larder_disk_reserve_bytes", float64(now.ReserveBytes))
		gauge("larder_last_backup_timestamp_seconds", seconds(now.LastBackup))
		gauge("larder_last_verify_timestamp_seconds", seconds(now.LastVerify))
		gauge("larder_mirror_copies", float64(copies()))
		return state
	}
}

// MirrorBounds adds the bounds of the mirror. It returns a function that counts that
// one had an effect.
func (m *Metrics) MirrorBounds(names ...string) func(name string) {
	reached := func(name string) *metrics.Counter {
		return m.counts.GetOrCreateCounter(fmt.Sprintf("larder_mirror_bounds_total{bound=%q}", name))
	}
	for _, name := range names {
		reached(name)
	}
	return func(name string) { reached(name).Inc() }
}

// write writes all metrics in the text format of Prometheus.
func (m *Metrics) write(ctx context.Context, w io.Writer) {
	var page bytes.Buffer
	m.counts.WritePrometheus(&page)
	if m.state != nil {
		m.state(ctx).WritePrometheus(&page)
	}
	metrics.WriteProcessMetrics(&page)
	metrics.WriteFDMetrics(&page)
	_, _ = help.WriteString(w, page.String())
}

// seconds returns the time for Prometheus, or 0 if an event never happened.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.Unix())
}

// number returns 1 for true, and 0 for false.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
