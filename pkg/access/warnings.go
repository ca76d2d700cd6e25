package access

import (
	"fmt"
	"slices"
	"strings"
)

// Warnings returns a line for each rule that lets more jobs publish than its
// author may know. Such a rule is valid. The warnings are for people who write
// settings, and name the issuer, the rule by its number, and what to add.
//
// A CI service lets somebody else take the name of a deleted or renamed
// organization, and runs jobs for pull requests under the repository's name. So
// a rule that names a job should have one of these claims too: a ref, an
// environment, a workflow at a ref, sub, or an id that is never given again,
// such as repository_owner_id. A rule by nothing but how a job runs, such as a ref
// alone, is for the jobs of everybody. A claim whose pattern is wildcards alone
// does not count. A rule for people, such as one by their groups, needs none of
// these. No warning does not mean that a rule is as narrow as it could be.
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

// nameClaims name a CI job by what somebody else can come to have.
var nameClaims = []string{
	"repository", "repository_owner", "actor", "workflow", // GitHub, Forgejo, Gitea
	"project_path", "namespace_path", "user_login", // GitLab
}

// circumstanceClaims say how a CI job runs, and not whose job it is.
var circumstanceClaims = []string{
	"ref", "ref_type", "ref_path", "ref_protected", "head_ref", "base_ref", "environment", "environment_protected",
	"event_name", "pipeline_source", "repository_visibility", "project_visibility", "runner_environment",
}

// loose returns why a rule should not let its callers publish, or "".
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
		return "anyone with a token of this issuer can publish: add the claims that your publishers have"
	case named && !narrowed:
		return "it lets jobs publish by a name alone, which somebody else may take over: " +
			"add an id, such as repository_owner_id or namespace_id, and a ref or an environment"
	}
	return ""
}

// narrows reports whether a claim is of one kind of job, or of an owner whom
// nobody can replace.
func narrows(claim string) bool {
	switch claim {
	case "ref", "ref_type", "ref_path", "ref_protected", "environment", "job_workflow_ref", "workflow_ref", "sub":
		return true
	}
	name, isID := strings.CutSuffix(claim, "_id")
	return isID && name != ""
}
