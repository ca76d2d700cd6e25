package functions_test

import (
	stdcmp "cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/deployed/metrics"
	"github.com/larder-registry/larder/pkg/registry"
)

// namespace is the CloudWatch namespace of the tests.
const namespace = "Larder/tests"

// linesOf sends a request to a function, and returns the lines that it printed for
// it.
func linesOf(t *testing.T, f *lambda.Function, method, path, token string, status, lines int) string {
	t.Helper()
	e := recorded(t)["path /"]
	e.RawPath, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.Method = path, path, method
	e.RequestContext.RequestID = "request " + path
	if token != "" {
		e.Headers["authorization"] = "Bearer " + token
	}
	before := len(f.Log())
	payload, err := f.Invoke(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	var response events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(payload, &response); err != nil || response.StatusCode != status {
		t.Errorf("%s: %s, %v; want %d", path, payload, err, status)
	}
	printed := f.Log()[before:]
	if strings.Count(printed, "\n") != lines {
		t.Fatalf("%s: %q, want %d lines", path, printed, lines)
	}
	return printed
}

// metered are requests with the metrics that they write, except StoreLatency and
// ColdStarts, and the calls to the store. The table of the function lost does
// not respond.
var metered = []struct {
	function, path, caller string // a caller is narrow, nobody, or reads and publishes everything
	status                 int
	want                   string
	calls                  int
}{
	{"discovery", "/.well-known/terraform.json", "nobody", 200, "Requests 2xx 1", 0},
	{"discovery", "/nowhere", "nobody", 404, "Requests 4xx 1", 0},
	{"modules", versions, "", 200, "Requests 2xx 1", 2},
	{"modules", archive, "", 204, "Downloads module 1, Requests 2xx 1", 1},
	{"modules", archive, "nobody", 401, "Refusals 1, Requests 4xx 1", 0},
	{"modules", archive, "narrow", 403, "Refusals 1, Requests 4xx 1", 1},
	{"modules", "/v1/modules/acme/vpc/aws/2.0.0/download", "", 404, "Requests 4xx 1", 1},
	{"lost", archive, "", 503, "Requests 5xx 1", 3},
	{"providers", download, "", 200, "Downloads provider 1, Requests 2xx 1, SigningKeyDays 10", 3},
	{"providers", download, "", 200, "Downloads provider 1, Requests 2xx 1", 1},
	{"mirror", index, "", 200, "Requests 2xx 1", 2},
	{"mirror", mirrored, "", 200, "Downloads mirror 1, Requests 2xx 1", 1},
	{"mirror", "/v1/mirror/example.com/acme/note/3.0.0.json", "", 200, "Requests 2xx 1", 1},
	{"metadata", "/v1/modules", "", 200, "Requests 2xx 1", 4},
	{"metadata", "/v1/modules/acme/vpc/aws", "", 200, "Requests 2xx 1", 4},
	{"metadata", "/v1/modules/acme/-/aws", "", 400, "Requests 4xx 1", 0},
	{"metadata", "/v1/modules", "nobody", 401, "Refusals 1, Requests 4xx 1", 0},
	{"web", "/", "", 200, "Requests 2xx 1", 7},
	{"web", "/", "nobody", 303, "Requests 2xx 1", 0},
	{"publish", "/v1/publish/modules/acme/vpc/aws/1.0.1/uploads", "", 400, "Requests 4xx 1", 1},
}

// The functions write exactly the metrics of metrics.All, and log the fields
// that queries use. The tests of the stack check the alarms and the dashboard
// against the same list. They also write the file with the queries.
func TestMetrics(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	published{catalog: d.catalog}.all(t)
	d.publish(t, "acme/vpc/aws", "1.1.0", `output "it" { value = 1 }`)
	_, err := d.catalog.AddSigningKey(t.Context(), "acme", registry.SigningKey{
		ID: "0123456789ABCDEF", ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----",
		ExpiresAt: time.Now().Add(10 * 24 * time.Hour).Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{"": d.token, "narrow": addToken(t, d.catalog, "read:mirror/**")}
	env := maps.Clone(d.env)
	env["AWS_ENDPOINT_URL_DYNAMODB"] = "http://127.0.0.1:1" // no other test uses this port
	d.functions["lost"] = start(t, "modules", env)

	all := make(map[metrics.Series][]float64)
	// The fields in the log lines of requests, and in those of signing keys.
	fields, keyFields := make(map[string]bool), make(map[string]bool)
	for _, r := range metered {
		lines, method := 2, "GET"
		if strings.Contains(r.want, metrics.SigningKeyDays) {
			lines = 3
		}
		if r.function == "publish" {
			method = "POST"
		}
		printed := linesOf(t, d.functions[r.function], method, r.path, tokens[r.caller], r.status, lines)
		counted, err := cloudwatch.ReadMetrics(namespace, printed)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for series, values := range counted {
			all[series] = append(all[series], values...)
			if series.Name != metrics.StoreLatency && series.Name != metrics.ColdStarts {
				text := fmt.Sprint(series.Name, " ", series.Dimension.Value, " ", strings.Trim(fmt.Sprint(values), "[]"))
				got = append(got, strings.Join(strings.Fields(text), " "))
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(r.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s %s: the metrics differ: %s", r.function, r.path, diff)
		}
		took := counted[metrics.Series{Name: metrics.StoreLatency}]
		if len(took) != r.calls {
			t.Errorf("%s %s: %d calls to the store, want %d", r.function, r.path, len(took), r.calls)
		}
		if slices.ContainsFunc(took, func(ms float64) bool { return ms <= 0 || ms > 10_000 }) {
			t.Errorf("%s %s: latencies %v ms, want more than 0 and at most 10000", r.function, r.path, took)
		}
		collectFields(t, r.path, tokens[r.caller], printed, fields, keyFields)
	}
	for _, series := range metrics.All() {
		if series.Name == metrics.MirrorBounds {
			all[series] = nil // the function pull writes it, in TestReadsBesideWork
		} else if len(all[series]) == 0 {
			t.Errorf("no function writes %v", series)
		}
	}
	if len(all) != len(metrics.All()) {
		t.Errorf("the functions write other series: %v", slices.Collect(maps.Keys(all)))
	}
	if cold := all[metrics.Series{Name: metrics.ColdStarts}]; len(cold) != len(d.functions) {
		t.Errorf("%d of %d functions started", len(cold), len(d.functions))
	}
	checkQueries(t, fields, keyFields)
}

// collectFields adds the names of the fields in the lines of a request. It checks
// that each line names the request, or the namespace of a key, and that none has
// a secret.
func collectFields(t *testing.T, path, token, printed string, fields, keyFields map[string]bool) {
	t.Helper()
	for line := range strings.Lines(printed) {
		var members map[string]any
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Error(err)
		}
		if strings.Contains(line, stdcmp.Or(token, "X-Amz-Signature")) {
			t.Errorf("%s: the log has a secret: %s", path, line)
		}
		if members[metrics.SigningKeyDays] != nil {
			if members["namespace"] != "acme" {
				t.Errorf("%s: no namespace: %s", path, line)
			}
			maps.Copy(keyFields, keysOf(members))
			continue
		}
		if members["request_id"] != "request "+path {
			t.Errorf("%s: no request id: %s", path, line)
		}
		if members["message"] == "request" {
			maps.Copy(fields, keysOf(members))
		}
	}
}

// checkQueries checks that the stack's queries use only fields that functions log.
func checkQueries(t *testing.T, fields, keyFields map[string]bool) {
	t.Helper()
	queries, err := os.ReadFile("../infra/testdata/queries.golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	var ofRequests, ofKeys []string
	for query := range strings.SplitSeq(string(queries), "\n\n") {
		switch {
		case strings.HasPrefix(query, `filter message = "request"`):
			ofRequests = append(ofRequests, query)
		case strings.HasPrefix(query, pullQuery), strings.HasPrefix(query, boundQuery): // other tests have them
		default:
			ofKeys = append(ofKeys, query)
		}
	}
	for _, kind := range []struct {
		queries []string
		fields  map[string]bool
		least   int
	}{{ofRequests, fields, 5}, {ofKeys, keyFields, 2}} {
		names := fieldsOf(strings.Join(kind.queries, "\n\n"))
		for _, name := range names {
			if !kind.fields[name] {
				logged := slices.Sorted(maps.Keys(kind.fields))
				t.Errorf("a query uses the field %q, but functions log only %q", name, logged)
			}
		}
		if len(names) < kind.least {
			t.Errorf("queries use only the fields %q, want at least %d", names, kind.least)
		}
	}
}

// pullQuery begins the queries of the log of the function that fetches
// providers.
const pullQuery = `filter message = "copied a version"`

// boundQuery begins the queries of the bounds of that function.
const boundQuery = `filter message = "reached a bound of the mirror"`

func keysOf(members map[string]any) map[string]bool {
	keys := make(map[string]bool)
	for name := range members {
		keys[name] = true
	}
	return keys
}

// The parts of a CloudWatch Logs Insights query.
var (
	quoted   = regexp.MustCompile(`"[^"]*"|/[^/]*/i?`)
	renamed  = regexp.MustCompile(`as (\w+)`)
	word     = regexp.MustCompile(`@?[A-Za-z_]\w*`)
	keywords = strings.Fields(
		"filter fields stats sort limit by as desc asc like and or not in count pct min max sum latest ispresent bin")
)

// fieldsOf returns the names of the fields in queries.
func fieldsOf(queries string) (names []string) {
	for query := range strings.SplitSeq(queries, "\n\n") {
		query = quoted.ReplaceAllString(query, " ")
		var own []string
		for _, found := range renamed.FindAllStringSubmatch(query, -1) {
			own = append(own, found[1])
		}
		for _, name := range word.FindAllString(query, -1) {
			if !slices.Contains(keywords, name) && !slices.Contains(own, name) && !slices.Contains(names, name) &&
				name[0] != '@' {
				names = append(names, name)
			}
		}
	}
	return names
}
