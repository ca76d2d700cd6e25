package doctor_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// withPull adds to a description that clients make the mirror fetch versions.
// problems are those of versions.
func withPull(t testing.TB, description string, pull protocol.MirroredPull, problems map[string]string) string {
	t.Helper()
	var d protocol.MirroredProvider
	if err := json.Unmarshal([]byte(description), &d); err != nil {
		t.Fatal(err)
	}
	d.Pull = &pull
	for i, v := range d.Versions {
		if problem := problems[v.Version.String()]; problem != "" {
			d.Versions[i].State, d.Versions[i].Reason = "failed", problem
		}
	}
	body, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The doctor reports whether the mirror fetches a version that is not mirrored,
// and why it does not. The fixture lists version 1.0.0.
func TestPulled(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const (
		missing = `{"archives":{}}`
		none    = `{"errors":["not found"]}`
		hostile = "the origin did not answer in time \x1b[2J"
	)
	open, closed := protocol.MirroredPull{Mode: registry.PullOpen}, protocol.MirroredPull{Mode: registry.PullClosed}
	failed, wanted, withheld := open, closed, closed
	failed.Problem = hostile
	withheld.Problem, withheld.FoundNone = "the origin has no version that may be mirrored: 1.1.0 is too new", true
	wanted.Pending = []registry.Version{{Major: 1}}
	type test struct {
		versions []string
		pull     protocol.MirroredPull
		problem  string // of version 1.0.0
		index    string // if not empty, there is none
		document string // if not empty, it replaces that of version 1.0.0
		step     string
		outcome  doctor.Outcome
		count    int
	}
	tests := map[string]test{
		"open":          {[]string{"1.0.0 on request"}, open, "", "", "", "mirror versions", doctor.OK, 2},
		"closed":        {[]string{"1.0.0 on request"}, closed, "", "", "", "mirror versions", doctor.OK, 2},
		"mirrored":      {[]string{"1.0.0 available", "0.9.0 on request"}, open, "", "", "", "mirror versions", doctor.OK, 1},
		"a failed look": {[]string{"1.0.0 available"}, failed, "", "", "", "mirror versions", doctor.Warning, 1},
		"none allowed":  {[]string{"1.0.0 available"}, withheld, "", "", "", "mirror versions", doctor.Warning, 1},
		"none at all":   {nil, withheld, "", none, "", "mirror versions", doctor.Wrong, 1},
		"no version":    {nil, failed, "", none, "", "mirror versions", doctor.Wrong, 1},
		"none yet":      {[]string{"1.0.0 too new"}, failed, "", none, "", "mirror versions", doctor.Wrong, 1},
		"a problem":     {[]string{"1.0.0 on request"}, wanted, hostile, "", missing, "mirror version", doctor.Wrong, 1},
		"a copy":        {[]string{"1.0.0 on request"}, wanted, "", "", missing, "mirror version", doctor.Wrong, 1},
		"no answer":     {[]string{"1.0.0 on request"}, closed, "", "", missing, "mirror version", doctor.Wrong, 1},
		"too new":       {[]string{"1.0.0 too new"}, closed, "", "", missing, "mirror version", doctor.Wrong, 1},
		"a changed key": {
			[]string{"1.0.0 refused, 34365D9472D7468F"}, closed, "", "", missing, "mirror version", doctor.Wrong, 1,
		},
		"a mirrored version": {[]string{"1.0.0 available"}, closed, "", "", missing, "mirror version", doctor.Wrong, 1},
	}
	// All tests share one registry. Their User-Agents differ.
	shared := start(t, setUp{breaks: func(host string, registry http.Handler) http.Handler {
		handlers := make(map[string]http.Handler)
		for name, test := range tests {
			const isJSON = "application/json"
			body := withPull(t, described(t, test.versions...), test.pull, map[string]string{"1.0.0": test.problem})
			next := at(randomPath, http.StatusOK, isJSON, body)(host, registry)
			if test.index != "" {
				next = at(randomPath+"/index.json", http.StatusNotFound, isJSON, test.index)(host, next)
			}
			if test.document != "" {
				next = at(randomPath+"/1.0.0.json", http.StatusOK, isJSON, test.document)(host, next)
			}
			handlers[name] = next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handlers[r.UserAgent()].ServeHTTP(w, r) })
	}})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := shared
			p.transport = shared.transport.Clone()
			p.doctor.Transport = p.transport
			p.doctor.Agent, p.doctor.Module, p.doctor.Provider = name, nil, nil
			report := p.examine(t)
			var steps []doctor.Step
			for _, s := range report.Steps {
				if s.Name == test.step && s.Outcome == test.outcome {
					steps = append(steps, s)
				}
			}
			if len(steps) != test.count {
				t.Fatalf("%d steps, want %d\n%s", len(steps), test.count, text(report))
			}
			last := steps[len(steps)-1]
			record(t, texts, last, p.replace(t))
			if strings.Contains(last.Result+last.Fix, "\x1b") {
				t.Errorf("the step has a control character: %q", last.Result)
			}
		})
	}
}

// If the policy denies a provider that it allowed, the mirror fetches no version
// that it still lists.
func TestPulledDenied(t *testing.T) {
	t.Parallel()
	p := start(t, setUp{breaks: func(host string, next http.Handler) http.Handler {
		next = at(randomPath, http.StatusOK, "application/json", deny(described(t)))(host, next)
		return at(randomPath+"/1.0.0.json", http.StatusOK, "application/json", `{"archives":{}}`)(host, next)
	}})
	report := p.examine(t)
	const want = `it has no packages, and the mirror fetches none: line 3 of the mirror policy denies \x1b*/*/*`
	for _, s := range report.Steps {
		if s.Name == "mirror version" && s.Result == want {
			return
		}
	}
	t.Errorf("no step has the result %q\n%s", want, text(report))
}
