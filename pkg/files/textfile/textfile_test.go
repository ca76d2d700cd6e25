package textfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// The texts, and what people see of them.
var texts = []struct {
	what, text, shown string
	problem, guess    string
}{
	{what: "nothing"},
	{what: "UTF-8", text: "é\n", shown: "é\n"},
	{what: "UTF-8 with a mark", text: "\xEF\xBB\xBFé\n", shown: "é\n"},
	{what: "a second mark", text: "\xEF\xBB\xBF\uFEFFx", shown: "\uFEFFx"},
	{what: "only a mark", text: "\xFF\xFE"},
	{what: "UTF-16LE", text: "\xFF\xFEa\x00\xE9\x00=\xD8\x00\xDE\r\x00\n\x00", shown: "aé😀\r\n"},
	{what: "UTF-16BE", text: "\xFE\xFF\x00a\x00\xE9\xD8=\xDE\x00", shown: "aé😀"},
	{what: "the replacement character in UTF-16", text: "\xFE\xFF\xFF\xFD", shown: "\uFFFD"},
	{what: "half a pair in UTF-16", text: "\xFE\xFF\xD8=\x00a", shown: "\uFFFDa", problem: "line 1 is not valid UTF-16"},
	{what: "half a unit in UTF-16", text: "\xFF\xFEa\x00\n\x00b", shown: "a\n\uFFFD", problem: "line 2 is not valid UTF-16"},
	{what: "UTF-16 without a mark", text: "a\x00\n\x00", shown: "a\uFFFD\n\uFFFD", problem: "line 1 has a NUL byte"},
	{
		what: "UTF-32", text: "\xFF\xFE\x00\x00a\x00\x00\x00", shown: "\uFFFDa\uFFFD",
		problem: "line 1 has a NUL byte",
	},
	{what: "a NUL", text: "a\nb\x00", shown: "a\nb\uFFFD", problem: "line 2 has a NUL byte"},
	{
		what: "Latin-1", text: "a\ncaf\xE9", shown: "a\ncafé", problem: "line 2 is not UTF-8",
		guess: ", so it was read as Windows-1252",
	},
	{
		what: "Windows-1252", text: "\x93a\x94 \x80", shown: "“a” €", problem: "line 1 is not UTF-8",
		guess: ", so it was read as Windows-1252",
	},
	{
		what: "UTF-8 with a mark and other bytes", text: "\xEF\xBB\xBFé\xE9", shown: "é\uFFFD",
		problem: "line 1 is not UTF-8",
	},
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, test := range texts {
		got, err := textfile.Decode("notes", []byte(test.text))
		want, problem, hint := test.shown, "", ""
		if test.problem != "" {
			want, problem, hint = "", "cannot read notes: "+test.problem, "Save it as UTF-8."
		}
		shown := ""
		if err != nil {
			shown = err.Error()
		}
		if diff := cmp.Diff([]string{want, problem, hint}, []string{string(got), shown, errs.Hint(err)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
		if err != nil && !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: the error is %v", test.what, err)
		}
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	for _, test := range texts {
		shown, guess := textfile.Show([]byte(test.text))
		if diff := cmp.Diff([]string{test.shown, test.problem + test.guess}, []string{shown, guess}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(path, []byte("\xFF\xFEa\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := textfile.Read(path, 4); err != nil || string(text) != "a" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := textfile.Read(path, 3); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("more than the limit: %v", err)
	}
}
