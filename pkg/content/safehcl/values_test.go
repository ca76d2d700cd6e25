package safehcl_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/larder-registry/larder/pkg/content/safehcl"
)

// expression parses an expression in HCL's native syntax.
func expression(t testing.TB, parser *safehcl.Parser, source string) hcl.Expression {
	t.Helper()
	file, err := parser.Parse(t.Context(), "main.tf", []byte("x = "+source+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return attribute(t, file)
}

// expressionInJSON parses an expression in HCL's JSON syntax.
func expressionInJSON(t testing.TB, parser *safehcl.Parser, source string) hcl.Expression {
	t.Helper()
	file, err := parser.ParseJSON(t.Context(), "main.tf.json", []byte(`{"x": `+source+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return attribute(t, file)
}

func attribute(t testing.TB, file *hcl.File) hcl.Expression {
	t.Helper()
	attributes, problems := file.Body.JustAttributes()
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	return attributes["x"].Expr
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	const none = ""
	for source, want := range map[string]string{
		`"a"`: `"a"`, `1.5`: `1.5`, `true`: `true`, `null`: `null`, `""`: `""`, `[]`: `[]`, `{}`: `{}`,
		`"a\n$${b}"`: `"a\n${b}"`, "<<A\nb\nc\nA": `"b\nc\n"`, "<<-A\n  b\n  A": `"b\n"`, `(1)`: `1`,
		`-1`: `-1`, `--1`: `1`, `1 + 2 * 3`: `7`, `(1 + 2) / 2`: `1.5`, `-(1 - 3)`: `2`,
		`[1, "a", [null]]`: `[1,"a",[null]]`, `{ a = 1, "b c" = { 4 = [] } }`: `{"a":1,"b c":{"4":[]}}`,
		`1e3`: `1000`, `[1e999999999]`: none, `1e-99999`: none, `"a${1e99999}"`: none, `{ 1e999999 = 1 }`: none,
		`1 / 0`: none,
		`1 % 2`: none, `"1" + 1`: none, `!true`: none, `1 == 1`: none, `true && true`: none, `true ? 1 : 2`: none,
		`"${"a"}"`: none, `"a${1}"`: none, `"%{ if true }a%{ endif }"`: none, `a`: none, `a.b`: none, `[a]`: none,
		`{ a = b }`: none, `{ (a) = 1 }`: none, `{ ([1]) = 1 }`: none,
		`{ ("b") = 1, (1 + 1) = 2 }`: `{"2":2,"b":1}`, `f()`: none, `[1][0]`: none, `[1][*]`: none,
		`[for a in [1] : a]`: none, `{ for a in [1] : a => a }`: none, `-true`: none, `-"1"`: none,
		strings.Repeat("1e1000 * ", 10) + "1": none,
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			value, ok := safehcl.Literal(expression(t, new(safehcl.Parser), source))
			if ok != (want != none) {
				t.Fatalf("is a literal: got %t, want %t", ok, want != none)
			}
			if !ok {
				return
			}
			got, err := ctyjson.Marshal(value, value.Type())
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestLiteralInJSON(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`"a"`: `"a"`, `"${b}"`: `"${b}"`, `[1, null, {"${c}": true}]`: `[1,null,{"${c}":true}]`,
		`1e3`: `1000`, `1e999999999`: "", `[1e-99999]`: "", `{"a": 1, "a": 2}`: "",
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			value, ok := safehcl.Literal(expressionInJSON(t, new(safehcl.Parser), source))
			if ok != (want != "") {
				t.Fatalf("is a literal: got %t, want %t", ok, want != "")
			}
			if !ok {
				return
			}
			got, err := ctyjson.Marshal(value, value.Type())
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// types has type constraints with their JSON form, which is empty for invalid
// ones.
var types = map[string]string{
	`string`: `"string"`, `any`: `"dynamic"`, `list`: `["list","dynamic"]`, `map`: `["map","dynamic"]`,
	`list(number)`: `["list","number"]`, `tuple([bool, any])`: `["tuple",["bool","dynamic"]]`,
	`object({ a = string, b = optional(set(any)) })`: `["object",{"a":"string","b":["set","dynamic"]},["b"]]`,
	`object({ a = optional(list(string), ["x"]) })`:  `["object",{"a":["list","string"]},["a"]]`,
	`object({ a = optional(number, 60 * 60) })`:      `["object",{"a":"number"},["a"]]`,
	`object({ a = optional(any, null) })`:            `["object",{"a":"dynamic"},["a"]]`,
	`text`:                                           "", `list()`: "", `list(string, string)`: "", `set`: "",
	`1`: "", `[]`: "", `a.b`: "", `list(string...)`: "",
	`object({ a = optional(any, [for a in [1] : a]) })`:    "",
	`object({ a = optional(any, upper("x")) })`:            "",
	`object({ a = optional(any, "${1}") })`:                "",
	`object({ a = optional(any, 1 == 1) })`:                "",
	`object({ a = optional(number, "1e99999999") })`:       "",
	`list(object({ a = optional(number, "1e99999999") }))`: "",
	`object({ a = optional(string, {}) })`:                 "",
	`object({ (a) = string })`:                             "",
	"tuple([" + strings.Repeat("any,", 2_990) + "])": `["tuple",["dynamic"` +
		strings.Repeat(`,"dynamic"`, 2_989) + "]]",
	"tuple([" + strings.Repeat("any,", 3_000) + "])": "",
	strings.Repeat("list(", 100) + "any" + strings.Repeat(")", 100): strings.Repeat(`["list",`, 100) + `"dynamic"` +
		strings.Repeat("]", 100),
}

func TestTypeConstraint(t *testing.T) {
	t.Parallel()
	for source, want := range types {
		quoted, err := json.Marshal(source)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(source[:min(60, len(source))], func(t *testing.T) {
			t.Parallel()
			var parser safehcl.Parser
			for syntax, expr := range map[string]hcl.Expression{
				"native": expression(t, &parser, source), "JSON": expressionInJSON(t, &parser, string(quoted)),
			} {
				constraint, _, err := parser.TypeConstraint(t.Context(), expr)
				if (err == nil) != (want != "") {
					t.Errorf("%s: got error %v, want a type: %t", syntax, err, want != "")
					continue
				}
				if err != nil {
					continue
				}
				got, err := ctyjson.MarshalType(constraint)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != want {
					t.Errorf("%s: got %s, want %s", syntax, got, want)
				}
			}
		})
	}
}

// A string in JSON may only have one type, and is parsed within the limits.
func TestTypeConstraintInJSON(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		`"string\ny = 1"`, `"string\nb {\n}"`, `"string\n}"`, `""`, `"string string"`, `null`, `["string"]`, `5`,
		`"` + strings.Repeat("list(", 5_000) + `"`, `"` + strings.Repeat("(", 100_000) + `"`,
	} {
		t.Run(source[:min(30, len(source))], func(t *testing.T) {
			t.Parallel()
			var parser safehcl.Parser
			_, _, err := parser.TypeConstraint(t.Context(), expressionInJSON(t, &parser, source))
			if err == nil {
				t.Error("got no error")
			}
		})
	}
}

func TestTypeConstraintCanceled(t *testing.T) {
	t.Parallel()
	var parser safehcl.Parser
	expr := expressionInJSON(t, &parser, `"string"`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := parser.TypeConstraint(ctx, expr); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
}
