package forge_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/client/forge"
	"github.com/larder-registry/larder/pkg/client/location"
	"github.com/larder-registry/larder/pkg/registry"
)

var hosts = map[string]registry.Forge{
	"Git.Example.com": registry.GitLab, "127.0.0.1:8443": registry.Forgejo, "typo.example.com": "svn",
	"github.com": registry.GitLab, // it stays a GitHub
}

func TestFind(t *testing.T) {
	t.Parallel()
	const plain, deep = "/archive/C.tar.gz", "/-/archive/C/vpc-C.tar.gz"
	for _, c := range []struct{ reference, repository, archive string }{
		{"git::https://github.com/acme/terraform-aws-vpc?ref=v5.0.0", "https://github.com/acme/terraform-aws-vpc", plain},
		{"github.com/Acme/vpc.tf.git//modules/x?ref=v1", "https://github.com/Acme/vpc.tf", plain},
		{"git::https://GitHub.com.:443/acme/vpc.git/", "https://github.com/acme/vpc", plain},
		{"git::https://gitlab.com/acme/infra/aws/vpc.git", "https://gitlab.com/acme/infra/aws/vpc", deep},
		{"git::https://git.example.com/acme/vpc", "https://git.example.com/acme/vpc", deep},
		{"git::https://bitbucket.org/acme/vpc", "https://bitbucket.org/acme/vpc", "/get/C.tar.gz"},
		{"git::https://codeberg.org/acme/.profile", "https://codeberg.org/acme/.profile", plain},
		{"git::https://127.0.0.1:8443/acme/vpc", "https://127.0.0.1:8443/acme/vpc", plain},
	} {
		at, err := location.Parse(c.reference, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		r, err := forge.Find(at, hosts)
		if err != nil {
			t.Errorf("%s: %v", c.reference, err)
			continue
		}
		if got := r.String(); got != c.repository {
			t.Errorf("%s is %s, want %s", c.reference, got, c.repository)
		}
		if got, want := r.Archive("C"), c.repository+c.archive; got != want {
			t.Errorf("the archive of %s is %s, want %s", c.reference, got, want)
		}
	}
}

func TestFindRefuses(t *testing.T) {
	t.Parallel()
	for reference, reason := range map[string]string{
		"https://github.com/acme/vpc/archive/v1.tar.gz":      "it is not a Git repository",
		"git::ssh://git@github.com/acme/vpc":                 "its URL has the scheme ssh",
		"git::https://git@github.com/acme/vpc":               "its URL contains a user",
		"git::https://git.other.example/acme/vpc":            "git.other.example is not a known forge",
		"git::https://github.com:8443/acme/vpc":              "github.com:8443 is not a known forge",
		"git::https://github.com.example.com/acme/vpc":       "github.com.example.com is not a known forge",
		"git::https://typo.example.com/acme/vpc":             "typo.example.com is not a known forge",
		"git::https://github.com/acme":                       "at github.com does not have the form OWNER/NAME",
		"git::https://github.com/acme/vpc/tree":              "at github.com does not have the form OWNER/NAME",
		"git::https://github.com/acme/..":                    "at github.com does not have the form OWNER/NAME",
		"git::https://github.com/acme%2Fvpc":                 "at github.com does not have the form OWNER/NAME",
		"git::https://github.com/acme/v%20pc":                "at github.com does not have the form OWNER/NAME",
		"git::https://gitlab.com/vpc":                        "at gitlab.com does not have the form GROUP/NAME",
		"git::https://gitlab.com/acme/vpc/-/tree":            "at gitlab.com does not have the form GROUP/NAME",
		"git::https://gitlab.com" + strings.Repeat("/a", 23): "at gitlab.com does not have the form GROUP/NAME",
	} {
		at, err := location.Parse(reference, &url.URL{}, false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = forge.Find(at, hosts)
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: the error is %v, want ErrInvalid", reference, err)
			continue
		}
		if !strings.HasSuffix(err.Error(), reason) {
			t.Errorf("%s: the error is %q, want %q at its end", reference, err, reason)
		}
		if !strings.Contains(registry.Hint(err), "larder mirror add") {
			t.Errorf("%s: the hint is %q", reference, registry.Hint(err))
		}
	}
}

const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n"

func TestExamine(t *testing.T) {
	t.Parallel()
	const (
		empty   = " is a submodule, whose files are not in the commit"
		none    = "invalid location of the module: there is no folder vpc in the commit"
		outside = "it lacks submodules outside the module's folder: "
		large   = "these files are pointers of Git LFS, without their content: "
		lacks   = "the forge's archive lacks files that .gitattributes excludes with export-ignore: "
		changed = "the forge's archive has other contents of files with export-subst in .gitattributes: "
	)
	for name, c := range map[string]struct {
		files  map[string]string // a name that ends in a slash is an empty folder
		folder string
		want   []string
		err    string
	}{
		"plain": {
			files: map[string]string{"main.tf": "", "vpc/main.tf": "", ".gitattributes": "# x\n\n* text=auto\n*.sh"},
		},
		"submodule in the root": {
			files: map[string]string{"main.tf": "", "a/b/": ""}, err: "invalid commit: a/b" + empty,
		},
		"submodule at the folder": {
			files: map[string]string{"modules/vpc/": ""}, folder: "modules/vpc",
			err: "invalid commit: modules/vpc" + empty,
		},
		"submodule around the folder": {
			files: map[string]string{"modules/": ""}, folder: "modules/vpc",
			err: "invalid commit: modules" + empty,
		},
		"submodules elsewhere": {
			files:  map[string]string{"vpc/main.tf": "", "vpc2/": "", "test/a/": "", "test/b/": "", "z/": "", ".gitmodules": ""},
			folder: "vpc", want: []string{outside + "test/a, test/b, vpc2 and 1 more"},
		},
		"listed submodule that the commit lacks": {
			files: map[string]string{"main.tf": "", ".gitmodules": "[submodule \"a\"]\n\tpath = a\n\turl = ../a\n"},
		},
		"no folder": {
			files: map[string]string{"main.tf": ""}, folder: "vpc",
			err: none,
		},
		"file instead of a folder": {
			files: map[string]string{"vpc": ""}, folder: "vpc",
			err: none,
		},
		"attributes": {
			files: map[string]string{
				"main.tf": "",
				".gitattributes": "/docs/ export-ignore\n\"a b\" -text export-ignore\nversion.tf export-subst\n" +
					" x.md\t-export-ignore !export-subst\n",
				"a/.gitattributes": "#y export-ignore\n*.md export-ignore export-subst\nz export-ignore=true\nv export-ignore\r\n" +
					"[attr]x export-ignore\nw x\n",
			},
			want: []string{lacks + "/docs/, a b, *.md and 1 more", changed + "version.tf, *.md"},
		},
		"macros": {
			files: map[string]string{
				".gitattributes": "[attr]dev export-ignore\n[attr]more dev\n*.a more\n", "a/.gitattributes": "*.b dev\n",
			},
			want: []string{lacks + "*.a, *.b"},
		},
		"attributes of other folders": {
			files: map[string]string{
				"modules/vpc/main.tf": "", "docs/.gitattributes": "x export-ignore",
				".gitattributes": "/docs export-ignore\n/docs/*.md export-ignore\nmodules/v* export-ignore\n" +
					"modules/vp export-ignore\n**/t export-ignore\nmodules/vpc/t/*.x export-subst\n",
				"modules/.gitattributes": "vpc/x export-ignore\nvpn/x export-ignore\n",
			},
			folder: "modules/vpc",
			want:   []string{lacks + "modules/v*, **/t, vpc/x", changed + "modules/vpc/t/*.x"},
		},
		"large attributes": {
			files: map[string]string{".gitattributes": "a export-ignore\n" + strings.Repeat("x", 1<<20) + "\nb export-ignore\n"},
			want:  []string{lacks + "a"},
		},
		"unprintable pattern": {
			files: map[string]string{".gitattributes": "a\x1b[1mb export-ignore\n"}, want: []string{lacks + "a�[1mb"},
		},
		"pointers": {
			files: map[string]string{
				"vpc/a": pointer, "vpc/b/c": pointer, "vpc/d": pointer, "vpc/e": pointer, "vpc/f": pointer, "other": pointer,
				"vpc/large": pointer + strings.Repeat(" ", 2000), "vpc/text": "see " + pointer,
			},
			folder: "vpc", want: []string{large + "vpc/a, vpc/b/c, vpc/d and 2 more"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, content := range c.files {
				path := filepath.Join(dir, filepath.FromSlash(name))
				folder := filepath.Dir(path)
				if strings.HasSuffix(name, "/") {
					folder = path
				}
				if err := os.MkdirAll(folder, 0o700); err != nil {
					t.Fatal(err)
				}
				if folder == path {
					continue
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			notes, err := forge.Examine(dir, c.folder, true)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(c.err, text); diff != "" {
				t.Errorf("the error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, notes); diff != "" {
				t.Errorf("the notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExamineFollowsNoLinks(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{"a": "x export-ignore\n", "p": pointer} {
		if err := os.WriteFile(filepath.Join(outside, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{".gitattributes": "a", "pointer": "p", "folder": ""} {
		if err := os.Symlink(filepath.Join(outside, to), filepath.Join(dir, name)); err != nil {
			t.Skip("LEFT OUT: this system has no symbolic links")
		}
	}
	notes, err := forge.Examine(dir, "", true)
	if err != nil || notes != nil {
		t.Errorf("the notes are %q with the error %v", notes, err)
	}
	if _, err := forge.Examine(dir, "folder", true); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("the error for a link to a folder is %v, want ErrInvalid", err)
	}
}
