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
	const route = "/v1/modules/{namespace}/{name}/{system}/{version}/download"
	for _, test := range []struct {
		request metrics.Request
		want    string
	}{
		{metrics.Request{Route: route, Status: 204}, `{"Requests":1,"Route":"` + route + `","StatusClass":"2xx","_aws":{"Timestamp":1795222923004,"CloudWatchMetrics":[` +
			`{"Namespace":"larder","Dimensions":[["Route","StatusClass"]],"Metrics":[{"Name":"Requests","Unit":"Count"}]}]}}`},
		{metrics.Request{Status: 401, Cold: true}, `{"ColdStarts":1,"Requests":1,"Route":"none","StatusClass":"4xx","_aws":{"Timestamp":1795222923004,"CloudWatchMetrics":[` +
			`{"Namespace":"larder","Dimensions":[["Route","StatusClass"]],"Metrics":[{"Name":"Requests","Unit":"Count"}]},` +
			`{"Namespace":"larder","Dimensions":[["Route"]],"Metrics":[{"Name":"ColdStarts","Unit":"Count"}]}]}}`},
	} {
		if line, err := test.request.Line("larder", at); err != nil || string(line) != test.want+"\n" {
			t.Errorf("%v: %v\n%swant\n%s", test.request, err, line, test.want)
		}
	}
}

// What CloudWatch would drop without a word is an error, and so is what would cost much.
func TestRefused(t *testing.T) {
	t.Parallel()
	some := []metrics.Metric{{Name: "Requests", Unit: "Count", Value: 1}}
	by := []metrics.Dimension{{Name: "Route", Value: "/"}}
	var many []metrics.Metric
	var wide []metrics.Dimension
	for i := range 31 {
		many = append(many, metrics.Metric{Name: fmt.Sprint("M", i), Unit: "Count"})
		wide = append(wide, metrics.Dimension{Name: fmt.Sprint("D", i), Value: "x"})
	}
	if _, err := metrics.Encode("larder", at, metrics.Directive{Dimensions: wide[:30], Metrics: many[:10]}); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		namespace  string
		directives []metrics.Directive
	}{
		"nothing":                  {"larder", nil},
		"no namespace":             {"", []metrics.Directive{{by, some}}},
		"a namespace with a colon": {":larder", []metrics.Directive{{by, some}}},
		"no dimension":             {"larder", []metrics.Directive{{nil, some}}},
		"many dimensions":          {"larder", []metrics.Directive{{wide, some}}},
		"no metric":                {"larder", []metrics.Directive{{by, nil}}},
		"many metrics":             {"larder", []metrics.Directive{{by, many[:11]}}},
		"many metrics in all":      {"larder", []metrics.Directive{{by, many[:6]}, {by, many[6:11]}}},
		"a metric twice":           {"larder", []metrics.Directive{{by, some}, {by, some}}},
		"a dimension twice":        {"larder", []metrics.Directive{{append(by, by...), some}}},
		"another value":            {"larder", []metrics.Directive{{by, some}, {[]metrics.Dimension{{Name: "Route", Value: "/x"}}, many[:1]}}},
		"a metric like another":    {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "Route", Unit: "Count"}}}}},
		"the format's own name":    {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "_aws", Unit: "Count"}}}}},
		"a blank value":            {"larder", []metrics.Directive{{[]metrics.Dimension{{Name: "Route", Value: " "}}, some}}},
		"a long value":             {"larder", []metrics.Directive{{[]metrics.Dimension{{Name: "Route", Value: strings.Repeat("x", 1025)}}, some}}},
		"a value of no ASCII":      {"larder", []metrics.Directive{{[]metrics.Dimension{{Name: "Route", Value: "ä"}}, some}}},
		"a line's end":             {"larder", []metrics.Directive{{[]metrics.Dimension{{Name: "Route", Value: "a\nb"}}, some}}},
		"no unit":                  {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "M"}}}}},
		"no number":                {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "M", Unit: "Count", Value: math.NaN()}}}}},
		"no end":                   {"larder", []metrics.Directive{{by, []metrics.Metric{{Name: "M", Unit: "Count", Value: math.Inf(1)}}}}},
	} {
		if line, err := metrics.Encode(test.namespace, at, test.directives...); err == nil {
			t.Errorf("%s: %s", name, line)
		}
	}
}
