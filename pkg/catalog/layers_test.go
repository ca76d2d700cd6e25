package catalog_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers are the files of the package. Each uses only declarations of those
// before it.
var layers = []string{
	"table.go", "layout.go", "items.go", "audit.go", "index.go", "kinds.go", "versions.go", "details.go",
	"contents.go", "uploads.go", "publish.go", "pulls.go", "mirrorstate.go", "origins.go", "lifecycle.go", "repair.go",
	"signingkeys.go", "tokens.go", "sessions.go", "usage.go", "catalog.go", "shares.go", "leases.go",
}

// A file uses no function, type, constant or variable of a later file. The test
// ignores the receivers of methods and the fields of types.
func TestLayers(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	var files []*ast.File
	receivers := make(map[*ast.Ident]bool)
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if !slices.Contains(layers, name) {
			t.Errorf("%s has no layer", name)
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				ast.Inspect(f.Recv, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						receivers[id] = true
					}
					return true
				})
			}
		}
	}
	info := types.Info{Uses: make(map[*ast.Ident]types.Object)}
	pkg, err := (&types.Config{Importer: exported(t, fset)}).Check("catalog", fset, files, &info)
	if err != nil {
		t.Fatal(err)
	}
	uses := 0
	for id, object := range info.Uses {
		switch o := object.(type) {
		case *types.Func:
			object = o.Origin() // a method of a generic type
		case *types.Var:
			if o.IsField() || o.Parent() != pkg.Scope() {
				continue
			}
		case *types.PkgName:
			continue
		}
		if object.Pkg() != pkg || receivers[id] {
			continue
		}
		if f, ok := object.(*types.Func); !ok && object.Parent() != pkg.Scope() || ok && isInterfaceMethod(f) {
			continue
		}
		at, from := fset.Position(id.Pos()), fset.Position(object.Pos()).Filename
		uses++
		if slices.Index(layers, from) > slices.Index(layers, at.Filename) {
			t.Errorf("%s:%d uses %s of %s, which is above it", at.Filename, at.Line, id.Name, from)
		}
	}
	if uses < 300 {
		t.Errorf("only %d uses were found", uses)
	}
}

// isInterfaceMethod reports whether a method is one of an interface. Its
// implementations can be in later files.
func isInterfaceMethod(f *types.Func) bool {
	recv := f.Signature().Recv()
	return recv != nil && types.IsInterface(recv.Type())
}

// exported returns an importer of the packages that this one imports, as
// compiled by the go command.
func exported(t *testing.T, fset *token.FileSet) types.Importer {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := make(map[string]string)
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		paths[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(paths[path]) })
}
