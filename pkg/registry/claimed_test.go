package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
)

// A stored remote has no credential, and none that people cannot read.
func TestRemoteURL(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"https://github.com/acme/vpc.git":                                       "https://github.com/acme/vpc.git",
		"https://github.com/acme/vpc":                                           "https://github.com/acme/vpc",
		"https://github.com/acme/vpc/":                                          "https://github.com/acme/vpc/",
		"HTTPS://GitHub.com/acme/VPC":                                           "https://github.com/acme/VPC",
		"http://git.example.com:3000/acme/vpc":                                  "http://git.example.com:3000/acme/vpc",
		"git://git.example.com/vpc":                                             "git://git.example.com/vpc",
		"https://xn--gthub-n4a.com/acme/vpc":                                    "https://xn--gthub-n4a.com/acme/vpc",
		"https://dev.azure.com/acme/My%20Project/_git/vpc":                      "https://dev.azure.com/acme/My%20Project/_git/vpc",
		"https://bitbucket.example.com/scm/~ada/vpc.git":                        "https://bitbucket.example.com/scm/~ada/vpc.git",
		"git@github.com:acme/vpc.git":                                           "ssh://git@github.com/acme/vpc.git",
		"git@github.com:/acme/vpc.git":                                          "ssh://git@github.com/acme/vpc.git",
		"ada@git.example.com:vpc":                                               "ssh://git.example.com/vpc",
		"git.example.com:acme/vpc":                                              "ssh://git.example.com/acme/vpc",
		"ssh://git@git.example.com:7999/acme/vpc.git":                           "ssh://git@git.example.com:7999/acme/vpc.git",
		"ssh://APKAEXAMPLE@git-codecommit.eu-west-1.amazonaws.com/v1/repos/vpc": "ssh://git-codecommit.eu-west-1.amazonaws.com/v1/repos/vpc",

		// Credentials.
		"https://ada:s3cret@github.com/acme/vpc":                "https://github.com/acme/vpc",
		"https://s3cret@github.com/acme/vpc":                    "https://github.com/acme/vpc",
		"https://x-access-token:s3cret@github.com/acme/vpc.git": "https://github.com/acme/vpc.git",
		"https://git:s3cret@github.com/acme/vpc":                "https://github.com/acme/vpc",
		"https://github.com/acme/vpc?private_token=s3cret":      "https://github.com/acme/vpc",
		"https://github.com/acme/vpc#s3cret":                    "https://github.com/acme/vpc",
		"ssh://git:s3cret@github.com/acme/vpc":                  "ssh://git@github.com/acme/vpc",
		"git:s3cret@github.com:acme/vpc":                        "",
		"https://ada:s3/cret@github.com/acme/vpc":               "",
		"https://s3/cret@github.com/acme/vpc":                   "",
		"https://s3%2Fcret@github.com/acme/vpc":                 "https://github.com/acme/vpc",
		"https://s3/cret%40github.com/acme/vpc":                 "",
		"https://ada:s3#cret@github.com/acme/vpc":               "",
		"https://ada:s3?cret@github.com/acme/vpc":               "",
		"https://github.com/acme/vpc;token=s3cret":              "",

		// Remotes that are not on a server, or that run a program.
		"":                          "",
		"/srv/git/vpc.git":          "",
		"../vpc":                    "",
		"./a:b":                     "",
		"file:///srv/git/vpc.git":   "",
		"file://host/srv/git":       "",
		`C:\git\vpc`:                "",
		"C:/git/vpc":                "",
		`\\server\share\vpc`:        "",
		"vpc.bundle":                "",
		"ext::sh -c id":             "",
		"ext::https://host/a":       "",
		"codecommit::eu://a@vpc":    "",
		"persistent-https://host/a": "",
		"javascript:alert(1)":       "",
		"javascript://host/%0Aa":    "",
		"data:text/html,x":          "",

		// Odd hosts and paths.
		"https://github.com":                       "",
		"https://github.com/":                      "",
		"https://gіthub.com/acme/vpc":              "",                                 // the i is Cyrillic
		"https://github.com/аcme/vpc":              "https://github.com/%D0%B0cme/vpc", // the first a is Cyrillic
		"https://github.com/acme/../evil/vpc":      "",
		"https://github.com/acme//vpc":             "",
		"https://github.com/acme/%2e%2e/vpc":       "",
		"https://github.com/a%0Ab":                 "",
		"https://github.com/a%E2%80%AEb":           "",
		"https://github.com/a\nb":                  "",
		"https://github.com/a\x1b[2Jb":             "",
		"https://github.com/\"><script>":           "https://github.com/%22%3E%3Cscript%3E",
		"https://github.com/a b":                   "https://github.com/a%20b",
		"https://-host/acme":                       "",
		"https://host:port/acme":                   "",
		"https://[::1]/acme":                       "",
		"https:github.com/acme":                    "",
		"gh:acme/vpc":                              "", // a short form of the setting url.*.insteadOf
		"https://host/" + strings.Repeat("a", 255): "",
	} {
		got := registry.RemoteURL(remote)
		if got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
		if again := registry.RemoteURL(got); again != got {
			t.Errorf("%q changes again to %q", got, again)
		}
	}
}

func TestClaimedSource(t *testing.T) {
	t.Parallel()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, test := range map[string]struct {
		claimed registry.ClaimedSource
		want    string // empty if it is refused
	}{
		"only a commit": {registry.ClaimedSource{Commit: commit}, "commit " + commit},
		"everything": {
			registry.ClaimedSource{Remote: "https://github.com/acme/vpc.git", Commit: commit, Tag: "vpc/v1.1.0", Dirty: true},
			"commit " + commit + " of github.com/acme/vpc, tag vpc/v1.1.0, with uncommitted changes",
		},
		"SSH": {
			registry.ClaimedSource{Remote: "ssh://git@git.example.com:7999/acme/vpc.git", Commit: commit},
			"commit " + commit + " of git.example.com:7999/acme/vpc",
		},
		"SHA-256":                {registry.ClaimedSource{Commit: strings.Repeat("a", 64)}, "commit " + strings.Repeat("a", 64)},
		"no commit":              {registry.ClaimedSource{Tag: "v1.0.0"}, ""},
		"a short commit":         {registry.ClaimedSource{Commit: "0123abc"}, ""},
		"capitals":               {registry.ClaimedSource{Commit: strings.ToUpper(commit)}, ""},
		"a branch":               {registry.ClaimedSource{Commit: "main"}, ""},
		"a token":                {registry.ClaimedSource{Remote: "https://s3cret@github.com/acme/vpc", Commit: commit}, ""},
		"a query":                {registry.ClaimedSource{Remote: "https://github.com/acme/vpc?s3cret", Commit: commit}, ""},
		"the form of scp":        {registry.ClaimedSource{Remote: "git@github.com:acme/vpc", Commit: commit}, ""},
		"a local path":           {registry.ClaimedSource{Remote: "/srv/s3cret/vpc", Commit: commit}, ""},
		"a script":               {registry.ClaimedSource{Remote: "javascript:alert('s3cret')", Commit: commit}, ""},
		"a tag with a space":     {registry.ClaimedSource{Commit: commit, Tag: "v1.0.0 s3cret"}, ""},
		"an escape sequence":     {registry.ClaimedSource{Commit: commit, Tag: "v1\x1b[2Js3cret"}, ""},
		"another direction":      {registry.ClaimedSource{Commit: commit, Tag: "v1\u202es3cret"}, ""},
		"a long tag":             {registry.ClaimedSource{Commit: commit, Tag: "s3cret" + strings.Repeat("a", 250)}, ""},
		"a tag that is not text": {registry.ClaimedSource{Commit: commit, Tag: "s3cret\xff"}, ""},
	} {
		err := test.claimed.Check()
		if refused := errors.Is(err, registry.ErrInvalid); refused != (test.want == "") {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error has the text: %v", name, err)
		}
		if got := test.claimed.String(); test.want != "" && got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestClaimedBesideIdentity(t *testing.T) {
	t.Parallel()
	job := registry.Publisher{Kind: registry.PublisherOIDC, Commit: strings.Repeat("a", 40)}
	for name, test := range map[string]struct {
		claimed *registry.ClaimedSource
		by      registry.Publisher
		want    bool
	}{
		"a token":                   {&registry.ClaimedSource{Commit: job.Commit}, registry.Publisher{}, true},
		"a job with its own commit": {&registry.ClaimedSource{Commit: job.Commit, Tag: "v1.0.0"}, job, false},
		"a job with changes":        {&registry.ClaimedSource{Commit: job.Commit, Dirty: true}, job, true},
		"a job with another commit": {&registry.ClaimedSource{Commit: strings.Repeat("b", 40)}, job, true},
		"nothing":                   {nil, job, false},
		"nothing with a token":      {nil, registry.Publisher{}, false},
	} {
		if got := test.claimed.Beside(test.by) != nil; got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
