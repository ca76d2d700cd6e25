package oddities_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/oddities"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

// TestProviders compares what is done with odd releases of providers.
func TestProviders(t *testing.T) {
	skipOnWindows(t)
	all := oddities.Providers(t)
	o := oddities.Serve(t, all, nil)
	var rows []row
	for _, p := range all {
		rows = append(rows, row{p.Name, p.Reason})
	}
	copies, add, pulls, target := copyFrom(t, o), addFrom(t, o), pullFrom(t, o), newStore(t, "prod.example.com")
	columns := append(inits(t, o.Authorities, func(i int) string {
		return requirement(o.Host+"/"+all[i].Spelled, all[i].Number)
	}),
		column{name: "copy", move: true, use: func(t *testing.T, i int) cell { return copies(t, all[i].Spelled, all[i].Number) }},
		column{name: "mirror add", move: true, use: func(t *testing.T, i int) cell { return add(t, all[i].Spelled, all[i].Number) }},
		column{name: "pull", move: true, use: func(t *testing.T, i int) cell { return pulls(t, all[i].Spelled, all[i].Number) }},
		column{name: "publish", use: func(t *testing.T, i int) cell {
			if all[i].IsServed() {
				return cell{verdict: same}
			}
			return publishProvider(t, target, all[i])
		}},
	)
	compare(t, "testdata/providers.golden", rows, columns)
}

// skipOnWindows skips a test of releases whose programs run on other systems.
func skipOnWindows(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: the names of the programs do not end in .exe")
	}
}

// publishProvider publishes the files of a provider, after its keys are added.
func publishProvider(t *testing.T, to copying.Store, p oddities.Provider) cell {
	t.Helper()
	address := registry.Provider{Namespace: p.Name, Type: "inventory"}
	for _, armored := range p.Keys {
		key, err := signing.ParseKey([]byte(armored), time.Now())
		if err == nil {
			_, err = to.Catalog.AddSigningKey(t.Context(), p.Name, key)
		}
		if err != nil && len(p.Keys) == 1 {
			return errorCell(fmt.Errorf("key add: %w", err))
		}
	}
	result, err := to.Publisher.Provider(t.Context(), rules.Provider{Dir: p.Dir, Address: address})
	if err != nil {
		return errorCell(err)
	}
	return noted(published, result.Record.Notes)
}
