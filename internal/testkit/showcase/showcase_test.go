package showcase_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/showcase"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/local"
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
