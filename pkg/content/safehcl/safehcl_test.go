package safehcl_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	legacy "github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/larder-registry/larder/internal/testkit/corpus"
	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/content/safehcl"
)

func parse(t *testing.T, source string) error {
	t.Helper()
	_, err := new(safehcl.Parser).Parse(t.Context(), "main.tf", []byte(source))
	return err
}

// agree reports an error if only one of this package and the parser accepts a
// source.
func agree(t *testing.T, source string) {
	t.Helper()
	err := parse(t, source)
	problem, rejected := errors.AsType[*safehcl.Error](err)
	if err != nil && !rejected {
		t.Fatalf("%q: %v is not an Error", source, err)
	}
	if errors.Is(err, safehcl.ErrLimit) {
		return
	}
	_, want := hclsyntax.ParseConfig([]byte(source), "main.tf", hcl.InitialPos)
	first := safehcl.FirstError("main.tf", want)
	switch {
	case err == nil && first != nil:
		t.Errorf("%q is accepted, but the parser reports %v", source, first)
	case err != nil && first == nil:
		t.Errorf("%q is rejected with %v, but the parser accepts it", source, err)
	case rejected && problem.Problem == safehcl.InvalidFromHere:
		t.Errorf("%q: the parser does not report the error, but %v", source, first)
	}
}

// forms has each production of the grammar, in forms that the parser accepts
// and in forms that it rejects.
var forms = []string{
	"", "\n\n", "# c", "# c\n", "// c\n/* d\n */ x = 1", "x = 1", "x = 1\n", "/* c", "x = /* c", "x = 1 /* c */ /* d\n/*",
	"x = \"/*\"\ny = \"a/*\"", "x = <<A\n/*\nA\n", "x = 1 //", "x = 1 /", "x = 1 *", "/* c */", "#", "x = 1 # c\n",
	"x = 1 y = 2", "x = 1, y = 2", "x", "x =", "x = \n1", "= 1", "1 = 2", `"x" = 1`, "x = /* c\n */ 1\n", "a {}", "a {\n}",
	"a {\n}\n", "a b \"c\" d {\n x = 1\n}\n", "a { x = 1 }", "a { x = 1\n}", "a { x = 1, y = 2 }", "a { b {} }",
	"a {\n b {\n }\n}", "a {\n b { x = 1 } }", "a {} b {}", "a \"${b}\" {}", "a \"b\\q\" {}", "a \"b {\n}", "a\n{}", "a {",
	"a }", "}", "a { x = 1 } # c\n", "a { # c\n}\n", "a = {", "a [", "a {\nx = }\n", "a { x = \"\\q\" }\n}", "x = a.b",
	"x = a.b.0.c", "x = a.0.1", "x = a.*.b.0", "x = a.*.0.1", "x = a.*.*", "x = a.", "x = a.\nb", "x = a[0]",
	"x = a[\n0\n]", "x = a[*]", "x = a[*].b[0][*]", "x = a[*", "x = a[\n*]", "x = a[b", "x = a[]", "x = a.b[\"c\"].d",
	"x = a.b.\"c\"", "x = a[0, 1]", "x = (a)[0].b", "x = \"a\"[0]", "x = 1.a", "x = 1[0]", "x = 1 + 2 * 3 / 4 % 5 - 6",
	"x = a == b != c", "x = a && b || !c", "x = a < b > c <= d >= e", "x = 1 +", "x = + 1", "x = -1", "x = --1",
	"x = !-a.b", "x = - \n1", "x = (1 +\n2)", "x = 1\n+ 2", "x = a & b", "x = a | b", "x = ~a", "x = a ^ b", "x = a ** b",
	"x = a === b", "x = a ? b : c", "x = a ? b ? c : d : e ? f : g", "x = a ? b", "x = a ? : c", "x = a ?\nb : c",
	"x = (a ?\nb\n:\nc)", "x = a : b", "x = (1)", "x = (\n1\n)", "x = ()", "x = (1", "x = (1 2)", "x = (1))", "x = ((1)",
	"x = (\"\\q\")", "x = (# c\n1)", "x = f()", "x = f(1)", "x = f(1, 2,)", "x = f(1 2)", "x = f(1...)", "x = f(1..., 2)",
	"x = f(\n1,\n2\n)", "x = f(", "x = f(,)", "x = a::b()", "x = a::b::c(1)", "x = a::b", "x = a::", "x = a::1()",
	"x = a :: b()", "x = f (1)", "x = f\n(1)", "x = f(1)(2)", "x = []", "x = [1, 2,]", "x = [\n1,\n2\n]", "x = [1 2]",
	"x = [1\n2]", "x = [,]", "x = [", "x = [1", "x = [for]", "x = [for a in b : c]", "x = [for a, b in c : d if e]",
	"x = [for a in b : c => d]", "x = [for a in b : c...]", "x = [for a in b c]", "x = [for 1 in b : c]",
	"x = [for a, 1 in b : c]", "x = [for a on b : c]", "x = [for a in b :\nc\nif\nd\n]", "x = [\nfor a in b : c]",
	"x = [for a in b : c if d e]", "x = [for a in b : c", "x = {}", "x = {\n}", "x = { a = 1 }", "x = { a : 1, b = 2 }",
	"x = {\n a = 1\n b = 2\n}", "x = {\n a = 1,\n\n b = 2,\n}", "x = { a = 1 b = 2 }", "x = { a }", "x = { a, b }",
	"x = { \"a\" = 1, (b) = 2, c.d = 3, 4 = 5 }", "x = { a = \n1 }", "x = {, a = 1}", "x = {a = 1,, b = 2}", "x = {",
	"x = { a = 1", "x = { for a in b : c => d }", "x = { for a, b in c : d => e... if f }", "x = { for a in b : c }",
	"x = {\n for a in b : c => d\n}", "x = { for = 1 }", "x = { # c\n a = 1 # d\n}", `x = ""`, `x = "a"`,
	`x = "a\n\t\"\\\u00e9\U0001F600"`, `x = "\q"`, `x = "\u12"`, "x = \"a", "x = \"a\nb\"", `x = "${a}"`,
	`x = "a${b}c${d}"`, `x = "${~ a ~}"`, `x = "$${a} %%{b}"`, `x = "${}"`, `x = "${a"`, `x = "${a b}"`, `x = "${"${a}"}"`,
	"x = \"${\na\n}\"", `x = "${a}`, `x = "${a}"}"`, `x = "${ {a = 1} }"`, `x = "${"`, `x = "%{ if a }b%{ endif }"`,
	`x = "%{ if a }b%{ else }c%{ endif }"`, `x = "%{ for a in b }c%{ endfor }"`, `x = "%{ for a, b in c }d%{ endfor }"`,
	`x = "%{ if a }b"`, `x = "%{ endif }"`, `x = "%{ else }"`, `x = "%{ endfor }"`,
	`x = "%{ if a }%{ else }%{ else }%{ endif }"`, `x = "%{ for a in b }%{ else }%{ endfor }"`,
	`x = "%{ for a in b }%{ endif }"`, `x = "%{ if a }%{ endfor }"`, `x = "%{ if a }%{ for b in c }%{ endif }%{ endfor }"`,
	`x = "%{ what }"`, `x = "%{ }"`, `x = "%{ 1 }"`, `x = "%{ if }"`, `x = "%{ for in b }"`, `x = "%{ for a b }"`,
	`x = "%{ for a, in b }"`, `x = "%{ endif a }"`, `x = "%{~ if a ~}b%{~ endif ~}"`, "x = <<A\nb\nA\n",
	"x = <<-A\n  b\n  ${c}\n  A\n", "x = <<A\n%{ if b }\nc\n%{ endif }\nA\n", "x = <<A\nb\n", "x = <<A\nA",
	"x = <<A\nA\ny = 1\n", "x = [<<A\nb\nA\n]\n", "x = [<<A\nb\nA\n, 1]\n", "x = f(<<A\nb\nA\n)\n", "x = <<A b\nA\n",
	"x = <<\n", "x = <<A\n\\q ${\"\\q\"}\nA\n", "x = <<A\n${<<B\nc\nB\n}\nA\n", "x = 1.5", "x = 1.", "x = .5", "x = 1e5",
	"x = 1e", "x = 1.2.3", "x = 0x1", "x = 1e+5", "x = 1e5.5", "x = 00", "x = true", "x = null", "x = 'a'", "x = `a`",
	"x = a;", "x = @", "x = \xff", "\ufeffx = 1\n", "x = 1\r\ny = 2\r\n", "x\t=\t1\n", "x = 1\x00", "é = 1\n",
	"a-b = c-d\n", "x = ...", "x = =>", "x = $", "x = $a", "x = %", "x = ${a}",
}

func TestGrammar(t *testing.T) {
	t.Parallel()
	for _, source := range forms {
		agree(t, source)
		for _, around := range [][2]string{
			{"a {\n", "\n}\n"}, {"y = (", ")\n"}, {"y = [", "]\n"}, {`y = "${`, "}\"\n"}, {"y = {\n", "\n}\n"},
		} {
			agree(t, around[0]+source+around[1])
			agree(t, around[0]+strings.TrimPrefix(source, "x = ")+around[1])
		}
	}
}

// FuzzGrammar searches for sources on which the reader and the parser disagree.
func FuzzGrammar(f *testing.F) {
	for _, source := range forms {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) < 2000 { // the parser may take too long for longer ones
			agree(t, source)
		}
	})
}

// TestRealFiles compares this package with the parser for the configuration in
// Go's module cache.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	read := 0
	distinct := make(map[[sha256.Size]byte]bool)
	isConfig := func(name string) bool { return path.Ext(name) == ".tf" || path.Ext(name) == ".tofu" }
	corpus.Each(t, []string{"."}, isConfig, func(_, name string, source []byte) {
		read++
		distinct[sha256.Sum256(source)] = true
		_, want := hclsyntax.ParseConfig(source, "main.tf", hcl.InitialPos)
		got := parse(t, string(source))
		if (got == nil) != (safehcl.FirstError("main.tf", want) == nil) {
			t.Errorf("%s: got error %v, and the parser reports %v", name, got, want)
		}
	})
	t.Logf("%d files, %d of them distinct", read, len(distinct))
}

// TestHostile parses attacks on the parser. The stack is large enough for
// nesting within the limits, and little more. With LARDER_BENCH, it also parses
// larger ones, of as many tokens as a file may have and of as many bytes. No
// source may take longer than a publisher waits for.
func TestHostile(t *testing.T) {
	debug.SetMaxStack(8 << 20) // the process ends if it needs more
	const most = 5 * time.Second
	sizes := []int{40_000}
	if os.Getenv("LARDER_BENCH") != "" {
		sizes = append(sizes, 10<<10, 100<<10, 280_000, 400<<10, 1<<20)
	}
	var slowest time.Duration
	for _, size := range sizes {
		for _, input := range hostile.All() {
			parser := new(safehcl.Parser)
			parse := parser.Parse
			if input.JSON {
				parse = parser.ParseJSON
			}
			source, begun := input.Make(size), time.Now()
			if len(source) < size*3/4 || len(source) > size {
				t.Errorf("%s: %d bytes, want almost %d", input.Name, len(source), size)
			}
			_, err := parse(t.Context(), "main.tf", source)
			took := time.Since(begun)
			slowest = max(slowest, took)
			if _, rejected := errors.AsType[*safehcl.Error](err); err != nil && !rejected {
				t.Errorf("%s: %v is not an Error", input.Name, err)
			}
			if len(sizes) > 1 && took > most {
				t.Errorf("%s, %d bytes: it takes %s", input.Name, size, took)
			}
		}
	}
	t.Logf("the slowest of %d kinds of source takes %s", len(hostile.All()), slowest)
}

// TestBounds checks that sources just below a limit are accepted, and sources
// above it rejected.
func TestBounds(t *testing.T) {
	t.Parallel()
	r := strings.Repeat
	for _, test := range []struct{ name, accepted, rejected string }{
		{"parentheses", "x = " + r("(", 198) + "1" + r(")", 198), "x = " + r("(", 200) + "1" + r(")", 200)},
		{"blocks", r("a {\n", 200) + r("}\n", 200), r("a {\n", 201) + r("}\n", 201)},
		{"conditionals", "x = " + r("a ? b : ", 199) + "c", "x = " + r("a ? b : ", 200) + "c"},
		{
			"directives", `x = "` + r("%{if a}", 150) + r("%{endif}", 150) + `"`,
			`x = "` + r("%{if a}", 250) + r("%{endif}", 250) + `"`,
		},
		{"operators", "x = 1" + r(" + 1", 10_000), "x = 1" + r(" + 1", 10_001)},
		{"indices", "x = a" + r("[0]", 10_000), "x = a" + r("[0]", 10_001)},
		{"digits", "x = " + r("9", 1000), "x = " + r("9", 1001)},
		{"words and signs", r("#\n", 149_000), r("#\n", 150_001)},
		{"lines of a heredoc", "x = <<A\n" + r("a\n", 10_000) + "A\n", "x = <<A\n" + r("a\n", 40_000) + "A\n"},
		{"lines of a heredoc without an end", "", "x = <<A\n=" + r("\n", 100_000)},
		{"lines of a heredoc with a stray directive", "", "x = <<A\n" + r("a\n", 100_000) + "%{ endif }\nA\n"},
		{"parts of a text", `x = "` + r("%%", 5_000) + `"`, `x = "` + r("%%", 50_000) + `"`},
		{"parts of a text without an end", "", `x = "` + r("%", 250_000)},
		{"negative numbers", "x = [" + r("-1,", 50_000) + "]", "x = [" + r("-1,", 150_000) + "]"},
		{"interpolations", `x = "` + r("${a}b", 20_000) + `"`, `x = "` + r("${a}$b", 40_000) + `"`},
	} {
		if err := parse(t, test.accepted); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if err := parse(t, test.rejected); !errors.Is(err, safehcl.ErrLimit) {
			t.Errorf("%s above the limit: got error %v, want ErrLimit", test.name, err)
		}
	}
}

// TestShared checks that the files of one Parser share their limits.
func TestShared(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"words and signs": strings.Repeat("a {\n}\n", 59_000),               // 295,000 of 600,000
		"work":            "x = [" + strings.Repeat("1e1,", 20_000) + "]\n", // 400,000,000 of 1,000,000,000
	} {
		var parser safehcl.Parser
		for i := range 3 {
			_, err := parser.Parse(t.Context(), "main.tf", []byte(source))
			if rejected := err != nil; rejected != (i == 2) {
				t.Errorf("%s, file %d: %v", name, i+1, err)
			}
		}
	}
}

// TestCanceled checks that parsing returns the error of the context.
func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var parser safehcl.Parser
	if _, err := parser.Parse(ctx, "main.tf", []byte("x = 1\n")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := parser.ParseJSON(ctx, "main.tf.json", []byte("{}")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLiteralsOnly checks that values that need a computation are rejected.
func TestLiteralsOnly(t *testing.T) {
	t.Parallel()
	for source, accepted := range map[string]bool{
		`x = "a"`: true, "x = [1, 2.5, true, null, { a = [] }]": true, "a \"b\" {\n x = 1\n}\n": true, "x = name": true,
		"x = (1)": false, "x = 1 + 1": false, "x = -1": false, "x = !true": false, "x = a.b": false,
		"x = a[0]": false, "x = a[*]": false, "x = a.*": false,
		"x = f()": false, "x = a::b()": false, "x = [for a in [] : a]": false, "x = {for a in [] : a => a}": false,
		"x = <<A\na\nA\n": false,
		`x = "${a}"`:      false, `x = "%{if a}b%{endif}"`: false, "x = 1e5": false, "x = 1234567890123456789": false,
		"x = true ? 1 : 2": false,
	} {
		parser := safehcl.Parser{LiteralsOnly: true}
		if _, err := parser.Parse(t.Context(), "list.hcl", []byte(source)); (err == nil) != accepted {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestJSON checks the limits of the JSON syntax.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := strings.Repeat
	for _, test := range []struct {
		name, source string
		accepted     bool
	}{
		{"an object", `{"variable": {"a": {"default": [1, null, "x"]}}}`, true},
		{"brackets in a text", `{"a": "` + r("[", 1000) + `"}`, true},
		{"digits in a text", `{"a": "` + r("9", 2000) + `"}`, true},
		{"arrays within the bound", r(`[`, 199) + r(`]`, 199), true},
		{"arrays beyond the bound", `{"a":` + r(`[`, 201) + r(`]`, 201) + `}`, false},
		{"no JSON, with closers first", r("]", 300) + r("[", 300), false},
		{"a long number", `{"a": ` + r("9", 1001) + `}`, false},
		{"many exponents", `{"a": [` + r("1e999999999,", 60_000) + `1]}`, false},
		{"no JSON", `{"a": }`, false},
		{"nothing", "", false},
	} {
		_, err := new(safehcl.Parser).ParseJSON(t.Context(), "main.tf.json", []byte(test.source))
		if (err == nil) != test.accepted {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestCheckLegacy parses accepted files with a small stack, which would end the
// process if it were exhausted.
func TestCheckLegacy(t *testing.T) {
	debug.SetMaxStack(64 << 20)
	for _, test := range []struct {
		name, source string
		accepted     bool
	}{
		{"blocks", "credentials \"a.example\" {\n  token = \"x\"\n}\n", true},
		{"lists", "x = " + strings.Repeat("[", 2_000), true},
		{"closers in comments", "x = " + strings.Repeat("[\n#]\n", 2_000), true},
		{"more lists", "x = " + strings.Repeat("[", 2_001), false},
		{"more closers in comments", "x = " + strings.Repeat("[\n#]\n", 2_001), false},
	} {
		err := safehcl.CheckLegacy([]byte(test.source))
		if (err == nil) != test.accepted {
			t.Errorf("%s: %v", test.name, err)
		}
		if err == nil {
			_, _ = legacy.ParseBytes([]byte(test.source)) // it only has to return
		}
	}
}
