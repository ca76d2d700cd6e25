package metrics_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/deployed/metrics"
)

func newWriter(t *testing.T, out io.Writer) *metrics.Writer {
	t.Helper()
	w, err := metrics.NewWriter(out, "larder")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// counted returns the line of a request that is not the writer's first.
func counted(t *testing.T, r metrics.Request) string {
	t.Helper()
	var out bytes.Buffer
	w := newWriter(t, &out)
	w.Count(metrics.Request{})
	out.Reset()
	w.Count(r)
	return out.String()
}

func TestCount(t *testing.T) {
	t.Parallel()
	const (
		route = "/v1/modules/{namespace}/{name}/{system}/{version}/download"
		// The time at which a bubble begins.
		begin = `"_aws":{"Timestamp":946684800000,"CloudWatchMetrics":[` +
			`{"Namespace":"larder","Dimensions":[["StatusClass"]],"Metrics":[{"Name":"Requests","Unit":"Count"}]}`
		plain     = `,{"Namespace":"larder","Dimensions":[[]],"Metrics":[`
		refusals  = `{"Name":"Refusals","Unit":"Count"}`
		latencies = `{"Name":"StoreLatency","Unit":"Milliseconds"}`
	)
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			request metrics.Request
			want    string
		}{
			{
				metrics.Request{Route: route, ID: "id", Status: 204, Download: "module"},
				`{"Downloads":1,"Kind":"module","Requests":1,"StatusClass":"2xx",` + begin +
					`,{"Namespace":"larder","Dimensions":[["Kind"]],"Metrics":[{"Name":"Downloads","Unit":"Count"}]}` +
					`]},"request_id":"id","route":"` + route + `"}`,
			},
			{
				metrics.Request{Status: 401, Download: "another"},
				`{"Refusals":1,"Requests":1,"StatusClass":"4xx",` + begin + plain + refusals + `]}]}}`,
			},
			{
				metrics.Request{Status: 503, Store: []time.Duration{1500 * time.Microsecond, 2 * time.Second}},
				`{"Requests":1,"StatusClass":"5xx","StoreLatency":[1.5,2000],` + begin + plain + latencies + `]}]}}`,
			},
			{
				metrics.Request{Status: 403, Store: []time.Duration{time.Second}},
				`{"Refusals":1,"Requests":1,"StatusClass":"4xx","StoreLatency":[1000],` + begin +
					plain + refusals + "," + latencies + `]}]}}`,
			},
		} {
			if diff := cmp.Diff(test.want+"\n", counted(t, test.request)); diff != "" {
				t.Errorf("%+v: - want, + got:\n%s", test.request, diff)
			}
		}
	})
}

func TestCountKeys(t *testing.T) {
	t.Parallel()
	const line = `{"SigningKeyDays":%d,"_aws":{"Timestamp":946684800000,"CloudWatchMetrics":[{"Namespace":"larder",` +
		`"Dimensions":[[]],"Metrics":[{"Name":"SigningKeyDays","Unit":"None"}]}]},"namespace":"acme"}` + "\n"
	synctest.Test(t, func(t *testing.T) {
		for left, days := range map[time.Duration]int{
			50 * time.Hour: 2, 48 * time.Hour: 2, 47 * time.Hour: 1, time.Hour: 0, 0: 0, -50 * time.Hour: 0,
		} {
			var out bytes.Buffer
			newWriter(t, &out).CountKeys("acme", time.Now().Add(left))
			if diff := cmp.Diff(fmt.Sprintf(line, days), out.String()); diff != "" {
				t.Errorf("%v: - want, + got:\n%s", left, diff)
			}
		}
	})
	// Nothing is counted without a writer.
	(*metrics.Writer)(nil).CountKeys("acme", time.Now())
}

// A bound is a property and not a dimension.
func TestCountBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		newWriter(t, &out).CountBound("lookups")
		const want = `{"MirrorBounds":1,"_aws":{"Timestamp":946684800000,"CloudWatchMetrics":[{"Namespace":"larder",` +
			`"Dimensions":[[]],"Metrics":[{"Name":"MirrorBounds","Unit":"Count"}]}]},"bound":"lookups"}` + "\n"
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("- want, + got:\n%s", diff)
		}
	})
	(*metrics.Writer)(nil).CountBound("lookups")
}

// Only the first request of a writer is a cold start.
func TestColdStart(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := newWriter(t, &out)
	for range 3 {
		w.Count(metrics.Request{Status: 200})
	}
	var cold []bool
	for line := range strings.Lines(out.String()) {
		cold = append(cold, strings.HasPrefix(line, `{"ColdStarts":1,`) &&
			strings.Contains(line, `"Dimensions":[[]],"Metrics":[{"Name":"ColdStarts","Unit":"Count"}]`))
	}
	if diff := cmp.Diff([]bool{true, false, false}, cold); diff != "" {
		t.Errorf("cold starts, - want, + got:\n%s\n%s", diff, &out)
	}
}

// CloudWatch would ignore a line with more values.
func TestManyValues(t *testing.T) {
	t.Parallel()
	line := counted(t, metrics.Request{Status: 200, Store: make([]time.Duration, 101)})
	if want := `"StoreLatency":[0` + strings.Repeat(",0", 99) + "],"; !strings.Contains(line, want) {
		t.Errorf("a line has not a hundred values: %s", line)
	}
}

// An account's first ten metrics are free. One more occurs only in hours in which a
// bound of the mirror has an effect.
func TestAll(t *testing.T) {
	t.Parallel()
	series := make(map[metrics.Series]bool)
	for _, s := range metrics.All() {
		series[s] = true
	}
	if len(series) != len(metrics.All()) {
		t.Errorf("%d of %d series differ", len(series), len(metrics.All()))
	}
	if delete(series, metrics.Series{Name: metrics.MirrorBounds}); len(series) > 10 {
		t.Errorf("there are %d series", len(series))
	}
}

// A namespace that CloudWatch would ignore is an error.
func TestNamespace(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"larder", "Larder/acme", strings.Repeat("x", 255)} {
		if _, err := metrics.NewWriter(io.Discard, good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", " ", ":larder", "ä", "a\nb", "\x7f", strings.Repeat("x", 256)} {
		if _, err := metrics.NewWriter(io.Discard, bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
