package doctor_test

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/examine/doctor"
)

// thirdHost serves a module's archive to everyone, or to no one, and records
// the credentials that it receives.
type thirdHost struct {
	*httptest.Server
	refuses bool

	mu   sync.Mutex
	sent []string
}

func newThirdHost(t *testing.T, refuses bool) *thirdHost {
	t.Helper()
	h := &thirdHost{refuses: refuses}
	h.Server = httptest.NewTLSServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *thirdHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.sent = append(h.sent, r.Header.Get("Authorization"))
	h.mu.Unlock()
	if h.refuses {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	out := gzip.NewWriter(w)
	tarred := tar.NewWriter(out)
	_ = tarred.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644})
	_, _ = tarred.Close(), out.Close()
}

// OpenTofu sends a registry's token to any host that the registry names with
// use_registry_credentials. The doctor adds a warning and does not send it.
func TestCredentialForThirdHost(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for _, test := range []struct {
		name             string
		refuses, noToken bool
		outcome          doctor.Outcome // of the archive
	}{
		{"an archive for everybody", false, false, doctor.OK},
		{"an archive behind the token", true, false, doctor.Skipped},
		{"no token", false, true, doctor.OK},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			third := newThirdHost(t, test.refuses)
			body := `{"location":"` + third.URL + `/archive?key=a-secret","use_registry_credentials":true}`
			s := setUp{closed: !test.noToken}
			s.breaks = answer("aws/1.0.0/download", http.StatusOK, "application/json", body)
			s.prepare = func(d preparation) {
				if !test.noToken {
					d.Token, d.TokenFrom = d.token("read:**"), "in LARDER_TOKEN"
				}
			}
			p := start(t, s)
			report := p.examine(t)
			if len(third.sent) != 1 || third.sent[0] != "" {
				t.Errorf("the third host was sent %d requests with %q", len(third.sent), third.sent)
			}
			var warnings, archives int
			for _, step := range report.Steps {
				if step.Name != "module archive of OpenTofu" {
					continue
				}
				host := strings.TrimPrefix(third.URL, "https://")
				if step.Outcome == doctor.Warning && step.Fix != "" &&
					strings.Contains(step.Result, host) && strings.Contains(step.Result, report.Host) {
					warnings++
				}
				if step.Outcome == test.outcome {
					archives++
				}
				record(t, texts, step, append(p.replace(t), host[strings.LastIndex(host, ":"):], ":THIRD"))
			}
			if warnings != 1 || report.Count(doctor.Warning) != 1 {
				t.Errorf("%d warnings of the third host, want 1\n%s", warnings, text(report))
			}
			if archives != 1 || report.Count(doctor.Wrong) != 0 {
				t.Errorf("the archive is not %s\n%s", test.outcome, text(report))
			}
			if strings.Contains(text(report), "a-secret") {
				t.Errorf("the report quotes a query\n%s", text(report))
			}
		})
	}
}

// The registry's own host receives the token.
func TestCredentialForOwnHost(t *testing.T) {
	t.Parallel()
	for name, location := range map[string]string{
		"relative": "archive", "absolute": "https://HOST/v1/modules/acme/vpc/aws/1.0.0/archive",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp{closed: true, breaks: func(host string, next http.Handler) http.Handler {
				absolute := strings.Replace(location, "HOST", host, 1)
				return edit("aws/1.0.0/download", `"archive"`, `"`+absolute+`"`)(host, direct(host, next))
			}, prepare: func(d preparation) { d.Token, d.TokenFrom = d.token("read:**"), "in LARDER_TOKEN" }}
			report := start(t, s).examine(t)
			if report.Count(doctor.Wrong)+report.Count(doctor.Warning) > 0 {
				t.Errorf("%s", text(report))
			}
		})
	}
}

// A given token is not sent to another port, unlike one of the clients'
// configuration.
func TestGivenTokenStays(t *testing.T) {
	t.Parallel()
	third := newThirdHost(t, true)
	for name, breaks := range map[string]func(string, http.Handler) http.Handler{
		"discovery": edit(wellKnown, `"/v1/modules/"`, `"`+third.URL+`/v1/modules/"`),
		"redirect":  redirected("/v1/modules/", third.URL),
	} {
		for given, prepare := range map[bool]func(preparation){true: given("read:**"), false: stored("read:**")} {
			t.Run(fmt.Sprintf("%s %t", name, given), func(t *testing.T) {
				third.sent = nil
				report := start(t, setUp{closed: true, breaks: breaks, prepare: prepare}).examine(t)
				if len(third.sent) != 1 || (third.sent[0] == "") != given {
					t.Errorf("the other port was sent %d requests with %q\n%s", len(third.sent), third.sent, text(report))
				}
			})
		}
	}
}
