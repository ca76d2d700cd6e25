package safehcl_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/content/safehcl"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	type token struct {
		Kind safehcl.TokenKind
		Text string
	}
	for name, c := range map[string]struct {
		source string
		want   []token
	}{
		"empty": {"", nil},
		"argument": {"a = 1.5 # b\n", []token{
			{safehcl.Name, "a"}, {safehcl.Sign, "="}, {safehcl.Number, "1.5"}, {safehcl.Comment, "# b\n"},
		}},
		"template": {`"a${b}"`, []token{
			{safehcl.String, `"`}, {safehcl.String, "a"}, {safehcl.Sign, "${"}, {safehcl.Name, "b"}, {safehcl.Sign, "}"},
			{safehcl.String, `"`},
		}},
		"heredoc": {"<<A\nb\nA\n", []token{
			{safehcl.String, "<<A\n"}, {safehcl.String, "b\n"}, {safehcl.String, "A"}, {safehcl.Newline, "\n"},
		}},
		"open string": {`"a`, []token{{safehcl.String, `"`}, {safehcl.String, "a"}}},
		"end":         {"a /**/", []token{{safehcl.Name, "a"}, {safehcl.Comment, "/**/"}}},
		"other signs": {"; ' @", []token{{safehcl.Sign, ";"}, {safehcl.Sign, "'"}, {safehcl.Sign, "@"}}},
		"word of HCL": {"true", []token{{safehcl.Name, "true"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens, err := safehcl.Tokens([]byte(c.source))
			if err != nil {
				t.Fatal(err)
			}
			var got []token
			for _, at := range tokens {
				got = append(got, token{at.Kind, c.source[at.Start:at.End]})
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the tokens of %q differ (-want +got):\n%s", c.source, diff)
			}
		})
	}
}

func TestTokensErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source  string
		isLimit bool
	}{
		"too many":      {strings.Repeat(";", 300_001), true},
		"open comment":  {"a /*", false},
		"invalid UTF-8": {"\xff", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := safehcl.Tokens([]byte(c.source))
			var problem *safehcl.Error
			if !errors.As(err, &problem) {
				t.Fatalf("got the error %v", err)
			}
			if errors.Is(err, safehcl.ErrLimit) != c.isLimit {
				t.Errorf("the error %v is a limit: %t", err, !c.isLimit)
			}
		})
	}
}

// The tokens are in order and cover all but space.
func FuzzTokens(f *testing.F) {
	for _, source := range []string{"a = \"b${c}\" # d\n", "<<A\nb %{ if c }d%{ endif }\nA\n", "\"a", "/*", "}{"} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tokens, err := safehcl.Tokens([]byte(source))
		if err != nil {
			return
		}
		end := 0
		for _, token := range append(tokens, safehcl.Token{Start: len(source), End: len(source)}) {
			if token.Start < end || token.End > len(source) {
				t.Fatalf("token %+v of %q overlaps", token, source)
			}
			if space := source[end:token.Start]; strings.Trim(space, " \t\r\uFEFF") != "" {
				t.Errorf("%q has no token for %q", source, space)
			}
			end = token.End
		}
	})
}
