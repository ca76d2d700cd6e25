package access

import (
	"fmt"
	"slices"
	"strings"
)

// Warnings returns a line for each rule that may let more jobs publish than its
// author intends. Such a rule is valid. The warnings are for people who write
// settings. They name the issuer, the rule by its number, and the claims to
// add.
//
// CI services let someone else take the name of a deleted or renamed
// organization. They also run jobs for pull requests under the repository's
// name. So a rule that names a job should also have a claim that narrows it. Such a
// claim is a ref, an environment, a workflow at a ref, sub, or a permanent id such
// as repository_owner_id.
//
// A rule whose claims only describe how a job runs, such as only a ref, matches
// everyone's jobs. A claim whose pattern has only wildcards does not count. A
// rule for people, for example by their groups, needs none of these claims.
// Even a rule without a warning may be broader than necessary.
func (s Settings) Warnings() []string {
	var warnings []string
	for _, i := range s.Issuers {
		for n, r := range i.Rules {
			if why := r.loose(); why != "" {
				warnings = append(warnings, fmt.Sprintf("issuer %s, rule %d: %s", i.Issuer, n+1, why))
			}
		}
	}
	return warnings
}

// nameClaims name a CI job by a name that someone else can take over.
var nameClaims = []string{
	"repository", "repository_owner", "actor", "workflow", // GitHub, Forgejo, Gitea
	"project_path", "namespace_path", "user_login", // GitLab
}

// circumstanceClaims describe how a CI job runs, and not whose job it is.
var circumstanceClaims = []string{
	"ref", "ref_type", "ref_path", "ref_protected", "head_ref", "base_ref", "environment", "environment_protected",
	"event_name", "pipeline_source", "repository_visibility", "project_visibility", "runner_environment",
}

// loose returns the reason why a rule is too broad for publishing, or "".
func (r Rule) loose() string {
	if !slices.ContainsFunc(r.Scopes, func(s Scope) bool { return s.Verb == Publish }) {
		return ""
	}
	named, narrowed, identified := false, false, false
	for claim, want := range r.Claims {
		if strings.Trim(want, "*/") == "" || claim == "aud" || claim == "iss" {
			continue // every token of the issuer for this registry has one
		}
		narrowed = narrowed || narrows(claim)
		named = named || slices.Contains(nameClaims, claim)
		identified = identified || !slices.Contains(circumstanceClaims, claim)
	}
	switch {
	case !identified:
		return "anyone with a token of this issuer can publish: add claims that only your publishers have"
	case named && !narrowed:
		return "the rule identifies jobs only by a name that someone else may take over: " +
			"add an id, such as repository_owner_id or namespace_id, and a ref or an environment"
	}
	return ""
}

// narrows reports whether a claim limits a rule to one kind of job or to one
// owner. The owner must be given by an id that no other owner can get.
func narrows(claim string) bool {
	switch claim {
	case "ref", "ref_type", "ref_path", "ref_protected", "environment", "job_workflow_ref", "workflow_ref", "sub":
		return true
	}
	name, isID := strings.CutSuffix(claim, "_id")
	return isID && name != ""
}
