package showcase_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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

// Each run creates the same content.
func TestShowcase(t *testing.T) {
	t.Parallel()
	data, other := create(t), create(t)
	for _, path := range []string{
		"/v1/modules?limit=100", "/v1/providers?limit=100", "/v1/modules/acme/vpc/aws",
		"/v1/modules/acme/vpc/aws/3.19.0", "/v1/modules/platform/everything/aws", "/v1/providers/acme/inventory",
		"/v1/providers/acme/inventory/versions", "/v1/mirror/registry.example.net/hashicorp/aws/index.json",
	} {
		if diff := cmp.Diff(get(t.Context(), t, data, path), get(t.Context(), t, other, path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}
