// Package hostile creates input that attacks a registry: configuration that
// exhausts its parser, and texts that attack a page.
package hostile

import (
	"slices"
	"strconv"
	"strings"
)

// HCL is one kind of configuration that attacks a parser of HCL.
type HCL struct {
	// Name describes the input, such as "parentheses, closers first".
	Name string
	// JSON reports that the input is in HCL's JSON syntax.
	JSON bool
	// Make returns an input of at most size bytes, and of almost that size. It
	// may exceed a size below 200 bytes.
	Make func(size int) []byte
}

// File returns the name of a module's file for the input.
func (h HCL) File() string {
	if h.JSON {
		return "main.tf.json"
	}
	return "main.tf"
}

// All returns every kind of input. The names are unique.
func All() []HCL {
	var nesting []HCL
	for _, p := range productions {
		nesting = append(nesting, p.variants()...)
	}
	return slices.Concat(nesting, chains(), recoveries(), quadratic(), literals(), jsonInputs())
}

// production is a recursive production of the grammar. open is repeated to nest
// it, core is the innermost part, and each close ends one open.
type production struct{ name, open, core, close string }

// productions are the productions of expressions and of bodies. Those of bodies
// begin a line; see inBody.
var productions = []production{
	{"parentheses", "(", "1", ")"},
	{"lists", "[", "1", "]"},
	{"lists, second element", "[1,", "1", "]"},
	{"objects", "{a=", "1", "}"},
	{"objects, over lines", "{\na=", "1", "\n}"},
	{"object keys", "{(", "a", ")=1}"},
	{"for tuples, collection", "[for a in ", "b", ":a]"},
	{"for tuples, value", "[for a in b:", "a", "]"},
	{"for tuples, condition", "[for a in b:a if ", "true", "]"},
	{"for objects, collection", "{for a,b in ", "c", ":a=>b}"},
	{"for objects, key", "{for a in b:", "a", "=>a}"},
	{"for objects, value", "{for a in b:a=>", "a", "}"},
	{"for objects, condition", "{for a in b:a=>a if ", "true", "}"},
	{"conditionals, condition", "(", "a", "?1:2)"},
	{"conditionals, true result", "a?", "1", ":2"},
	{"conditionals, false result", "a?1:", "2", ""},
	{"unary minus", "-", "1", ""},
	{"unary not", "!", "true", ""},
	{"unary minus and not", "-!", "a", ""},
	{"unary minus and parentheses", "-(", "1", ")"},
	{"unary not and lists", "![", "1", "]"},
	{"sums, right operand", "1+(", "1", ")"},
	{"sums, left operand", "(", "1", "+1)"},
	{"products, right operand", "2*(", "1", ")"},
	{"conjunctions, right operand", "a&&(", "a", ")"},
	{"disjunctions, right operand", "a||(", "a", ")"},
	{"equalities, right operand", "1==(", "1", ")"},
	{"comparisons, right operand", "1<(", "1", ")"},
	{"templates", `"${`, "1", `}"`},
	{"templates, with text", `"a${`, "1", `}b"`},
	{"templates, trimmed", `"${~`, "1", `~}"`},
	{"template if conditions", `"%{if `, "true", `}a%{endif}"`},
	{"template for collections", `"%{for a in `, "b", `}a%{endfor}"`},
	{"template if bodies", `"%{if a}${`, "1", `}%{endif}"`},
	{"heredocs", "<<A\n${", "1", "}\nA\n"},
	{"flush heredocs", "<<-A\n ${", "1", "}\n A\n"},
	{"heredocs in quoted templates", "\"${<<A\n${", "1", "}\nA\n}\""},
	{"quoted templates in heredocs", "<<A\n${\"${", "1", "}\"}\nA\n"},
	{"index keys", "a[", "0", "]"},
	{"index keys with templates", `a["${`, "0", `}"]`},
	{"index keys after splats", "a[*][", "0", "]"},
	{"function calls", "f(", "1", ")"},
	{"function calls, second argument", "f(1,", "1", ")"},
	{"function calls, expanded", "f(", "a", "...)"},
	{"namespaced function calls", "a::f(", "1", ")"},
	{"all brackets", `([{a=f(a["${`, "1", `}"])}])`},
	{"blocks", "a {\n", "", "}\n"},
	{"blocks with labels", "a b \"c\" {\n", "", "}\n"},
	{"blocks with comments", "a {#\n", "", "}#\n"},
	{"one-line blocks", "a { ", "b = 1", " }"},
	{"one-line blocks with objects", "a { b = {c=", "1", "} }"},
	{"blocks with objects", "a {\nb = {\nc = 1\n}\n", "", "}\n"},
}

// inBody reports whether a production is part of a body, instead of an
// expression after "=".
func (p production) inBody() bool {
	return strings.HasPrefix(p.open, "a {") || strings.HasPrefix(p.open, "a b")
}

// variants returns three forms of the production: nested and closed, truncated
// at the end of the file, and after a line of closers. The closers make a
// counter of brackets negative, although the parser discards their line.
func (p production) variants() []HCL {
	before := "x = "
	if p.inBody() {
		before = ""
	}
	inputs := []HCL{
		{Name: p.name, Make: nested(before, p.open, p.core, p.close, "\n")},
		{Name: p.name + ", broken off", Make: nested(before, p.open, "", "", "")},
	}
	if p.close != "" {
		inputs = append(inputs,
			HCL{Name: p.name + ", closers first", Make: closersFirst(before, p.open, p.close)},
			HCL{Name: p.name + ", braces first",
				Make: closersFirst(before, p.open, strings.Repeat("}", len(p.open)))},
		)
	}
	return inputs
}

// nested returns a maker. Its input is before, as many of open as fit, core, as
// many of closing, and after.
func nested(before, open, core, closing, after string) func(int) []byte {
	return func(size int) []byte {
		n := max(1, (size-len(before)-len(core)-len(after))/(len(open)+len(closing)))
		return []byte(before + strings.Repeat(open, n) + core + strings.Repeat(closing, n) + after)
	}
}

// repeated returns a maker of before, as many of unit as fit, and after.
func repeated(before, unit, after string) func(int) []byte {
	return nested(before, unit, "", "", after)
}

// closersFirst returns a maker of a line with closers, followed by the same
// number of openers.
func closersFirst(before, open, closing string) func(int) []byte {
	return func(size int) []byte {
		const first = "y = 1 "
		n := max(1, (size-len(first)-len(before)-2)/(len(open)+len(closing)))
		closers := strings.ReplaceAll(strings.Repeat(closing, n), "\n", " ")
		return []byte(first + closers + "\n" + before + strings.Repeat(open, n) + "\n")
	}
}

// chains are long without nesting in the text, but the parser may nest its
// result.
func chains() []HCL {
	return []HCL{
		{Name: "sums", Make: repeated("x = 1", "+1", "\n")},
		{Name: "products", Make: repeated("x = 1", "*1", "\n")},
		{Name: "divisions", Make: repeated("x = 1", "/1", "\n")},
		{Name: "remainders", Make: repeated("x = 1", "%1", "\n")},
		{Name: "conjunctions", Make: repeated("x = a", "&&a", "\n")},
		{Name: "disjunctions", Make: repeated("x = a", "||a", "\n")},
		{Name: "equalities", Make: repeated("x = 1", "==1", "\n")},
		{Name: "comparisons", Make: repeated("x = 1", "<1", "\n")},
		{Name: "sums of negations", Make: repeated("x = 1", "+-1", "\n")},
		{Name: "all operators", Make: repeated("x = 1", "||1&&1==1<1+1*1", "\n")},
		{Name: "indices", Make: repeated("x = a", "[0]", "\n")},
		{Name: "computed indices", Make: repeated("x = a", "[b]", "\n")},
		{Name: "indices in parentheses", Make: repeated("x = (a", "[b]", ")\n")},
		{Name: "legacy indices", Make: repeated("x = a", ".0", "\n")},
		{Name: "attributes", Make: repeated("x = a", ".b", "\n")},
		{Name: "attributes of calls", Make: repeated("x = f()", ".b", "\n")},
		{Name: "attributes without names", Make: repeated("x = a", ".", "\n")},
		{Name: "full splats", Make: repeated("x = a", "[*]", "\n")},
		{Name: "full splats, broken off", Make: repeated("x = a", "[*", "")},
		{Name: "full splats and attributes", Make: repeated("x = a", "[*].b", "\n")},
		{Name: "full splats and indices", Make: repeated("x = a", "[*][b]", "\n")},
		{Name: "attribute splats", Make: repeated("x = a", ".*", "\n")},
		{Name: "attribute splats and attributes", Make: repeated("x = a", ".*.b", "\n")},
		{Name: "attribute and full splats", Make: repeated("x = a", ".*[*]", "\n")},
		{Name: "namespaces", Make: repeated("x = a", "::a", "(1)\n")},
		{Name: "namespaces without a call", Make: repeated("x = a", "::a", "\n")},
		{Name: "arguments", Make: repeated("x = f(", "1,", ")\n")},
		{Name: "elements", Make: repeated("x = [", "1,", "]\n")},
		{Name: "elements on lines", Make: repeated("x = [", "1,\n", "]\n")},
		{Name: "properties", Make: repeated("x = {", "a=1\n", "}\n")},
		{Name: "labels", Make: repeated("a", " b", " {}\n")},
		{Name: "quoted labels", Make: repeated("a", ` "b"`, " {}\n")},
		{Name: "labels with templates", Make: repeated("a", ` "${b}"`, " {}\n")},
		{Name: "arguments of a body", Make: repeated("", "a = 1\n", "")},
		{Name: "empty blocks", Make: repeated("", "a {}\n", "")},
		{Name: "variables", Make: repeated("", "variable \"a\" {}\n", "")},
		{Name: "template if directives", Make: nested(`x = "`, "%{if a}", "", "%{endif}", "\"\n")},
		{Name: "template if directives without ends", Make: repeated(`x = "`, "%{if a}", "\"\n")},
		{Name: "template for directives", Make: nested(`x = "`, "%{for a in b}", "", "%{endfor}", "\"\n")},
		{Name: "template for directives without ends", Make: repeated(`x = "`, "%{for a in b}", "\"\n")},
		{Name: "template else directives", Make: repeated(`x = "%{if a}`, "%{else}", "%{endif}\"\n")},
		{Name: "template if directives in heredocs", Make: nested("x = <<A\n", "%{if a}\n", "", "%{endif}\n", "A\n")},
		{Name: "unknown directives", Make: repeated(`x = "`, "%{a}", "\"\n")},
	}
}

// recoveries make the parser skip tokens after an error. It then continues at a
// place that a counter of brackets does not expect. A frame that looks closed
// stays open.
func recoveries() []HCL {
	return []HCL{
		{Name: "blocks closed within an argument", Make: repeated("", "a{\nb=}\n", "")},
		{Name: "blocks closed by a bracket", Make: repeated("", "a{\na]\n", "")},
		{Name: "blocks closed by a parenthesis", Make: repeated("", "a{\na)\n", "")},
		{Name: "blocks closed after a name", Make: repeated("", "a{\nb}\n", "")},
		{Name: "blocks closed after a label", Make: repeated("", "a{\nb c}\n", "")},
		{Name: "blocks closed after an error", Make: repeated("", "a{\nb=(}\n", "")},
		{Name: "blocks closed after a dot", Make: repeated("", "a{\nb=c.}\n", "")},
		{Name: "blocks closed after an operator", Make: repeated("", "a{\nb=1+}\n", "")},
		{Name: "blocks closed after a value", Make: repeated("", "a{\nb=1}\n", "")},
		{Name: "blocks closed after a text", Make: repeated("", "a{\nb \"c\" }\n", "")},
		{Name: "blocks that a bad escape leaves open", Make: repeated("", "a {\n b { c = (\"\\q\") }\n }\n", "")},
		{Name: "one-line blocks that a bad escape leaves open", Make: repeated("", "a { b = (\"\\q\") }\n", "")},
		{Name: "blocks that an escape in brackets leaves open", Make: repeated("", "a {\n b = [\"\\q\"]}\n", "")},
		{Name: "blocks in one-line blocks", Make: repeated("", "a { b {\n", "")},
		{Name: "calls without a name in an index", Make: repeated("x = ", "a[((((a::1))))] [()]", "\n")},
		{Name: "calls without a name, then brackets", Make: repeated("x = ", "[((a::1))] [(", "\n")},
		{Name: "calls without a name, then calls", Make: repeated("x = ", "f(a::1)+g(", "\n")},
		{Name: "calls without a parenthesis", Make: repeated("x = ", "(a::b)+(", "\n")},
		{Name: "calls without a name in templates", Make: repeated("x = ", `"${"${a::1}"}"+"${(}"`, "\n")},
		{Name: "calls without a name, then a template", Make: repeated("x = ", `"${"${a::1}"}${(`, "\n")},
		{Name: "calls without a name in heredocs", Make: repeated("x = <<A\n", "${a::1}${(}\n", "A\n")},
		{Name: "parentheses in an interpolation without an end", Make: repeated("x = ", `"${(}"`, "\n")},
		{Name: "brackets in an interpolation without an end", Make: repeated("x = ", `"${[}"`, "\n")},
		{Name: "braces in an interpolation without an end", Make: repeated("x = ", `"${{}"`, "\n")},
		{Name: "bad escapes in parentheses", Make: repeated("x = ", `("\q")+(`, "\n")},
		{Name: "bad escapes in lists", Make: repeated("x = ", `["\q",`, "\n")},
		{Name: "bad escapes in calls", Make: repeated("x = ", `f("\q",`, "\n")},
		{Name: "bad escapes in objects", Make: repeated("x = ", `{a="\q",b=`, "\n")},
		{Name: "bad escapes in templates", Make: repeated("x = ", `"\q${`, "\n")},
		{Name: "conditionals without a false result", Make: repeated("x = ", "a?(", "\n")},
		{Name: "conditionals without a false result, closed", Make: nested("x = ", "a?(", "1", ")", "\n")},
		{Name: "mismatched brackets", Make: repeated("x = ", "([)]", "\n")},
		{Name: "mismatched braces", Make: repeated("x = ", "{a=[}]", "\n")},
		{Name: "mismatched templates", Make: repeated("x = ", `"${[}]"`, "\n")},
		{Name: "legacy indices with a point", Make: repeated("x = ", "(a.1.1[", "\n")},
		{Name: "template ends without templates", Make: repeated("x = ", "{a=~}{", "\n")},
		{Name: "for without a name", Make: repeated("x = ", "[for 1]+[", "\n")},
		{Name: "for without a colon", Make: repeated("x = ", "[for a in b]+[", "\n")},
		{Name: "for without a name in objects", Make: repeated("x = ", "{for 1}+{a=", "\n")},
		{Name: "arguments on the line of a block", Make: repeated("", "a {\nb = 1 c {\n}\n", "")},
		{Name: "heredocs that are not ended", Make: repeated("x = ", "<<A\n${", "")},
		{Name: "texts over lines", Make: repeated("x = ", "(\"\n\"", "\n")},
	}
}

// quadratic returns inputs that take the parser or its scanner quadratic time.
// The scanner itself reads to the end of the file for each comment that is not
// closed.
func quadratic() []HCL {
	return []HCL{
		{Name: "flush heredoc with interpolations", Make: repeated("x = <<-A\n", " ${a}\n", "A\n")},
		{Name: "heredoc without an end", Make: repeated("x = <<A\n=", "\n", "")},
		{Name: "heredoc with a stray directive", Make: repeated("x = <<A\n", "a\n", "%{ endif }\nA\n")},
		{Name: "quoted template without an end", Make: repeated(`x = "`, "%", "")},
		{Name: "flush heredoc with text", Make: repeated("x = <<-A\n", " a\n", "A\n")},
		{Name: "flush heredoc with empty lines", Make: repeated("x = <<-A\n", "\n", "A\n")},
		{Name: "flush heredoc with one indented line", Make: flushHeredoc},
		{Name: "heredoc with interpolations", Make: repeated("x = <<A\n", "${a}\n", "A\n")},
		{Name: "heredoc with text", Make: repeated("x = <<A\n", "a\n", "A\n")},
		{Name: "heredoc with empty lines", Make: repeated("x = <<A\n", "\n", "A\n")},
		{Name: "provider blocks with versions", Make: numbered("provider \"a\" {\n  version = \"N\"\n}\n")},
		{Name: "blocks of one variable", Make: numbered("variable \"a\" {\n  default = N\n}\n")},
		{Name: "variables with defaults", Make: numbered("variable \"aN\" {\n  default = [N]\n}\n")},
		{Name: "required providers", Make: numbered("terraform {\n  required_providers {\n    aN = \"N\"\n  }\n}\n")},
		{Name: "heredoc with long lines", Make: repeated("x = <<A\n", "abcdefghijklmnopqrstuvwxyz\n", "A\n")},
		{Name: "heredoc with dollars", Make: repeated("x = <<A\n", "$ ", "\nA\n")},
		{Name: "quoted template with interpolations", Make: repeated(`x = "`, "${a}", "\"\n")},
		{Name: "quoted template with dollars", Make: repeated(`x = "`, "$a", "\"\n")},
		{Name: "quoted template with percents", Make: repeated(`x = "`, "%a", "\"\n")},
		{Name: "quoted template with escaped openers", Make: repeated(`x = "`, "$${", "\"\n")},
		{Name: "quoted template with escapes", Make: repeated(`x = "`, `\n`, "\"\n")},
		{Name: "quoted template with bad escapes", Make: repeated(`x = "`, `\q`, "\"\n")},
		{Name: "quoted text over lines", Make: repeated(`x = "`, "a\n", "\"\n")},
		{Name: "comments that are not closed", Make: repeated("", "/* ", "")},
		{Name: "comments that are not closed, on lines", Make: repeated("", "/* \n", "")},
		{Name: "comments that are not closed, far apart", Make: repeated("", "/*      ", "")},
		{Name: "comments", Make: repeated("", "/**/", "\n")},
		{Name: "conditionals without results before newlines", Make: conditionalsBefore("\n")},
		{Name: "conditionals without results before comments", Make: conditionalsBefore("/**/")},
		{Name: "conditionals without results before lines of comments", Make: conditionalsBefore("#\n")},
		{Name: "newlines in parentheses", Make: repeated("x = (1", "\n", ")\n")},
		{Name: "newlines in nested parentheses", Make: nestedAround(strings.Repeat("(", 99), "\n", strings.Repeat(")", 99))},
		{Name: "characters outside the language", Make: repeated("x = 1", "“", "\n")},
		{Name: "bad UTF-8", Make: repeated("x = 1", "\xff", "\n")},
		{Name: "combining marks in a text", Make: repeated(`x = "e`, "\u0301", "\"\n")},
		{Name: "combining marks before a heredoc's text", Make: repeated("x = <<-A\n ", "\u0301", "\nA\n")},
		{Name: "flags in a text", Make: repeated(`x = "`, "🇦", "\"\n")},
		{Name: "joined emoji in a text", Make: repeated(`x = "`, "👩\u200d", "\"\n")},
	}
}

// flushHeredoc returns a heredoc with one line that is indented by half of the
// size, followed by short lines. The parser counts the spaces for each.
func flushHeredoc(size int) []byte {
	half := max(1, size/2-16)
	return []byte("x = <<-A\n" + strings.Repeat(" ", half) + "a\n" + strings.Repeat(" a\n", half/3) + "A\n")
}

// conditionalsBefore returns a maker of conditionals without a false result,
// followed by fillers. Each conditional searches all fillers for its colon.
func conditionalsBefore(filler string) func(int) []byte {
	return func(size int) []byte {
		const conditionals = 9_000 // fewer than the maximum number of operators
		n := min(conditionals, size/8)
		before := "x = (" + strings.Repeat("a?", n) + "a"
		return repeated(before, filler, ")\n")(size)
	}
}

// nestedAround returns a maker of fillers between openers and closers.
func nestedAround(open, filler, closing string) func(int) []byte {
	return repeated("x = "+open+"1", filler, closing+"\n")
}

func literals() []HCL {
	return []HCL{
		{Name: "long number", Make: repeated("x = ", "9", "\n")},
		{Name: "long fraction", Make: repeated("x = 0.", "9", "\n")},
		{Name: "long exponent", Make: repeated("x = 1e", "9", "\n")},
		{Name: "large exponents", Make: repeated("x = [", "1e999999999,", "]\n")},
		{Name: "small exponents", Make: repeated("x = [", "1e-999999999,", "]\n")},
		{Name: "long numbers", Make: repeated("x = [", strings.Repeat("9", 4_000)+",", "]\n")},
		{Name: "long legacy index", Make: repeated("x = a.", "9", "\n")},
		{Name: "long index", Make: repeated("x = a[", "9", "]\n")},
		{Name: "long name", Make: repeated("", "a", " = 1\n")},
		{Name: "long block type", Make: repeated("", "a", " {}\n")},
		{Name: "long label", Make: repeated("variable \"", "a", "\" {}\n")},
		{Name: "long text", Make: repeated("x = \"", "a", "\"\n")},
		{Name: "long comment", Make: repeated("#", "a", "\n")},
		{Name: "long heredoc marker", Make: repeated("x = <<", "A", "\na\n")},
		{Name: "long unknown directive", Make: repeated("x = \"%{", "a", "}\"\n")},
		{Name: "only newlines", Make: repeated("", "\n", "")},
		{Name: "only spaces", Make: repeated("", " ", "\n")},
		{Name: "only NUL", Make: repeated("", "\x00", "\n")},
	}
}

// jsonInputs attack the parser of the JSON syntax. It ends a string at a
// control character, and continues after an array that is closed by the wrong
// bracket.
func jsonInputs() []HCL {
	inputs := []HCL{
		{Name: "arrays", Make: nested(`{"a":`, "[", "1", "]", "}")},
		{Name: "arrays, broken off", Make: repeated(`{"a":`, "[", "")},
		{Name: "arrays, closers first", Make: closersFirstJSON("]", "[")},
		{Name: "arrays, braces first", Make: closersFirstJSON("}", "[")},
		{Name: "objects", Make: nested("", `{"a":`, "1", "}", "")},
		{Name: "objects, broken off", Make: repeated("", `{"a":`, "")},
		{Name: "objects, closers first", Make: closersFirstJSON("}}", `{"a":`)},
		{Name: "arrays and objects", Make: nested("", `{"a":[`, "1", "]}", "")},
		{Name: "arrays behind a text with a newline", Make: repeated("{\"a\":[\"\n,", "[", "")},
		{Name: "objects behind a text with a newline", Make: repeated("{\"a\":[\"\n,", `{"a":`, "")},
		{Name: "arrays behind a text with a NUL", Make: repeated("{\"a\":[\"\\\x00,", "[", "")},
		{Name: "arrays behind an array with braces", Make: nested(`{"a":[[1 `, "}", "],", "[", "")},
		{Name: "long number", Make: repeated(`{"a":`, "9", "}")},
		{Name: "long fraction", Make: repeated(`{"a":0.`, "9", "}")},
		{Name: "long exponent", Make: repeated(`{"a":1e`, "9", "}")},
		{Name: "large exponents", Make: repeated(`{"a":[`, "1e999999999,", "1]}")},
		{Name: "long numbers", Make: repeated(`{"a":[`, strings.Repeat("9", 4_000)+",", "1]}")},
		{Name: "signs", Make: repeated(`{"a":`, "-", "}")},
		{Name: "elements", Make: repeated(`{"a":[`, "1,", "1]}")},
		{Name: "properties", Make: repeated(`{"a":{`, `"a":1,`, `"b":1}}`)},
		{Name: "variables", Make: repeated(`{"variable":[`, `{"a":{}},`, `{"b":{}}]}`)},
		{Name: "blocks in arrays", Make: nested(`{"variable":{"a":`, "[", "{}", "]", "}}")},
		{Name: "long keyword", Make: repeated(`{"a":`, "n", "}")},
		{Name: "long text", Make: repeated(`{"a":"`, "a", `"}`)},
		{Name: "long key", Make: repeated(`{"`, "a", `":1}`)},
		{Name: "combining marks", Make: repeated(`{"a":"e`, "\u0301", `"}`)},
		{Name: "templates in a text", Make: nested(`{"a":"`, `${\"`, "", `\"}`, `"}`)},
		{Name: "parentheses in a text", Make: nested(`{"a":"${`, "(", "1", ")", `}"}`)},
		{Name: "escapes", Make: repeated(`{"a":"`, `\u0000`, `"}`)},
		{Name: "bad UTF-8", Make: repeated(`{"a":"`, "\xff", `"}`)},
	}
	for i := range inputs {
		inputs[i].Name, inputs[i].JSON = "JSON "+inputs[i].Name, true
	}
	return inputs
}

// closersFirstJSON returns a maker of closers, followed by the same number of
// openers.
func closersFirstJSON(closing, open string) func(int) []byte {
	return nested("", closing, "", open, "")
}

// numbered returns a function that repeats a text with growing numbers in the
// place of N.
func numbered(text string) func(size int) []byte {
	return func(size int) []byte {
		var all []byte
		for i := 0; ; i++ {
			next := strings.ReplaceAll(text, "N", strconv.Itoa(i))
			if len(all)+len(next) > size {
				return all
			}
			all = append(all, next...)
		}
	}
}
