package rehearsal

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
)

// The report contains nothing that identifies an account or gives access.
func TestScrub(t *testing.T) {
	t.Parallel()
	r := &report{}
	r.hide("registry.acme.example", "larder-rehearsal-table-1X2Y3Z", "/home/ada/larder", "", "a")
	secret := "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	token := "larder_" + strings.Repeat("aB3", 16) + "x"
	for text, want := range map[string]string{
		"account 111122223333, region":                                    "account [account], region",
		"cdk-hnb659fds-assets-111122223333-eu-central-1":                  "cdk-hnb659fds-assets-[account]-eu-central-1",
		"_111122223333_":                                                  "_[account]_",
		"1111-2222-3333":                                                  "[account]",
		"user arn:aws:sts::111122223333:assumed-role/A/ada is denied":     "user [arn] is denied",
		"arn:aws-us-gov:s3:::bucket/key, and":                             "[arn], and",
		"arn:aws-iso-b:iam::aws:policy/X":                                 "[arn]",
		"host abcdefghij.execute-api.eu-central-1.amazonaws.com/v1 fails": "host [host] fails",
		"abcdefghij.execute-api.eusc-de-east-1.amazonaws.eu":              "[host]",
		"dynamodb.us-isob-east-1.sc2s.sgov.gov:443":                       "[host]",
		"s3.cn-north-1.amazonaws.com.cn":                                  "[host]",
		"acme.auth.eu-west-1.amazoncognito.com":                           "[host]",
		"lambda.eu-west-1.api.aws":                                        "[host]",
		"GET https://x.example.com/a?X-Amz-Signature=0a1b: 403":           "GET [url] 403",
		"see http://localhost:5000/moto":                                  "see [url]",
		"a?X-Amz-Credential=AKIDEXAMPLE&X-Amz-Signature=0a1b":             "a?[query]",
		"key AKIAIOSFODNN7EXAMPLE":                                        "key [key]",
		"key ASIAIOSFODNN7EXAMPLE":                                        "key [key]",
		"with " + token + ".":                                             "with [token].",
		"Authorization: Bearer s3cr3t-token":                              "Authorization: [token]",
		"jwt eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln":                   "jwt [token]",
		"secret " + secret:                                                "secret [secret]",
		"ada@acme.example.com":                                            "[email]",
		"at registry.acme.example/acme/vpc":                               "at [hidden]/acme/vpc",
		"table larder-rehearsal-table-1X2Y3Z: item":                       "table [hidden]: item",
		"/home/ada/larder/infra":                                          "[hidden]/infra",
		"dial tcp 192.0.2.7:443: connect: refused":                        "dial tcp [host] connect: refused",
		"lookup registry.corp on 10.0.0.2:53: no such host":               "lookup [host] no such host",
		"read from 10.0.0.2:53":                                           "read from [address]",
		"listen [2001:db8::1]:443":                                        "listen [address]",
		// What readers need stays.
		"GET /v1/modules/rehearsal-20261126-104800/plus/null/1.0.0+a/download: 404": "GET /v1/modules/rehearsal-20261126-104800/plus/null/1.0.0+a/download: 404",
		"dynamodb:LeadingKeys denied":                                      "dynamodb:LeadingKeys denied",
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	} {
		if got := r.scrub(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 11, 26, 10, 48, 0, 0, time.UTC)
	r := &report{
		where: "AWS", release: "v0.1.0", commit: "66ef2e4", partition: "aws-eusc", clients: []string{"OpenTofu v1.12.6", "Terraform v1.11.4"},
		begun: begun,
		steps: []reportedStep{
			{"cdk deploy", 90 * time.Second, nil},
			{"a module: publish, init, list", 1500 * time.Millisecond, errors.New("denied in 111122223333\nand |more")},
		},
		checks: []reportedCheck{
			{"Concurrency of the account", "100 or more", differs, "10", 100 * time.Millisecond},
			{"A plus sign in a path", "204", asExpected, "404 | GET\nhttps://x.example.com", time.Second},
		},
	}
	golden.Equal(t, "testdata/report.golden.md", []byte(r.markdown(begun.Add(2*time.Minute))))
}

// buckets is a gateway with a throttle. Each key has a bucket without a refill.
func buckets(t *testing.T, sizes map[string]int, key func(path string) string) *Registry {
	t.Helper()
	var mu sync.Mutex
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if sizes[key(r.URL.Path)]--; sizes[key(r.URL.Path)] < 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(server.Close)
	server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = floodWorkers
	return &Registry{Host: server.Listener.Addr().String(), HTTP: server.Client()}
}

// A flood shows the buckets of a throttle.
func TestFlood(t *testing.T) {
	t.Parallel()
	one := func(path string) string {
		if path == floodDiscovery {
			return path
		}
		return ""
	}
	for name, test := range map[string]struct {
		sizes map[string]int
		key   func(string) string
		want  outcome
		seen  string
	}{
		"one bucket for both": {
			map[string]int{"": 500, floodDiscovery: 500}, one, differs, "providers share a bucket",
		},
		"a bucket each": {
			map[string]int{floodModules: 500, floodProviders: 500, floodDiscovery: 500},
			func(path string) string { return path }, asExpected, "each route has a bucket of its own",
		},
		"discovery shares it": {map[string]int{"": 500}, func(string) string { return "" }, differs, "discovery shares"},
		"no throttle":         {map[string]int{"": 5000, floodDiscovery: 500}, one, notChecked, "was not reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tallies, err := buckets(t, test.sizes, test.key).flood(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sent := 0
			for _, tally := range tallies {
				sent += tally.sent
			}
			if sent != floodRequests {
				t.Errorf("sent %d requests, want %d", sent, floodRequests)
			}
			if got, seen := readThrottle(tallies); got != test.want || !strings.Contains(seen, test.seen) {
				t.Errorf("%s, %s, want %s, %s", got, seen, test.want, test.seen)
			}
		})
	}
}

// testChecks runs the checks of a deployed stack, and again with a policy that
// allows too much.
func testChecks(t *testing.T, d *deployment, stack *Stack) {
	t.Helper()
	run := func(stack *Stack, checks []check) ([]reportedCheck, error) {
		registry, _, done, err := d.open(t.Context(), stack)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		checked, rehearsal := *d, *d.Rehearsal
		rehearsal.report = &report{}
		checked.Rehearsal = &rehearsal
		err = checked.runChecks(t.Context(), registry, checks)
		return rehearsal.report.checks, err
	}
	all := d.checks(stack)
	found, err := run(stack, all)
	if err != nil {
		t.Error(err)
	}
	for i, c := range found {
		want := asExpected
		if c.name == "Concurrency of the account" {
			want = notChecked // moto does not return it
		}
		if c.result != want {
			t.Errorf("%s: %s, %s, want %s", c.name, c.result, c.seen, want)
		}
		if c.name != all[i].name || c.want != all[i].want {
			t.Errorf("check %d is %s, want %s", i, c.name, all[i].name)
		}
	}
	broken := *stack
	broken.OperatorPolicy = strings.ReplaceAll(stack.OperatorPolicy, `"tokens"`, `"tokens","sessions"`)
	for _, c := range all {
		if c.name != "LeadingKeys in a transaction that is not allowed" {
			continue
		}
		if found, err = run(&broken, []check{c}); err == nil || found[0].result != differs {
			t.Errorf("a policy that allows too much: %v, %v", found, err)
		}
	}
}
