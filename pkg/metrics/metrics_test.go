package metrics_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/metrics"
)

var at = time.Date(2026, 11, 21, 1, 2, 3, 4_000_000, time.UTC)

func TestRequest(t *testing.T) {
	t.Parallel()
	const (
		route = "/v1/modules/{namespace}/{name}/{system}/{version}/download"
		begin = `"_aws":{"Timestamp":1795222923004,"CloudWatchMetrics":[{"Namespace":"larder","Dimensions":[["StatusClass"]],"Metrics":[{"Name":"Requests","Unit":"Count"}]}`
	)
	for _, test := range []struct {
		request metrics.Request
		want    string
	}{
		{metrics.Request{Route: route, ID: "id", Status: 204, Download: "module"}, `{"Downloads":1,"Kind":"module","Requests":1,"StatusClass":"2xx",` + begin +
			`,{"Namespace":"larder","Dimensions":[["Kind"]],"Metrics":[{"Name":"Downloads","Unit":"Count"}]}]},"request_id":"id","route":"` + route + `"}`},
		{metrics.Request{Status: 401, Cold: true, Download: "another"}, `{"ColdStarts":1,"Refusals":1,"Requests":1,"StatusClass":"4xx",` + begin +
			`,{"Namespace":"larder","Dimensions":[[]],"Metrics":[{"Name":"Refusals","Unit":"Count"},{"Name":"ColdStarts","Unit":"Count"}]}]}}`},
		{metrics.Request{Status: 503, Store: []time.Duration{1500 * time.Microsecond, 2 * time.Second}, KeysEnd: at.Add(50 * time.Hour)}, `{"Requests":1,"SigningKeyDays":2,"StatusClass":"5xx","StoreLatency":[1.5,2000],` + begin +
			`,{"Namespace":"larder","Dimensions":[[]],"Metrics":[{"Name":"StoreLatency","Unit":"Milliseconds"},{"Name":"SigningKeyDays","Unit":"None"}]}]}}`},
		{metrics.Request{Status: 403, Store: []time.Duration{time.Second}, KeysEnd: at.Add(-50 * time.Hour)}, `{"Refusals":1,"Requests":1,"SigningKeyDays":0,"StatusClass":"4xx","StoreLatency":1000,` + begin +
			`,{"Namespace":"larder","Dimensions":[[]],"Metrics":[{"Name":"Refusals","Unit":"Count"},{"Name":"StoreLatency","Unit":"Milliseconds"},{"Name":"SigningKeyDays","Unit":"None"}]}]}}`},
	} {
		if line, err := test.request.Line("larder", at); err != nil || string(line) != test.want+"\n" {
			t.Errorf("%v: %v\n%swant\n%s", test.request, err, line, test.want)
		}
	}
}

// An account's first ten metrics are free.
func TestAll(t *testing.T) {
	t.Parallel()
	names := make(map[metrics.Series]bool)
	for _, s := range metrics.All() {
		names[s] = true
	}
	if len(names) != len(metrics.All()) || len(names) > 10 {
		t.Errorf("%d metrics, and %d of them differ", len(metrics.All()), len(names))
	}
}

// What CloudWatch would drop without a word is an error, and so is what would cost much.
func TestRefused(t *testing.T) {
	t.Parallel()
	one := []float64{1}
	some := []metrics.Metric{{Name: "Requests", Unit: "Count", Values: one}}
	by := []metrics.Dimension{{Name: "Route", Value: "/"}}
	var many []metrics.Metric
	var wide []metrics.Dimension
	for i := range 31 {
		many = append(many, metrics.Metric{Name: fmt.Sprint("M", i), Unit: "Count", Values: one})
		wide = append(wide, metrics.Dimension{Name: fmt.Sprint("D", i), Value: "x"})
	}
	if _, err := metrics.Encode("larder", at, nil, metrics.Directive{Dimensions: wide[:30], Metrics: many[:10]}); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		namespace  string
		directives []metrics.Directive
	}{
		"nothing":                  {"larder", nil},
		"no namespace":             {"", []metrics.Directive{{by, some}}},
		"a namespace with a colon": {":larder", []metrics.Directive{{by, some}}},
		"many dimensions":          {"larder", []metrics.Directive{{wide, some}}},
		"no metric":                {"larder", []metrics.Directive{{by, nil}}},
		"many metrics":             {"larder", []metrics.Directive{{by, many[:11]}}},
		"many metrics in all":      {"larder", []metrics.Directive{{by, many[:6]}, {by, many[6:11]}}},
		"a metric twice":           {"larder", []metrics.Directive{{by, some}, {by, some}}},
		"a dimension twice":        {"larder", []metrics.Directive{{append(by, by...), some}}},
		"another value":            {"larder", []metrics.Directive{{by, some}, {[]metrics.Dimension{{Name: "Route", Value: "/x"}}, many[:1]}}},
		"a metric like another":    {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "Route", Unit: "Count", Values: one}}}}},
		"the format's own name":    {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "_aws", Unit: "Count", Values: one}}}}},
		"a property's name":        {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "property", Unit: "Count", Values: one}}}}},
		"a blank value":            {"larder", []metrics.Directive{{[]metrics.Dimension{{Name: "Route", Value: " "}}, some}}},
		"a long value":             {"larder", []metrics.Directive{{[]metrics.Dimension{{Name: "Route", Value: strings.Repeat("x", 1025)}}, some}}},
		"a value of no ASCII":      {"larder", []metrics.Directive{{[]metrics.Dimension{{Name: "Route", Value: "ä"}}, some}}},
		"a line's end":             {"larder", []metrics.Directive{{[]metrics.Dimension{{Name: "Route", Value: "a\nb"}}, some}}},
		"no unit":                  {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "M", Values: one}}}}},
		"no number":                {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "M", Unit: "Count", Values: []float64{1, math.NaN()}}}}}},
		"no end":                   {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "M", Unit: "Count", Values: []float64{math.Inf(1)}}}}}},
		"no value":                 {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "M", Unit: "Count"}}}}},
		"many values":              {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "M", Unit: "Count", Values: make([]float64, 101)}}}}},
	} {
		if line, err := metrics.Encode(test.namespace, at, map[string]string{"property": "x"}, test.directives...); err == nil {
			t.Errorf("%s: %s", name, line)
		}
	}
}
