package client_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// tofuProviders is where the public registry of OpenTofu has its provider registry
// protocol.
const tofuProviders = "https://registry.opentofu.org/v1/providers/"

// times returns the service with the publication times of registry.opentofu.org.
func times(t *testing.T, c *client.Client) *client.Service {
	t.Helper()
	found, ok := serviceAt(t, c, tofuProviders).Times()
	if !ok {
		t.Fatal("the registry has no service with publication times")
	}
	return found
}

// The document about a provider has the times of all its versions. A version
// without a plausible time is missing. Another document is an error, so that nobody
// takes its versions for old.
func TestVersionTimes(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const at = "2026-11-20T08:15:00Z"
	entry := func(id, published string) string { return fmt.Sprintf(`{"id":%q,"published":%q}`, id, published) }
	versions := func(entries ...string) string { return `{"versions":[` + strings.Join(entries, ",") + `]}` }
	many := slices.Repeat([]string{entry("v1.0.0", at)}, 40_000)
	for name, test := range map[string]struct {
		status int
		answer string
		want   string
		err    error
	}{
		"versions": {200, versions(entry("v2.0.0-rc.1+b", "2026-11-21T08:15:00+01:00"), entry("v1.0.0", at)),
			"1.0.0 " + at + ", 2.0.0-rc.1+b 2026-11-21T07:15:00Z", nil},
		"a version without the v": {200, versions(entry("1.0.0", at)), "1.0.0 " + at, nil},
		"more fields": {200, `{"addr":{"name":"random"},"canonical_addr":{"namespace":"opentofu"},"versions":[{"id":"v1.0.0",` +
			`"published":"` + at + `","more":[1]}],"is_blocked":false}`, "1.0.0 " + at, nil},
		"a version twice": {200, versions(entry("1.0.0", "2026-11-19T08:15:00Z"), entry("v1.0.0", at),
			entry("v1.0.0", "2026-11-18T08:15:00Z")), "1.0.0 " + at, nil},
		"invalid versions":       {200, versions(entry("latest", at), entry("", at), entry("vv1.0.0", at)), "", nil},
		"no time":                {200, versions(`{"id":"v1.0.0"}`, `{"id":"v1.0.1","published":null}`), "", nil},
		"implausible times":      {200, versions(entry("v1.0.0", "0001-01-01T00:00:00Z"), entry("v1.0.1", "soon")), "", nil},
		"times of another type":  {200, versions(`{"id":"v1.0.0","published":1763626500}`), "", nil},
		"no version":             {200, versions(), "", nil},
		"versions that are null": {200, `{"versions":null}`, "", nil},
		"another object":         {200, `{"providers":[]}`, "", nil},
		"an object of versions":  {200, `{"versions":{"1.0.0":"` + at + `"}}`, "", registry.ErrInvalid},
		"a list of strings":      {200, versions(`"v1.0.0"`), "", registry.ErrInvalid},
		"an ID of another type":  {200, versions(`{"id":1,"published":"` + at + `"}`), "", registry.ErrInvalid},
		"a list":                 {200, `[]`, "", registry.ErrInvalid},
		"null":                   {200, `null`, "", registry.ErrInvalid},
		"a page":                 {200, `<html>`, "", registry.ErrInvalid},
		"half a document":        {200, `{"versions":[` + entry("v1.0.0", at), "", registry.ErrInvalid},
		"an empty response":      {200, ``, "", registry.ErrInvalid},
		"a huge document":        {200, versions(many...) + strings.Repeat(" ", 1<<20), "", registry.ErrInvalid},
		"a large document":       {200, versions(many[:30_000]...), "1.0.0 " + at, nil},
		"no content":             {204, ``, "", registry.ErrInvalid},
		"a bad request":          {400, `{}`, "", registry.ErrInvalid},
		"no token":               {401, `{}`, "", registry.ErrUnauthenticated},
		"denied":                 {403, `{}`, "", registry.ErrForbidden},
		"not found":              {404, `{}`, "", nil},
		"gone":                   {410, `{}`, "", nil},
		"too many requests":      {429, `{}`, "", registry.ErrUnavailable},
		"broken":                 {500, `{}`, "", registry.ErrUnavailable},
		"overloaded":             {503, `{}`, "", registry.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				const want = "GET api.opentofu.org/registry/docs/providers/hashicorp/random/index.json"
				if got := r.Method + " " + r.Host + r.URL.String(); got != want {
					t.Errorf("request %s, want %s", got, want)
				}
				w.Header().Set("Retry-After", "0")
				answerJSON(w, test.status, test.answer)
			})
			found, err := times(t, w.client(t)).VersionTimes(t.Context(), random)
			check(t, texts, err, test.err)
			var got []string
			for _, v := range slices.SortedFunc(maps.Keys(found), registry.CompareVersions) {
				got = append(got, v.String()+" "+found[v].Format("2006-01-02T15:04:05Z07:00"))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("times: %s", diff)
			}
		})
	}
}

// No credential is sent for the document, not even one for its own host. A
// redirect must not lead to plain HTTP.
func TestVersionTimesWithoutCredential(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for to, want := range map[string]error{
		"":                                    nil,
		"https://registry.opentofu.org/moved": nil,
		"http://api.opentofu.org/moved":       registry.ErrInvalid,
	} {
		t.Run("redirect to "+to, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Authorization"); got != "" {
					t.Errorf("%s%s got a credential", r.Host, r.URL.Path)
				}
				if to != "" && r.URL.Path != "/moved" {
					http.Redirect(w, r, to, http.StatusFound)
					return
				}
				answerJSON(w, http.StatusOK, `{"versions":[{"id":"v1.0.0","published":"2026-11-20T08:15:00Z"}]}`)
			})
			c := w.client(t, "TF_TOKEN_registry_opentofu_org="+secret, "TF_TOKEN_api_opentofu_org="+secret)
			found, err := times(t, c).VersionTimes(t.Context(), random)
			check(t, texts, err, want)
			if want == nil && len(found) != 1 {
				t.Errorf("got %v", found)
			}
		})
	}
}

// Only the public registry itself has the service.
func TestTimesOfOthers(t *testing.T) {
	t.Parallel()
	c := newWorld(t, http.NotFound).client(t)
	for _, base := range []string{
		"https://registry.terraform.io/v1/providers/", "https://registry.example.com/v1/providers/",
		"https://registry.opentofu.org:8443/v1/providers/", "https://registry.opentofu.org.example.com/v1/providers/",
		"https://mirror.registry.opentofu.org/v1/providers/", "https://127.0.0.1:8443/registry.opentofu.org/",
	} {
		if found, ok := serviceAt(t, c, base).Times(); ok {
			t.Errorf("%s has publication times at %s", base, found.URL)
		}
	}
}

// An isolated client must not reach a private address with this request either.
func TestVersionTimesStaysOutside(t *testing.T) {
	t.Parallel()
	open := client.New(nil, "larder/test", &http.Transport{DisableKeepAlives: true})
	open.SetResolver(resolver(t, []string{"10.0.0.1"}))
	c, err := open.Isolate()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = times(t, c).VersionTimes(t.Context(), random); !errors.Is(err, client.ErrRefusedAddress) {
		t.Errorf("got error %v, want ErrRefusedAddress", err)
	}
}
