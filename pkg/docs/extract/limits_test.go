package extract_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
)

// nested returns a type in which the default of each attribute has two elements
// of the type within.
func nested(depth int) string {
	text := "string"
	for range depth {
		text = "list(object({ a = optional(" + text + ", [{}, {}]) }))"
	}
	return strings.Replace(text, "optional(string, [{}, {}])", "optional(string, \"x\")", 1)
}

// TestInputLimits has variables a whose default, type or description exceeds a
// limit, or nearly does.
func TestInputLimits(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	long := strings.Repeat("x", 100)
	for _, test := range []struct {
		name, body string
		hasDefault bool
	}{
		{"longest default", `default = "` + strings.Repeat("x", 64<<10-2) + `"`, true},
		{"default that is too long", `default = "` + strings.Repeat("x", 64<<10-1) + `"`, false},
		{"default that is too long as JSON", `default = "` + strings.Repeat("\u2028", 15<<10) + `"`, false},
		{"default that grows", fmt.Sprintf("type = map(object({ a = optional(string, %q) }))\n default = {\n%s}",
			strings.Repeat("x", 1000), lines("k%d = {}\n", 100)), false},
		{"default with too many attributes", fmt.Sprintf("type = list(object({%s}))\n default = [%s]",
			lines("a%d = optional(any),", 400), strings.Repeat("{},", 4000)), false},
		{"default that multiplies", "type = " + nested(40) + "\n default = [{}, {}]", false},
		{"default that multiplies little", "type = " + nested(3) + "\n default = [{}, {}]", true},
		{"type with too many parts", "type = object({" + lines("a%d=string,", 1200) + "})\n default = null", true},
		{"type with long comments", "type = object({" + lines("a%d=string, # "+long+"\n", 150) + "})\n default = null", true},
		{"type with long names", "type = object({" + lines("a%d"+long+"=string,", 200) + "})\n default = null", true},
		{"description that is too long", `description = "` + strings.Repeat("x", 16<<10+1) + `"`, false},
		{"deprecation that is too long", `deprecated = "` + strings.Repeat("x", 16<<10+1) + `"`, false},
		{"many elements of a list with any", "type = list(any)\n default = [" + strings.Repeat(`1,"a",`, 2000) + "]", false},
		{"large exponent", "default = 1e1000", true},
		{"exponent that is too large", "default = 1e2000", false},
		{"exponent that is too small", "default = 1e-2000", false},
		{"exponent in a list", "default = [[1e999999999]]", false},
		{"exponent in a key", "default = { 1e99999999 = 1 }", false},
		{"exponent in a string", "type = number\n default = \"1e99999999\"", false},
		{"exponent in a string within a type",
			"type = object({ a = optional(number, \"1e99999999\") })\n default = {}", true},
		{"product that is too large", "default = " + strings.Repeat("1e1000 * ", 9) + "1", false},
		{"division by zero", "default = 1 / 0", false},
		{"remainder", "default = 1e1000 % 3", false},
		{"loop", "default = [for a in [1, 2] : [for b in [1, 2] : b]]", false},
		{"loop within a type", "type = object({ a = optional(any, [for a in [1] : a]) })\n default = {}", true},
		{"function", `default = file("/etc/passwd")`, false},
		{"reference", "default = var.b", false},
		{"condition", "default = true ? 1 : 2", false},
		{"default that is not of the type", "type = number\n default = \"x\"", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := extracted(t, native("variable \"a\" {\n"+test.body+"\n}\n"))
			if len(d.Root.Inputs) != 1 {
				t.Fatalf("got %d inputs, want 1", len(d.Root.Inputs))
			}
			if got := d.Root.Inputs[0].Default != ""; got != test.hasDefault {
				t.Errorf("has a default: got %t, want %t", got, test.hasDefault)
			}
			texts.Text(t, strings.Join(d.Notes, "\n"))
		})
	}
}

// lines formats numbers from 0 to n-1.
func lines(format string, n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}

// TestFolderLimits has modules of which a part is missing.
func TestFolderLimits(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	long := strings.Repeat("x", 300)
	many, invalid := make(map[string][]byte), make(map[string][]byte)
	for i := range 150 {
		many[fmt.Sprintf("modules/m%03d/main.tf", i)] = nil
		many[fmt.Sprintf("examples/e%03d/README.md", i)] = []byte("# E")
		invalid[fmt.Sprintf("examples/e%03d/main.tf", i)] = []byte("}")
	}
	for _, test := range []struct {
		name  string
		files map[string][]byte
	}{
		{"too many folders", many},
		{"too many notes", invalid},
		{"configuration that is too large", map[string][]byte{
			"examples/a/main.tf": nil, "examples/a/a.tf": []byte(`variable "a" {}`), "examples/a/README.md": []byte("# A"),
		}},
		{"README that is too large", map[string][]byte{"README.md": nil, "main.tf": []byte(`variable "a" {}`)}},
		{"invalid example", map[string][]byte{
			"examples/a/main.tf": []byte("x = SECRET {"), "examples/a/b.tf": []byte(`variable "a" {}`),
			"examples/a/README.md": []byte("# A"), "examples/b/main.tf": []byte(`variable "b" {}`),
		}},
		{"wrong labels", map[string][]byte{"examples/a/main.tf": []byte(`variable "a" "b" {}`)}},
		{"long names", map[string][]byte{"main.tf": []byte(
			`variable "` + long + `" {}` + "\n" + `resource "` + long + `" "a" {}` + "\n" + `provider "` + long + `" {}`)}},
		{"expressions instead of texts", map[string][]byte{"main.tf": []byte(`
variable "a" {
  type        = text
  description = "x ${local.y}"
}
output "o" { description = upper("x") }
module "m" { source = "${path.module}/x" }
terraform {
  required_version = local.version
  required_providers {
    aws = local.aws
    b   = { source = local.b, version = local.b, configuration_aliases = [b, b.c.d, "b.e"] }
  }
}
`)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := extractedBytes(t, test.files)
			notes := strings.Join(d.Notes, "\n")
			if strings.Contains(notes, "SECRET") {
				t.Errorf("the notes quote a file: %s", notes)
			}
			texts.Text(t, notes+"\n\n"+outline(d))
		})
	}
}

// outline describes what documentation has: each folder with its number of
// inputs and its README.
func outline(d docs.Documentation) string {
	var text strings.Builder
	describe := func(f docs.Folder) {
		fmt.Fprintf(&text, "%q: %d inputs, %d outputs, empty %t, README %d bytes\n",
			f.Path, len(f.Inputs), len(f.Outputs), f.Empty, len(f.Readme))
	}
	describe(d.Root)
	fmt.Fprintf(&text, "%d submodules, %d examples\n", len(d.Submodules), len(d.Examples))
	for _, folders := range [][]docs.Folder{d.Submodules, d.Examples} {
		if len(folders) > 0 {
			describe(folders[0])
		}
	}
	return text.String()
}

// TestFit makes documentation of which one part after the other is too large.
// Less important parts are dropped first.
func TestFit(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	large := strings.Repeat("x", docs.MaxSize)
	folder := func(path string) docs.Folder {
		return docs.Folder{
			Path: path, Readme: "# A", ReadmeHTML: "<h1>A</h1>", ReadmeRestHTML: "<p>",
			Inputs:  []docs.Input{{Name: "a", Type: "any", TypeHTML: "<b>any</b>", Default: "1", DefaultHTML: "<b>1</b>"}},
			Outputs: []docs.Output{{Name: "o", Description: "An output"}},
		}
	}
	d := docs.Documentation{
		Root: folder(""), Submodules: []docs.Folder{folder("modules/a")}, Examples: []docs.Folder{folder("examples/a")},
	}
	for _, part := range []struct {
		name string
		text *string
	}{
		{"1 README of an example in HTML", &d.Examples[0].ReadmeHTML},
		{"2 README of an example", &d.Examples[0].Readme},
		{"3 default of an example", &d.Examples[0].Inputs[0].Default},
		{"4 type of a submodule in HTML", &d.Submodules[0].Inputs[0].TypeHTML},
		{"5 README of a submodule", &d.Submodules[0].Readme},
		{"6 rest of the root's README in HTML", &d.Root.ReadmeRestHTML},
		{"7 README of the root", &d.Root.Readme},
		{"8 default of a submodule", &d.Submodules[0].Inputs[0].Default},
		{"9 default of the root", &d.Root.Inputs[0].Default},
		{"10 name of the root", &d.Root.Outputs[0].Name},
	} {
		t.Run(part.name, func(t *testing.T) {
			before := *part.text
			defer func() { *part.text = before }()
			*part.text = large
			fit := extract.Fit(copied(t, d))
			if _, err := docs.Encode(fit); err != nil {
				t.Error(err)
			}
			text, err := json.MarshalIndent(fit, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			texts.Text(t, string(text))
		})
	}
}

// copied returns a deep copy.
func copied(t testing.TB, d docs.Documentation) (same docs.Documentation) {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &same); err != nil {
		t.Fatal(err)
	}
	return same
}

// Extract drops parts too.
func TestLargeReadmes(t *testing.T) {
	t.Parallel()
	readme := []byte(strings.Repeat("\x01 ", 30<<10))
	files := map[string][]byte{"README.md": readme, "main.tf": []byte(`variable "a" {}`)}
	for i := range 20 {
		files[fmt.Sprintf("examples/x%d/README.md", i)] = readme
	}
	d := extractedBytes(t, files)
	golden.New(t).Text(t, strings.Join(d.Notes, "\n")+"\n\n"+outline(d))
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d, err := extract.Extract(ctx, "vpc", map[string][]byte{"main.tf": []byte(`variable "a" {}`)}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
	if diff := cmp.Diff(docs.Documentation{}, d); diff != "" {
		t.Errorf("got documentation (-want +got):\n%s", diff)
	}
}

// TestHostile extracts the documentation of configuration that attacks parsers.
// It must return.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, input := range hostile.All() {
		t.Run(input.Name, func(t *testing.T) {
			t.Parallel()
			content := input.Make(3_000)
			extractedBytes(t, map[string][]byte{input.File(): content, "examples/a/" + input.File(): content})
		})
	}
}

// FuzzExtract checks that documentation of any files can be encoded, and is the
// same each time.
func FuzzExtract(f *testing.F) {
	for _, tests := range [][]module{modules, secrets} {
		for _, test := range tests {
			for name, content := range test.files {
				f.Add(content, "", strings.HasSuffix(name, ".json"))
				f.Add(content, `variable "a" { default = 1 }`, strings.HasSuffix(name, ".json"))
			}
		}
	}
	for _, input := range hostile.All() {
		f.Add(string(input.Make(300)), "", input.JSON)
	}
	f.Fuzz(func(t *testing.T, source, override string, isJSON bool) {
		if len(source) > 20_000 || len(override) > 20_000 {
			return
		}
		name := "main.tf"
		if isJSON {
			name = "main.tf.json"
		}
		files := map[string][]byte{
			name: []byte(source), "override.tf": []byte(override), "modules/a/" + name: []byte(source),
			"examples/a/" + name: []byte(source), "README.md": []byte(source),
		}
		d := extractedBytes(t, files)
		if diff := cmp.Diff(d, extractedBytes(t, files)); diff != "" {
			t.Errorf("the same files give other documentation:\n%s", diff)
		}
		for _, note := range d.Notes {
			if strings.Contains(note, "internal error") {
				t.Error(note)
			}
		}
	})
}

func TestReadmeFormats(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"README.md":       "<p>a <em>b</em></p>",
		"Readme.MARKDOWN": "<p>a <em>b</em></p>",
		"README.txt":      `<pre tabindex="0" role="group" aria-label="Code">a *b*</pre>`,
		"README":          `<pre tabindex="0" role="group" aria-label="Code">a *b*</pre>`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := extracted(t, map[string]string{name: "a *b*"})
			if diff := cmp.Diff(want, d.Root.ReadmeHTML); diff != "" {
				t.Errorf("HTML (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadmeEncodings(t *testing.T) {
	t.Parallel()
	const file = "In the file README.txt, "
	for name, test := range map[string]struct {
		text, want string
		notes      []string
	}{
		"UTF-8":    {text: "é", want: "é"},
		"UTF-16":   {text: "\xFF\xFE\xE9\x00", want: "é"},
		"Latin-1":  {"\xE9", "é", []string{file + "line 1 is not UTF-8, so it was read as Windows-1252. Save it as UTF-8."}},
		"with NUL": {"a\x00", "a\uFFFD", []string{file + "line 1 has a NUL byte. Save it as UTF-8."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := extracted(t, map[string]string{"README.txt": test.text})
			want := []any{test.want, `<pre tabindex="0" role="group" aria-label="Code">` + test.want + "</pre>", test.notes}
			if diff := cmp.Diff(want, []any{d.Root.Readme, d.Root.ReadmeHTML, d.Notes}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A long description ends at a word, and is not missing.
func TestLongDescription(t *testing.T) {
	t.Parallel()
	const size = 16 << 10
	words := strings.Repeat("longword ", size/9+1)
	for name, test := range map[string]struct{ text, want string }{
		"words":    {words, words[:(size-4)/9*9-1] + " …"},
		"one word": {strings.Repeat("ö", size), strings.Repeat("ö", size/2-2) + " …"},
		"short":    {words[:size], words[:size]},
	} {
		source := map[string][]byte{"main.tf": fmt.Appendf(nil, "variable \"a\" {\n  description = %q\n}\n", test.text)}
		d, err := extract.Extract(t.Context(), "vpc", source, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Root.Inputs[0].Description; got != test.want {
			t.Errorf("%s: the description has %d bytes and ends with %q, want %d", name, len(got), got[max(len(got)-20, 0):], len(test.want))
		}
	}
}
