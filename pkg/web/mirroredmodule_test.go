package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/registry"
)

const mirroredVPC = "registry.opentofu.org/acme/vpc/aws"

// mirroredModule adds a version of [mirroredVPC] from a commit, with documentation.
func (s *store) mirroredModule(version, commit string, edit ...func(*registry.MirroredModule)) {
	s.t.Helper()
	p, err := registry.ParseMirrorModule(mirroredVPC)
	if err != nil {
		s.t.Fatal(err)
	}
	v, sum := number(s.t, version), digest([]byte(mirroredVPC+version))
	files := map[string]string{
		"main.tf":                  "variable \"cidr\" {\n  type = string\n}\nmodule \"part\" {\n  source = \"./modules/part\"\n}\n",
		"README.md":                "# The network\n",
		"modules/part/main.tf":     "output \"id\" {\n  value = 1\n}\n",
		"examples/complete/all.tf": "module \"vpc\" {\n  source = \"../../\"\n}\noutput \"all\" {\n  value = 1\n}\n",
	}
	d := s.extract(p.Module(), files)
	data, err := docs.Encode(d)
	if err != nil {
		s.t.Fatal(err)
	}
	key := p.FileKey(v, digest(data), registry.DocsName)
	s.objects.content[key] = data
	m := &registry.MirroredModule{
		StoredFile: registry.StoredFile{Object: p.FileKey(v, sum, "vpc.tar.gz"), SHA256: sum, Size: 42291},
		Pin:        vpcPin(commit), MirroredAt: published.AddDate(0, 0, 2),
		MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: "ada"},
	}
	m.Docs = &registry.StoredFile{Object: key, SHA256: digest(data), Size: int64(len(data))}
	m.FilesZip = s.files(p.Path()+"/"+version, files)
	m.Contents = extract.ContentsOf(d).Encode()
	for _, e := range edit {
		e(m)
	}
	record := registry.MirrorVersion{Version: v, Module: m}
	if _, _, err := s.catalog.Mirror.Add(s.t.Context(), p, record, "tests"); err != nil {
		s.t.Fatal(err)
	}
}

// vpcPin returns what a version of the tests' module is bound to.
func vpcPin(commit string) registry.ModulePin {
	return registry.ModulePin{
		Source: "https://github.com/acme/terraform-aws-vpc", Commit: strings.Repeat(commit, 40),
		H1: "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
	}
}

// withMirroredModules returns the store of withOrigins with a mirrored module whose
// versions have all states.
func withMirroredModules(t testing.TB) *store {
	t.Helper()
	s := withOrigins(t)
	rules := []registry.MirrorRule{
		{Pattern: "*/*/*/*", Line: 2, MinAge: int64(week / time.Second), Pull: registry.PullClosed},
		{Pattern: "*/*/*", Line: 1, MinAge: int64(week / time.Second)},
	}
	_, err := s.catalog.SetMirrorPolicy(t.Context(),
		registry.MirrorPolicy{Text: "modules too", Rules: rules, SetAt: published, SetBy: "ada"}, "2 rules")
	if err != nil {
		t.Fatal(err)
	}
	s.mirroredModule("1.0.0", "a")
	s.mirroredModule("1.1.0", "a")
	s.mirroredModule("1.2.0", "c", func(m *registry.MirroredModule) {
		m.Pin.Folder, m.Notes = "modules/vpc", []string{"excluded .terraform, which no client needs"}
		m.Pin.Accepted = &registry.Decision{At: published, By: "ada", Reason: "They removed a key from the history."}
	})
	s.origin(mirroredVPC, func(o *registry.MirrorOrigin) {
		at := func(days int) time.Time { return published.AddDate(0, 0, days) }
		for _, n := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"} {
			s.sees(o, n, at(-20), at(-10))
		}
		s.sees(o, "1.4.0", at(8), at(9))
		for _, n := range []string{"1.1.0", "1.3.0"} {
			o.Pin(number(t, n), vpcPin("a"), at(0))
			o.Refuse(registry.RefusedVersion{Version: number(t, n), Pin: vpcPin("b"), Bound: vpcPin("a"), At: at(1)})
		}
	})
	p, err := registry.ParseMirrorModule(mirroredVPC)
	if err == nil {
		_, _, err = s.catalog.Mirror.Withdraw(t.Context(), p, number(t, "0.9.0"),
			registry.Withdrawal{At: published, By: "tests", Reason: "It has a key."}, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMirroredModulePages(t *testing.T) {
	t.Parallel()
	web := withMirroredModules(t).serve()
	const path = "/mirror-modules/" + mirroredVPC
	for file, path := range map[string]string{
		"mirrored-module": path, "mirrored-module-changed": path + "/1.1.0", "mirrored-module-versions": path + "/versions",
	} {
		golden.Equal(t, "testdata/"+file+".html", []byte(mainOf(web.text(t, http.StatusOK, path))))
		golden.Equal(t, "testdata/"+file+".md", []byte(web.text(t, http.StatusOK, path+".md")))
	}
}

// A mirrored module is in lists and searches, and its folders have pages. Only callers
// who may read it find it.
func TestMirroredModuleFound(t *testing.T) {
	t.Parallel()
	s := withMirroredModules(t)
	const path = "/mirror-modules/" + mirroredVPC
	open, closed := s.serve(), s.protect("{}")
	reader := bearer(s.token("read:mirror-modules/**"))
	other := bearer(s.token("read:mirror/**", "read:modules/**"))
	for _, from := range []string{"/", "/mirror-modules", "/search?q=vpc&kind=mirrored-modules", "/search?q=cidr&system=aws"} {
		for name, test := range map[string]struct {
			page  string
			found bool
		}{
			"open": {open.text(t, http.StatusOK, from), true}, "reader": {closed.text(t, http.StatusOK, from, reader...), true},
			"other": {closed.text(t, http.StatusOK, from, other...), false},
		} {
			if got := strings.Contains(test.page, `href="`+path+`"`); got != test.found {
				t.Errorf("%s, %s: it is linked: %t, want %t", from, name, got, test.found)
			}
		}
	}
	for _, page := range []string{
		path, path + "/v1.0.0", path + "/versions", path + "/1.0.0/modules/part", path + "/1.0.0/examples/complete",
	} {
		open.text(t, http.StatusOK, page)
		closed.text(t, http.StatusOK, page, reader...)
		closed.text(t, http.StatusNotFound, page, other...)
	}
	for _, page := range []string{
		path + "/1.3.0", path + "/0.9.0", path + "/1.0.0/modules/none", "/mirror-modules/registry.opentofu.org/acme/vpc",
	} {
		open.text(t, http.StatusNotFound, page)
	}
}

// The repository of a module is a link only if browsers can open it.
func TestMirroredModuleSource(t *testing.T) {
	t.Parallel()
	s := withMirroredModules(t)
	for version, source := range map[string]string{
		"2.0.0": "ssh://git@git.example.com/acme/vpc", "2.1.0": "javascript:alert(1)",
	} {
		s.mirroredModule(version, "a", func(m *registry.MirroredModule) { m.Pin.Source = source })
		page := s.serve().text(t, http.StatusOK, "/mirror-modules/"+mirroredVPC+"/"+version)
		if !strings.Contains(page, "<dt>Source</dt><dd>"+source+"</dd>") {
			t.Errorf("%s is not shown as text", source)
		}
	}
}
