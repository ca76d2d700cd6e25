package oddities_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/oddities"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

// TestModules compares what is done with odd modules.
func TestModules(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("LEFT OUT: other systems do not allow all names of files")
	}
	all := oddities.Modules()
	o := oddities.Serve(t, nil, all)
	for name, value := range map[string]string{
		"GIT_SSL_CAINFO": o.Authorities, "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
	} {
		t.Setenv(name, value)
	}
	var rows []row
	for _, m := range all {
		rows = append(rows, row{m.Name, m.Reason})
	}
	copies, target, pulls := copyFrom(t, o), newStore(t, "prod.example.com"), pullFrom(t, o)
	columns := append(inits(t, o.Authorities, func(i int) string {
		return fmt.Sprintf("module \"it\" {\n  source  = %q\n  version = %q\n}\n",
			o.Host+"/"+all[i].Name+"/odd/test", all[i].Number)
	}),
		column{name: "copy", move: true, use: func(t *testing.T, i int) cell { return copies(t, all[i].Name+"/odd/test", all[i].Number) }},
		column{name: "pull", move: true, use: func(t *testing.T, i int) cell { return pulls(t, all[i].Name+"/odd/test", all[i].Number) }},
		column{name: "publish", use: func(t *testing.T, i int) cell { return publishModule(t, o, target, all[i]) }},
		column{name: "check", use: func(t *testing.T, i int) cell { return checkModule(t, o, all[i]) }},
	)
	compare(t, "testdata/modules.golden", rows, columns)
}

// publishModule publishes the files of a module.
func publishModule(t *testing.T, o *oddities.Origin, to copying.Store, m oddities.Module) cell {
	t.Helper()
	if m.IsServed() {
		return cell{verdict: same}
	}
	n, err := registry.ParseVersion("1.0.0")
	if err != nil {
		t.Error(err)
	}
	result, err := to.Publisher.Module(t.Context(), rules.Module{
		Dir: m.WriteFolder(t, o, t.TempDir()), Version: n,
		Address: registry.Module{Namespace: m.Name, Name: "odd", System: "test"},
	})
	return moduleCell(published, result, err)
}

// checkModule is `larder check`.
func checkModule(t *testing.T, o *oddities.Origin, m oddities.Module) cell {
	t.Helper()
	if m.IsServed() {
		return cell{verdict: same}
	}
	result, err := rules.Preparer{}.CheckFolder(t.Context(), m.WriteFolder(t, o, t.TempDir()), nil)
	return moduleCell("passes", result, err)
}

func moduleCell(verdict string, result rules.ModuleResult, err error) cell {
	if err != nil {
		return errorCell(err)
	}
	var notes []string
	for _, e := range result.Excluded {
		notes = append(notes, "excluded "+e.String())
	}
	return noted(verdict, append(append(notes, result.LoadNotes...), result.Notes...))
}
