package access_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for _, test := range []struct {
		name, claims, scopes string
		warned               bool
	}{
		{"only a repository", `{"repository": "acme/vpc"}`, `["publish:modules/acme/vpc/aws"]`, true},
		{"only an owner", `{"repository_owner": "acme"}`, `["publish:modules/acme/*"]`, true},
		{"only a project", `{"project_path": "acme/vpc"}`, `["publish:modules/acme/vpc/aws"]`, true},
		{"only a namespace", `{"namespace_path": "acme"}`, `["publish:modules/acme/*"]`, true},
		{"only an actor", `{"actor": "ada"}`, `["publish:modules/acme/*"]`, true},
		{
			"only a repository and an event", `{"repository": "acme/vpc", "event_name": "push"}`,
			`["publish:modules/acme/*"]`, true,
		},
		{"any ref", `{"repository": "acme/vpc", "ref": "**"}`, `["publish:modules/acme/*"]`, true},
		{"any environment", `{"repository": "acme/vpc", "environment": "*"}`, `["publish:modules/acme/*"]`, true},
		{"any id", `{"repository": "acme/vpc", "repository_id": "*"}`, `["publish:modules/acme/*"]`, true},
		{"any segments", `{"repository": "acme/vpc", "job_workflow_ref": "*/**"}`, `["publish:modules/acme/*"]`, true},
		{"empty part of a name", `{"repository": "acme/vpc", "_id": "1"}`, `["publish:modules/acme/*"]`, true},
		{"reads too", `{"repository": "acme/vpc"}`, `["read:**", "publish:modules/acme/*"]`, true},
		{"everyone by subject", `{"sub": "**"}`, `["publish:**"]`, true},
		{"everyone by subject, in segments", `{"sub": "*"}`, `["publish:**"]`, true},
		{"everyone by audience", `{"aud": "https://registry.example.com"}`, `["publish:**"]`, true},
		{"ref of everybody", `{"ref": "refs/tags/*"}`, `["publish:modules/acme/*"]`, true},
		{"environment of everybody", `{"environment": "release"}`, `["publish:modules/acme/*"]`, true},
		{"event of everybody", `{"event_name": "push"}`, `["publish:modules/acme/*"]`, true},
		{"every public repository", `{"repository_visibility": "public"}`, `["publish:modules/acme/*"]`, true},
		{"every repository", `{"repository": "*/*"}`, `["publish:modules/acme/*"]`, true},

		{"ref", `{"repository": "acme/vpc", "ref": "refs/tags/*"}`, `["publish:modules/acme/*"]`, false},
		{"type of ref", `{"project_path": "acme/vpc", "ref_type": "tag"}`, `["publish:modules/acme/*"]`, false},
		{"protected ref", `{"project_path": "acme/vpc", "ref_protected": "true"}`, `["publish:modules/acme/*"]`, false},
		{"environment", `{"repository": "acme/vpc", "environment": "release"}`, `["publish:modules/acme/*"]`, false},
		{
			"workflow", `{"repository": "acme/vpc", "job_workflow_ref": "acme/ci/.github/workflows/p.yml@refs/tags/v1"}`,
			`["publish:modules/acme/*"]`, false,
		},
		{"subject", `{"sub": "repo:acme/vpc:environment:release"}`, `["publish:modules/acme/*"]`, false},
		{"repository by id", `{"repository_id": "123"}`, `["publish:modules/acme/*"]`, false},
		{"owner by id", `{"repository": "acme/vpc", "repository_owner_id": "123"}`, `["publish:modules/acme/*"]`, false},
		{"project by id", `{"project_id": "123"}`, `["publish:modules/acme/*"]`, false},
		{"namespace by id", `{"namespace_id": "123"}`, `["publish:modules/acme/*"]`, false},
		{"people by group", `{"groups": "platform"}`, `["publish:modules/acme/*"]`, false},
		{"people by nested role", `{"/realm_access/roles": "publisher"}`, `["publish:modules/acme/*"]`, false},
		{"only reading", `{"repository": "acme/vpc"}`, `["read:**"]`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, fmt.Sprintf(`{"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"], "rules": [
				{"claims": {"groups": "readers"}, "scopes": ["read:**"]},
				{"claims": %s, "scopes": %s}
			]}]}`, test.claims, test.scopes))
			warnings := s.Warnings()
			if !test.warned {
				if len(warnings) > 0 {
					t.Errorf("warned: %q", warnings)
				}
				return
			}
			if len(warnings) != 1 {
				t.Fatalf("%d warnings: %q", len(warnings), warnings)
			}
			if part := "issuer https://a.example.com, rule 2: "; !strings.HasPrefix(warnings[0], part) {
				t.Errorf("%q does not begin with %q", warnings[0], part)
			}
			texts.Text(t, warnings[0])
		})
	}
	if warnings := parse(t, `{}`).Warnings(); len(warnings) > 0 {
		t.Errorf("no settings: %q", warnings)
	}
}
