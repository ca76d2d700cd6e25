package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// commands matches signs of a command line of this program, GnuPG or another
// program.
var commands = regexp.MustCompile("(^|[ `(])larder [a-z]|(^|[ `(])--[a-z]|`gpg|[Rr]un `")

// The text of an error describes what is wrong. A command that helps belongs in
// its hint, which the command line prints on a separate line.
func TestErrorsHaveNoCommands(t *testing.T) {
	t.Parallel()
	checked := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !makesError(call) {
				return true
			}
			checked++
			for _, argument := range call.Args {
				text := literal(argument)
				if commands.MatchString(text) {
					t.Errorf("%s: the error %q has a command line: move it to a hint with registry.WithHint",
						positions.Position(argument.Pos()), text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 500 {
		t.Errorf("the test found only %d errors", checked)
	}
}

// makesError reports whether a call is errors.New or an Errorf.
func makesError(call *ast.CallExpr) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := function.X.(*ast.Ident)
	return ok && (function.Sel.Name == "Errorf" || function.Sel.Name == "New" && of.Name == "errors")
}

// literal returns the text of the string literals that an expression
// concatenates.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return ""
		}
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			return e.Value
		}
		return text
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	case *ast.ParenExpr:
		return literal(e.X)
	}
	return ""
}
