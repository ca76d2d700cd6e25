package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
)

// svg is an image that runs a script in a browser that lets it.
const svg = `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`

// sources are the files of a module with an example.
var sources = map[string]string{
	"main.tf":                 "# Everything\nvariable \"a\" {\n  default = <<-EOT\n    </code><script>\n  EOT\n}\n",
	"README.md":               "# It\n\n![plan](docs/my plan.svg)\n",
	"docs/my plan.svg":        svg,
	"large.bin":               strings.Repeat("x", 5000),
	"page.html":               "<script>alert(1)</script>\n",
	"modules/part/main.tf":    "output \"b\" {\n  value = 1\n}\n",
	"examples/all/README.md":  "# All\n",
	"examples/all/files/a.sh": "echo\n",
	"examples/all/variables.tf": `variable "source" {
  default = "../.."
}
`,
	"examples/all/main.tf": `locals {
  x = {
    source = "../.."
  }
}
module "it" {
  source    = "../.." # the module
  providers = {}
}
module "part" { source = "../../modules/part" }
module "here" {
  source = "./files"
}
module "other" {
  source = "../other"
}
module "deep" {
	source="./../../modules/part/"
	a = 1
}
`,
}

const itPath = "/modules/acme/it/aws/1.0.0"

func withSources(t *testing.T) *store {
	t.Helper()
	s := withMirroredModules(t)
	s.module("acme/it/aws", "1.0.0", sources)
	return s
}

func TestFilePages(t *testing.T) {
	t.Parallel()
	pages := withSources(t).serve()
	for file, path := range map[string]string{
		"files.html": "/files", "files.md": "/files.md", "file.html": "/files/main.tf", "file.md": "/files.md?path=main.tf",
		"example.html": "/examples/all", "example-files.md": "/examples/all.md",
	} {
		page := pages.text(t, http.StatusOK, itPath+path)
		if strings.HasSuffix(file, ".html") {
			page = mainOf(page)
		}
		golden.Equal(t, "testdata/"+file, []byte(page))
	}
}

// Each file has a page and a content. A name that ends in .md names the file, and
// one with other characters is in the query.
func TestFiles(t *testing.T) {
	t.Parallel()
	pages := withSources(t).serve()
	const text = "text/plain; charset=utf-8"
	mirrored := "/mirror-modules/" + mirroredVPC + "/1.0.0"
	for path, want := range map[string]string{
		itPath + "/files/main.tf": text, itPath + "/files/README.md": text, itPath + "/files/page.html": text,
		itPath + "/files?path=docs%2Fmy+plan.svg": docs.TypeSVG, itPath + "/files?path=main.tf": text,
		mirrored + "/files/README.md": text, mirrored + "/files/modules/part/main.tf": text,
	} {
		page := pages.get(t, path)
		if page.Code != http.StatusOK || page.Header().Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: status %d, type %s", path, page.Code, page.Header().Get("Content-Type"))
		}
		raw := path + "?raw"
		if strings.Contains(path, "?") {
			raw = path + "&raw"
		}
		contains(t, page.Body.String(), "raw\">Raw file</a>")
		w := pages.get(t, raw)
		got := make(map[string]string)
		for _, name := range []string{"Content-Type", "Content-Security-Policy", "X-Content-Type-Options", "Cache-Control"} {
			got[name] = strings.Join(w.Header().Values(name), ", ")
		}
		if diff := cmp.Diff(map[string]string{
			"Content-Type": want, "Content-Security-Policy": "default-src 'none'; sandbox",
			"X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-store",
		}, got); diff != "" {
			t.Errorf("%s: headers (-want +got):\n%s", raw, diff)
		}
	}
	if got := pages.text(t, http.StatusOK, itPath+"/files?path=docs/my+plan.svg&raw"); got != svg {
		t.Errorf("the image is %q", got)
	}
	contains(t, pages.text(t, http.StatusOK, itPath+"/files/large.bin"), "4.9 KiB", "Only the name and the size")
	for _, path := range []string{"/files/none", "/files/docs", "/files/large.bin?raw", "/files/main.tf/x", "/files/files.json"} {
		pages.text(t, http.StatusNotFound, itPath+path)
	}
}

// A hidden version has its files, but no archive. A withdrawn one has neither.
// Versions without stored files have a list that explains it.
func TestFilesByState(t *testing.T) {
	t.Parallel()
	s := withSources(t)
	s.module("acme/it/aws", "0.8.0", nil)
	s.module("acme/it/aws", "0.9.0", sources)
	s.module("acme/it/aws", "0.9.1", sources)
	s.deprecate("acme/it/aws", "0.9.0", "It is slow.", true)
	s.withdraw("acme/it/aws", "0.9.1", "It has a key.")
	pages := s.serve()
	for path, want := range map[string]int{
		"0.9.0/files": 200, "0.9.0/files/main.tf": 200, "0.9.0/files/main.tf?raw": 200, "0.9.0/download": 404,
		"0.9.1/files": 404, "0.9.1/files/main.tf": 404, "0.9.1/files/main.tf?raw": 404, "0.9.1/download": 404,
		"0.8.0/files": 200, "0.8.0/files/main.tf": 404, "0.8.0/files/main.tf?raw": 404, "0.8.0/download": 303,
		"7.0.0/files": 404, "7.0.0/download": 404,
	} {
		if w := pages.get(t, "/modules/acme/it/aws/"+path); w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
	hidden := pages.text(t, http.StatusOK, "/modules/acme/it/aws/0.9.0")
	if strings.Contains(hidden, "/download") {
		t.Error("the page of a hidden version offers its archive")
	}
	unstored := pages.text(t, http.StatusOK, "/modules/acme/it/aws/0.8.0/files")
	contains(t, unstored, "The files of this version are not stored.")
}

// An archive is located for those who may read it, and counts as a download.
func TestDownload(t *testing.T) {
	t.Parallel()
	s := withSources(t)
	reader, other := bearer(s.token("read:modules/acme/*", "read:mirror-modules/**")), bearer(s.token("read:modules/other/*"))
	for _, test := range []struct{ path, logged string }{
		{itPath, "route=/modules/{namespace}/{name}/{system}/{version}/download address=acme/it/aws version=1.0.0 download=module"},
		{
			"/mirror-modules/" + mirroredVPC + "/v1.0.0",
			"address=" + mirroredVPC + " version=1.0.0 download=mirror",
		},
	} {
		pages := s.protect("{}")
		pages.text(t, http.StatusNotFound, test.path+"/download", other...)
		if w := pages.get(t, test.path+"/download"); !strings.HasPrefix(w.Header().Get("Location"), "/login?") {
			t.Errorf("%s: without a credential, it leads to %q", test.path, w.Header().Get("Location"))
		}
		if strings.Contains(pages.log.String(), "download=") {
			t.Errorf("%s: a refusal counts: %s", test.path, pages.log)
		}
		w := pages.get(t, test.path+"/download", reader...)
		location, err := url.Parse(w.Header().Get("Location"))
		if err != nil || location.Host != "bucket.example.com" || !strings.HasSuffix(location.Path, ".tar.gz") {
			t.Errorf("%s: status %d, location %v", test.path, w.Code, location)
		}
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: Cache-Control is %q", test.path, w.Header().Get("Cache-Control"))
		}
		if !strings.Contains(pages.log.String(), test.logged) {
			t.Errorf("%s: the log lacks %q: %s", test.path, test.logged, pages.log)
		}
	}
}

// Names and contents of files stay texts.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	for _, evil := range hostile {
		t.Run(evil, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			name := strings.NewReplacer("/", "_", "\x00", "").Replace(evil)
			files := map[string]string{
				"main.tf": evil, name: evil, name + ".tf": "# " + evil + "\nx = \"" + evil, "examples/all/" + name + ".tf": evil,
				"examples/all/main.tf": "/* " + evil, name + ".bin": evil,
			}
			s.module("acme/evil/aws", "1.0.0", map[string]string{}, func(r *registry.ModuleVersion) {
				m := address(t, "acme/evil/aws")
				at := docs.Place{File: name, Line: 3}
				root := docs.Folder{
					Inputs: []docs.Input{{Name: "a", Place: at}}, Outputs: []docs.Output{{Name: "b", Place: at}},
					Resources: []docs.Resource{{Name: "c", Type: "d", Place: at}},
				}
				example := docs.Folder{Path: "examples/all", Name: "all"}
				s.document(m, r, docs.Documentation{Root: root, Examples: []docs.Folder{example}})
				r.FilesZip = s.files(m.Path()+"/1.0.0", files)
			})
			pages := s.serve()
			const root = "/modules/acme/evil/aws/1.0.0"
			paths := []string{root, root + "/examples/all", root + "/files"}
			for file := range files {
				paths = append(paths, root+"/files?path="+url.QueryEscape(file))
			}
			for _, path := range paths {
				for _, problem := range check(pages.text(t, http.StatusOK, path)) {
					t.Errorf("%s has %s", path, problem)
				}
			}
			for _, path := range []string{root + "/files.md", root + "/files.md?path=" + url.QueryEscape(name+".bin")} {
				for _, problem := range live(pages.text(t, http.StatusOK, path)) {
					t.Errorf("%s has %s", path, problem)
				}
			}
		})
	}
}
