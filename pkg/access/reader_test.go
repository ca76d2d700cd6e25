package access_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
)

// A caller may read what is public and what the scopes cover. CheckRead and
// CanRead agree, and RequireRead agrees with both.
func TestIdentify(t *testing.T) {
	t.Parallel()
	store := &records{}
	acme, publisher := store.add("acme", "read:modules/acme/*"), store.add("publisher", "publish:**")
	all, system := store.add("all", "read:**"), store.add("system", "read:modules/*/*/aws")
	mirror, mirrored := store.add("mirror", "read:mirror/**"), store.add("mirrored", "read:mirror-modules/example.com/**")
	modules := store.add("modules", "read:modules/**")
	const public, vpc = `{"public": ["mirror/**"]}`, "mirror-modules/example.com/acme/vpc/aws"
	none, unauthenticated, forbidden := error(nil), registry.ErrUnauthenticated, registry.ErrForbidden
	for _, test := range []struct {
		name, settings, token, path string
		want                        error
	}{
		{"a scope", "{}", acme, "modules/acme/vpc/aws", none},
		{"another namespace", "{}", acme, "modules/other/vpc/aws", forbidden},
		{"a longer name", "{}", acme, "modules/acme2/vpc/aws", forbidden},
		{"another kind", "{}", acme, "providers/acme/x", forbidden},
		{"an incomplete path", "{}", acme, "modules/acme", forbidden},
		{"an empty path", "{}", acme, "", forbidden},
		{"a wildcard", "{}", system, "modules/acme/vpc/aws", none},
		{"another system", "{}", system, "modules/acme/vpc/google", forbidden},
		{"everything", "{}", all, "providers/acme/x", none},
		{"a publisher", "{}", publisher, "modules/acme/vpc/aws", forbidden},
		{"a mirrored module", "{}", mirrored, vpc, none},
		{"everything, a mirrored module", "{}", all, vpc, none},
		{"a mirrored module of another host", "{}", mirrored, "mirror-modules/example.org/acme/vpc/aws", forbidden},
		{"mirrored providers, a mirrored module", "{}", mirror, vpc, forbidden},
		{"own modules, a mirrored module", "{}", modules, vpc, forbidden},
		{"mirrored modules, a mirrored provider", "{}", mirrored, "mirror/example.com/acme/x", forbidden},
		{"mirrored modules, an own one", "{}", mirrored, "modules/acme/vpc/aws", forbidden},
		{"public mirrored providers, a mirrored module", public, "", vpc, unauthenticated},
		{"public, without a credential", public, "", "mirror/example.com/acme/x", none},
		{"public, with a credential", public, acme, "mirror/example.com/acme/x", none},
		{"not public, without a credential", public, "", "modules/acme/vpc/aws", unauthenticated},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			control := access.New(parse(t, test.settings), store)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/"+test.path, nil)
			if test.token != "" {
				r.Header.Set("Authorization", "Bearer "+test.token)
			}
			passed := false
			control.Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				passed = true
				if err := access.CheckRead(r.Context(), test.path); !errors.Is(err, test.want) {
					t.Errorf("CheckRead returns %v, want %v", err, test.want)
				}
				if diff := cmp.Diff(test.want == nil, access.CanRead(r.Context(), test.path)); diff != "" {
					t.Errorf("CanRead (-want +got):\n%s", diff)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
			if !passed {
				t.Error("the request was rejected")
			}
			passed = false
			control.RequireRead(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				passed = true
			})).ServeHTTP(httptest.NewRecorder(), r)
			if diff := cmp.Diff(test.want == nil, passed); diff != "" {
				t.Errorf("RequireRead (-want +got):\n%s", diff)
			}
		})
	}
}

// CanReadBelow is true exactly where a pattern could cover something.
func TestCanReadBelow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		scope, path string
		want        bool
	}{
		{"read:modules/acme/vpc/aws", "modules", true},
		{"read:modules/acme/vpc/aws", "modules/acme", true},
		{"read:modules/acme/vpc/aws", "modules/acme/vpc", true},
		{"read:modules/acme/vpc/aws", "modules/acme/dns", false},
		{"read:modules/acme/vpc/aws", "modules/acm", false},
		{"read:modules/acme/vpc/aws", "modules/acme2", false},
		{"read:modules/acme/vpc/aws", "providers", false},
		{"read:modules/acme/vpc/aws", "providers/acme", false},
		{"read:modules", "modules/acme/vpc", true},
		{"read:modules/acme", "modules/acme/vpc", true},
		{"read:modules/*/*/aws", "modules/acme", true},
		{"read:modules/*/vpc", "modules/acme/dns", false},
		{"read:*/acme", "mirror", true},
		{"read:*/acme", "modules/other", false},
		{"read:modules/**/aws", "modules/acme/vpc", true},
		{"read:**", "providers", true},
		{"read:**/aws", "modules/acme", true},
		{"read:mirror/example.com/*", "mirror", true},
		{"read:mirror/example.com/*", "modules", false},
		{"read:mirror/**", "mirror-modules", false},
		{"read:mirror-modules/example.com/**", "mirror-modules", true},
		{"read:mirror-modules/example.com/**", "mirror", false},
		{"read:mirror-modules/example.com/**", "mirror-modules/example.org", false},
		{"publish:**", "modules", false},
		{"publish:modules/acme/*", "modules/acme", false},
	} {
		for _, public := range []bool{false, true} {
			store, settings := &records{}, "{}"
			scope, want := test.scope, test.want
			if public {
				verb, pattern, _ := strings.Cut(scope, ":")
				if verb != "read" {
					continue
				}
				settings, scope = `{"public": ["`+pattern+`"]}`, "publish:**"
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/modules", nil)
			r.Header.Set("Authorization", "Bearer "+store.add("reader", scope))
			passed := false
			access.New(parse(t, settings), store).Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				passed = true
				if got := access.CanReadBelow(r.Context(), test.path); got != want {
					t.Errorf("%s, public %t, below %s: %t, want %t", test.scope, public, test.path, got, want)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
			if !passed {
				t.Errorf("%s: the request was rejected", test.scope)
			}
		}
	}
}

// What CanReadBelow denies, CanRead denies too.
func FuzzCanReadBelow(f *testing.F) {
	f.Add("modules/acme/**/aws", "modules/acme", "vpc/aws")
	f.Add("*/*/x", "providers", "acme/x")
	f.Fuzz(func(t *testing.T, pattern, path, rest string) {
		settings, err := access.ParseSettings([]byte(`{"public": [` + strconv.Quote(pattern) + `]}`))
		if err != nil {
			return
		}
		access.New(settings, &records{}).Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if access.CanRead(r.Context(), path+"/"+rest) && !access.CanReadBelow(r.Context(), path) {
				t.Errorf("%s covers %s/%s, but nothing below %s", pattern, path, rest, path)
			}
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	})
}

// Identify rejects bad credentials, even if something is public, and
// missing ones if nothing is public.
func TestIdentifyRejects(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, settings, authorization string }{
		{"no credential", "{}", ""},
		{"an empty credential", "{}", "Bearer "},
		{"a mistyped token", `{"public": ["**"]}`, "Bearer larder_x"},
		{"another scheme", `{"public": ["**"]}`, "Basic eDp5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/modules", nil)
			if test.authorization != "" {
				r.Header.Set("Authorization", test.authorization)
			}
			w := httptest.NewRecorder()
			control := access.New(parse(t, test.settings), &records{})
			control.Identify(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("the request reached the handler")
			})).ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized {
				t.Errorf("status %d, want 401", w.Code)
			}
		})
	}
}

// Without a middleware nobody may read anything. Behind Everyone, everyone may
// read everything.
func TestEveryone(t *testing.T) {
	t.Parallel()
	if access.CanRead(t.Context(), "modules/acme/vpc/aws") {
		t.Error("a request that no middleware has passed may read")
	}
	if access.CanReadBelow(t.Context(), "modules") {
		t.Error("a request that no middleware has passed may read modules")
	}
	if err := access.CheckRead(t.Context(), "modules/acme/vpc/aws"); !errors.Is(err, registry.ErrUnauthenticated) {
		t.Errorf("CheckRead returns %v, want %v", err, registry.ErrUnauthenticated)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/modules", nil)
	r.Header.Set("Authorization", "Bearer nonsense")
	passed := false
	access.Everyone(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed = access.CanRead(r.Context(), "modules/acme/vpc/aws") && access.CanReadBelow(r.Context(), "modules")
	})).ServeHTTP(httptest.NewRecorder(), r)
	if !passed {
		t.Error("a caller of an open registry may not read")
	}
}

// CanReadAll is true for patterns that cover every kind.
func TestCanReadAll(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		public string
		scopes []string
		want   bool
	}{
		{"", []string{"read:**"}, true},
		{"", []string{"read:modules", "read:providers/*", "read:mirror/**", "read:mirror-modules/**"}, true},
		{"mirror", []string{"read:modules", "read:providers", "read:mirror-modules"}, true},
		{"", []string{"read:modules", "read:providers", "read:mirror"}, false},
		{"", []string{"read:modules", "read:providers"}, false},
		{"", []string{"read:*/acme"}, false},
		{"", []string{"read:modules/acme", "read:providers", "read:mirror", "read:mirror-modules"}, false},
		{"", []string{"publish:**"}, false},
		{"modules", []string{"publish:**"}, false},
	} {
		store, settings := &records{}, "{}"
		if test.public != "" {
			settings = `{"public": ["` + test.public + `"]}`
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+store.add("reader", test.scopes...))
		passed := false
		access.New(parse(t, settings), store).Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			if got := access.CanReadAll(r.Context()); got != test.want {
				t.Errorf("public %q, scopes %q: %t, want %t", test.public, test.scopes, got, test.want)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
		if !passed {
			t.Errorf("public %q, scopes %q: the request was rejected", test.public, test.scopes)
		}
	}
	if access.CanReadAll(t.Context()) {
		t.Error("a context without a reader may read everything")
	}
	if !access.CanReadAll(access.WithEveryone(t.Context())) {
		t.Error("everyone may not read everything")
	}
}
