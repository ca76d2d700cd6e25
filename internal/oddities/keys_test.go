package oddities_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/oddities"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

// keyed are the providers whose keys have a history.
var keyed = []string{
	"key-ed25519", "key-expired-before", "key-expired-since", "key-replaced", "key-revoked", "no-key", "subkey",
	"subkey-expired", "subkey-renewed", "two-keys-one-expired", "two-signatures",
}

// TestKeys compares what is done with the releases of keys that have ended since, or
// have changed. A registry `dev` has published each of them while its key was valid, or
// copied it if that was not possible. The clients install from the registry to which it
// was promoted.
func TestKeys(t *testing.T) {
	skipOnWindows(t)
	all := oddities.Providers(t, keyed...)
	o := oddities.Serve(t, all, nil)
	prod, _, err := local.Create(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prod.Close() })
	var handler http.Handler
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	handler = prod.Handler(server.URL, true, access.Settings{}, slog.New(slog.DiscardHandler))
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "operator"}
	promoted := copying.Store{
		Host: "prod.example.com", Publisher: &publish.Publisher{Catalog: prod.Catalog, Objects: prod.Objects, By: by},
	}
	var rows []row
	cells := make(map[string][]cell)
	record := func(column string, c cell) { cells[column] = append(cells[column], c) }
	copier := func(from copying.Origin, to copying.Store, add bool) *copying.Copier {
		return &copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}, AddKeys: add}
	}
	origin := openOrigin(t, o)
	for _, p := range all {
		rows = append(rows, row{p.Name, p.Reason})
		address := registry.Provider{Namespace: p.Name, Type: "inventory"}
		wanted := copying.Wanted{Address: address, As: address}
		release := rules.Provider{Dir: p.Dir, Address: address}
		then := signedAt(t, p).Add(time.Minute)
		withKeys := func(s copying.Store) copying.Store {
			addKeys(t, s, p, then)
			return s
		}
		publishIn := func(s copying.Store) cell {
			result, err := s.Publisher.Provider(t.Context(), release)
			switch {
			case err != nil:
				return errorCell(err)
			case result.Unchanged:
				return cell{verdict: "unchanged"}
			}
			return cell{verdict: published}
		}
		record("publish", publishIn(withKeys(newStore(t, "new.example.com"))))
		dev := withKeys(newStore(t, "dev.example.com"))
		dev.Now = func() time.Time { return then }
		if publishIn(dev).verdict == refused {
			if got := copyCell(t, copier(origin, dev, false), wanted); got.verdict == refused {
				t.Errorf("%s: when its key was valid: %v", p.Name, got)
			}
		}
		dev.Now = nil
		record("publish again", publishIn(dev))
		record("copy", copyCell(t, copier(origin, withKeys(newStore(t, "new.example.com")), false), wanted))
		record("copy --add-keys", copyCell(t, copier(origin, newStore(t, "new.example.com"), true), wanted))
		record("promotion", copyCell(t, copier(dev, withKeys(promoted), false), wanted))
		record("promotion --add-keys", copyCell(t, copier(dev, newStore(t, "new.example.com"), true), wanted))
	}
	report, err := verify.Verifier{Catalog: prod.Catalog, Objects: prod.Objects}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		record("verify", verified(report, p.Name))
	}
	// All servers of httptest have the certificate of the origin.
	columns := inits(t, o.Authorities, func(i int) string {
		return requirement(strings.TrimPrefix(server.URL, "https://")+"/"+all[i].Spelled, all[i].Number)
	})
	for _, name := range []string{
		"verify", "promotion", "promotion --add-keys", "copy", "copy --add-keys", "publish", "publish again",
	} {
		columns = append(columns, column{
			name: name, move: strings.HasPrefix(name, "promotion"), use: func(_ *testing.T, i int) cell { return cells[name][i] },
		})
	}
	compare(t, "testdata/keys.golden", rows, columns)
}

// signedAt returns the time of the signature.
func signedAt(t *testing.T, p oddities.Provider) time.Time {
	t.Helper()
	sums, err := p.Sums()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signing.VerifyOrigin(p.KeysThen(), sums, p.Signature, time.Now())
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	return signer.SignedAt
}

// addKeys adds the keys of a provider to its namespace, as they were then.
func addKeys(t *testing.T, to copying.Store, p oddities.Provider, then time.Time) {
	t.Helper()
	for _, armored := range p.KeysThen() {
		key, err := signing.ReadKey([]byte(armored), then)
		if err == nil {
			_, err = to.Catalog.AddSigningKey(t.Context(), p.Name, key)
		}
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// verified returns what `larder verify` finds about a namespace.
func verified(r verify.Report, namespace string) cell {
	var texts []string
	verdict := "no faults"
	for _, f := range r.Findings {
		if !strings.Contains(f.Path+"/", "/"+namespace+"/") {
			continue
		}
		texts = append(texts, f.Detail)
		if !f.Note {
			verdict = "faults"
		}
	}
	if len(texts) > 0 && verdict == "no faults" {
		return noted(verdict, texts)
	}
	return cell{verdict, strings.Join(texts, "; ")}
}

// requirement returns a configuration that requires a provider.
func requirement(source, version string) string {
	return fmt.Sprintf("terraform {\n  required_providers {\n    it = {\n      source  = %q\n      version = %q\n    }\n  }\n}\n",
		source, version)
}
