// Package metrics writes the functions' metrics in CloudWatch's Embedded Metric
// Format. These are log lines from which CloudWatch Logs creates metrics
// without an API call.
//
// CloudWatch bills each series by the hours in which it occurs. A series is a
// name with the values of its dimensions. The only series are those of [All].
// No made-up value of a caller becomes a dimension: addresses and versions are
// in the request log, and namespaces are properties. The package does not
// repeat metrics that AWS itself provides, such as a function's duration.
//
// Source:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
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
	// SigningKeyDays is the number of whole days until the last signing key of
	// a namespace expires. It is about a year if its keys need no attention.
	SigningKeyDays = "SigningKeyDays"
	// MirrorBounds counts how often a bound of the mirror had an effect.
	MirrorBounds = "MirrorBounds"

	// StatusClass is 2xx, 4xx or 5xx.
	StatusClass = "StatusClass"
	// Kind is module, provider or mirror.
	Kind = "Kind"
)

var (
	classes = []string{"2xx", "4xx", "5xx"}
	kinds   = []string{"module", "provider", "mirror"}
)

// Series is one metric that CloudWatch stores and bills. Dimension is empty if
// it has none.
type Series struct {
	Name      string
	Dimension Dimension
}

// Dimension distinguishes series with the same name.
type Dimension struct{ Name, Value string }

// All returns all series.
func All() []Series {
	all := []Series{{Name: Refusals}, {Name: StoreLatency}, {Name: ColdStarts}, {Name: SigningKeyDays}, {Name: MirrorBounds}}
	for _, class := range classes {
		all = append(all, Series{Requests, Dimension{StatusClass, class}})
	}
	for _, kind := range kinds {
		all = append(all, Series{Downloads, Dimension{Kind, kind}})
	}
	return all
}

// Request has the measurements of one request.
type Request struct {
	// Route and ID are written beside the metrics, as in the request log. Empty
	// ones are omitted.
	Route, ID string
	Status    int
	// Download is module, provider, mirror or empty.
	Download string
	// Store has the durations of calls to the table or the bucket, of which at
	// most a hundred are counted.
	Store []time.Duration
}

// Writer writes one line for each request, for each namespace's keys, and for each
// bound of the mirror that had an effect.
type Writer struct {
	out       io.Writer
	namespace string
	warm      atomic.Bool
}

// NewWriter returns a writer for metrics of a CloudWatch namespace. It returns
// an error if CloudWatch would ignore metrics of that namespace.
func NewWriter(out io.Writer, namespace string) (*Writer, error) {
	notPrintable := func(r rune) bool { return r < ' ' || r > '~' }
	if len(namespace) > 255 || strings.TrimSpace(namespace) == "" || namespace[0] == ':' ||
		strings.ContainsFunc(namespace, notPrintable) {
		return nil, fmt.Errorf("cannot write metrics of namespace %.80q: CloudWatch takes up to 255 printable ASCII "+
			"characters, not blank and not beginning with a colon", namespace)
	}
	return &Writer{out: out, namespace: namespace}, nil
}

// maxValues is the maximum number of values of one metric in a line.
const maxValues = 100

// Count writes the line of a request. The first one counts as a cold start.
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

// CountKeys writes the line of a registry namespace whose last signing key
// expires at a time. A nil writer writes nothing.
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

// CountBound writes the line of a bound of the mirror that had an effect. Its name is
// a property, because each value of a dimension would cost as much as a metric. A nil
// writer writes nothing.
func (w *Writer) CountBound(name string) {
	if w == nil {
		return
	}
	l := line{MirrorBounds: 1, Bound: name}
	l.add(w.namespace, []string{}, metric{MirrorBounds, "Count"})
	w.write(l, time.Now())
}

func class(status int) string {
	switch {
	case status >= 500:
		return "5xx"
	case status >= 400:
		return "4xx"
	}
	return "2xx"
}

// line is one document of the format. It has the directives, the dimensions and
// the metric values. Other members are properties.
type line struct {
	ColdStarts     int       `json:",omitempty"`
	Downloads      int       `json:",omitempty"`
	Kind           string    `json:",omitempty"`
	MirrorBounds   int       `json:",omitempty"`
	Refusals       int       `json:",omitempty"`
	Requests       int       `json:",omitempty"`
	SigningKeyDays *int      `json:",omitempty"`
	StatusClass    string    `json:",omitempty"`
	StoreLatency   []float64 `json:",omitempty"`
	AWS            struct {
		Timestamp         int64
		CloudWatchMetrics []directive
	} `json:"_aws"`
	Bound        string `json:"bound,omitempty"`
	KeyNamespace string `json:"namespace,omitempty"`
	RequestID    string `json:"request_id,omitempty"`
	Route        string `json:"route,omitempty"`
}

// directive lists the members that are metrics of a namespace, and their
// dimension.
type directive struct {
	Namespace  string
	Dimensions [1][]string
	Metrics    []metric
}

type metric struct{ Name, Unit string }

func (l *line) add(namespace string, dimension []string, metrics ...metric) {
	l.AWS.CloudWatchMetrics = append(l.AWS.CloudWatchMetrics, directive{namespace, [1][]string{dimension}, metrics})
}

// write writes a line with one call, because Lambda forwards each write
// separately.
func (w *Writer) write(l line, at time.Time) {
	l.AWS.Timestamp = at.UnixMilli()
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // a line always encodes
	}
	_, _ = w.out.Write(append(text, '\n'))
}
