package location_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/client/location"
	"github.com/larder-registry/larder/pkg/registry"
)

// base is the URL of a download request.
var base = &url.URL{Scheme: "https", Host: "registry.example.com", Path: "/v1/modules/acme/vpc/aws/1.0.0/download"}

// shown returns a location in one line.
func shown(l location.Location) string {
	text := "archive " + l.Type
	if l.Git {
		text = "git " + l.Ref
	}
	text += " " + l.URL.String()
	if l.Folder != "" {
		text += " folder " + l.Folder
	}
	if l.Checksum.Algorithm != "" {
		text += " " + l.Checksum.Algorithm + ":" + l.Checksum.Sum[:4]
	}
	return text
}

func TestParse(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		reference, want string
		direct          bool
	}{
		// The module registry protocol: "/", "./" and "../" are relative to the URL
		// of the request.
		"relative to the root": {"/archives/vpc.tar.gz", "archive tar.gz https://registry.example.com/archives/vpc.tar.gz", false},
		"relative to the folder": {"./vpc.zip",
			"archive zip https://registry.example.com/v1/modules/acme/vpc/aws/1.0.0/vpc.zip", false},
		"relative to the folder above": {"../../vpc.zip?archive=tgz",
			"archive tgz https://registry.example.com/v1/modules/acme/vpc/vpc.zip", false},
		// GitLab's module registry: a token and archive=tgz in the query.
		"token in the query": {
			"/api/v4/packages/terraform/modules/v1/acme/vpc/aws/1.0.0/file?token=secret&archive=tgz",
			"archive tgz https://registry.example.com/api/v4/packages/terraform/modules/v1/acme/vpc/aws/1.0.0/file?token=secret",
			false,
		},
		// HCP Terraform: an archive of its own storage.
		"archive of another host": {"https://archivist.terraform.io/v1/object/dmF1bHQ6djI?archive=tar.gz",
			"archive tar.gz https://archivist.terraform.io/v1/object/dmF1bHQ6djI", false},
		// go-getter, "Archives" and "Checksumming".
		"checksum":               {"https://a.example.com/x.tgz?checksum=sha256:" + sum, "archive tgz https://a.example.com/x.tgz sha256:abab", false},
		"checksum by its length": {"https://a.example.com/x.tgz?checksum=" + sum[:40], "archive tgz https://a.example.com/x.tgz sha1:abab", false},
		"longest type":           {"https://a.example.com/x.tar.gz", "archive tar.gz https://a.example.com/x.tar.gz", false},
		"type of the query":      {"https://a.example.com/x.zip?archive=tar.gz", "archive tar.gz https://a.example.com/x.zip", false},
		"no type":                {"https://a.example.com/vpc", "archive  https://a.example.com/vpc", false},
		"forced https":           {"https::https://a.example.com/x.zip", "archive zip https://a.example.com/x.zip", false},
		"presigned":              {"https://b.example.com/x.zip?X-Amz-Signature=1&X-Amz-Date=2", "archive zip https://b.example.com/x.zip?X-Amz-Signature=1&X-Amz-Date=2", false},
		"escaped query": {"https://b.example.com/x.zip?d=a%3B%20f&tok;en=1&b",
			"archive zip https://b.example.com/x.zip?d=a%3B%20f&tok;en=1&b", false},
		"escaped path":            {"https://a.example.com/a%2Fb/x.zip//vpc", "archive zip https://a.example.com/a%2Fb/x.zip folder vpc", false},
		"folder with a dot":       {"https://a.example.com/x.zip//./modules/./vpc", "archive zip https://a.example.com/x.zip folder modules/vpc", false},
		"folder that is the root": {"https://a.example.com/x.zip//.", "archive zip https://a.example.com/x.zip", false},
		"http on this machine":    {"http://127.0.0.1:8080/x.zip", "archive zip http://127.0.0.1:8080/x.zip", false},
		"folder of an archive":    {"https://a.example.com/x.zip//modules/vpc?archive=zip", "archive zip https://a.example.com/x.zip folder modules/vpc", false},
		"direct, without a slash": {"files/x", "archive  https://registry.example.com/v1/modules/acme/vpc/aws/1.0.0/files/x", true},
		"direct, with a query":    {"https://a.example.com/x?archive=zip", "archive  https://a.example.com/x?archive=zip", true},
		// registry.opentofu.org answers with this form.
		"git over https": {"git::https://github.com/acme/terraform-aws-vpc?ref=v1.0.0",
			"git v1.0.0 https://github.com/acme/terraform-aws-vpc", false},
		"git with a folder": {"git::https://git.example.com/infra.git//modules/vpc?ref=vpc/v1.0.0&depth=1",
			"git vpc/v1.0.0 https://git.example.com/infra.git folder modules/vpc", false},
		"folder with two slashes": {"git::https://git.example.com/infra.git//modules//vpc/",
			"git  https://git.example.com/infra.git folder modules/vpc", false},
		"git over ssh":            {"git::ssh://git@git.example.com:2222/infra.git?ref=abcdef0", "git abcdef0 ssh://git@git.example.com:2222/infra.git", false},
		"git without a scheme":    {"git@github.com:acme/infra.git//vpc?ref=main", "git main ssh://git@github.com/acme/infra.git folder vpc", false},
		"path with a slash":       {"git@github.com:/acme/infra.git?ref=v1", "git v1 ssh://git@github.com/acme/infra.git", false},
		"forced, no scheme":       {"git::git@github.com:acme/infra.git", "git  ssh://git@github.com/acme/infra.git", false},
		"short form of GitHub":    {"github.com/acme/infra//vpc?ref=v1", "git v1 https://github.com/acme/infra.git folder vpc", false},
		"short form of GitLab":    {"gitlab.com/acme/infra.git?ref=v1", "git v1 https://gitlab.com/acme/infra.git", false},
		"short form of Bitbucket": {"bitbucket.org/acme/infra", "git  https://bitbucket.org/acme/infra.git", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := location.Parse(c.reference, base, c.direct)
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(l); got != c.want {
				t.Errorf("it is\n%s, want\n%s", got, c.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, reference := range map[string]string{
		"file":                           "file:///etc/passwd",
		"git over file":                  "git::file:///srv/repo.git",
		"path":                           "git::/srv/repo.git",
		"git with ext":                   "git::ext::sh -c touch% /tmp/owned",
		"git protocol":                   "git::git://git.example.com/repo.git",
		"git over http":                  "git::http://git.example.com/repo.git",
		"git over http here":             "git::http://127.0.0.1/repo.git",
		"http":                           "http://a.example.com/x.zip",
		"mercurial":                      "hg::https://hg.example.com/repo",
		"S3":                             "s3::https://s3.amazonaws.com/bucket/x.zip",
		"GCS":                            "gcs::https://www.googleapis.com/storage/v1/bucket/x.zip",
		"OCI":                            "oci://oci.example.com/vpc",
		"another module":                 "acme/vpc/aws",
		"bare file":                      "vpc.tar.gz",
		"empty":                          "",
		"host as an option of ssh":       "git::ssh://-oProxyCommand=touch%20x/repo.git",
		"user as an option of ssh":       "git::ssh://-oProxyCommand=x@git.example.com/repo.git",
		"short host as an option":        "git@-oProxyCommand=x:repo.git",
		"ref as an option":               "git::https://git.example.com/repo.git?ref=--upload-pack=x",
		"ref as a refspec":               "git::https://git.example.com/repo.git?ref=main:refs/heads/x",
		"ref as a range":                 "git::https://git.example.com/repo.git?ref=main^{/x}",
		"private key":                    "git::ssh://git@git.example.com/repo.git?sshkey=c2VjcmV0",
		"password":                       "git::https://user:secret@git.example.com/repo.git",
		"token as the user":              "git::https://secret@git.example.com/repo.git",
		"token in the query of git":      "git::https://git.example.com/repo.git?token=secret&ref=v1",
		"password of an archive":         "https://user:secret@a.example.com/x.zip",
		"user of an archive":             "https://secret@a.example.com/x.zip",
		"folder that leads out":          "https://a.example.com/x.zip//../../etc",
		"folder that leads out, escaped": "https://a.example.com/x.zip//%2e%2e/etc",
		"pattern":                        "https://a.example.com/tarball//*?archive=tar.gz",
		"unknown type":                   "https://a.example.com/x?archive=rar",
		"no archive":                     "https://a.example.com/x.zip?archive=false",
		"checksum of a file":             "https://a.example.com/x.zip?checksum=file:https://a.example.com/sums",
		"short checksum":                 "https://a.example.com/x.zip?checksum=sha256:ab",
		"long":                           "https://a.example.com/" + strings.Repeat("a", 9<<10) + ".zip",
		"no host":                        "https:///x.zip",
		"other host, relative":           "//evil.example.com/x.zip",
		"control character":              "https://a.example.com/x.zip\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := location.Parse(reference, base, false)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("it is %+v with the error %v, want ErrInvalid", l, err)
			}
			if text := err.Error() + registry.Hint(err); strings.Contains(text, "secret") || strings.Contains(text, "c2VjcmV0") {
				t.Errorf("the error %q contains a secret", text)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"/x.zip", "git::https://h/r//f?ref=v1", "git@h:p", "github.com/a/b//c", "https://h/x.tgz?checksum=sha256:ab", "ext::x",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, reference string, direct bool) {
		l, err := location.Parse(reference, base, direct)
		switch {
		case err != nil:
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("the error is %v", err)
			}
		case l.Git && l.URL.Scheme != "https" && l.URL.Scheme != "ssh":
			t.Errorf("git uses %s", l.URL.Scheme)
		case !l.Git && l.URL.Scheme != "https" && l.URL.Scheme != "http":
			t.Errorf("the archive has the scheme %s", l.URL.Scheme)
		case l.URL.Hostname() == "" || strings.HasPrefix(l.URL.Host, "-"):
			t.Errorf("the host is %q", l.URL.Host)
		case strings.HasPrefix(l.Ref, "-"):
			t.Errorf("the ref is %q", l.Ref)
		case strings.Contains("/"+l.Folder+"/", "/../"):
			t.Errorf("the folder is %q", l.Folder)
		}
	})
}
