package rehearsal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/settings"
)

// testDroppedSettings deploys with settings, loses their file, and deploys
// again. The CDK rejects that deploy because of the deployed stack, since no
// other record of the settings exists.
func testDroppedSettings(t *testing.T, d *deployment, stack *Stack) {
	const name = "larder" // of a stack without settings
	table := stack.Outputs[settings.OutputTable]
	app, err := d.appIn("owner")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeSettings(app.folder, map[string]any{
		"stackName": name, "tableName": table, "kmsKeyArn": d.key, "access": map[string]any{"public": []string{"modules/acme/hello"}},
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
	for _, part := range []string{table, "modules/acme/hello", "-c allow-drop=key,table,access"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("without settings: error is %v, want one that names %s", err, part)
		}
	}
	after, err := Inspect(t.Context(), d.Account, name)
	if err != nil {
		t.Fatal(err)
	}
	if changes := after.Changes(before); len(changes) > 0 {
		t.Errorf("the rejected deploy has changed the stack: %q", changes)
	}

	// moto cannot change the key of a log group.
	if err := writeSettings(app.folder, map[string]any{"kmsKeyArn": d.key}); err != nil {
		t.Fatal(err)
	}
	if err := d.cdkDeploy(t.Context(), app, "-c", "allow-drop=table,access"); err != nil {
		t.Fatal(err)
	}
	if after, err = Inspect(t.Context(), d.Account, name); err != nil {
		t.Fatal(err)
	}
	if got := after.Outputs[settings.OutputTable]; got == table || got == "" {
		t.Errorf("the table was not dropped: %s", got)
	}
}
