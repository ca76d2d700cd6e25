package rehearsal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/settings"
)

// testDroppedSettings deploys with settings, loses their file, and deploys again.
// The CDK refuses, by what the deployed stack has: nothing else knows what was in
// the file.
func testDroppedSettings(t *testing.T, d *deployment, stack *Stack) {
	const name = "larder" // the one of a stack without settings
	table := stack.Outputs[settings.OutputTable]
	app, err := d.appIn("owner")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeSettings(app.folder, map[string]any{
		"stackName": name, "tableName": table, "access": map[string]any{"public": []string{"modules/acme/hello"}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.cdkDeploy(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	before, err := Inspect(t.Context(), d.Account, name)
	if err != nil {
		t.Fatal(err)
	}
	if before.Outputs[settings.OutputTable] != table {
		t.Fatalf("the stack has the table %s", before.Outputs[settings.OutputTable])
	}
	if err := os.Remove(filepath.Join(app.folder, settingsFile)); err != nil {
		t.Fatal(err)
	}

	err = d.cdkDeploy(t.Context(), app)
	want := "cannot deploy: settings.json does not exist, and the stack larder would lose the table " + table +
		"; public access to modules/acme/hello. Put the settings back, or allow it: -c allow-drop=table,access"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without settings: %v", err)
	}
	after, err := Inspect(t.Context(), d.Account, name)
	if err != nil {
		t.Fatal(err)
	}
	if changes := after.Changes(before); len(changes) > 0 {
		t.Errorf("it has changed what is there: %q", changes)
	}

	if err := d.cdkDeploy(t.Context(), app, "-c", "allow-drop=table,access"); err != nil {
		t.Fatal(err)
	}
	if after, err = Inspect(t.Context(), d.Account, name); err != nil {
		t.Fatal(err)
	}
	if got := after.Outputs[settings.OutputTable]; got == table || got == "" {
		t.Errorf("what was allowed to be dropped is there: %s", got)
	}
}
