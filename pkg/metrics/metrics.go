// Package metrics writes what is counted in CloudWatch's Embedded Metric Format: lines of a log, of which CloudWatch Logs
// makes metrics without a call of any API.
//
// CloudWatch bills each series, which is a name with dimensions' values, by the hours in which it occurs. So it promises that
// there are no more than those of All, and that nothing a caller makes up becomes a value: addresses, versions and names are for
// the request log. What AWS counts by itself, such as a function's duration, is not counted once more.
//
// Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The names of all metrics and dimensions, for whoever sets an alarm on one.
const (
	// Requests counts those that were answered, by StatusClass.
	Requests = "Requests"
	// Downloads counts answers that locate archives, by Kind.
	Downloads = "Downloads"
	// Refusals counts requests that were answered with 401 or 403.
	Refusals = "Refusals"
	// StoreLatency is how many milliseconds each call of the table and the bucket took.
	StoreLatency = "StoreLatency"
	// ColdStarts counts requests for which a function had to start.
	ColdStarts = "ColdStarts"
	// SigningKeyDays is how many whole days are left until the last signing key of a namespace ends whose keys were read. A
	// namespace whose keys need nobody's care counts about a year.
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

// Series is what CloudWatch keeps, and bills, as one metric. Its dimension is empty where it has none.
type Series struct {
	Name      string
	Dimension Dimension
}

// All returns the series that there are.
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

const (
	unitCount        = "Count"
	unitMilliseconds = "Milliseconds"
	unitNone         = "None"
)

// The names of a line's properties, which no metric is told apart by. They are those of the request log.
const (
	route     = "route"
	requestID = "request_id"
)

// Request is what is counted of one.
type Request struct {
	// Route and ID are what a line has to find the request by. They are empty where there is none.
	Route, ID string
	Status    int
	// Download is one of the kinds of archives, or empty.
	Download string
	// Store has how long each call of the table and the bucket took.
	Store []time.Duration
	// KeysEnd is when the last signing key of a namespace ends; the zero time where nobody has looked.
	KeysEnd time.Time
	// Cold says that it was the first of its function.
	Cold bool
}

// Line returns the line that counts a request, with its end.
func (r Request) Line(namespace string, at time.Time) ([]byte, error) {
	directives := []Directive{{
		Dimensions: []Dimension{{StatusClass, class(r.Status)}},
		Metrics:    []Metric{{Requests, unitCount, one}},
	}}
	if slices.Contains(kinds, r.Download) {
		directives = append(directives, Directive{Dimensions: []Dimension{{Kind, r.Download}}, Metrics: []Metric{{Downloads, unitCount, one}}})
	}
	var plain []Metric
	if r.Status == 401 || r.Status == 403 {
		plain = append(plain, Metric{Refusals, unitCount, one})
	}
	if len(r.Store) > 0 {
		took := make([]float64, len(r.Store))
		for i, t := range r.Store {
			took[i] = float64(t.Microseconds()) / 1000
		}
		plain = append(plain, Metric{StoreLatency, unitMilliseconds, took})
	}
	if r.Cold {
		plain = append(plain, Metric{ColdStarts, unitCount, one})
	}
	if !r.KeysEnd.IsZero() {
		days := math.Floor(r.KeysEnd.Sub(at).Hours() / 24)
		plain = append(plain, Metric{SigningKeyDays, unitNone, []float64{max(0, days)}})
	}
	if len(plain) > 0 {
		directives = append(directives, Directive{Metrics: plain})
	}
	return Encode(namespace, at, map[string]string{route: r.Route, requestID: r.ID}, directives...)
}

var one = []float64{1}

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

// Directive says which metrics have which dimensions, of which there may be none.
type Directive struct {
	Dimensions []Dimension
	Metrics    []Metric
}

// Dimension is what a metric is told apart by.
type Dimension struct{ Name, Value string }

// Metric is some numbers, and what they are numbers of.
type Metric struct {
	Name string
	// Unit is one of CloudWatch's, such as Count or Milliseconds.
	Unit   string
	Values []float64
}

// The bounds are CloudWatch's but for the number of metrics, which it would let be 100.
const (
	maxMetrics    = 10
	maxDimensions = 30
	maxValues     = 100
	maxName       = 255
	maxValue      = 1024
)

// Encode returns one document of the format, as a line with its end. Properties are what it says besides metrics; empty ones are
// left out. It fails on what CloudWatch would leave out without a word.
func Encode(namespace string, at time.Time, properties map[string]string, directives ...Directive) ([]byte, error) {
	if err := checkText("namespace", namespace, maxName); err != nil {
		return nil, err
	}
	if len(directives) == 0 {
		return nil, errors.New("metrics: there is nothing to count")
	}
	type definition struct{ Name, Unit string }
	type directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []definition
	}
	var said []directive
	members := make(map[string]any) // of the document, which has the values of all directives
	for name, value := range properties {
		if value != "" {
			members[name] = value
		}
	}
	metrics := 0
	for _, d := range directives {
		if len(d.Dimensions) > maxDimensions || len(d.Metrics) == 0 {
			return nil, fmt.Errorf("metrics: a directive has up to %d dimensions, and metrics; not %d, and %d", maxDimensions, len(d.Dimensions), len(d.Metrics))
		}
		if metrics += len(d.Metrics); metrics > maxMetrics {
			return nil, fmt.Errorf("metrics: there are more than %d", maxMetrics)
		}
		set := directive{Namespace: namespace}
		names := []string{} // an empty set is [], and not null
		for _, dimension := range d.Dimensions {
			if slices.Contains(names, dimension.Name) {
				return nil, fmt.Errorf("metrics: dimension %q is there twice", dimension.Name)
			}
			if err := errors.Join(checkText("dimension", dimension.Name, maxName), checkText(dimension.Name, dimension.Value, maxValue), add(members, dimension.Name, dimension.Value)); err != nil {
				return nil, err
			}
			names = append(names, dimension.Name)
		}
		set.Dimensions = [][]string{names}
		for _, m := range d.Metrics {
			if len(m.Values) == 0 || len(m.Values) > maxValues || slices.ContainsFunc(m.Values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
				return nil, fmt.Errorf("metrics: %s has 1 to %d values, all of them numbers", m.Name, maxValues)
			}
			var value any = m.Values
			if len(m.Values) == 1 {
				value = m.Values[0]
			}
			if err := errors.Join(checkText("metric", m.Name, maxName), checkText("unit", m.Unit, maxName), add(members, m.Name, value)); err != nil {
				return nil, err
			}
			set.Metrics = append(set.Metrics, definition{m.Name, m.Unit})
		}
		said = append(said, set)
	}
	if err := add(members, "_aws", struct {
		Timestamp         int64
		CloudWatchMetrics []directive
	}{at.UnixMilli(), said}); err != nil {
		return nil, err
	}
	line, err := json.Marshal(members)
	return append(line, '\n'), err
}

// add gives a document a member, which directives may share where they mean the same.
func add(members map[string]any, name string, value any) error {
	text, isText := value.(string)
	if there, taken := members[name]; taken && (!isText || there != text) {
		return fmt.Errorf("metrics: %q would mean two things", name)
	}
	members[name] = value
	return nil
}

// checkText says whether CloudWatch takes a name or a value: printable ASCII, not of blanks alone, and not from a colon on.
func checkText(what, s string, most int) error {
	if len(s) > most || strings.TrimSpace(s) == "" || s[0] == ':' || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("metrics: %s %.80q is none that CloudWatch takes", what, s)
	}
	return nil
}
