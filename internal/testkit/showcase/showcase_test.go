package showcase_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/showcase"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/admission"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

func create(t *testing.T) *local.Data {
	t.Helper()
	data, err := showcase.Create(t.Context(), filepath.Join(t.TempDir(), "registry"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := data.Close(); err != nil {
			t.Error(err)
		}
	})
	return data
}

// get returns the registry's answer to a request.
func get(ctx context.Context, t *testing.T, data *local.Data, path string) string {
	t.Helper()
	h := data.Handler("https://"+showcase.Host, true, access.Settings{}, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "https://"+showcase.Host+path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func TestShowcase(t *testing.T) {
	t.Parallel()
	data, other := create(t), create(t)
	t.Run("same content in each run", func(t *testing.T) {
		for _, path := range []string{
			"/v1/modules?limit=100", "/v1/providers?limit=100", "/v1/modules/acme/vpc/aws",
			"/v1/modules/acme/vpc/aws/3.19.0", "/v1/modules/platform/everything/aws", "/v1/providers/acme/inventory",
			"/v1/providers/acme/inventory/versions", "/v1/mirror/registry.example.net/hashicorp/aws/index.json",
		} {
			if diff := cmp.Diff(get(t.Context(), t, data, path), get(t.Context(), t, other, path)); diff != "" {
				t.Errorf("%s: %s", path, diff)
			}
		}
	})
	t.Run("module with all kinds of content", func(t *testing.T) {
		type folder struct{ Inputs, Outputs []any }
		var module struct {
			Root                 folder
			Versions             []string
			Submodules, Examples []folder
		}
		document := get(t.Context(), t, data, "/v1/modules/acme/vpc/aws/4.2.0")
		if err := json.Unmarshal([]byte(document), &module); err != nil {
			t.Fatal(err)
		}
		got := map[string]int{
			"inputs": len(module.Root.Inputs), "outputs": len(module.Root.Outputs), "versions": len(module.Versions),
			"submodules": len(module.Submodules), "examples": len(module.Examples),
		}
		// The withdrawn and the hidden version are not listed.
		want := map[string]int{"inputs": 25, "outputs": 10, "versions": 29, "submodules": 2, "examples": 3}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("large module", func(t *testing.T) {
		large := get(t.Context(), t, data, "/v1/modules/platform/everything/aws/1.0.0")
		if got := strings.Count(large, `"validations"`) + strings.Count(large, `"default":`); got < 300 {
			t.Errorf("the module has %d inputs", got)
		}
	})
}

// The mirror has stored nothing before its policy and its trusted keys allow it.
func TestMirrorHistory(t *testing.T) {
	t.Parallel()
	catalog := create(t).Catalog
	mirror := catalog.Mirror
	policy, err := catalog.MirrorPolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"hashicorp/aws", "cloudflare/cloudflare", "example/status"} {
		p, err := registry.ParseMirrorProvider("registry.example.net/" + address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mirror.ContentsAndOrigin(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		rule, err := admission.RuleOf(policy, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range c.Origin.Keys {
			if k.SeenAt.Before(c.Origin.SeenAt) {
				t.Errorf("%s: key %s was seen at %s, before the provider at %s", p, k.ID, k.SeenAt, c.Origin.SeenAt)
			}
		}
		for _, refused := range c.Origin.Refused {
			v, found := c.Origin.Seen(refused.Version)
			if a := admission.AvailabilityOf(rule, v, found, showcase.Now); !a.Ready(refused.At) {
				t.Errorf("%s %s was refused at %s, but too new until %s", p, refused.Version, refused.At, a.At)
			}
		}
		records, err := mirror.Records(t.Context(), p, c.Listed...)
		if err != nil {
			t.Fatal(err)
		}
		for n, r := range records {
			checkMirrored(t, p.String()+" "+n.String(), rule, c.Origin, r)
		}
	}
}

// checkMirrored checks when the packages of a version were mirrored.
func checkMirrored(t *testing.T, name string, rule registry.MirrorRule, o registry.MirrorOrigin, r registry.MirrorVersion) {
	t.Helper()
	v, found := o.Seen(r.Version)
	a := admission.AvailabilityOf(rule, v, found, showcase.Now)
	for _, pkg := range r.Packages {
		if !a.Ready(pkg.MirroredAt) {
			t.Errorf("%s was mirrored at %s, but too new until %s", name, pkg.MirroredAt, a.At)
		}
		if v.Admitted != nil && pkg.MirroredAt.Before(v.Admitted.At) {
			t.Errorf("%s was mirrored at %s, but admitted at %s", name, pkg.MirroredAt, v.Admitted.At)
		}
		i := slices.IndexFunc(o.Keys, func(k registry.OriginKey) bool { return k.ID == pkg.SigningKey })
		if i < 0 {
			t.Errorf("%s: no key %s is trusted", name, pkg.SigningKey)
			continue
		}
		since := o.Keys[i].SeenAt
		if d := o.Keys[i].Trusted; d != nil {
			since = d.At
		}
		if pkg.MirroredAt.Before(since) {
			t.Errorf("%s was mirrored at %s, but its key is trusted since %s", name, pkg.MirroredAt, since)
		}
	}
}
