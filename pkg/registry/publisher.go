package registry

import (
	"strconv"
	"strings"
)

// Publisher identifies who published or mirrored a version. Nothing in it comes from
// the body of a request, and no decision may rest on it. Fields that do not apply or
// are unknown are empty.
type Publisher struct {
	Kind PublisherKind `json:"kind,omitempty"`
	// Name is the name of a registry token, the ARN of AWS credentials, a user of this
	// machine, or the claim by which the settings of an OIDC issuer name its callers.
	Name string `json:"name,omitempty"`
	// Issuer and Subject are the claims iss and sub of an OIDC token.
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Repository, Ref and Commit are what a CI job ran for: the path of the repository
	// at the job's host, a Git ref, and the full hash of a commit.
	Repository string `json:"repository,omitempty"`
	Ref        string `json:"ref,omitempty"`
	Commit     string `json:"commit,omitempty"`
	// RunURL is the page of the CI job's run.
	RunURL string `json:"run_url,omitempty"`
}

// PublisherKind is the kind of credential that a Publisher had.
type PublisherKind string

// The kinds.
const (
	// PublisherOIDC is a CI job or a person with a token of an OIDC issuer.
	PublisherOIDC PublisherKind = "oidc"
	// PublisherToken is the holder of a registry token.
	PublisherToken PublisherKind = "token"
	// PublisherAWS is an operator with AWS credentials.
	PublisherAWS PublisherKind = "aws"
	// PublisherUser is an operator with a local folder: a user of this machine.
	PublisherUser PublisherKind = "user"
)

// String returns the publisher as one line, as the audit trail and the log have it.
func (p Publisher) String() string {
	switch p.Kind {
	case PublisherToken:
		return "token " + p.Name
	case PublisherOIDC:
		text := p.Issuer + " " + p.Subject
		if more := p.details(); len(more) > 0 {
			text += " (" + strings.Join(more, ", ") + ")"
		}
		return text
	}
	return p.Name
}

func (p Publisher) details() (all []string) {
	if p.Name != "" {
		// Quoted, because a person may choose the name.
		all = append(all, "name "+strconv.Quote(p.Name))
	}
	if p.Repository != "" {
		all = append(all, "repository "+p.Repository)
	}
	if p.Ref != "" {
		all = append(all, "ref "+p.Ref)
	}
	return all
}
