// Package metrics writes what is counted in CloudWatch's Embedded Metric Format: lines of a log, of which CloudWatch Logs
// makes metrics without a call of any API.
//
// CloudWatch bills each combination of a name and of dimensions' values that occurs in an hour. So it promises that there are
// no more than ten names, and that nothing a caller makes up becomes a value: addresses, versions and names are for the request
// log. What AWS counts by itself, such as a function's duration, is not counted once more.
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
	// Requests counts those that were answered, by Route and StatusClass.
	Requests = "Requests"
	// ColdStarts counts those for which a function had to start, by Route.
	ColdStarts = "ColdStarts"

	// Route is the path of a route with its wildcards, or NoRoute.
	Route = "Route"
	// StatusClass is 2xx, 3xx, 4xx or 5xx.
	StatusClass = "StatusClass"
)

// NoRoute is the Route of what came to none, such as a request without a credential that holds.
const NoRoute = "none"

const unitCount = "Count"

// Request is what is counted of one.
type Request struct {
	// Route is empty where the request came to none.
	Route  string
	Status int
	// Cold says that it was the first of its function.
	Cold bool
}

// Line returns the line that counts a request, with its end.
func (r Request) Line(namespace string, at time.Time) ([]byte, error) {
	route := Dimension{Route, r.Route}
	if r.Route == "" {
		route.Value = NoRoute
	}
	directives := []Directive{{
		Dimensions: []Dimension{route, {StatusClass, fmt.Sprintf("%dxx", r.Status/100)}},
		Metrics:    []Metric{{Requests, unitCount, 1}},
	}}
	if r.Cold {
		directives = append(directives, Directive{Dimensions: []Dimension{route}, Metrics: []Metric{{ColdStarts, unitCount, 1}}})
	}
	return Encode(namespace, at, directives...)
}

// Directive says which metrics have which dimensions.
type Directive struct {
	Dimensions []Dimension
	Metrics    []Metric
}

// Dimension is what a metric is told apart by.
type Dimension struct{ Name, Value string }

// Metric is a number, and what it is a number of.
type Metric struct {
	Name string
	// Unit is one of CloudWatch's, such as Count or Milliseconds.
	Unit  string
	Value float64
}

// The bounds are CloudWatch's but for the number of metrics, which it would let be 100.
const (
	maxMetrics    = 10
	maxDimensions = 30
	maxName       = 255
	maxValue      = 1024
)

// Encode returns one document of the format, as a line with its end. It fails on what CloudWatch would leave out without a word.
func Encode(namespace string, at time.Time, directives ...Directive) ([]byte, error) {
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
	metrics := 0
	for _, d := range directives {
		if len(d.Dimensions) == 0 || len(d.Dimensions) > maxDimensions || len(d.Metrics) == 0 {
			return nil, fmt.Errorf("metrics: a directive has 1 to %d dimensions, and metrics; not %d, and %d", maxDimensions, len(d.Dimensions), len(d.Metrics))
		}
		if metrics += len(d.Metrics); metrics > maxMetrics {
			return nil, fmt.Errorf("metrics: there are more than %d", maxMetrics)
		}
		set := directive{Namespace: namespace}
		var names []string
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
			if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) {
				return nil, fmt.Errorf("metrics: %s is no number", m.Name)
			}
			if err := errors.Join(checkText("metric", m.Name, maxName), checkText("unit", m.Unit, maxName), add(members, m.Name, m.Value)); err != nil {
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
