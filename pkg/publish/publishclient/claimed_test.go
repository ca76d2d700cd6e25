package publishclient_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// A registry gets the claimed source. An earlier release does not accept it, and
// gets the module without it.
func TestClaimed(t *testing.T) {
	t.Parallel()
	claimed := registry.ClaimedSource{Remote: "https://github.com/acme/vpc.git", Commit: strings.Repeat("a", 40)}
	// earlier is the announcement of a release without the field.
	type earlier struct {
		Files         []protocol.File `json:"files"`
		ContentSHA256 string          `json:"content_sha256"`
		Description   string          `json:"description"`
		CopiedFrom    *struct {
			Source string `json:"source"`
		} `json:"copied_from"`
	}
	for name, test := range map[string]struct {
		claimed, ofCopy *registry.ClaimedSource
		earlier         bool
		wants           []bool // whether each request has a claim
	}{
		"no claim":                     {nil, nil, false, []bool{false}},
		"no claim, an earlier release": {nil, nil, true, []bool{false}},
		"a claim":                      {&claimed, nil, false, []bool{true}},
		"a copy":                       {nil, &claimed, false, []bool{true}},
		"a claim, an earlier release":  {&claimed, nil, true, []bool{true, false}},
		"a copy, an earlier release":   {nil, &claimed, true, []bool{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, m := newFake(t), module(t)
			m.Record.Claimed = test.claimed
			if test.ofCopy != nil {
				m.Record.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/acme/vpc/aws", Claimed: test.ofCopy}
			}
			f.record = protocol.Published{Module: &m.Record}
			var got []bool
			f.fault = func(kind string, _ int, w http.ResponseWriter, r *http.Request) bool {
				if kind != "begin" {
					return false
				}
				var announced json.RawMessage
				if err := json.NewDecoder(r.Body).Decode(&announced); err != nil {
					t.Error(err)
				}
				got = append(got, strings.Contains(string(announced), "claimed"))
				again := func() *http.Request {
					r, err := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), strings.NewReader(string(announced)))
					if err != nil {
						t.Error(err)
					}
					return r
				}
				if test.earlier {
					if err := httpapi.ReadJSON(again(), 1<<20, &earlier{}); err != nil {
						httpapi.Error(w, again(), err)
						return true
					}
				}
				f.begin(w, again())
				return true
			}
			if _, err := f.publisher(t, nil, token).Module(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.wants, got); diff != "" {
				t.Errorf("the requests (-want +got):\n%s", diff)
			}
		})
	}
}
