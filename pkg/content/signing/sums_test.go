package signing_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
)

var (
	a = strings.Repeat("0a", 32)
	b = strings.Repeat("f9", 32)
)

func TestParseSums(t *testing.T) {
	t.Parallel()
	want := []signing.Sum{{SHA256: b, Filename: "b_1.0.0+x_linux_amd64.zip"}, {SHA256: a, Filename: "a-manifest.json"}}
	text := b + "  b_1.0.0+x_linux_amd64.zip\n" + a + "  a-manifest.json\n"
	for what, variant := range map[string]string{
		"LF":            text,
		"CR LF":         strings.ReplaceAll(text, "\n", "\r\n"),
		"no end":        strings.TrimSuffix(text, "\n"),
		"CR LF, no end": strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\r\n"), "\r\n"),
	} {
		got, err := signing.ParseSums([]byte(variant))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", what, err, diff)
		}
	}
	if got, want := string(
		signing.RenderSums(want),
	), a+"  a-manifest.json\n"+b+"  b_1.0.0+x_linux_amd64.zip\n"; got != want {
		t.Errorf("RenderSums writes %s", got)
	}
	if want[0].SHA256 != b {
		t.Error("RenderSums changes its argument")
	}
}

func TestParseSumsRefuses(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	first := a + "  first.zip\n"
	var many strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&many, "%s  %d.zip\n", a, i)
	}
	tests := []struct {
		what, text string
		names      []string
	}{
		{"nothing", "", nil},
		{"a newline", "\n", []string{"line 1"}},
		{"a blank line", first + "\n" + b + "  b.zip\n", []string{"line 2"}},
		{"a blank line at the end", first + "\n", []string{"line 2"}},
		{"a blank line of CR LF", strings.ReplaceAll(first, "\n", "\r\n\r\n"), []string{"line 2"}},
		{"spaces", first + "  \n", []string{"line 2"}},
		{"a comment", "# made by hand\n" + first, []string{"line 1"}},
		{"a byte order mark", "\ufeff" + first, nil},
		{"sha256sum -b", first + b + " *b.zip\n", []string{"line 2"}},
		{"upper case", first + strings.ToUpper(b) + "  b.zip\n", []string{"line 2"}},
		{"one space", first + b + " b.zip\n", []string{"line 2"}},
		{"a tab", first + b + "\tb.zip\n", []string{"line 2"}},
		{"three spaces", first + b + "   b.zip\n", []string{"line 2"}},
		{"a space in the name", first + b + "  b c.zip\n", []string{"line 2"}},
		{"a space behind the name", first + b + "  b.zip \n", []string{"line 2"}},
		{"too few digits", first + b[1:] + "  b.zip\n", []string{"line 2"}},
		{"too many digits", first + b + "0  b.zip\n", []string{"line 2"}},
		{"other digits", first + "g" + b[1:] + "  b.zip\n", []string{"line 2"}},
		{"no name", first + b + "  \n", []string{"line 2"}},
		{"no name at all", first + b, []string{"line 2"}},
		{"a folder", first + b + "  ./b.zip\n", []string{"line 2"}},
		{"a folder of Windows", first + b + "  dist\\b.zip\n", []string{"line 2"}},
		{"the folder above", first + b + "  ..\n", []string{"line 2"}},
		{"a long name", first + b + "  " + strings.Repeat("b", 256) + "\n", []string{"line 2"}},
		{"twice", first + b + "  b.zip\n" + first, []string{"line 3"}},
		{"CR LF at first", strings.ReplaceAll(first, "\n", "\r\n") + b + "  b.zip\n", []string{"line 2"}},
		{"CR LF later", first + b + "  b.zip\r\n", []string{"line 1"}},
		{"CR alone", first + b + "  b.zip\r", []string{"line 2"}},
		{"BSD", first + "SHA256 (b.zip) = " + b + "\n", []string{"line 2"}},
		{"a terminal's", first + "\x1b[31m" + strings.Repeat("x", 1000) + "\n", []string{"line 2"}},
		{"many lines", many.String(), nil},
		{"too much", strings.Repeat("x", 1<<20+1), nil},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			sums, err := signing.ParseSums([]byte(test.text))
			checkRefused(t, texts, err, test.names...)
			if sums != nil {
				t.Errorf("got the sums %v with the error", sums)
			}
		})
	}
}

// FuzzParseSums checks that clients split accepted files in the same way, into
// lines of two fields.
func FuzzParseSums(f *testing.F) {
	f.Add([]byte(a + "  a.zip\n" + b + "  b.zip\n"))
	f.Add([]byte(a + "  a.zip\r\n" + b + "  b.zip\r\n"))
	f.Add([]byte(a + " *a.zip\n\n# x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		sums, err := signing.ParseSums(text)
		if err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
			}
			return
		}
		lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
		if len(lines) != len(sums) || len(sums) == 0 {
			t.Fatalf("%q has %d lines, not %d", text, len(lines), len(sums))
		}
		for i, line := range lines {
			fields := bytes.Fields(line)
			if len(fields) != 2 || string(fields[0]) != sums[i].SHA256 || string(fields[1]) != sums[i].Filename {
				t.Errorf("%q is %+v", line, sums[i])
			}
		}
		again, err := signing.ParseSums(signing.RenderSums(sums))
		if err != nil || len(again) != len(sums) {
			t.Errorf("%v renders as %v, %v", sums, again, err)
		}
	})
}
