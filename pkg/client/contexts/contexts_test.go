package contexts_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client/contexts"
	"github.com/larder-registry/larder/pkg/registry"
)

// path returns the path of a file of contexts with a text.
func path(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "larder")
	path := filepath.Join(dir, "config.json")
	missing, err := contexts.Read(path)
	if err != nil {
		t.Errorf("a missing file: %v", err)
	}
	if diff := cmp.Diff(contexts.File{}, missing); diff != "" {
		t.Errorf("a missing file (-want +got):\n%s", diff)
	}
	want := contexts.File{Current: "b", Contexts: map[string]contexts.Context{
		"b": {Store: "/srv/larder & co"}, "a": {Registry: "https://registry.example.com"},
	}}
	for range 2 { // the second time there is a file to replace
		if err := want.Write(path); err != nil {
			t.Fatal(err)
		}
		got, err := contexts.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, want.Names()); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("others can read it: %v", mode)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// A file that cannot be written stays as it was, with no other file left beside
// it.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	if err := os.Mkdir(path, 0o700); err != nil { // no file replaces a folder
		t.Fatal(err)
	}
	err := contexts.File{}.Write(path)
	if err == nil {
		t.Fatal("it succeeds")
	}
	reason := err.Error()[strings.LastIndex(err.Error(), ": ")+2:] // depends on the system
	golden.New(t).Error(t, err, dir, "DIR", reason, "REASON")
	if !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want an error with %s", err, path)
	}
	if strings.Count(err.Error(), dir) != 1 {
		t.Errorf("the error names a temporary file: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// A link, for example to a folder of settings under version control, stays a
// link.
func TestWriteToLink(t *testing.T) {
	t.Parallel()
	target := path(t, "{}")
	link := filepath.Join(t.TempDir(), "config.json")
	if err := os.Symlink(target, link); err != nil {
		t.Skip("LEFT OUT: no links here:", err)
	}
	want := contexts.File{Contexts: map[string]contexts.Context{"a": {Store: "/srv"}}}
	if err := want.Write(link); err != nil {
		t.Fatal(err)
	}
	got, err := contexts.Read(target)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadRejects(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct{ text, place, part string }{
		"empty":               {"", ":1:1: ", ""},
		"no JSON":             {"{\n  \"contexts\": {,}\n}", ":2:16: ", ""},
		"cut off":             {"{\n  \"contexts\": {", ":2:16: ", ""},
		"text after it":       {"{}\n{}", ":2:1: ", ""},
		"a list":              {"[]", ":1:1: ", ""},
		"unknown field":       {"{\n \"curren\": \"a\"}", ":2:2: ", `"curren"`},
		"twice":               {`{"contexts": {"a": {"store": "b"}, "a": {"store": "c"}}}`, ":1:36: ", "contexts.a"},
		"a number":            {`{"contexts": {"a": {"store": 7}}}`, ":1:30: ", "contexts.a.store"},
		"a name":              {`{"contexts": {"a b": {"store": "c"}}}`, ":1:22: ", `"a b"`},
		"neither":             {`{"contexts": {"a": {}}}`, ":1:20: ", "context a"},
		"both":                {`{"contexts": {"a": {"store": "b", "registry": "https://c.d"}}}`, ":1:20: ", "context a"},
		"a password":          {`{"contexts": {"a": {"registry": "https://me:secret@c.d"}}}`, ":1:33: ", "context a"},
		"another encoding":    {"{\xe9}", ": ", "line 1 is not UTF-8"},
		"larger than 1 MiB":   {`{"contexts": {}` + strings.Repeat(" ", 1<<20) + "}", ": ", "1048576 bytes"},
		"a token in a folder": {`{"contexts": {}, "token": "secret"}`, ":1:18: ", `"token"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := path(t, test.text)
			f, err := contexts.Read(path)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("it fails with %v", err)
			}
			if !strings.Contains(err.Error(), path+test.place) {
				t.Errorf("%v, want the place %s", err, test.place)
			}
			if !strings.Contains(err.Error(), test.part) {
				t.Errorf("%v, want an error with %s", err, test.part)
			}
			texts.Error(t, err, filepath.Dir(path), "DIR")
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has a password: %v", err)
			}
			if f.Contexts != nil || f.Current != "" {
				t.Errorf("it returns %+v", f)
			}
		})
	}
	if _, err := contexts.Read(t.TempDir()); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("a folder: %v", err)
	}
}

// Windows adds a byte order mark.
func TestReadMarked(t *testing.T) {
	t.Parallel()
	f, err := contexts.Read(path(t, "\ufeff"+`{"contexts": {"a": {"store": "b"}}}`))
	if err != nil || f.Contexts["a"].Store != "b" {
		t.Errorf("%+v, %v", f, err)
	}
}

// A current context that is missing is not an error, so that another can be
// chosen.
func TestReadCurrentGone(t *testing.T) {
	t.Parallel()
	f, err := contexts.Read(path(t, `{"current": "gone", "contexts": {"a": {"store": "b"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := contexts.File{Current: "gone", Contexts: map[string]contexts.Context{"a": {Store: "b"}}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
}

// Find returns a valid context although others have mistakes.
func TestFind(t *testing.T) {
	t.Parallel()
	const text = `{"current": "gone", "store": "x", "contexts": {"a": {"store": "b"}, "c": {"stor": "d"}, "e": {}}}`
	texts := golden.New(t)
	for name, test := range map[string]struct {
		text, name, store string
		place             string // where the mistake is; empty: there is none
	}{
		"it exists":              {text, "a", "b", ""},
		"it has a mistake":       {text, "c", "", ":1:75: "},
		"it is empty":            {text, "e", "", ":1:94: "},
		"it does not exist":      {text, "f", "", ""},
		"there are none":         {`{"current": {}}`, "current", "", ""},
		"the file is cut off":    {`{"contexts": {"a": {"store": "b"}`, "a", "", ":1:34: "},
		"contexts are no object": {`{"contexts": 7}`, "a", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := path(t, test.text)
			c, found, err := contexts.Find(path, test.name)
			switch {
			case test.place == "" && err != nil:
				t.Fatal(err)
			case test.place == "":
			case !errors.Is(err, registry.ErrInvalid):
				t.Fatalf("%v, want ErrInvalid", err)
			case !strings.Contains(err.Error(), path+test.place):
				t.Errorf("%v, want the place %s", err, test.place)
			}
			if err != nil {
				texts.Error(t, err, filepath.Dir(path), "DIR")
			}
			if c.Store != test.store {
				t.Errorf("the store is %q, want %q", c.Store, test.store)
			}
			if found != (test.store != "") {
				t.Errorf("found is %t", found)
			}
		})
	}
	if _, found, err := contexts.Find(filepath.Join(t.TempDir(), "none"), "a"); found || err != nil {
		t.Errorf("without a file: %t, %v", found, err)
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"production": true, "acme.eu-central_1": true, "7": true, strings.Repeat("a", 64): true,
		"": false, "-a": false, ".a": false, "a b": false, "a/b": false, "ä": false, strings.Repeat("a", 65): false,
	} {
		if err := contexts.CheckName(name); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The file is in the configuration folder of the platform.
func TestPath(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	t.Setenv("AppData", filepath.Join(home, "config"))
	path, err := contexts.Path()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(path, home) || !strings.HasSuffix(path, filepath.Join("larder", "config.json")) {
		t.Errorf("it is %s", path)
	}
}
