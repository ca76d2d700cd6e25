package publishapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// The record has the claimed source apart from the publisher. Publishing the
// same content with another claim changes nothing.
func TestClaimed(t *testing.T) {
	t.Parallel()
	d := open(t)
	token, files := d.token(t, both), vpc(t, 1)
	claimed := &registry.ClaimedSource{
		Remote: "https://github.com/acme/vpc.git", Commit: strings.Repeat("a", 40), Tag: "v1.0.0", Dirty: true,
	}
	for _, commit := range []string{claimed.Commit, strings.Repeat("b", 40)} {
		a := announce(files)
		a.Claimed = &registry.ClaimedSource{Remote: claimed.Remote, Commit: commit, Tag: claimed.Tag, Dirty: true}
		if step, last := d.publish(t, token, module1, a, files); last.status != http.StatusOK {
			t.Fatalf("refused at step %q: %d %s", step, last.status, last.body)
		}
		record, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v1)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(claimed, record.Claimed); diff != "" {
			t.Errorf("the claim of %s (-want +got):\n%s", commit, diff)
		}
		want := registry.Publisher{Kind: registry.PublisherToken, Name: "ci"}
		if diff := cmp.Diff(want, record.PublishedBy); diff != "" {
			t.Errorf("the publisher (-want +got):\n%s", diff)
		}
	}
}

// Claims that could have a credential, or that are none, are refused, and no
// error repeats them.
func TestClaimedRefused(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token := d.token(t, both)
	commit := strings.Repeat("a", 40)
	for name, claimed := range map[string]registry.ClaimedSource{
		"a password":        {Remote: "https://ada:s3cret@github.com/acme/vpc", Commit: commit},
		"a token":           {Remote: "https://github.com/acme/vpc?token=s3cret", Commit: commit},
		"a script":          {Remote: "javascript:alert('s3cret')", Commit: commit},
		"a path":            {Remote: "/home/s3cret/vpc", Commit: commit},
		"a long remote":     {Remote: "https://github.com/s3cret/" + strings.Repeat("a", 255), Commit: commit},
		"no commit":         {Remote: "https://github.com/acme/vpc"},
		"a branch":          {Commit: "s3cret"},
		"a long tag":        {Commit: commit, Tag: "s3cret" + strings.Repeat("a", 255)},
		"an unreadable tag": {Commit: commit, Tag: "s3cret\u202e"},
	} {
		t.Run(name, func(t *testing.T) {
			copied := registry.CopiedFrom{Source: "registry.example.com/acme/vpc/aws", Claimed: &claimed}
			for _, change := range []func(*protocol.Announcement){
				func(a *protocol.Announcement) { a.Claimed = &claimed },
				func(a *protocol.Announcement) { a.CopiedFrom = &copied },
			} {
				a := announce(vpc(t, 1))
				change(&a)
				got := d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", a)
				if strings.Contains(string(got.body), "s3cret") {
					t.Errorf("the error has the text: %s", got.body)
				}
				got.refused(t, texts, http.StatusBadRequest)
			}
		})
	}
	t.Run("a copy with a claim of its own", func(t *testing.T) {
		a := announce(vpc(t, 1))
		a.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/acme/vpc/aws"}
		a.Claimed = &registry.ClaimedSource{Commit: commit}
		d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", a).refused(t, texts, http.StatusBadRequest)
	})
}
