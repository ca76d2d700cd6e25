package registry

import (
	"strconv"
	"strings"
)

// Publisher identifies who published or mirrored a version. No field comes from
// the body of a request, and no decision may depend on it. Fields that do not
// apply or are unknown are empty.
type Publisher struct {
	Kind PublisherKind `json:"kind,omitempty"`
	// Name is the name of a registry token, the ARN of AWS credentials, or a
	// user of this machine. For OIDC, it is the claim that the issuer's
	// settings use as the name.
	Name string `json:"name,omitempty"`
	// Issuer and Subject are the claims iss and sub of an OIDC token.
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Repository, Ref and Commit are the source of a CI job. They are the path
	// of the repository on its host, a Git ref, and the full hash of a commit.
	Repository string `json:"repository,omitempty"`
	Ref        string `json:"ref,omitempty"`
	Commit     string `json:"commit,omitempty"`
	// RunURL is the web page of the CI run.
	RunURL string `json:"run_url,omitempty"`
}

// SourceURL returns the URL of the repository that the identity of a CI job
// proves. It is empty if there is none.
func (p Publisher) SourceURL() string {
	if p.Kind != PublisherOIDC || p.Repository == "" || !strings.HasPrefix(p.RunURL, "https://") {
		return ""
	}
	before, _, found := strings.Cut(p.RunURL, "/"+p.Repository+"/")
	if !found {
		return ""
	}
	return before + "/" + p.Repository
}

// PublisherKind is the kind of credential of a [Publisher].
type PublisherKind string

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

// String returns the publisher in one line, for the audit trail and the log.
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
