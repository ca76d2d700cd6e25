// Package monitoring counts the requests of a local registry, and serves the
// counts and the state of its server to Prometheus.
//
// A label never has a value that a client can make up. Its values are methods,
// patterns of routes, classes of statuses and kinds of archives, so the number
// of series has a limit. Addresses, versions and callers are in the request log
// only.
package monitoring

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/requestlog"
)

// Metrics are the metrics of one server. Create them with [New].
type Metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	downloads *prometheus.CounterVec
	refusals  *prometheus.CounterVec
}

// durations are the upper limits of the histogram's buckets in seconds. An
// upload or a download can take minutes.
var durations = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 600}

// methods are the values of the label method. All others are counted as other.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// New returns the metrics of a server of a release. It has no counts yet.
func New(version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: counter("larder_requests_total", "Requests, by method, route and class of the status.",
			"method", "route", "status"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "larder_request_duration_seconds", Help: "Time until the end of the response, by route.",
			Buckets: durations,
		}, []string{"route"}),
		downloads: counter("larder_downloads_total", "Responses that locate an archive, by kind.", "kind"),
		refusals:  counter("larder_refusals_total", "Responses with 401 or 403.", "status"),
	}
	// A series that begins at zero lets Prometheus see its first increase.
	for _, kind := range kinds {
		m.downloads.WithLabelValues(string(kind))
	}
	for _, status := range refusals {
		m.refusals.WithLabelValues(strconv.Itoa(status))
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "larder_build_info", Help: "Always 1. The label has the release.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.durations, m.downloads, m.refusals, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
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
	m.requests.WithLabelValues(method, route, class(e.Status)).Inc()
	m.durations.WithLabelValues(route).Observe(e.Duration.Seconds())
	if slices.Contains(kinds, e.Download) {
		m.downloads.WithLabelValues(string(e.Download)).Inc()
	}
	if slices.Contains(refusals, e.Status) {
		m.refusals.WithLabelValues(strconv.Itoa(e.Status)).Inc()
	}
}

// class returns 1xx, 2xx, 3xx, 4xx or 5xx for any status.
func class(status int) string { return strconv.Itoa(min(max(status/100, 1), 5)) + "xx" }

// Watch adds the state of a server, and the number of copies that its mirror
// has queued. Both functions are called for each request for the metrics. Call
// Watch once.
func (m *Metrics) Watch(status func(context.Context) local.Status, copies func() int) {
	m.registry.MustRegister(&state{status, copies})
}

// state collects the state of a server.
type state struct {
	status func(context.Context) local.Status
	copies func() int
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	ready               = desc("larder_ready", "1 if the server is ready, as for /readyz, and 0 otherwise.")
	connections         = desc("larder_open_connections", "Open connections of clients.")
	maxConnections      = desc("larder_connections_max", "Maximum number of open connections.")
	rejectedConnections = desc("larder_rejected_connections_total",
		"Connections closed because their client had too many.")
	certificateExpiry = desc("larder_certificate_expiry_timestamp_seconds",
		"Time at which the first certificate of the chain expires.")
	certificateRenewals = desc("larder_certificate_renewals_total", "New certificates that the server uses.")
	certificateFailures = desc("larder_certificate_failures_total",
		"New certificates that the server cannot use.")
	accessFileValid = desc("larder_access_file_valid",
		"1 if the server can use its access file or has none, and 0 otherwise.")
	databaseSize = desc("larder_database_bytes", "Size of the database and of its log.")
	diskFree     = desc("larder_disk_free_bytes", "Free space for the database and for the objects.", "of")
	diskReserve  = desc("larder_disk_reserve_bytes", "Space that is reserved for withdrawals on a full disk.")
	mirrorCopies = desc("larder_mirror_copies", "Mirrored versions that are being copied or wait for it.")
)

// Describe implements [prometheus.Collector].
func (s *state) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		ready, connections, maxConnections, rejectedConnections, certificateExpiry, certificateRenewals,
		certificateFailures, accessFileValid, databaseSize, diskFree, diskReserve, mirrorCopies,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *state) Collect(to chan<- prometheus.Metric) {
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	now := s.status(context.Background())
	add(ready, prometheus.GaugeValue, number(now.Ready))
	add(connections, prometheus.GaugeValue, float64(now.Connections))
	add(maxConnections, prometheus.GaugeValue, float64(now.MaxConnections))
	add(rejectedConnections, prometheus.CounterValue, float64(now.RejectedConnections))
	add(certificateExpiry, prometheus.GaugeValue, float64(now.CertificateExpires.Unix()))
	add(certificateRenewals, prometheus.CounterValue, float64(now.CertificateRenewals))
	add(certificateFailures, prometheus.CounterValue, float64(now.CertificateFailures))
	add(accessFileValid, prometheus.GaugeValue, number(now.AccessFileValid))
	add(databaseSize, prometheus.GaugeValue, float64(now.DatabaseBytes))
	for of, free := range now.DiskFree {
		add(diskFree, prometheus.GaugeValue, float64(free), of)
	}
	add(diskReserve, prometheus.GaugeValue, float64(now.ReserveBytes))
	add(mirrorCopies, prometheus.GaugeValue, float64(s.copies()))
}

// number returns 1 for true, and 0 for false.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
