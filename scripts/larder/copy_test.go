package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// copied returns the statuses of a copy, as ADDRESS VERSION STATUS.
func copied(t *testing.T, printed string) (all []string) {
	t.Helper()
	var v copyView
	if err := json.Unmarshal([]byte(printed), &v); err != nil {
		t.Fatalf("%v:\n%s", err, printed)
	}
	for _, one := range v.Versions {
		all = append(all, fmt.Sprintf("%s %s %s", one.Address, one.Version, one.Status))
	}
	return all
}

// trailOf returns the entries of an audit trail about copies and deprecations.
func trailOf(t *testing.T, data string) (all []string) {
	t.Helper()
	var v auditView
	if err := json.Unmarshal([]byte(larder(t, "audit", "--json", "--store", "dir:"+data)), &v); err != nil {
		t.Fatal(err)
	}
	for _, e := range v.Entries {
		if e.Action == "copy" || e.Action == "deprecate" || strings.Contains(e.Detail, "copied from") {
			detail, _, _ := strings.Cut(steady(e.Detail), " at DATE")
			all = append(all, fmt.Sprintf("%s %s %s %s: %s", e.By, e.Action, e.Subject, e.Version, detail))
		}
	}
	slices.Sort(all)
	return all
}

var (
	lockedHash   = regexp.MustCompile(`"((h1|zh):[^"]+)"`)
	checksumText = regexp.MustCompile(`checksum=(sha256:[0-9a-f]+)`)
)

// A module and a provider are promoted through two registries. Clients get the
// same bytes from both, and both audit trails record the copy.
func TestPromotion(t *testing.T) {
	t.Parallel()
	dev, prod := serveOrigin(t), serve(t, t.TempDir())
	here := platforms()[0]
	addKey(t, prod.data, "acme", dev.key)
	dev.publish(t, "acme/note", "1.0.0", here, platforms()[1])
	publishModule(t, dev.data, "acme/vpc/aws", "1.0.0", withOutput("first"))
	publishModule(t, dev.data, "acme/vpc/aws", "1.2.0", withOutput("promoted"))
	larder(t, "deprecate", "acme/note", "--message", "use acme/pen", "--store", "dir:"+dev.data)
	promoter := func(s *server, name string) string {
		return credentials(s.Host, token(t, s.data, "--name", name,
			"--scope", "publish:*/acme/**", "--scope", "read:**"))
	}
	p := prod.publisher(t, promoter(dev.server, "dev-ci")+promoter(prod, "prod-ci"),
		"SSL_CERT_FILE="+trust(t, dev.CAFile, prod.CAFile))
	command := []string{"copy", "acme/vpc/aws", "1.2.0", "acme/note", "--from", dev.Host, "--json"}
	first := copied(t, p.run(t, 0, nil, command...))
	if diff := cmp.Diff([]string{"acme/vpc/aws 1.2.0 copied", "acme/note 1.0.0 copied"}, first); diff != "" {
		t.Errorf("the first copy (-want +got):\n%s", diff)
	}
	again := copied(t, p.run(t, 0, nil, command...))
	if diff := cmp.Diff([]string{"acme/vpc/aws 1.2.0 unchanged", "acme/note 1.0.0 unchanged"}, again); diff != "" {
		t.Errorf("the second copy (-want +got):\n%s", diff)
	}
	user := whoamiName(t)
	if diff := cmp.Diff([]string{
		user + " deprecate providers/acme/note <nil>: use acme/pen",
		"token dev-ci copy modules/acme/vpc/aws 1.2.0: to HOST/acme/vpc/aws",
		"token dev-ci copy providers/acme/note 1.0.0: to HOST/acme/note",
	}, trailOf(t, dev.data)); diff != "" {
		t.Errorf("the trail of the origin (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"token prod-ci deprecate providers/acme/note <nil>: use acme/pen",
		"token prod-ci publish modules/acme/vpc/aws 1.2.0: copied from HOST/acme/vpc/aws, published by " + user,
		"token prod-ci publish providers/acme/note 1.0.0: copied from HOST/acme/note, published by " + user,
	}, trailOf(t, prod.data)); diff != "" {
		t.Errorf("the trail of the copy (-want +got):\n%s", diff)
	}
	// A version that the target has withdrawn is not copied.
	publishModule(t, prod.data, "acme/vpc/aws", "1.0.0", withOutput("first"))
	larder(t, "withdraw", "acme/vpc/aws", "1.0.0", "--reason", "leaked", "--yes", "--store", "dir:"+prod.data)
	all := copied(t, p.run(t, 0, nil, "copy", "acme/vpc/aws", "--from", dev.Host, "--dry-run", "--json"))
	if diff := cmp.Diff([]string{"acme/vpc/aws 1.2.0 unchanged", "acme/vpc/aws 1.0.0 skipped"}, all); diff != "" {
		t.Errorf("the dry run (-want +got):\n%s", diff)
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		got := make(map[string][]string)
		for _, s := range []*server{dev.server, prod} {
			dir := need(t, s.Host+"/acme/note 1.0.0")
			writeFiles(t, dir, map[string]string{
				"vpc.tf": fmt.Sprintf("module \"vpc\" {\n  source  = %q\n  version = \"1.2.0\"\n}\n", s.Host+"/acme/vpc/aws"),
			})
			inits(t, session(t, c, s), dir)
			lock, err := os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl"))
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range lockedHash.FindAllStringSubmatch(string(lock), -1) {
				got[s.Host] = append(got[s.Host], match[1])
			}
			got[s.Host] = append(got[s.Host], installedModule(t, dir))
		}
		if diff := cmp.Diff(got[dev.Host], got[prod.Host]); diff != "" || len(got[dev.Host]) < 3 {
			t.Errorf("installed from dev and prod (-dev +prod):\n%s", diff)
		}
	})
	if from, to := checksum(t, dev.server), checksum(t, prod); from != to || from == "" {
		t.Errorf("the checksum is %s in dev and %s in prod", from, to)
	}
	for _, s := range []*server{dev.server, prod} {
		if out := larder(t, "verify", "--store", "dir:"+s.data); !strings.Contains(out, "0 faults") {
			t.Errorf("verify:\n%s", out)
		}
	}
}

// Dependencies are found in the documentation of two registries.
func TestDependenciesThroughRegistries(t *testing.T) {
	t.Parallel()
	dev, prod := serve(t, t.TempDir()), serve(t, t.TempDir())
	publishModule(t, dev.data, "acme/node/aws", "1.0.0", withOutput("old"))
	publishModule(t, dev.data, "acme/node/aws", "1.1.0", withOutput("new"))
	publishModule(t, dev.data, "acme/cluster/aws", "1.0.0", map[string]string{
		"main.tf": fmt.Sprintf("module \"node\" {\n  source  = %q\n  version = \"~> 1.0\"\n}\n", dev.Host+"/acme/node/aws"),
	})
	p := prod.publisher(t, credentials(dev.Host, token(t, dev.data, "--name", "dev-ci", "--scope", "read:**"))+
		credentials(prod.Host, token(t, prod.data, "--name", "prod-ci", "--scope", "publish:modules/acme/**", "--scope", "read:**")),
		"SSL_CERT_FILE="+trust(t, dev.CAFile, prod.CAFile))
	command := []string{"copy", "acme/cluster/aws", "--from", dev.Host, "--with-dependencies", "--json"}
	for i, status := range []string{"copied", "copied", "unchanged"} {
		got := copied(t, p.run(t, 0, nil, append(command, fmt.Sprintf("--dry-run=%v", i == 0))...))
		if diff := cmp.Diff([]string{"acme/cluster/aws 1.0.0 " + status, "acme/node/aws 1.1.0 " + status}, got); diff != "" {
			t.Errorf("copy %d (-want +got):\n%s", i, diff)
		}
	}
}

// whoamiName returns the name of this machine's user.
func whoamiName(t *testing.T) string {
	t.Helper()
	by, err := place.User(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return by.Name
}

// installedModule returns the content of the module that init has installed.
func installedModule(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, ".terraform", "modules", "vpc", "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checksum returns the checksum in the location of acme/vpc/aws 1.2.0.
func checksum(t *testing.T, s *server) string {
	t.Helper()
	status, body := s.get(t, "/v1/modules/acme/vpc/aws/1.2.0/download")
	match := checksumText.FindSubmatch(body)
	if match == nil {
		t.Fatalf("status %d without a checksum: %s", status, body)
	}
	return string(match[1])
}

func TestCopyArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		f    copyFlags
		want []string
		err  string
	}{
		"all versions": {[]string{"acme/vpc/aws", "acme/note"}, copyFlags{}, []string{"acme/vpc/aws", "acme/note"}, ""},
		"versions after their address": {
			[]string{"acme/vpc/aws", "1.0.0", "v1.1.0", "acme/note"}, copyFlags{},
			[]string{"acme/vpc/aws 1.0.0", "acme/vpc/aws 1.1.0", "acme/note"}, "",
		},
		"new names": {
			[]string{"acme/vpc/aws", "hashicorp/random"},
			copyFlags{rename: []string{"acme/vpc/aws=net/vpc/google", "hashicorp/random=acme/random"}},
			[]string{"acme/vpc/aws as net/vpc/google", "hashicorp/random as acme/random"}, "",
		},
		"a new name for a repeated address": {
			[]string{"acme/vpc/aws", "1.0.0", "acme/vpc/aws", "1.1.0"}, copyFlags{rename: []string{"acme/vpc/aws=net/vpc/aws"}},
			[]string{"acme/vpc/aws as net/vpc/aws 1.0.0", "acme/vpc/aws as net/vpc/aws 1.1.0"}, "",
		},
		"two new names": {
			[]string{"acme/note"}, copyFlags{rename: []string{"acme/note=net/note", "acme/note=org/note"}}, nil,
			"--rename names acme/note twice",
		},
		"one new name for two": {
			[]string{"acme/note", "net/note"}, copyFlags{rename: []string{"acme/note=net/note"}}, nil,
			"acme/note and net/note would both be copied to net/note",
		},
		"version first":    {[]string{"1.0.0", "acme/vpc/aws"}, copyFlags{}, nil, "invalid address"},
		"mirrored":         {[]string{"registry.example.com/acme/note/x"}, copyFlags{}, nil, "invalid address"},
		"other host":       {[]string{"registry.example.com/acme/note"}, copyFlags{}, nil, "host of another registry"},
		"not a version":    {[]string{"acme/vpc/aws", "latest"}, copyFlags{}, nil, "invalid version"},
		"wrong constraint": {[]string{"acme/vpc/aws"}, copyFlags{constraint: "latest"}, nil, "--versions"},
		"both":             {[]string{"acme/vpc/aws", "1.0.0"}, copyFlags{constraint: "~> 1.0"}, nil, "--versions cannot be"},
		"another type": {
			[]string{"acme/note"}, copyFlags{rename: []string{"acme/note=acme/pad"}}, nil, "must keep its type",
		},
		"another kind": {
			[]string{"acme/note"}, copyFlags{rename: []string{"acme/note=acme/note/aws"}}, nil, "one is a module",
		},
		"name of another": {
			[]string{"acme/note"}, copyFlags{rename: []string{"acme/pen=net/pen"}}, nil, "acme/pen, which is not copied",
		},
		"no name": {[]string{"acme/note"}, copyFlags{rename: []string{"acme/note"}}, nil, "OLD=NEW"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wanted, err := parseWanted(c.args, c.f)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("the error is %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range wanted {
				text := w.Address.String()
				if w.As.String() != text {
					text += " as " + w.As.String()
				}
				if w.Exact != nil {
					text += " " + w.Exact.String()
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("wanted (-want +got):\n%s", diff)
			}
		})
	}
}

// A word after --from or --to names a context, a URL, a store or a host.
func TestNamedRegistries(t *testing.T) {
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	writeFiles(t, filepath.Join(config, "larder"), map[string]string{
		"config.json": `{"contexts": {"dev": {"store": "./dev-data"}, "prod.example": {"registry": "https://prod.example.com"}}}`,
	})

	for word, want := range map[string]string{
		"dev":                          "./dev-data",
		"prod.example":                 "https://prod.example.com",
		"https://registry.example.com": "https://registry.example.com",
		"registry.example.com":         "https://registry.example.com",
		"127.0.0.1:8443":               "https://127.0.0.1:8443",
		"stack:larder":                 "stack:larder",
		"./data":                       "./data",
		"dir:data":                     "data",
	} {
		p, err := registryNamed(word)
		if err != nil {
			t.Errorf("%s: %v", word, err)
		}
		if p.Name != want {
			t.Errorf("%s is %s, want %s", word, p.Name, want)
		}
	}
	for _, word := range []string{"staging", "http://registry.example.com", "stack:", "a b.example.com"} {
		if p, err := registryNamed(word); err == nil {
			t.Errorf("%s is %s, want an error", word, p.Name)
		}
	}
}
