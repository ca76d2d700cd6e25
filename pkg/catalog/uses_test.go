package catalog_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// calling returns a record of a version that calls a module.
func calling(t *testing.T, version, source string) registry.ModuleVersion {
	t.Helper()
	r := record(t, version, "a")
	r.Contents = registry.Contents{
		Names: registry.Names{Inputs: "cidr"}, Calls: []registry.Use{{Source: source}},
	}.Encode()
	return r
}

// called returns the sources that a module calls, as its contents have them.
func called(t *testing.T, c *catalog.Catalog, m registry.Module) (sources []string) {
	t.Helper()
	for found, err := range c.Contents(t.Context(), m.Namespace) {
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range registry.DecodeContents(found.Data).Calls {
			sources = append(sources, u.Source)
		}
	}
	return sources
}

// After a version is withdrawn, nothing has what it calls, even if its record
// could not be read.
func TestWithdrawnCalls(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{"valid record": nil, "damaged record": []byte("?")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c, m := catalog.New(table), module(t, "acme/vpc/aws")
			for version, source := range map[string]string{"1.0.0": "example.com/acme/leaked/aws", "1.1.0": "acme/base/aws"} {
				if _, _, err := put(t.Context(), c.Modules, m, calling(t, version, source)); err != nil {
					t.Fatal(err)
				}
			}
			if data != nil {
				replace(t, table, m.Path(), "version/1.0.0", data)
			}
			withdraw(t, c, m, "1.0.0")
			if diff := cmp.Diff([]string{"acme/base/aws"}, called(t, c, m)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// After a version with missing uses is withdrawn, the contents are those of the others.
func TestWithdrawnMissingUses(t *testing.T) {
	t.Parallel()
	table := open(t)
	c, m := catalog.New(table), module(t, "acme/vpc/aws")
	for version, source := range map[string]string{"1.0.0": "", "1.1.0": "acme/base/aws"} {
		if _, _, err := put(t.Context(), c.Modules, m, calling(t, version, source)); err != nil {
			t.Fatal(err)
		}
	}
	withdraw(t, c, m, "1.0.0")
	s, err := c.Modules.Stored(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Mismatches) > 0 {
		t.Errorf("mismatches: %+v", s.Mismatches)
	}
}

// Contents that another release of Go has compressed are the same.
func TestCompressedOtherwise(t *testing.T) {
	t.Parallel()
	table := open(t)
	c, m := catalog.New(table), module(t, "acme/vpc/aws")
	r := calling(t, "1.0.0", "acme/base/aws")
	if _, _, err := put(t.Context(), c.Modules, m, r); err != nil {
		t.Fatal(err)
	}
	stored := registry.DecodeContents(r.Contents)
	stored.Calls[0].Versions = []registry.Version{r.Version}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(w).Encode(stored); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	replace(t, table, "catalog/acme", "contents/"+m.Path(), out.Bytes())
	s, err := c.Modules.Stored(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Mismatches) > 0 {
		t.Errorf("mismatches: %+v", s.Mismatches)
	}
}
