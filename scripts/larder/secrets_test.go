package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// A module with a secret is not sent to a registry, unless its path is allowed
// or the same content is published already.
func TestSecretsThroughServer(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	secret := token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**")
	p := s.publisher(t, credentials(s.Host, secret))
	dir := t.TempDir()
	content := "variable \"token\" {\n  default = \"" + registry.FormatToken([32]byte{1}) + "\"\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	const note = "main.tf:2 contains a secret (Larder token)"
	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"with a secret", nil, failure.ExitInvalid, note},
		{"dry run", []string{"--dry-run"}, failure.ExitInvalid, note},
		{"allowed", []string{"--allow-secret", "main.tf"}, 0, "Published"},
		{"again", nil, 0, note + ", which is published already"},
	} {
		cmd := p.command(t, append([]string{"publish", "module", dir, "acme/vpc/aws", "1.0.0"}, test.args...)...)
		out, _ := cmd.CombinedOutput() // the exit code is compared
		if code := cmd.ProcessState.ExitCode(); code != test.code {
			t.Errorf("%s: exit code %d, want %d\n%s", test.name, code, test.code, out)
		}
		if !strings.Contains(string(out), test.want) {
			t.Errorf("%s: the output does not contain %q:\n%s", test.name, test.want, out)
		}
		if strings.Contains(string(out), "larder_") {
			t.Errorf("%s: the output has the secret:\n%s", test.name, out)
		}
		for name := range contents(t, s.data) {
			if test.code != 0 && strings.HasSuffix(name, ".tar.gz") {
				t.Errorf("%s: %s is stored", test.name, name)
			}
		}
	}
	var audit auditView
	if err := json.Unmarshal([]byte(larder(t, "audit", "acme/vpc/aws", "--json", "--store", s.data)), &audit); err != nil {
		t.Fatal(err)
	}
	if len(audit.Entries) != 1 {
		t.Fatalf("got %d audit entries, want 1", len(audit.Entries))
	}
	if diff := cmp.Diff([]string{"main.tf"}, audit.Entries[0].AllowedSecrets); diff != "" {
		t.Errorf("allowed secrets in the audit entry (-want +got):\n%s", diff)
	}
}
