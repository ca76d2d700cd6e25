package session_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/internal/testkit/nodejs"
	"github.com/larder-registry/larder/pkg/registry"
)

// A person logs in with a real OpenID Connect provider, by a public client and by
// one with a secret.
func TestProvider(t *testing.T) {
	t.Parallel()
	const callback = "https://" + host + "/login/callback"
	provider, err := issuers.StartIssuer(t.Context(), callback)
	if errors.Is(err, nodejs.ErrMissing) && !nodejs.Required() {
		t.Skip("LEFT OUT:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(provider.Close)
	table := openTable(t)
	settings := func(client, resource string) string {
		return fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["https://registry.example.com"],
			"rules": [{"claims": {"groups": "platform"}, "scopes": ["read:**"]}]}],
			"login": {"issuer": %[1]q, "client": "larder-cli", "authorize": {"resource": %q}, "web": {"client": %q}}}`,
			provider.URL, resource, client)
	}
	public := newSite(t, table, settings("larder-web", "https://registry.example.com"))
	for name, test := range map[string]struct {
		site site
		want error
	}{
		"public client": {public, nil},
		"client with a secret": {
			newSite(t, table, settings(issuers.Confidential, "https://registry.example.com"), issuers.Secret), nil,
		},
		"wrong secret": {
			newSite(t, table, settings(issuers.Confidential, "https://registry.example.com"), "other"), registry.ErrIssuer,
		},
		"opaque access token": {newSite(t, table, settings("larder-web", "")), registry.ErrBadCredential},
		"of another registry": {
			newSite(t, table, settings("larder-web", "https://other.example.com")), registry.ErrBadCredential,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &browser{}
			back := signInToPages(t, b, test.site, provider, callback)
			next, err := b.callback(t, test.site, back)
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if test.want != nil {
				return
			}
			if next != "/modules" {
				t.Errorf("it leads to %s", next)
			}
			b.wantIn(t, test.site, "ada")
			if err := b.logOut(t, test.site); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.look(t, test.site); !errors.Is(err, registry.ErrUnauthenticated) {
				t.Errorf("after the logout: %v, want ErrUnauthenticated", err)
			}
		})
	}
	t.Run("used code", func(t *testing.T) {
		t.Parallel()
		b := &browser{}
		first, err := url.Parse(signInToPages(t, b, public, provider, callback))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.callback(t, public, first.String()); err != nil {
			t.Fatal(err)
		}
		second, err := url.Parse(signInToPages(t, b, public, provider, callback))
		if err != nil {
			t.Fatal(err)
		}
		mixed := second.Query()
		mixed.Set("code", first.Query().Get("code"))
		second.RawQuery = mixed.Encode()
		if _, err := b.callback(t, public, second.String()); !errors.Is(err, registry.ErrBadCredential) {
			t.Errorf("%v, want ErrBadCredential", err)
		}
	})
}

// signInToPages begins a login in a browser, and returns the callback to which
// the provider redirects it.
func signInToPages(t *testing.T, b *browser, s site, provider *issuers.Issuer, callback string) (back string) {
	t.Helper()
	err := b.visit(t, http.MethodGet, "/", func(w http.ResponseWriter, r *http.Request) error {
		to, err := s.Begin(w, r, "/modules")
		if err == nil {
			back, err = provider.SignInToPages(context.WithoutCancel(r.Context()), to, "ada", callback)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return back
}
