package functions_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/pkg/usage/logged"
)

// deliver invokes the function that counts for the lines of the other
// functions' logs that its filter selects. It returns how many lines these are.
func (d deployed) deliver(t *testing.T, counter *lambda.Function) (selected int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(d.functions)) {
		lines := strings.Split(d.functions[name].Log(), "\n")
		event, err := cloudwatch.Subscribed(logged.Pattern(), "larder-"+name, time.Now(), lines)
		if err != nil {
			t.Fatal(err)
		}
		if event == nil {
			continue
		}
		selected += len(unpack(t, event))
		if _, err := counter.Invoke(t.Context(), event); err != nil {
			t.Errorf("the log of %s: %v", name, err)
		}
	}
	return selected
}

// logEvent is a line in an event of CloudWatch.
type logEvent struct {
	ID        string `json:"id"`
	Timestamp int64  `json:"timestamp"`
	Message   string `json:"message"`
}

func unpack(t *testing.T, event []byte) []logEvent {
	t.Helper()
	var sent logged.Event
	if err := json.Unmarshal(event, &sent); err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(sent.Logs.Data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var batch struct{ LogEvents []logEvent }
	if err := json.Unmarshal(text, &batch); err != nil {
		t.Fatal(err)
	}
	return batch.LogEvents
}

// counts returns the counted downloads.
func (d deployed) counts(t *testing.T, q usage.Query) (rows []string) {
	t.Helper()
	q.From, q.To = time.Now().Add(-30*24*time.Hour), time.Now()
	report, err := logged.NewReader(d.catalog).Count(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Downloads {
		rows = append(rows, strings.TrimRight(fmt.Sprintf("%s %s %d %s", c.Address, c.Version, c.Count, c.Caller), " "))
	}
	return rows
}

// The logs of the functions invoke the one that counts. The metadata API then
// has the downloads, and the token its last use. Listings do not count.
func TestUsage(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	counter := start(t, "usage", d.env)
	d.publish(t, "acme/vpc/aws", "1.0.0", `output "it" { value = 1 }`)
	d.publish(t, "acme/vpc/aws", "1.1.0", `output "it" { value = 2 }`)
	for _, path := range []string{
		"versions", "1.0.0/download", "versions", "1.0/download", "1.1.0/download", "9.9.9/download", "versions",
	} {
		d.get(t, "/v1/modules/acme/vpc/aws/"+path)
	}
	d.get(t, "/v1/modules")
	// Three downloads, of which the first request was a listing, and the first
	// use of the token in two processes.
	if got := d.deliver(t, counter); got != 5 {
		t.Errorf("%d lines are selected, want 5", got)
	}
	d.deliver(t, counter) // again, as CloudWatch may do
	vpc := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	want := []string{"acme/vpc/aws 1.0.0 2 token tests", "acme/vpc/aws 1.1.0 1 token tests"}
	if diff := cmp.Diff(want, d.counts(t, usage.Query{Address: vpc})); diff != "" {
		t.Errorf("downloads (-want +got):\n%s", diff)
	}
	response, body := d.get(t, "/v1/modules/acme/vpc/aws")
	if response.StatusCode != http.StatusOK || !strings.Contains(body, `"downloads":3,`) {
		t.Errorf("%s, which lacks 3 downloads: %s", response.Status, body)
	}
	uses, err := d.catalog.TokenUses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(uses) != 1 {
		t.Errorf("the uses of tokens are %v, want those of one", uses)
	}
	for _, at := range uses {
		if time.Since(at) > time.Hour {
			t.Errorf("the token was last used at %v", at)
		}
	}
	if log := counter.Log(); strings.Contains(log, `"level"`) {
		t.Errorf("the function that counts logged\n%s", log)
	}
}

// Events in the form of the AWS documentation, and those that no service sends,
// do not make the function fail.
func TestUsageEvents(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	counter := start(t, "usage", d.env)
	recorded, err := os.ReadFile("testdata/subscription.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, event := range map[string]string{
		"recorded": string(recorded), "empty": `{"awslogs":{"data":""}}`, "no object": `{}`,
		"no gzip": `{"awslogs":{"data":"eHh4eA=="}}`,
	} {
		response, err := counter.Invoke(t.Context(), json.RawMessage(event))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if string(response) != "{}" {
			t.Errorf("%s: the response is %s", name, response)
		}
	}
	if rows := d.counts(t, usage.Query{}); len(rows) > 0 {
		t.Errorf("counted %q", rows)
	}
	if log := counter.Log(); strings.Contains(log, `"ERROR"`) {
		t.Errorf("logged\n%s", log)
	}
}
