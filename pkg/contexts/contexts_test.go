package contexts_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/contexts"
	"github.com/larder-registry/larder/pkg/registry"
)

// path returns where a file of contexts with a text is.
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
	if f, err := contexts.Read(path); err != nil || f.Contexts != nil || f.Current != "" {
		t.Errorf("a file that is missing: %+v, %v", f, err)
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

// A file that cannot be written stays as it was, and nothing is left beside it.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	if err := os.Mkdir(path, 0o700); err != nil { // no file replaces a folder
		t.Fatal(err)
	}
	err := contexts.File{}.Write(path)
	if err == nil || !strings.HasPrefix(err.Error(), "cannot write the contexts to "+path+": ") {
		t.Errorf("it fails with %v", err)
	}
	if strings.Count(err.Error(), dir) != 1 {
		t.Errorf("the error names a temporary file: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// A file that is a link, as to a folder of settings under version control, stays
// one.
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

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"empty":   {"", ":1:1: the file is empty"},
		"no JSON": {"{\n  \"contexts\": {,}\n}", ":2:16: invalid JSON: "},
		"cut short": {
			"{\n  \"contexts\": {",
			":2:16: the file ends before the { of line 2, column 15 is closed",
		},
		"more behind it": {"{}\n{}", ":2:1: invalid JSON: there is more after the end of its value"},
		"a list":         {"[]", ":1:1: the file is not one JSON object"},
		"unknown field":  {"{\n \"curren\": \"a\"}", `:2:2: unknown field "curren" (did you mean "current"?)`},
		"twice": {
			`{"contexts": {"a": {"store": "b"}, "a": {"store": "c"}}}`,
			":1:36: contexts.a is there twice",
		},
		"a number": {`{"contexts": {"a": {"store": 7}}}`, ":1:30: contexts.a.store: 7 is not a string"},
		"a name": {
			`{"contexts": {"a b": {"store": "c"}}}`,
			`:1:22: invalid context name "a b": it must be`,
		},
		"neither": {`{"contexts": {"a": {}}}`, ":1:20: context a has no store and no registry"},
		"both": {
			`{"contexts": {"a": {"store": "b", "registry": "https://c.d"}}}`,
			":1:20: context a has a store and a registry",
		},
		"a password": {
			`{"contexts": {"a": {"registry": "https://me:secret@c.d"}}}`,
			":1:33: the registry of context a has more than https://HOST",
		},
		"larger than 1 MiB": {
			`{"contexts": {}` + strings.Repeat(" ", 1<<20) + "}",
			": invalid file: it has more than 1048576 bytes",
		},
		"a token in a folder": {
			`{"contexts": {}, "token": "secret"}`,
			`:1:18: unknown field "token" (there are contexts, current)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := path(t, test.text)
			f, err := contexts.Read(path)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("it fails with %v", err)
			}
			if !strings.HasPrefix(err.Error(), "cannot read the contexts") || !strings.Contains(err.Error(), path+test.want) {
				t.Errorf("the error is\n%v\nand must have\n%s", err, test.want)
			}
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

// A current context that is gone is no mistake, so that another can be chosen.
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

// One context is found although others have mistakes, and not if it has one.
func TestFind(t *testing.T) {
	t.Parallel()
	const text = `{"current": "gone", "store": "x", "contexts": {"a": {"store": "b"}, "c": {"stor": "d"}, "e": {}}}`
	for name, test := range map[string]struct {
		text, name, store, want string
	}{
		"it is there":          {text, "a", "b", ""},
		"it has a mistake":     {text, "c", "", `:1:75: contexts.c: unknown field "stor"`},
		"it is empty":          {text, "e", "", ":1:94: context e has no store and no registry"},
		"it is not there":      {text, "f", "", ""},
		"there are none":       {`{"current": {}}`, "current", "", ""},
		"the file is cut off":  {`{"contexts": {"a": {"store": "b"}`, "a", "", ":1:34: the file ends before"},
		"contexts are no list": {`{"contexts": 7}`, "a", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := path(t, test.text)
			c, found, err := contexts.Find(path, test.name)
			switch {
			case test.want != "":
				if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), path+test.want) {
					t.Errorf("it fails with %v, and must have %s", err, test.want)
				}
			case err != nil:
				t.Error(err)
			}
			if c.Store != test.store || found != (test.store != "") {
				t.Errorf("it returns %+v, %t", c, found)
			}
		})
	}
	if _, found, err := contexts.Find(filepath.Join(t.TempDir(), "none"), "a"); found || err != nil {
		t.Errorf("of no file: %t, %v", found, err)
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

// The file is where the platform keeps such files.
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
