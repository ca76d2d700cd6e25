package docs_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/docs"
)

// zipOf returns a zip with a list of files, and entries by name.
func zipOf(t *testing.T, list string, entries map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	add := func(name, content string) {
		entry, err := w.Create(name)
		if err == nil {
			_, err = entry.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if list != "" {
		add("files.json", list)
	}
	for name, content := range entries {
		add(name, content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Damaged and hostile objects are errors, and take little memory.
func TestDecodeFilesFails(t *testing.T) {
	t.Parallel()
	many := make(map[string]string)
	for i := range 5_000 {
		many[fmt.Sprint(i)] = ""
	}
	valid := zipOf(t, `{"schema":1}`, nil)
	for name, data := range map[string][]byte{
		"nothing":           nil,
		"no zip":            []byte(strings.Repeat("x", 100)),
		"no list":           zipOf(t, "", nil),
		"no JSON":           zipOf(t, "{", nil),
		"no schema":         zipOf(t, "{}", nil),
		"a newer schema":    zipOf(t, `{"schema":2}`, nil),
		"too many files":    zipOf(t, `{"schema":1}`, many),
		"a large list":      zipOf(t, `{"schema":1,"notes":["`+strings.Repeat("x", 8<<20)+`"]}`, nil),
		"cut short":         valid[:len(valid)-1],
		"without its start": valid[1:],
		"a comment":         append(bytes.Clone(valid), "x"...),
		"too large":         append(make([]byte, docs.MaxFiles), valid...),
	} {
		if _, err := docs.DecodeFiles(data); err == nil {
			t.Errorf("%s: there is no error", name)
		}
	}
	if _, err := docs.DecodeFiles(valid); err != nil {
		t.Errorf("the valid one: %v", err)
	}
}

// Only what the list names is read, and only up to its size.
func TestReadFile(t *testing.T) {
	t.Parallel()
	const list = `{"schema":1,"files":[{"path":"a","size":1,"kind":"text"},{"path":"bomb","size":1,"kind":"text"},` +
		`{"path":"huge","size":9000000,"kind":"image","type":"text/html"},{"path":"lost","size":1,"kind":"text"},` +
		`{"path":"b","size":1,"kind":"other"}]}`
	files, err := docs.DecodeFiles(zipOf(t, list, map[string]string{
		"files/a": "a", "files/b": "b", "files/bomb": strings.Repeat("x", 3<<20), "files/huge": strings.Repeat("x", 9_000_000),
		"files/hidden": "h", "../a": "a",
	}))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		"a": nil, "b": docs.ErrNoFile, "hidden": docs.ErrNoFile, "../a": docs.ErrNoFile, "files/a": docs.ErrNoFile, "": docs.ErrNoFile,
	} {
		if _, _, err := files.Read(path); !errors.Is(err, want) {
			t.Errorf("%q: got error %v, want %v", path, err, want)
		}
	}
	for _, path := range []string{"bomb", "huge", "lost"} {
		if _, _, err := files.Read(path); err == nil || errors.Is(err, docs.ErrNoFile) {
			t.Errorf("%q: got error %v, want damage", path, err)
		}
	}
	if got := files.Files[2].MediaType(); got != "text/plain; charset=utf-8" {
		t.Errorf("an unknown type is served as %s", got)
	}
}
