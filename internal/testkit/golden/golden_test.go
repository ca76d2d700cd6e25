package golden

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"TestA/one": "error: x\nhint: y\n", "TestA/two": "a\n\nb\n", "TestB": "c\n"}
	file := format(texts)
	if diff := gocmp.Diff(texts, parse(string(file))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const want = "TestA/one\n\terror: x\n\thint: y\n\nTestA/two\n\ta\n\t\n\tb\n\nTestB\n\tc\n"
	if diff := gocmp.Diff(want, string(file)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
