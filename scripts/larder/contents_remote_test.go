package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// registryField is the line of a JSON object that names the registry.
var registryField = regexp.MustCompile(`(?m)^  "registry": .*\n`)

// The commands for the contents of a registry work over its URL. They print
// what the token can read, and the same as on the store.
func TestContentsThroughRegistry(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--require-token")
	for address, versions := range map[string][]string{
		"acme/vpc/aws": {"1.0.0", "1.1.0"}, "acme/dns/aws": {"1.0.0"}, "other/vpc/aws": {"1.0.0"},
	} {
		for _, version := range versions {
			publishModule(t, s.data, address, version, map[string]string{
				"main.tf": "variable \"zone\" {\n  default = \"" + version + "\"\n}\n",
			})
		}
	}
	publishModule(t, s.data, "acme/vpc/aws", "2.0.0", map[string]string{
		"main.tf": "variable \"cidr\" {}\n", "CHANGELOG.md": "## 2.0.0\n- The range.\n## 1.0.0\n- The zone.\n",
	})
	larder(t, "deprecate", "acme/vpc/aws", "1.1.0", "--message", "broken", "--hide", "--store", "dir:"+s.data)
	secret := token(t, s.data, "--name", "reader", "--scope", "read:modules/acme/*")
	p := s.publisher(t, credentials(s.Host, secret))
	p.texts = golden.New(t)

	t.Run("same as on the store", func(t *testing.T) {
		onStore := s.publisher(t, "")
		for _, args := range [][]string{
			{"show", "acme/vpc/aws"}, {"show", "acme/vpc/aws", "1.0.0"}, {"diff", "acme/vpc/aws", "2.0.0"},
			{"search", "zone", "acme"}, {"list", "acme"}, {"list", "acme", "--quiet"}, {"list", "acme/vpc/aws", "--quiet"},
			{"show", "acme/vpc/aws", "1.0.0", "--quiet"}, {"list", "acme/vpc/aws"}, {"list", "acme/vpc/aws", "--json"},
			{"list", "acme", "--json"},
		} {
			got := p.run(t, 0, nil, args...)
			cmd := exec.CommandContext(t.Context(), "larder", append(args, "--store", "dir:"+s.data)...)
			cmd.Env = onStore.env
			want, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			// The store has its own certificate authority, which it names.
			want = registryField.ReplaceAll(want, nil)
			got = registryField.ReplaceAllString(got, "")
			stored, _, _ := strings.Cut(string(want), "\nClients must trust")
			read, _, _ := strings.Cut(got, "\nClients must trust")
			if !strings.Contains(string(want), "Clients must trust") {
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("larder %s (-store +URL):\n%s", strings.Join(args, " "), diff)
				}
			} else if !strings.HasPrefix(read, stored) {
				t.Errorf("larder %s: the store has\n%s\nand the URL\n%s", strings.Join(args, " "), stored, read)
			}
		}
	})
	t.Run("only what the token can read", func(t *testing.T) {
		for _, args := range [][]string{
			{"list"}, {"search", "vpc"}, {"search", "vpc", "--json"}, {"list", "--json"}, {"list", "acme/vpc/aws"},
		} {
			out := p.run(t, 0, []string{"2.0.0"}, args...)
			if strings.Contains(out, "other") {
				t.Errorf("larder %s reveals another namespace:\n%s", strings.Join(args, " "), out)
			}
			if strings.Contains(out, "1.1.0") && !strings.Contains(out, "1.1.0    hidden") {
				t.Errorf("larder %s shows a hidden version:\n%s", strings.Join(args, " "), out)
			}
		}
	})
	t.Run("nothing that the token can read", func(t *testing.T) {
		other := token(t, s.data, "--name", "nobody", "--scope", "read:modules/nobody/*")
		s.publisher(t, credentials(s.Host, other)).run(t, 0, []string{"You can see nothing in this registry."}, "list")
	})
	t.Run("breaking", func(t *testing.T) {
		p.run(t, failure.ExitBreaking, []string{"+ input cidr", "breaking: it is required", "- The range."}, "diff", "acme/vpc/aws", "1.0.0")
	})
	t.Run("errors", func(t *testing.T) {
		for _, test := range []struct {
			code int
			args []string
		}{
			{failure.ExitNotFound, []string{"show", "acme/vcp/aws"}},
			{failure.ExitNotFound, []string{"list", "acme/vcp/aws"}},
			{failure.ExitNotFound, []string{"list", "nobody"}},
			{failure.ExitNotFound, []string{"diff", "acme/vpc/aws", "1.0.0", "3.0.0"}},
			{failure.ExitFailed, []string{"show", "other/vpc/aws"}},
			{failure.ExitFailed, []string{"show", "other/nothing/aws"}},
			{failure.ExitFailed, []string{"list", "other/vpc/aws"}},
			{failure.ExitUsage, []string{"usage", "acme/vpc/aws"}},
		} {
			p.run(t, test.code, nil, test.args...)
		}
		anonymous := s.publisher(t, "")
		anonymous.texts = p.texts
		anonymous.run(t, failure.ExitFailed, []string{"no credential for"}, "list")
		wrong := s.publisher(t, credentials(s.Host, secret+"0"))
		wrong.texts = p.texts
		wrong.run(t, failure.ExitFailed, []string{"401"}, "search", "vpc")
	})
	t.Run("completion", func(t *testing.T) {
		complete := func(p publisher, args ...string) string {
			args = append([]string{"__complete", "--registry", "https://" + p.host}, args...)
			cmd := exec.CommandContext(t.Context(), "larder", args...)
			cmd.Env = p.env
			out, err := cmd.Output()
			if err != nil {
				t.Error(err)
			}
			return string(out)
		}
		for _, test := range []struct {
			want string
			args []string
		}{
			{"acme/vpc/aws", []string{"show", ""}},
			{"acme\n", []string{"list", ""}},
			{"1.0.0\n", []string{"show", "acme/vpc/aws", ""}},
			{"1.0.0\n", []string{"diff", "acme/vpc/aws", "2.0.0", ""}},
		} {
			out := complete(p, test.args...)
			if !strings.Contains(out, test.want) || strings.Contains(out, "other") || strings.Contains(out, "1.1.0") {
				t.Errorf("completions of %q are\n%s", test.args, out)
			}
		}
		out := complete(s.publisher(t, ""), "show", "")
		if strings.Contains(out, "acme") || strings.Contains(out, "larder:") {
			t.Errorf("without a credential, completions are\n%s", out)
		}
	})
}

// A list without a credential is an error if it shows nothing because of that, and
// not because the registry is empty.
func TestListWithoutCredential(t *testing.T) {
	t.Parallel()
	settings := filepath.Join(t.TempDir(), "access.json")
	writeFiles(t, filepath.Dir(settings), map[string]string{"access.json": `{"public": ["modules/nobody/*"]}`})
	partly, open := serve(t, t.TempDir(), "--require-token", "--access", settings), serve(t, t.TempDir())
	publishModule(t, partly.data, "acme/vpc/aws", "1.0.0", map[string]string{"main.tf": ""})
	partly.publisher(t, "").run(t, failure.ExitFailed, []string{"no credential for " + partly.Host + " was found"}, "list")
	open.publisher(t, "").run(t, 0, []string{"It is empty"}, "list")
}
