package golden

import (
	"os"
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"TestA/one": "error: x\nhint: y\n", "TestA/two": "a\n\nb\n", "TestB": "c\n"}
	file := format(texts)
	if diff := gocmp.Diff(texts, parse(string(file))); diff != "" {
		t.Errorf("parsed texts (-want +got):\n%s", diff)
	}
	const want = "TestA/one\n\terror: x\n\thint: y\n\nTestA/two\n\ta\n\t\n\tb\n\nTestB\n\tc\n"
	if diff := gocmp.Diff(want, string(file)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

// A golden file stays at its place if the test changes directory.
func TestNewBeforeChdir(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Run("sub", func(t *testing.T) {
		texts := New(t)
		t.Chdir(t.TempDir())
		want := filepath.Join(dir, "testdata", t.Name()+".golden")
		if texts.path != want {
			t.Errorf("got %s, want %s", texts.path, want)
		}
		if err := os.MkdirAll(filepath.Dir(want), 0o750); err != nil {
			t.Fatal(err)
		}
		texts.Text(t, "a\n")
		if err := os.WriteFile(want, format(texts.texts), 0o600); err != nil {
			t.Fatal(err)
		}
	})
}
