// Package metrics writes the functions' metrics in CloudWatch's Embedded Metric
// Format: lines of a log, from which CloudWatch Logs makes metrics without an API
// call.
//
// CloudWatch bills each series, which is a name with the values of its
// dimensions, by the hours in which it occurs. There are no other series than
// those of [All]. Nothing that a caller makes up becomes a dimension: addresses
// and versions are in the request log, and namespaces are properties. Metrics that AWS has itself, such as a
// function's duration, are not repeated.
//
// Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// The names of all metrics and dimensions.
const (
	// Requests counts requests by StatusClass.
	Requests = "Requests"
	// Downloads counts responses that locate archives, by Kind.
	Downloads = "Downloads"
	// Refusals counts responses with 401 or 403.
	Refusals = "Refusals"
	// StoreLatency is the duration of each call to the table or the bucket, in
	// milliseconds.
	StoreLatency = "StoreLatency"
	// ColdStarts counts requests for which a function had to start.
	ColdStarts = "ColdStarts"
	// SigningKeyDays is how many whole days are left until the last signing key of
	// a namespace expires. It is about a year if its keys need no attention.
	SigningKeyDays = "SigningKeyDays"

	// StatusClass is 2xx, 4xx or 5xx.
	StatusClass = "StatusClass"
	// Kind is module, provider or mirror.
	Kind = "Kind"
)

var (
	classes = []string{"2xx", "4xx", "5xx"}
	kinds   = []string{"module", "provider", "mirror"}
)

// Series is what CloudWatch stores, and bills, as one metric. Dimension is empty
// if it has none.
type Series struct {
	Name      string
	Dimension Dimension
}

// Dimension tells series of one name apart.
type Dimension struct{ Name, Value string }

// All returns all series.
func All() []Series {
	all := []Series{{Name: Refusals}, {Name: StoreLatency}, {Name: ColdStarts}, {Name: SigningKeyDays}}
	for _, class := range classes {
		all = append(all, Series{Requests, Dimension{StatusClass, class}})
	}
	for _, kind := range kinds {
		all = append(all, Series{Downloads, Dimension{Kind, kind}})
	}
	return all
}

// Request is what is counted of one request.
type Request struct {
	// Route and ID are written beside the metrics, as in the request log. Empty
	// ones are left out.
	Route, ID string
	Status    int
	// Download is module, provider, mirror or empty.
	Download string
	// Store has the duration of each call to the table or the bucket, of which a
	// hundred are counted.
	Store []time.Duration
}

// Writer writes one line for each request, and for each namespace's keys.
type Writer struct {
	out       io.Writer
	namespace string
	warm      atomic.Bool
}

// NewWriter returns a writer for metrics of a CloudWatch namespace. It fails if
// CloudWatch would ignore metrics of that name.
func NewWriter(out io.Writer, namespace string) (*Writer, error) {
	notPrintable := func(r rune) bool { return r < ' ' || r > '~' }
	if len(namespace) > 255 || strings.TrimSpace(namespace) == "" || namespace[0] == ':' ||
		strings.ContainsFunc(namespace, notPrintable) {
		return nil, fmt.Errorf("cannot write metrics of namespace %.80q: CloudWatch takes up to 255 printable ASCII "+
			"characters, not blank and not beginning with a colon", namespace)
	}
	return &Writer{out: out, namespace: namespace}, nil
}

// maxValues is the most that CloudWatch takes of one metric in a line.
const maxValues = 100

// Count writes the line of a request. The writer's first one is a cold start.
func (w *Writer) Count(r Request) {
	l := line{Route: r.Route, RequestID: r.ID, StatusClass: class(r.Status), Requests: 1}
	l.add(w.namespace, []string{StatusClass}, metric{Requests, "Count"})
	if slices.Contains(kinds, r.Download) {
		l.Kind, l.Downloads = r.Download, 1
		l.add(w.namespace, []string{Kind}, metric{Downloads, "Count"})
	}
	var plain []metric // without a dimension
	if r.Status == 401 || r.Status == 403 {
		l.Refusals = 1
		plain = append(plain, metric{Refusals, "Count"})
	}
	for _, took := range r.Store[:min(len(r.Store), maxValues)] {
		l.StoreLatency = append(l.StoreLatency, float64(took.Microseconds())/1000)
	}
	if len(l.StoreLatency) > 0 {
		plain = append(plain, metric{StoreLatency, "Milliseconds"})
	}
	if !w.warm.Swap(true) {
		l.ColdStarts = 1
		plain = append(plain, metric{ColdStarts, "Count"})
	}
	if len(plain) > 0 {
		l.add(w.namespace, []string{}, plain...)
	}
	w.write(l, time.Now())
}

// CountKeys writes the line of a registry's namespace whose last signing key
// expires then. A nil writer writes nothing.
func (w *Writer) CountKeys(namespace string, expires time.Time) {
	if w == nil {
		return
	}
	now := time.Now()
	days := max(0, int(expires.Sub(now).Hours()/24))
	l := line{SigningKeyDays: &days, KeyNamespace: namespace}
	l.add(w.namespace, []string{}, metric{SigningKeyDays, "None"})
	w.write(l, now)
}

// class is one of classes, whatever the status.
func class(status int) string {
	switch {
	case status >= 500:
		return "5xx"
	case status >= 400:
		return "4xx"
	}
	return "2xx"
}

// line is one document of the format: which members are metrics and dimensions,
// and their values. Other members are properties.
type line struct {
	ColdStarts     int       `json:",omitempty"`
	Downloads      int       `json:",omitempty"`
	Kind           string    `json:",omitempty"`
	Refusals       int       `json:",omitempty"`
	Requests       int       `json:",omitempty"`
	SigningKeyDays *int      `json:",omitempty"`
	StatusClass    string    `json:",omitempty"`
	StoreLatency   []float64 `json:",omitempty"`
	AWS            struct {
		Timestamp         int64
		CloudWatchMetrics []directive
	} `json:"_aws"`
	KeyNamespace string `json:"namespace,omitempty"`
	RequestID    string `json:"request_id,omitempty"`
	Route        string `json:"route,omitempty"`
}

// directive says which members are metrics of a namespace, with which dimension.
type directive struct {
	Namespace  string
	Dimensions [1][]string
	Metrics    []metric
}

type metric struct{ Name, Unit string }

func (l *line) add(namespace string, dimension []string, metrics ...metric) {
	l.AWS.CloudWatchMetrics = append(l.AWS.CloudWatchMetrics, directive{namespace, [1][]string{dimension}, metrics})
}

// write writes a line at once, because Lambda passes on what each write has.
func (w *Writer) write(l line, at time.Time) {
	l.AWS.Timestamp = at.UnixMilli()
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // a line always encodes
	}
	_, _ = w.out.Write(append(text, '\n'))
}
