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
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/metrics"
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

// The functions write exactly the metrics of metrics.All, and log the fields
// that queries use. The tests of the stack check the alarms and the dashboard
// against the same list. They also write the file with the queries.
func TestMetrics(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.publish(t, "acme/vpc/aws", "1.0.0", `output "it" { value = 1 }`)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const keyID = "0123456789ABCDEF"
	version, err := registry.ParseVersion("1.0.0")
	check(err)
	_, err = d.catalog.AddSigningKey(t.Context(), "acme", registry.SigningKey{
		ID:         keyID,
		ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----",
		ExpiresAt:  time.Now().Add(10 * 24 * time.Hour).Add(time.Hour),
	})
	check(err)
	published, sum := registry.Provider{Namespace: "acme", Type: "x"}, strings.Repeat("0", 64)
	pkg := registry.ProviderPackage{
		Platform:   registry.Platform{OS: "linux", Arch: "amd64"},
		Filename:   "x.zip",
		H1:         "h1:x",
		StoredFile: registry.StoredFile{Object: published.FileKey(version, sum, "x.zip"), SHA256: sum, Size: 1},
	}
	file := registry.StoredFile{Object: published.FileKey(version, sum, "x"), SHA256: sum}
	_, _, err = put(t.Context(), d.catalog.Providers, published, registry.ProviderVersion{
		Version:    version,
		Protocols:  []string{"6.0"},
		SigningKey: keyID,
		Sums:       file,
		Signature:  file,
		Packages:   []registry.ProviderPackage{pkg},
	})
	check(err)
	mirrored, err := registry.ParseMirrorProvider("registry.example.org/acme/x")
	check(err)
	pkg.Object = mirrored.FileKey(version, sum, "x.zip")
	_, _, err = d.catalog.Mirror.Add(t.Context(), mirrored,
		registry.MirrorVersion{Version: version, Packages: []registry.MirrorPackage{{ProviderPackage: pkg}}},
		"somebody")
	check(err)
	narrow, digest := access.NewToken()
	check(d.catalog.AddToken(t.Context(), digest, registry.Token{Name: "narrow", Scopes: []string{"read:mirror/**"}}))

	// The table of this function does not respond. No other test uses its port.
	env := maps.Clone(d.env)
	env["AWS_ENDPOINT_URL_DYNAMODB"] = "http://127.0.0.1:1"
	d.functions["lost"] = start(t, "modules", env)

	const download = "/v1/modules/acme/vpc/aws/1.0.0/download"
	all := make(map[metrics.Series][]float64)
	// The fields in the log lines of requests, and in those of signing keys.
	fields, keyFields := make(map[string]bool), make(map[string]bool)
	for _, r := range []struct {
		function, method, path, token string
		status                        int
		want                          string // metrics except StoreLatency and ColdStarts, with values
		calls                         int    // to the store
	}{
		{"discovery", "GET", "/.well-known/terraform.json", "", 200, "Requests 2xx 1", 0},
		{"discovery", "GET", "/nowhere", "", 404, "Requests 4xx 1", 0},
		{"modules", "GET", "/v1/modules/acme/vpc/aws/versions", d.token, 200, "Requests 2xx 1", 2},
		{"modules", "GET", download, d.token, 204, "Downloads module 1, Requests 2xx 1", 1},
		{"modules", "GET", download, "", 401, "Refusals 1, Requests 4xx 1", 0},
		{"modules", "GET", download, narrow, 403, "Refusals 1, Requests 4xx 1", 1},
		{"modules", "GET", "/v1/modules/acme/vpc/aws/2.0.0/download", d.token, 404, "Requests 4xx 1", 1},
		{"lost", "GET", download, d.token, 503, "Requests 5xx 1", 3},
		{"providers", "GET", "/v1/providers/acme/x/1.0.0/download/linux/amd64", d.token, 200, "Downloads provider 1, " +
			"Requests 2xx 1, SigningKeyDays 10", 3},
		{
			"providers",
			"GET",
			"/v1/providers/acme/x/1.0.0/download/linux/amd64",
			d.token,
			200,
			"Downloads provider 1, Requests 2xx 1",
			1,
		},
		{"mirror", "GET", "/v1/mirror/registry.example.org/acme/x/index.json", d.token, 200, "Requests 2xx 1", 2},
		{
			"mirror",
			"GET",
			"/v1/mirror/registry.example.org/acme/x/1.0.0.json",
			d.token,
			200,
			"Downloads mirror 1, Requests 2xx 1",
			1,
		},
		{"mirror", "GET", "/v1/mirror/registry.example.org/acme/x/3.0.0.json", d.token, 200, "Requests 2xx 1", 1},
		{"metadata", "GET", "/v1/modules", d.token, 200, "Requests 2xx 1", 3},
		{"metadata", "GET", "/v1/modules/acme/vpc/aws", d.token, 200, "Requests 2xx 1", 3},
		{"metadata", "GET", "/v1/modules/acme/-/aws", d.token, 400, "Requests 4xx 1", 0},
		{"metadata", "GET", "/v1/modules", "", 401, "Refusals 1, Requests 4xx 1", 0},
		{"web", "GET", "/", d.token, 200, "Requests 2xx 1", 6},
		{"web", "GET", "/", "", 303, "Requests 2xx 1", 0},
		{"publish", "POST", "/v1/publish/modules/acme/vpc/aws/1.0.1/uploads", d.token, 400, "Requests 4xx 1", 1},
	} {
		lines := 2
		if strings.Contains(r.want, metrics.SigningKeyDays) {
			lines = 3
		}
		printed := linesOf(t, d.functions[r.function], r.method, r.path, r.token, r.status, lines)
		counted, err := cloudwatch.ReadMetrics(namespace, printed)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for series, values := range counted {
			all[series] = append(all[series], values...)
			if series.Name != metrics.StoreLatency && series.Name != metrics.ColdStarts {
				got = append(got, strings.Join(
					strings.Fields(fmt.Sprint(series.Name, " ", series.Dimension.Value, " ", strings.Trim(fmt.Sprint(values), "[]"))),
					" "))
			}
		}
		slices.Sort(got)
		took := counted[metrics.Series{Name: metrics.StoreLatency}]
		if diff := cmp.Diff(r.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s %s: the metrics differ: %s", r.function, r.path, diff)
		}
		if len(took) != r.calls {
			t.Errorf("%s %s: %d calls to the store, want %d", r.function, r.path, len(took), r.calls)
		}
		if slices.ContainsFunc(took, func(ms float64) bool { return ms <= 0 || ms > 10_000 }) {
			t.Errorf("%s %s: latencies %v ms, want more than 0 and at most 10000", r.function, r.path, took)
		}
		for line := range strings.Lines(printed) {
			var members map[string]any
			if err := json.Unmarshal([]byte(line), &members); err != nil {
				t.Error(err)
			}
			if strings.Contains(line, stdcmp.Or(r.token, "X-Amz-Signature")) {
				t.Errorf("%s: the log has a secret: %s", r.path, line)
			}
			if members[metrics.SigningKeyDays] != nil {
				if members["namespace"] != "acme" {
					t.Errorf("%s: no namespace: %s", r.path, line)
				}
				maps.Copy(keyFields, keysOf(members))
				continue
			}
			if members["request_id"] != "request "+r.path {
				t.Errorf("%s: no request id: %s", r.path, line)
			}
			if members["message"] == "request" {
				maps.Copy(fields, keysOf(members))
			}
		}
	}
	for _, series := range metrics.All() {
		if len(all[series]) == 0 {
			t.Errorf("no function writes %v", series)
		}
	}
	if len(all) != len(metrics.All()) {
		t.Errorf("the functions write other series: %v", slices.Collect(maps.Keys(all)))
	}
	if cold := all[metrics.Series{Name: metrics.ColdStarts}]; len(cold) != len(d.functions) {
		t.Errorf("%d of %d functions started", len(cold), len(d.functions))
	}

	queries, err := os.ReadFile("../infra/testdata/queries.golden.txt")
	check(err)
	var ofRequests, ofKeys []string
	for query := range strings.SplitSeq(string(queries), "\n\n") {
		switch {
		case strings.HasPrefix(query, `filter message = "request"`):
			ofRequests = append(ofRequests, query)
		case strings.HasPrefix(query, pullQuery): // TestPull has them
		default:
			ofKeys = append(ofKeys, query)
		}
	}
	if got := fieldsOf("filter a like /x y/i and b = \"c d\"\n| stats count(*) as n, max(e), latest(f) as g by @log\n| " +
		"sort n desc\n\nsort n"); !slices.Equal(
		got,
		[]string{"a", "b", "e", "f", "n"},
	) {
		t.Errorf("fieldsOf returns %q for a fixed query", got)
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
