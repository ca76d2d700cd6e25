package metadata_test

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// A file has the type of its content, and cannot run anything in a browser.
func TestFile(t *testing.T) {
	t.Parallel()
	s := sample(t)
	s.mirroredModule("1.0.0")
	h := s.serve()
	const text = "text/plain; charset=utf-8"
	for _, base := range []string{"/v1/modules/acme/vpc/aws/1.1.0/files", "/v1/mirror-modules/" + mirroredVPC + "/1.0.0/files"} {
		for path, want := range map[string]string{
			"/main.tf": text, "/README.md": text, "/page.html": text, "/docs/plan.svg": docs.TypeSVG,
			"?path=" + url.QueryEscape("docs/my plan (1).png"): "image/png", "?path=page.html": text,
		} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				w := h.send(t, method, base+path)
				if w.Code != http.StatusOK {
					t.Fatalf("%s %s%s: status %d", method, base, path, w.Code)
				}
				header := http.Header{
					"Content-Type": {want}, "Content-Length": w.Header()["Content-Length"], "X-Content-Type-Options": {"nosniff"},
					"Content-Security-Policy": {"default-src 'none'; sandbox"}, "Cache-Control": {"private, no-store"},
					"Vary": {"Authorization"},
				}
				if diff := cmp.Diff(header, w.Header()); diff != "" {
					t.Errorf("%s %s%s: headers (-want +got):\n%s", method, base, path, diff)
				}
			}
		}
	}
	if got := h.get(t, "/v1/modules/acme/vpc/aws/1.1.0/files/docs/plan.svg").Body.String(); got != script {
		t.Errorf("the image is %q", got)
	}
}

// Paths that name no file of the version are 404, or 400 if no path is like
// them.
func TestNoFile(t *testing.T) {
	t.Parallel()
	h := sample(t).serve()
	const base = "/v1/modules/acme/vpc/aws/"
	for path, want := range map[string]int{
		"1.1.0/files/none.tf": 404, "1.1.0/files/": 404, "1.1.0/files/docs": 404, "1.1.0/files/docs/": 404,
		"1.1.0/files/large.bin": 404, "1.1.0/files/files.json": 404, "1.1.0/files/files/main.tf": 404,
		"1.1.0/files/Main.tf": 404, "1.1.0/files/main.tf/": 404, "1.1.0/files/main.tf/x": 404,
		"1.1.0/files/..%2fmain.tf": 400, "1.1.0/files/%2e%2e/main.tf": 400, "1.1.0/files//main.tf": 400,
		"1.1.0/files/%2fmain.tf": 400, "1.1.0/files/main.tf%00": 400, "1.1.0/files/a%5cb": 400, "1.1.0/files/%ff": 400,
		"1.1.0/files/docs%2fplan.svg":   200, // API Gateway decodes paths
		"1.1.0/files/docs%252fplan.svg": 400, "1.1.0/files/" + strings.Repeat("a", 2000): 400,
		"1.1.0/files?path=" + strings.Repeat("a", 5000): 404, "1.1.0/files?path=..%2fmain.tf": 404,
		"1.1.0/files?path=%2fmain.tf": 404, "1.1.0/files?path=main.tf%00": 404, "1.1.0/files?path=large.bin": 404,
		"1.0.0/files/main.tf": 404,                             // without stored files
		"1.0.1/files":         200, "1.0.1/files/main.tf": 404, // hidden, and without stored files
		"0.9.0/files": 404, "0.9.0/files/main.tf": 404, // withdrawn
		"7.0.0/files": 404, "x/files": 400, "files": 400, "latest/files/main.tf": 400,
	} {
		w := h.get(t, base+path)
		if w.Code != want {
			t.Errorf("%.80s: status %d, want %d", path, w.Code, want)
		}
		if w.Code != http.StatusOK && w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%.80s: Cache-Control is %q", path, w.Header().Get("Cache-Control"))
		}
	}
}

// Without readable files, the list is empty, and the log has the damage.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	const list = "/v1/modules/acme/vpc/aws/1.1.0/files"
	for name, damage := range map[string]func(*memory, string){
		"missing":     func(m *memory, key string) { delete(m.content, key) },
		"other bytes": func(m *memory, key string) { m.content[key] = bytes.Repeat([]byte("x"), len(m.content[key])) },
		"cut short":   func(m *memory, key string) { m.content[key] = m.content[key][1:] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sample(t)
			for key := range s.objects.content {
				if strings.HasSuffix(key, "/"+registry.FilesName) {
					damage(s.objects, key)
				}
			}
			h := s.serve()
			got := read[protocol.ModuleFiles](t, h, list)
			if diff := cmp.Diff(protocol.ModuleFiles{Files: []docs.SourceFile{}}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(h.log.String(), "missing or damaged") {
				t.Errorf("the log is %s", h.log)
			}
			if w := h.get(t, list+"/main.tf"); w.Code != http.StatusNotFound {
				t.Errorf("a file: status %d, want 404", w.Code)
			}
		})
	}
	s := sample(t)
	s.objects.err = registry.ErrUnavailable
	if w := s.serve().get(t, list); w.Code != http.StatusServiceUnavailable {
		t.Errorf("an unavailable store: status %d, want 503", w.Code)
	}
}

// Files are read once for several requests, but not after a withdrawal.
func TestCachedFiles(t *testing.T) {
	t.Parallel()
	s := sample(t)
	wall := clock.At(published)
	h := s.serveAt(wall)
	reads := func(want int64) {
		t.Helper()
		if got := s.objects.reads.Load(); got != want {
			t.Errorf("%d reads of objects, want %d", got, want)
		}
	}
	const path = "/v1/modules/acme/vpc/aws/1.1.0/files"
	for _, rest := range []string{"", "/main.tf", "/docs/plan.svg"} {
		h.get(t, path+rest)
	}
	reads(1)
	wall.Pass(time.Minute)
	h.get(t, path)
	reads(2)
	s.put("modules/acme/vpc/aws", "version/1.1.0",
		registry.ModuleVersion{Version: version(t, "1.1.0"), Withdrawn: &registry.Withdrawal{Reason: "leaked"}})
	for _, rest := range []string{"", "/main.tf", "/docs/plan.svg"} {
		if w := h.get(t, path+rest); w.Code != http.StatusNotFound {
			t.Errorf("%s of a withdrawn version: status %d, want 404", rest, w.Code)
		}
	}
}
