package access_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	const names, everyone = "by a name alone", "anyone"
	for _, test := range []struct {
		name, claims, scopes string
		want                 string // of the one warning; none if it is empty
	}{
		{"repository alone", `{"repository": "acme/vpc"}`, `["publish:modules/acme/vpc/aws"]`, names},
		{"owner alone", `{"repository_owner": "acme"}`, `["publish:modules/acme/*"]`, names},
		{"project alone", `{"project_path": "acme/vpc"}`, `["publish:modules/acme/vpc/aws"]`, names},
		{"namespace alone", `{"namespace_path": "acme"}`, `["publish:modules/acme/*"]`, names},
		{"actor alone", `{"actor": "ada"}`, `["publish:modules/acme/*"]`, names},
		{"event alone", `{"repository": "acme/vpc", "event_name": "push"}`, `["publish:modules/acme/*"]`, names},
		{"any ref", `{"repository": "acme/vpc", "ref": "**"}`, `["publish:modules/acme/*"]`, names},
		{"any environment", `{"repository": "acme/vpc", "environment": "*"}`, `["publish:modules/acme/*"]`, names},
		{"any id", `{"repository": "acme/vpc", "repository_id": "*"}`, `["publish:modules/acme/*"]`, names},
		{"any segments", `{"repository": "acme/vpc", "job_workflow_ref": "*/**"}`, `["publish:modules/acme/*"]`, names},
		{"empty part of a name", `{"repository": "acme/vpc", "_id": "1"}`, `["publish:modules/acme/*"]`, names},
		{"reads too", `{"repository": "acme/vpc"}`, `["read:**", "publish:modules/acme/*"]`, names},
		{"everyone by subject", `{"sub": "**"}`, `["publish:**"]`, everyone},
		{"everyone by subject, in segments", `{"sub": "*"}`, `["publish:**"]`, everyone},
		{"everyone by audience", `{"aud": "https://registry.example.com"}`, `["publish:**"]`, everyone},
		{"ref of everybody", `{"ref": "refs/tags/*"}`, `["publish:modules/acme/*"]`, everyone},
		{"environment of everybody", `{"environment": "release"}`, `["publish:modules/acme/*"]`, everyone},
		{"event of everybody", `{"event_name": "push"}`, `["publish:modules/acme/*"]`, everyone},
		{"every public repository", `{"repository_visibility": "public"}`, `["publish:modules/acme/*"]`, everyone},
		{"every repository", `{"repository": "*/*"}`, `["publish:modules/acme/*"]`, everyone},

		{"ref", `{"repository": "acme/vpc", "ref": "refs/tags/*"}`, `["publish:modules/acme/*"]`, ""},
		{"type of ref", `{"project_path": "acme/vpc", "ref_type": "tag"}`, `["publish:modules/acme/*"]`, ""},
		{"protected ref", `{"project_path": "acme/vpc", "ref_protected": "true"}`, `["publish:modules/acme/*"]`, ""},
		{"environment", `{"repository": "acme/vpc", "environment": "release"}`, `["publish:modules/acme/*"]`, ""},
		{"workflow", `{"repository": "acme/vpc", "job_workflow_ref": "acme/ci/.github/workflows/p.yml@refs/tags/v1"}`, `["publish:modules/acme/*"]`, ""},
		{"subject", `{"sub": "repo:acme/vpc:environment:release"}`, `["publish:modules/acme/*"]`, ""},
		{"repository by id", `{"repository_id": "123"}`, `["publish:modules/acme/*"]`, ""},
		{"owner by id", `{"repository": "acme/vpc", "repository_owner_id": "123"}`, `["publish:modules/acme/*"]`, ""},
		{"project by id", `{"project_id": "123"}`, `["publish:modules/acme/*"]`, ""},
		{"namespace by id", `{"namespace_id": "123"}`, `["publish:modules/acme/*"]`, ""},
		{"people by group", `{"groups": "platform"}`, `["publish:modules/acme/*"]`, ""},
		{"people by nested role", `{"/realm_access/roles": "publisher"}`, `["publish:modules/acme/*"]`, ""},
		{"reading alone", `{"repository": "acme/vpc"}`, `["read:**"]`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, fmt.Sprintf(`{"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"], "rules": [
				{"claims": {"groups": "readers"}, "scopes": ["read:**"]},
				{"claims": %s, "scopes": %s}
			]}]}`, test.claims, test.scopes))
			warnings := s.Warnings()
			if test.want == "" {
				if len(warnings) > 0 {
					t.Errorf("warned: %q", warnings)
				}
				return
			}
			if len(warnings) != 1 {
				t.Fatalf("%d warnings: %q", len(warnings), warnings)
			}
			for _, part := range []string{"issuer https://a.example.com, rule 2: ", test.want} {
				if !strings.Contains(warnings[0], part) {
					t.Errorf("%q does not have %q", warnings[0], part)
				}
			}
		})
	}
	if warnings := parse(t, `{}`).Warnings(); len(warnings) > 0 {
		t.Errorf("no settings: %q", warnings)
	}
}
