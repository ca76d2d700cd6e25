package registry_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

func TestPublisher(t *testing.T) {
	t.Parallel()
	const issuer = "https://idp.example.com"
	for name, test := range map[string]struct {
		publisher  registry.Publisher
		text, json string
	}{
		"nobody": {registry.Publisher{}, "", `{}`},
		"a user": {registry.Publisher{Kind: registry.PublisherUser, Name: "ada"}, "ada", `{"kind":"user","name":"ada"}`},
		"AWS credentials": {
			registry.Publisher{Kind: registry.PublisherAWS, Name: "arn:aws:iam::111122223333:user/ada"},
			"arn:aws:iam::111122223333:user/ada", `{"kind":"aws","name":"arn:aws:iam::111122223333:user/ada"}`,
		},
		"a registry token": {
			registry.Publisher{Kind: registry.PublisherToken, Name: "ci"}, "token ci", `{"kind":"token","name":"ci"}`,
		},
		"a person": {
			registry.Publisher{Kind: registry.PublisherOIDC, Name: "ada", Issuer: issuer, Subject: "7"},
			issuer + ` 7 (name "ada")`, `{"kind":"oidc","name":"ada","issuer":"` + issuer + `","subject":"7"}`,
		},
		"a person without a name": {
			registry.Publisher{Kind: registry.PublisherOIDC, Issuer: issuer, Subject: "7"}, issuer + " 7",
			`{"kind":"oidc","issuer":"` + issuer + `","subject":"7"}`,
		},
		"a CI job": {
			registry.Publisher{
				Kind: registry.PublisherOIDC, Issuer: issuer, Subject: "7",
				Repository: "acme/vpc", Ref: "refs/tags/v1.0.0", Commit: "c", RunURL: "u",
			},
			issuer + " 7 (repository acme/vpc, ref refs/tags/v1.0.0)",
			`{"kind":"oidc","issuer":"` + issuer + `","subject":"7",` +
				`"repository":"acme/vpc","ref":"refs/tags/v1.0.0","commit":"c","run_url":"u"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.text, test.publisher.String()); diff != "" {
				t.Errorf("String (-want +got):\n%s", diff)
			}
			data, err := json.Marshal(test.publisher)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.json, string(data)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
			var again registry.Publisher
			if err := json.Unmarshal(data, &again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.publisher, again); diff != "" {
				t.Errorf("read again (-want +got):\n%s", diff)
			}
		})
	}
}

// A record contains its publisher. The record of a withdrawn version has no
// publisher and no field for it.
func TestPublishedBy(t *testing.T) {
	t.Parallel()
	by := registry.Publisher{Kind: registry.PublisherToken, Name: "ci"}
	version := registry.Version{Major: 1}
	const published = `{"version":"1.0.0","published_by":{"kind":"token","name":"ci"}}`
	for name, test := range map[string]struct {
		record any
		want   string
	}{
		"module":             {registry.ModuleVersion{Version: version, PublishedBy: by}, published},
		"provider":           {registry.ProviderVersion{Version: version, PublishedBy: by}, published},
		"withdrawn module":   {registry.ModuleVersion{Version: version}, `{"version":"1.0.0"}`},
		"withdrawn provider": {registry.ProviderVersion{Version: version}, `{"version":"1.0.0"}`},
	} {
		data, err := json.Marshal(test.record)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, string(data)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
