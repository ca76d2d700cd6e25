package showcase_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
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

// answer returns the registry's answer to a request, with pairs of headers.
func answer(ctx context.Context, t *testing.T, data *local.Data, path string, headers ...string) string {
	t.Helper()
	h := data.Handler("https://"+showcase.Host, true, access.Settings{}, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "https://"+showcase.Host+path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// Each run creates the same content.
func TestShowcase(t *testing.T) {
	t.Parallel()
	data, other := create(t), create(t)
	t.Run("size", func(t *testing.T) { checkSizes(t, data) })
	for _, path := range []string{
		"/v1/modules?limit=100", "/v1/providers?limit=100", "/v1/modules/acme/vpc/aws",
		"/v1/modules/acme/vpc/aws/3.19.0", "/v1/modules/platform/everything/aws", "/v1/providers/acme/inventory",
		"/v1/providers/acme/inventory/versions", "/v1/mirror/registry.example.net/hashicorp/aws/index.json",
	} {
		if diff := cmp.Diff(answer(t.Context(), t, data, path), answer(t.Context(), t, other, path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// maxPage bounds the page of a module with 236 inputs and all that it loads, with
// compression, in bytes.
const maxPage = 40_000

// checkSizes checks that the large modules are large, and their pages are small.
func checkSizes(t *testing.T, data *local.Data) {
	t.Helper()
	count := func(path, text string) int { return strings.Count(answer(t.Context(), t, data, path), text) }
	const everything, accounts = "/modules/platform/everything/aws", "/modules/platform/accounts/aws"
	for name, got := range map[string][2]int{
		"inputs":     {count(everything, "role=row id=input-"), 236},
		"groups":     {count(everything, `class="group sub"`), 14},
		"submodules": {count(accounts, `<li><a href="`+accounts+`/2.3.0/modules/`), 59},
		"all inputs": {count("/v1"+accounts+"/2.3.0", `"required":`), 4012},
	} {
		if got[0] != got[1] {
			t.Errorf("%d %s, want %d", got[0], name, got[1])
		}
	}
	page, total := answer(t.Context(), t, data, everything), 0
	for _, m := range regexp.MustCompile(`"(/static/[^"]+)"`).FindAllStringSubmatch(page, -1) {
		total += len(answer(t.Context(), t, data, m[1], "Accept-Encoding", "gzip"))
	}
	total += len(answer(t.Context(), t, data, everything, "Accept-Encoding", "gzip"))
	if t.Logf("the page has %d bytes, and %d with all that it loads when compressed", len(page), total); total > maxPage {
		t.Errorf("a page of 236 inputs has %d bytes with all that it loads, want at most %d", total, maxPage)
	}
}
