// Package pkg_test keeps the rules of the house: who may import whom.
package pkg_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const house = "github.com/larder-registry/larder/"

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath string
	Deps       []string // all it links, not its tests'
	Doc        string
	GoFiles    []string
}

func list(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Deps,Doc,GoFiles", house+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]pkg)
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimPrefix(p.ImportPath, house)] = p
	}
}

// what a package may link of the house, and what it may not link of the world.
var rules = []struct {
	who    string
	house  []string // the only packages of the house it links; nil: any
	except []string // beginnings of what it does not link
}{
	{"pkg/registry", []string{}, []string{"net/http", "database/sql", "github.com/aws/"}},
	{"pkg/httpapi", []string{"pkg/registry"}, []string{"github.com/aws/", "database/sql"}},
	{"pkg/discovery", []string{"pkg/registry", "pkg/httpapi"}, []string{"github.com/aws/", "database/sql"}},
	{"pkg/modules", []string{"pkg/registry", "pkg/httpapi"}, []string{"github.com/aws/", "database/sql"}},
	{"pkg/catalog", []string{"pkg/registry", "pkg/httpapi", "pkg/modules"}, []string{"github.com/aws/", "database/sql"}},
	{"pkg/objects", []string{"pkg/registry"}, []string{"github.com/aws/", "database/sql"}},
	{"pkg/archive", []string{"pkg/registry"}, []string{"github.com/aws/", "database/sql", "net/http"}},
	{"pkg/publish", []string{"pkg/registry", "pkg/archive", "pkg/objects"}, []string{"github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"}},
	{"pkg/catalog/sqlite", []string{"pkg/registry", "pkg/httpapi", "pkg/modules", "pkg/catalog"}, []string{"github.com/aws/"}},
	{"pkg/objects/disk", []string{"pkg/registry", "pkg/httpapi", "pkg/objects"}, []string{"github.com/aws/", "database/sql"}},
	{"scripts/larder", nil, []string{house + "pkg/rehearsal"}},
	{"pkg/local", nil, []string{house + "pkg/publish", house + "pkg/rehearsal"}},
}

func TestImports(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, rule := range rules {
		p, found := packages[rule.who]
		if !found {
			t.Errorf("there is no %s, for which there is a rule", rule.who)
		}
		for _, dep := range p.Deps {
			if own, ok := strings.CutPrefix(dep, house); ok && rule.house != nil && !slices.Contains(rule.house, own) {
				t.Errorf("%s links %s", rule.who, own)
			}
			for _, prefix := range rule.except {
				if dep == prefix || strings.HasPrefix(dep, strings.TrimSuffix(prefix, "/")+"/") {
					t.Errorf("%s links %s", rule.who, dep)
				}
			}
		}
	}
}

// Every package says what it is.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", name)
		}
	}
}
