package publish_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
)

// A version has the counts of its changes since the version before, which is the
// highest lower release.
func TestChanges(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	publishes := func(version, text string) {
		t.Helper()
		m := module(t, version, "")
		if err := os.WriteFile(filepath.Join(m.Dir, "main.tf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := b.publisher().Module(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	const (
		cidr   = "variable \"cidr\" {\n  type = string\n}\n"
		zones  = "variable \"zones\" {\n  default = 3\n}\n"
		output = "output \"id\" {\n  value = 1\n}\n"
	)
	publishes("1.0.0", cidr)
	publishes("1.2.0", cidr+output)
	publishes("2.0.0", "variable \"cidr\" {\n  type = number\n}\n"+zones+output)
	publishes("1.1.0", cidr+zones)
	publishes("2.1.0-rc.1", zones)
	publishes("3.0.0", zones+output)
	publishesNeeds := func(version, constraint string) {
		t.Helper()
		m, text := module(t, version, ""), fmt.Sprintf("terraform {\n  required_version = %q\n}\n", constraint)
		folder := filepath.Join(m.Dir, "modules", "part")
		err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(m.Dir, "main.tf"), []byte(text+zones), 0o600),
			os.WriteFile(filepath.Join(folder, "main.tf"), []byte(text), 0o600))
		if err == nil {
			_, err = b.publisher().Module(t.Context(), m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	publishesNeeds("4.0.0", ">= 1.5")
	publishesNeeds("4.1.0", ">= 1.6")
	c := catalog.New(b.table)
	counts := func(version string) string {
		t.Helper()
		m := module(t, version, "")
		record, err := c.Modules.Get(t.Context(), m.Address, m.Version)
		if err != nil {
			t.Fatal(err)
		}
		if record.Changes == nil {
			return "none"
		}
		return fmt.Sprintf("%s since %s", *record.Changes, record.Changes.Since)
	}
	for version, want := range map[string]string{
		"1.0.0":      "none",
		"1.1.0":      "1 added since 1.0.0",
		"1.2.0":      "1 added since 1.0.0",
		"2.0.0":      "1 breaking, 1 added since 1.2.0",
		"2.1.0-rc.1": "2 breaking since 2.0.0",
		"3.0.0":      "1 breaking since 2.0.0",
		"4.1.0":      "1 breaking since 4.0.0", // and its submodule needs the same
	} {
		if got := counts(version); got != want {
			t.Errorf("the changes of %s are %s, want %s", version, got, want)
		}
	}
	// Documentation that is made again has the counts of now.
	m := module(t, "1.2.0", "")
	if _, err := b.documenter().Rebuild(t.Context(), m.Address, m.Version); err != nil {
		t.Fatal(err)
	}
	if got, want := counts("1.2.0"), "1 breaking, 1 added since 1.1.0"; got != want {
		t.Errorf("the changes of 1.2.0 are now %s, want %s", got, want)
	}
}

// A version before that cannot be read prevents no publish. Earlier counts remain.
func TestChangesSinceDamaged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func([]byte) []byte{"missing": nil, "damaged": damage} {
		b := embedded(t)
		before := b.published(t)
		b.change(t, before.Docs.Object, change)
		m := module(t, "2.0.0", "")
		result, err := b.publisher().Module(t.Context(), m)
		if err != nil {
			t.Fatalf("%s documentation: %v", name, err)
		}
		if result.Record.Changes != nil {
			t.Errorf("%s documentation: the changes are %v, want none", name, result.Record.Changes)
		}
		b = embedded(t)
		before = b.published(t)
		result, err = b.publisher().Module(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		b.change(t, before.Docs.Object, change)
		if _, err := b.documenter().Rebuild(t.Context(), m.Address, m.Version); err != nil {
			t.Fatal(err)
		}
		record, err := catalog.New(b.table).Modules.Get(t.Context(), m.Address, m.Version)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(result.Record.Changes, record.Changes); diff != "" || record.Changes == nil {
			t.Errorf("%s documentation: the changes after a rebuild (-want +got):\n%s", name, diff)
		}
	}
}
