package main

import (
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// A CI job is shown as its repository, ref and commit, and any other publisher
// by name.
func TestShortPublisher(t *testing.T) {
	t.Parallel()
	const issuer, ref, commit = "https://ci.example.com", "refs/tags/v1.0.0", "0123456789abcdef0123456789abcdef01234567"
	for want, p := range map[string]registry.Publisher{
		"":         {},
		"ada":      {Kind: registry.PublisherUser, Name: "ada"},
		"token ci": {Kind: registry.PublisherToken, Name: "ci"},
		`https://ci.example.com 7 (name "ada")`: {
			Kind: registry.PublisherOIDC, Issuer: issuer, Subject: "7", Name: "ada",
		},
		"acme/vpc refs/tags/v1.0.0 0123456 (https://ci.example.com)": {
			Kind: registry.PublisherOIDC, Issuer: issuer, Subject: "7", Repository: "acme/vpc", Ref: ref, Commit: commit,
		},
		"acme/vpc 0123456 (https://ci.example.com)": {
			Kind: registry.PublisherOIDC, Issuer: issuer, Subject: "7", Repository: "acme/vpc", Commit: commit,
		},
		"acme/vpc (https://ci.example.com)": {
			Kind: registry.PublisherOIDC, Issuer: issuer, Subject: "7", Repository: "acme/vpc",
		},
		"https://ci.example.com 7 (ref refs/tags/v1.0.0)": {
			Kind: registry.PublisherOIDC, Issuer: issuer, Subject: "7", Ref: ref, Commit: commit,
		},
	} {
		if got := output.ShortPublisher(p); got != want {
			t.Errorf("shortPublisher(%+v) = %q, want %q", p, got, want)
		}
	}
}
