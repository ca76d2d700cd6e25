package doctor_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

const randomPath = "/v1/mirror/registry.opentofu.org/hashicorp/random"

// at replaces the responses for one path.
func at(path string, status int, contentType, body string) func(string, http.Handler) http.Handler {
	return func(_ string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
}

// described returns Larder's description of the mirrored provider. The versions
// are written as VERSION STATE KEY, where KEY can be missing. STATE can end in
// " on DAY", or in " by policy" if the policy does not allow the key.
func described(t testing.TB, versions ...string) string {
	t.Helper()
	d := protocol.MirroredProvider{Hostname: random.Hostname, Namespace: random.Namespace, Name: random.Name}
	for _, text := range versions {
		number, rest, _ := strings.Cut(text, " ")
		state, key, _ := strings.Cut(rest, ", ")
		state, day, _ := strings.Cut(state, " on ")
		state, denied := strings.CutSuffix(state, " by policy")
		v, err := registry.ParseVersion(number)
		if err != nil {
			t.Fatal(err)
		}
		one := protocol.MirroredVersion{Version: v, State: state, SigningKey: key, KeyDenied: denied}
		switch state {
		case "available":
			d.Version = &v
		case "too new":
			one.AvailableAt, err = time.Parse(time.DateOnly, "2031-11-"+cmp.Or(day, "29"))
			if err != nil {
				t.Fatal(err)
			}
		}
		d.Versions = append(d.Versions, one)
	}
	body, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// mirrorSteps returns the steps with an outcome about the mirror's versions.
func mirrorSteps(report doctor.Report, o doctor.Outcome) (all []doctor.Step) {
	for _, s := range report.Steps {
		if s.Name == "mirror versions" && s.Outcome == o {
			all = append(all, s)
		}
	}
	return all
}

// The doctor warns of versions that the mirror does not offer yet. The fixture
// offers version 1.0.0.
func TestWaiting(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const key = "34365D9472D7468F"
	for name, test := range map[string]struct {
		versions []string
		want     int
	}{
		"too new":              {[]string{"1.1.0 too new", "1.0.0 available"}, 1},
		"the listed one":       {[]string{"1.0.0 too new"}, 0},
		"an older one":         {[]string{"1.0.0 available", "0.9.1 too new"}, 0},
		"a key":                {[]string{"1.1.0 refused, " + key, "1.0.0 available"}, 1},
		"no signature":         {[]string{"1.1.0 refused", "1.0.0 available"}, 1},
		"a hostile key":        {[]string{"1.1.0 refused, \x1b[2Jx`; rm -rf", "1.0.0 available"}, 0},
		"an old refused one":   {[]string{"1.0.0 available", "0.9.1 refused, " + key}, 0},
		"another state":        {[]string{"1.1.0 available", "1.0.0 available", "1.2.0 unheard of"}, 0},
		"a denied key":         {[]string{"1.1.0 refused by policy, " + key, "1.0.0 available"}, 1},
		"no signature, denied": {[]string{"1.1.0 refused by policy", "1.0.0 available"}, 1},
		"in order": {[]string{
			"3.0.0-beta1 too new on 24", "2.0.0 refused, " + key, "1.2.0 too new on 27", "1.1.0 too new on 28", "1.0.0 available",
		}, 4},
		"three": {[]string{"1.1.0 too new", "1.2.0 too new", "1.3.0 refused, " + key}, 3},
		"five": {[]string{
			"1.1.0 too new", "1.2.0 too new", "1.3.0 too new", "1.4.0 too new", "1.5.0 too new", "0.9.1 refused",
		}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := described(t, test.versions...)
			p := start(t, setUp{breaks: at(randomPath, http.StatusOK, "application/json", body)})
			report := p.examine(t)
			warnings := mirrorSteps(report, doctor.Warning)
			if len(warnings) != test.want {
				t.Errorf("%d warnings, want %d\n%s", len(warnings), test.want, text(report))
			}
			if all := report.Count(doctor.Warning) + report.Count(doctor.Wrong); all != test.want {
				t.Errorf("%d problems, want %d\n%s", all, test.want, text(report))
			}
			for _, s := range warnings {
				record(t, texts, s, p.replace(t))
			}
		})
	}
}

// If the mirror has no version because all of them wait, the doctor reports that.
func TestWaitingForAll(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, versions := range map[string][]string{
		"too new": {"1.1.0 too new", "1.0.0 too new"}, "refused": {"1.1.0 refused, 34365D9472D7468F"},
		"an older one first": {"2.0.0-rc1 too new on 24", "1.1.0 too new on 29", "1.0.0 too new on 25"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, setUp{breaks: func(host string, next http.Handler) http.Handler {
				next = at(randomPath+"/index.json", http.StatusNotFound, "application/json", `{"errors":["not found"]}`)(host, next)
				return at(randomPath, http.StatusOK, "application/json", described(t, versions...))(host, next)
			}})
			report := p.examine(t)
			wrong := mirrorSteps(report, doctor.Wrong)
			if len(wrong) != 1 {
				t.Fatalf("%d wrong steps, want 1\n%s", len(wrong), text(report))
			}
			record(t, texts, wrong[0], p.replace(t))
		})
	}
}

// deny adds to a description that the mirror policy denies the provider.
func deny(description string) string {
	return strings.Replace(description, "{", `{"denied":"line 3 of the mirror policy denies \u001b*/*/*",`, 1)
}

// If the policy denies the provider, the doctor reports that, and does not advise
// what the policy prevents.
func TestWaitingDenied(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	refused := "1.1.0 refused by policy, 34365D9472D7468F"
	for name, test := range map[string]struct {
		index    int
		versions []string
		want     doctor.Outcome
	}{
		"mirrored":         {http.StatusOK, []string{refused, "1.0.0 available"}, doctor.Warning},
		"nothing mirrored": {http.StatusNotFound, []string{refused}, doctor.Wrong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, setUp{breaks: func(host string, next http.Handler) http.Handler {
				if test.index != http.StatusOK {
					next = at(randomPath+"/index.json", test.index, "application/json", `{"errors":["not found"]}`)(host, next)
				}
				return at(randomPath, http.StatusOK, "application/json", deny(described(t, test.versions...)))(host, next)
			}})
			report := p.examine(t)
			steps := mirrorSteps(report, test.want)
			if len(steps) != 1 {
				t.Fatalf("%d steps, want 1\n%s", len(steps), text(report))
			}
			if strings.Contains(steps[0].Fix, "larder mirror") {
				t.Errorf("it advises what the policy prevents: %s", steps[0].Fix)
			}
			record(t, texts, steps[0], p.replace(t))
		})
	}
}

// A mirror that does not describe the provider, or describes another, causes no
// step.
func TestNotWaiting(t *testing.T) {
	t.Parallel()
	const json = "application/json"
	body := described(t, "1.1.0 too new")
	for name, breaks := range map[string]func(string, http.Handler) http.Handler{
		"not found":        at(randomPath, http.StatusNotFound, json, `{"errors":["not found"]}`),
		"unauthorized":     at(randomPath, http.StatusUnauthorized, json, body),
		"forbidden":        at(randomPath, http.StatusForbidden, json, body),
		"failed":           at(randomPath, http.StatusInternalServerError, json, body),
		"a page":           at(randomPath, http.StatusOK, "text/html", page),
		"other JSON":       at(randomPath, http.StatusOK, json, "[1, 2]"),
		"a bad version":    at(randomPath, http.StatusOK, json, `{"versions":[{"version":"x","state":"too new"}]}`),
		"another provider": at(randomPath, http.StatusOK, json, strings.Replace(body, "random", "null", 1)),
		"no versions":      at(randomPath, http.StatusOK, json, described(t)),
		"too large":        at(randomPath, http.StatusOK, json, `"`+strings.Repeat("x", 9<<20)+`"`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := start(t, setUp{breaks: breaks}).examine(t)
			if problems := report.Count(doctor.Warning) + report.Count(doctor.Wrong); problems > 0 {
				t.Errorf("%d problems\n%s", problems, text(report))
			}
		})
	}
}

// The doctor requests a description only at Larder's path.
func TestWaitingElsewhere(t *testing.T) {
	t.Parallel()
	var requested []string
	p := start(t, setUp{
		breaks: func(_ string, next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/random") {
					requested = append(requested, r.URL.Path)
				}
				r.URL.Path = strings.Replace(r.URL.Path, "/mirrored/", "/v1/mirror/", 1)
				next.ServeHTTP(w, r)
			})
		},
		prepare: mirrorAt("https://HOST/mirrored/"),
	})
	report := p.examine(t)
	if diff := gocmp.Diff([]string(nil), requested); diff != "" {
		t.Errorf("requests (-want +got):\n%s\n%s", diff, text(report))
	}
}
