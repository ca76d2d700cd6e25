package filling_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

const publicHost = "registry.opentofu.org/"

// publicModules serves modules at the public hosts.
func publicModules(t *testing.T, modules ...modulehosts.Module) *modulehosts.Hosts {
	t.Helper()
	h := modulehosts.Serve(t)
	h.PublicNames = true
	h.Add(modules...)
	return h
}

// modulesOf returns a mirror of the store that reads from public hosts. h may be nil.
func (s *store) modulesOf(h *modulehosts.Hosts) *filling.Mirror {
	m := s.mirror(nil)
	m.Inspector = inspection.InThisProcess{}
	if h != nil {
		m.Client = client.New(nil, "larder/test", h.Client().Transport.(*http.Transport)) //nolint:forcetypeassert // it is one
		m.Client.Wait = time.Millisecond
	}
	return m
}

func moduleAddress(t *testing.T, name string) registry.MirrorAddress {
	t.Helper()
	a, err := registry.ParseMirrorModule(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// lines returns one line for each result.
func lines(results []filling.Result) (all []string) {
	for _, r := range results {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s",
			strings.TrimPrefix(r.Address.String(), publicHost), r.Version, r.Status, strings.Join(r.Notes, "; "))))
	}
	return all
}

// calling returns a module that calls others. Each of calls is a source and a
// constraint.
func calling(address, version string, calls ...string) modulehosts.Module {
	text := "variable \"a\" {}\n"
	for i, call := range calls {
		source, constraint, _ := strings.Cut(call, " ")
		text += fmt.Sprintf("module \"m%d\" {\n  source = %q\n  version = %q\n}\n", i, source, constraint)
	}
	return modulehosts.Module{Address: address, Version: version, Files: map[string]string{"main.tf": text}}
}

// After a module, the registry modules that it calls are mirrored, each once, in the
// version that clients choose.
func TestNestedModules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more    []modulehosts.Module // besides the world
		allowed string               // the only pattern that the policy allows
		add     string
		want    []string
		skipped []string
		failed  string
	}{
		"three deep, called twice": {
			add: "cloudposse/s3-bucket/aws",
			want: []string{
				"cloudposse/s3-bucket/aws 4.2.0 added", "cloudposse/iam-s3-user/aws 1.2.1 added", "cloudposse/label/null 0.25.0 added",
			},
		},
		"not the newest": {
			add:  "terraform-aws-modules/eks/aws",
			want: []string{"terraform-aws-modules/eks/aws 20.8.5 added", "terraform-aws-modules/kms/aws 2.2.1 added"},
		},
		"exact": {
			add:  "terraform-aws-modules/notify-slack/aws",
			want: []string{"terraform-aws-modules/notify-slack/aws 6.4.0 added", "terraform-aws-modules/lambda/aws 6.8.0 added"},
		},
		"a folder of another": {
			add: "terraform-google-modules/kubernetes-engine/google",
			want: []string{
				"terraform-google-modules/kubernetes-engine/google 30.2.0 added", "terraform-google-modules/gcloud/google 3.5.0 added",
			},
		},
		"a loop": {
			more: []modulehosts.Module{calling("acme/a/x", "1.0.0", "acme/b/x v1.0.0"), calling("acme/b/x", "1.0.0", "acme/a/x")},
			add:  "acme/a/x", want: []string{"acme/a/x 1.0.0 added", "acme/b/x 1.0.0 added"},
		},
		"denied": {
			allowed: "registry.opentofu.org/acme/*/*",
			more: []modulehosts.Module{calling("acme/a/x", "1.0.0", "registry.example.com/acme/b/x", "cloudposse/label/null",
				"one.example.com:8443/acme/b/x")},
			add: "acme/a/x", want: []string{"acme/a/x 1.0.0 added"},
			skipped: []string{
				"registry.example.com/acme/b/x: no rule of the mirror policy allows registry.example.com/acme/b/x " +
					"(registry.opentofu.org/acme/a/x 1.0.0 calls it)",
				"registry.opentofu.org/cloudposse/label/null: no rule of the mirror policy allows " +
					"registry.opentofu.org/cloudposse/label/null (registry.opentofu.org/acme/a/x 1.0.0 calls it)",
				`one.example.com:8443/acme/b/x: invalid address "one.example.com:8443/acme/b/x": the mirror has no modules of a ` +
					"hostname with a port (registry.opentofu.org/acme/a/x 1.0.0 calls it)",
			},
		},
		"missing": {
			more: []modulehosts.Module{calling("acme/a/x", "1.0.0", "acme/none/x", "cloudposse/label/null ~> 0.24.0")},
			add:  "acme/a/x", want: []string{"acme/a/x 1.0.0 added", "cloudposse/label/null 0.24.1 added"},
			failed: "acme/none/x",
		},
		"paths and Git": {
			more: []modulehosts.Module{{Address: "acme/a/x", Files: map[string]string{
				"main.tf": "module \"a\" {\n  source = \"./deep/er\"\n}\n", "deep/er/main.tf": "variable \"a\" {}\n",
				"git.tf": "module \"b\" {\n  source = \"git::https://git.example.com/a.git\"\n}\n",
			}}},
			add: "acme/a/x",
			want: []string{
				"acme/a/x 1.0.0 added clients fetch modules that it calls from elsewhere, and not from the mirror: " +
					"git::https://git.example.com/a.git; " +
					"modules that it calls in folders not directly below modules/ are not followed",
			},
		},
		"documentation that lacks a description": {
			more: []modulehosts.Module{{Address: "acme/a/x", Files: map[string]string{
				"main.tf": fmt.Sprintf("variable \"a\" {\n  description = %q\n}\n", strings.Repeat("a", 1<<17)),
			}}},
			add: "acme/a/x", want: []string{"acme/a/x 1.0.0 added"},
		},
		"documentation that lacks a file": {
			more: []modulehosts.Module{{Address: "acme/a/x", Files: map[string]string{"main.tf": "locals {"}}},
			add:  "acme/a/x", want: []string{
				"acme/a/x 1.0.0 added main.tf:1:8: Unclosed configuration block: There is no closing brace for this block before " +
					"the end of the file. This may be caused by incorrect brace nesting elsewhere in this file.; " +
					"some of the modules that it calls may be unknown: " +
					"The file main.tf is not valid, so only the README of the root is documented.",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			m := s.modulesOf(publicModules(t, append(modulehosts.World(), c.more...)...))
			if c.allowed != "" {
				s.setPolicy(t, registry.MirrorRule{Pattern: c.allowed})
			}
			var skipped []string
			m.Skip = func(address, reason string) { skipped = append(skipped, address+": "+reason) }
			results, err := m.Add(t.Context(), filling.Wanted{Address: moduleAddress(t, publicHost+c.add)})
			if diff := cmp.Diff(c.want, lines(results)); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.skipped, skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
			if (err == nil) != (c.failed == "") || err != nil && !strings.Contains(err.Error(), c.failed) {
				t.Errorf("error %v, want %q", err, c.failed)
			}
			again, _ := m.Add(t.Context(), filling.Wanted{Address: moduleAddress(t, publicHost+c.add)})
			if i := slices.IndexFunc(again, filling.Result.Changed); i >= 0 {
				t.Errorf("the second run changes %s", again[i].Address)
			}
			if len(again) != len(results) {
				t.Errorf("the second run has %d results, want %d", len(again), len(results))
			}
		})
	}
}

// A dry run mirrors nothing, and reports that it cannot follow modules.
func TestNestedDryRun(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := s.modulesOf(publicModules(t, modulehosts.World()...))
	m.DryRun = true
	results, err := m.Add(t.Context(), filling.Wanted{Address: moduleAddress(t, publicHost+"cloudposse/s3-bucket/aws")})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"cloudposse/s3-bucket/aws 4.2.0 added a dry run does not find the modules that it calls"}
	if diff := cmp.Diff(want, lines(results)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The upstream of a provider is not that of the modules of its host, because it can have
// the path of another protocol.
func TestNestedUpstream(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := s.modulesOf(publicModules(t, calling("acme/a/x", "1.0.0", "acme/b/x"), calling("acme/b/x", "1.0.0")))
	a := moduleAddress(t, publicHost+"acme/a/x")
	provider := registry.MirrorAddress{Hostname: a.Hostname, Namespace: "acme", Name: "none"}
	results, _ := m.Sync(t.Context(), []filling.Wanted{ // the origin lacks the provider
		{Address: provider, Upstream: "https://" + publicHost + "v1/providers/"}, {Address: a},
	})
	if diff := cmp.Diff([]string{"acme/a/x 1.0.0 added", "acme/b/x 1.0.0 added"}, lines(results)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The number of nested modules of a run is bounded. Not parallel, because it lowers
// the bound.
func TestNestedBound(t *testing.T) {
	filling.SetMaxNested(t, 2)
	s := newStore(t)
	m := s.modulesOf(publicModules(t, calling("acme/a/x", "1.0.0", "acme/b/x"), calling("acme/b/x", "1.0.0", "acme/c/x"),
		calling("acme/c/x", "1.0.0", "acme/d/x"), calling("acme/d/x", "1.0.0")))
	results, err := m.Add(t.Context(), filling.Wanted{Address: moduleAddress(t, publicHost+"acme/a/x")})
	if !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("error %v", err)
	}
	want := []string{"acme/a/x 1.0.0 added", "acme/b/x 1.0.0 added", "acme/c/x 1.0.0 added"}
	if diff := cmp.Diff(want, lines(results)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A list can have modules, and the folder of a configuration has those that a client
// has installed.
func TestSyncModules(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := s.modulesOf(publicModules(t, modulehosts.World()...))
	list, err := filling.ParseList(t.Context(), "mirror.hcl", []byte(`module "registry.opentofu.org/terraform-aws-modules/vpc/aws" {
  versions = ["~> 5.0", "6.0.1"]
}
`))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	manifest := `{"Modules":[{"Key":"","Source":"","Dir":"."},
{"Key":"eks","Source":"registry.opentofu.org/terraform-aws-modules/eks/aws","Version":"20.8.5","Dir":"x"},
{"Key":"eks.kms","Source":"registry.opentofu.org/terraform-aws-modules/kms/aws","Version":"2.1.0","Dir":"x"},
{"Key":"eks.kms2","Source":"registry.opentofu.org/terraform-aws-modules/kms/aws","Version":"2.1.0","Dir":"x"},
{"Key":"ssh","Source":"registry.opentofu.org/terraform-aws-modules/security-group/aws//modules/ssh","Version":"5.1.2","Dir":"x"},
{"Key":"own","Source":"one.example.com:8443/acme/vpc/aws","Version":"1.0.0","Dir":"x"},
{"Key":"git","Source":"git::https://github.com/acme/vpc.git","Dir":"x"},{"Key":"path","Source":"./vpc","Dir":"x"}]}`
	file := filepath.Join(dir, ".terraform", "modules", "modules.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	var skipped []string
	skip := func(source, reason string) { skipped = append(skipped, source+": "+reason) }
	installed, err := filling.ReadInstalled(dir, skip)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"one.example.com:8443/acme/vpc/aws: " + filling.PortReason}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, want %q", skipped, want)
	}
	results, err := m.Sync(t.Context(), append(list, installed...))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"terraform-aws-modules/vpc/aws 5.8.1 added", "terraform-aws-modules/vpc/aws 6.0.1 added",
		"terraform-aws-modules/eks/aws 20.8.5 added", "terraform-aws-modules/kms/aws 2.1.0 added",
		"terraform-aws-modules/security-group/aws 5.1.2 added", "terraform-aws-modules/kms/aws 2.2.1 added",
	}
	if diff := cmp.Diff(want, lines(results)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := filling.ReadInstalled(t.TempDir(), skip); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("a folder without modules: %v", err)
	}
	if err := os.WriteFile(file, []byte(`{"Modules":[{"Source":"a/b/c","Version":"x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	skipped = nil
	_, err = filling.ReadInstalled(dir, skip)
	if err != nil || len(skipped) != 1 || !strings.HasPrefix(skipped[0], `a/b/c: invalid version "x"`) {
		t.Errorf("a version that the mirror cannot have: %q, %v", skipped, err)
	}
	if err := os.WriteFile(file, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := filling.ReadInstalled(dir, skip); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("a damaged file: %v", err)
	}
}

// A refusal has both pins, also if the version was mirrored before, so that its origin
// has forgotten the first one.
func TestRefusedPins(t *testing.T) {
	t.Parallel()
	h := publicModules(t, calling("acme/a/x", "1.0.0"))
	m := newStore(t).modulesOf(h)
	a := moduleAddress(t, publicHost+"acme/a/x")
	for range 2 {
		if _, err := m.Add(t.Context(), filling.Wanted{Address: a}); err != nil {
			t.Fatal(err)
		}
	}
	before := h.Commit("acme/a/x", "1.0.0")
	h.MoveTag("acme/a/x", "1.0.0", map[string]string{"main.tf": "variable \"b\" {}\n"})
	if _, err := m.Add(t.Context(), filling.Wanted{Address: a}); !errors.Is(err, registry.ErrNotAdmitted) {
		t.Fatalf("a moved tag: %v", err)
	}
	contents, err := m.Catalog.Mirror.ContentsAndOrigin(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	var commits []string
	for _, r := range contents.Origin.Refused {
		commits = append(commits, r.Bound.Commit, r.Pin.Commit)
	}
	if diff := cmp.Diff([]string{before, h.Commit("acme/a/x", "1.0.0")}, commits); diff != "" {
		t.Errorf("commits (-want +got):\n%s", diff)
	}
}

// An operator accepts what an origin has changed, with a reason.
func TestAdmitChangedModule(t *testing.T) {
	t.Parallel()
	h := publicModules(t, calling("acme/a/x", "1.0.0"))
	s := newStore(t)
	m := s.modulesOf(h)
	a := moduleAddress(t, publicHost+"acme/a/x")
	if _, err := m.Add(t.Context(), filling.Wanted{Address: a}); err != nil {
		t.Fatal(err)
	}
	h.MoveTag("acme/a/x", "1.0.0", map[string]string{"main.tf": "variable \"b\" {}\n"})
	if _, err := m.Add(t.Context(), filling.Wanted{Address: a}); !errors.Is(err, registry.ErrNotAdmitted) {
		t.Errorf("a moved tag: %v", err)
	}
	if _, err := m.Admit(t.Context(), filling.Wanted{Address: a}, parseVersion(t, "1.0.0"), "announced"); err != nil {
		t.Error(err)
	}
	record, err := m.Catalog.Mirror.Check(t.Context(), a, parseVersion(t, "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	if p := record.Module.Pin; p.Commit != h.Commit("acme/a/x", "1.0.0") {
		t.Errorf("the pin has commit %s", p.Commit)
	}
	if p := record.Module.Pin; p.Accepted == nil || p.Accepted.Reason != "announced" {
		t.Errorf("the decision is %v", p.Accepted)
	}
	if _, err := m.Add(t.Context(), filling.Wanted{Address: a}); err != nil {
		t.Errorf("after the admission: %v", err)
	}
}

// folderFiles returns the contents of the files below a folder, by their paths.
func folderFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[filepath.ToSlash(strings.TrimPrefix(path, dir+string(filepath.Separator)))] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// An export takes archives and pins to a registry without a network. There they are
// compared again, and imported once.
func TestModuleFolder(t *testing.T) {
	t.Parallel()
	h := publicModules(t, modulehosts.World()...)
	from, to := newStore(t), newStore(t)
	m := from.modulesOf(h)
	for _, name := range []string{"cloudposse/s3-bucket/aws", "terraform-aws-modules/vpc/aws", "harbor-platform/bastion/aws"} {
		if _, err := m.Add(t.Context(), filling.Wanted{Address: moduleAddress(t, publicHost+name)}); err != nil {
			t.Fatal(err)
		}
	}
	h.Stop()
	dir := t.TempDir()
	exported, err := m.Export(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"cloudposse/iam-s3-user/aws 1.2.1", "cloudposse/label/null 0.25.0", "cloudposse/s3-bucket/aws 4.2.0",
		"harbor-platform/bastion/aws 1.1.0", "terraform-aws-modules/security-group/aws 5.1.2", "terraform-aws-modules/vpc/aws 6.0.1",
	}
	each := func(status string) (all []string) {
		for _, line := range want {
			all = append(all, line+" "+status)
		}
		return all
	}
	if diff := cmp.Diff(each("added"), lines(exported)); diff != "" {
		t.Errorf("export (-want +got):\n%s", diff)
	}
	files := folderFiles(t, dir)
	if exported, err = m.Export(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(each("unchanged"), lines(exported)); diff != "" {
		t.Errorf("second export (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(files, folderFiles(t, dir)); diff != "" {
		t.Errorf("a second export changes files (-want +got):\n%s", diff)
	}
	isolated := to.modulesOf(nil)
	for _, status := range []string{"added", "unchanged"} {
		imported, err := isolated.Import(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(each(status), lines(imported)); diff != "" {
			t.Errorf("import (-want +got):\n%s", diff)
		}
	}
	for _, name := range want {
		address, version, _ := strings.Cut(publicHost+name, " ")
		a, v := moduleAddress(t, address), parseVersion(t, version)
		before, err := m.Catalog.Mirror.Check(t.Context(), a, v)
		if err != nil {
			t.Fatal(err)
		}
		after, err := isolated.Catalog.Mirror.Check(t.Context(), a, v)
		if err != nil {
			t.Fatal(err)
		}
		before.Module.MirroredAt, before.Module.Notes = after.Module.MirroredAt, after.Module.Notes
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s (-exported +imported):\n%s", name, diff)
		}
	}
}

// A version that differs from its pin, or from an earlier pin, is not imported.
func TestModuleFolderRefused(t *testing.T) {
	t.Parallel()
	const name = "acme/a/x"
	a := moduleAddress(t, publicHost+name)
	export := func(t *testing.T, module modulehosts.Module) string {
		t.Helper()
		m := newStore(t).modulesOf(publicModules(t, module))
		if _, err := m.Add(t.Context(), filling.Wanted{Address: a}); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := m.Export(t.Context(), dir, nil); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	first, second := export(t, calling(name, "1.0.0")), export(t, calling(name, "1.0.0", "./b"))
	document := filepath.FromSlash("mirror-modules/" + publicHost + name + "/1.0.0.json")
	packed := filepath.FromSlash("mirror-modules/" + publicHost + name + "/1.0.0.tar.gz")
	copied := func(t *testing.T, edit func(dir string, text string) string) string {
		t.Helper()
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(first)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, document))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, document), []byte(edit(dir, string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for name, c := range map[string]struct {
		edit func(dir string, text string) string
		want string
	}{
		"other bytes": {func(dir, text string) string {
			_ = os.WriteFile(filepath.Join(dir, packed), []byte("x"), 0o600)
			return text
		}, "bytes"},
		"no archive": {func(dir, text string) string {
			_ = os.Remove(filepath.Join(dir, packed))
			return text
		}, "1.0.0.tar.gz"},
		"another digest": {func(_, text string) string {
			return strings.Replace(text, `"h1:`, `"h1:A`, 1)
		}, "its pin has h1:A"},
		"no pin":   {func(_, text string) string { return strings.Replace(text, "source", "from", 1) }, "it has no pin"},
		"not JSON": {func(_, text string) string { return text[1:] }, "it has no pin"},
		"not a number": {func(dir, text string) string {
			_ = os.WriteFile(filepath.Join(filepath.Dir(filepath.Join(dir, document)), "one.json"), []byte(text), 0o600)
			return text
		}, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			results, err := s.modulesOf(nil).Import(t.Context(), copied(t, c.edit))
			if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if len(results) > 0 {
				t.Errorf("results %v", lines(results))
			}
		})
	}
	t.Run("another pin", func(t *testing.T) {
		t.Parallel()
		m := newStore(t).modulesOf(nil)
		if _, err := m.Import(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Import(t.Context(), second); !errors.Is(err, registry.ErrNotAdmitted) {
			t.Errorf("error %v", err)
		}
		refused := func() int {
			contents, err := m.Catalog.Mirror.ContentsAndOrigin(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return len(contents.Origin.Refused)
		}
		if n := refused(); n != 1 {
			t.Errorf("%d refusals, want 1", n)
		}
		if _, err := m.Import(t.Context(), first); err != nil {
			t.Error(err)
		}
		if n := refused(); n != 0 {
			t.Errorf("%d refusals after the right folder, want 0", n)
		}
		m.Overrule = "announced"
		if _, err := m.Import(t.Context(), second); !errors.Is(err, registry.ErrNotAdmitted) {
			t.Errorf("overruled: %v", err)
		}
		m.Overrule, m.Accept = "", "announced"
		results, err := m.Import(t.Context(), second)
		if err != nil || len(results) != 1 || results[0].Status != filling.Added {
			t.Errorf("accepted: %v %v", lines(results), err)
		}
		record, err := m.Catalog.Mirror.Check(t.Context(), a, parseVersion(t, "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		if d := record.Module.Pin.Accepted; d == nil || d.Reason != "announced" {
			t.Errorf("the decision is %v", d)
		}
	})
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		s.setPolicy(t, registry.MirrorRule{Pattern: "registry.example.com/*/*/*"})
		m := s.modulesOf(nil)
		if _, err := m.Import(t.Context(), first); !errors.Is(err, registry.ErrNotAdmitted) {
			t.Errorf("error %v", err)
		}
	})
}

// git runs git in a folder.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	all := append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
	out, err := exec.CommandContext(t.Context(), "git", all...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// On a machine, git fetches what is at no known forge, and the commit is pinned. What
// lacks content is treated as in the archive of a forge. Not parallel, because git
// reads the authority from the environment.
func TestGitModules(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("LEFT OUT: git is not installed")
	}
	h := modulehosts.Serve(t)
	t.Setenv("GIT_SSL_CAINFO", h.CAFile)
	repository := t.TempDir()
	git(t, repository, "init", "--quiet", "--initial-branch=main")
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
	commit := func(tag string, files map[string]string, links ...string) string {
		for name, text := range files {
			write(t, filepath.Join(repository, name), []byte(text))
		}
		git(t, repository, "add", "--all")
		for _, link := range links {
			git(t, repository, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("a", 40)+","+link)
		}
		git(t, repository, "commit", "--quiet", "--allow-empty", "--message="+tag)
		git(t, repository, "tag", "--force", tag)
		return git(t, repository, "rev-parse", "HEAD")
	}
	h.Add(calling("acme/a/x", "1.0.0"), calling("acme/a/x", "1.1.0"), calling("acme/a/x", "1.2.0"), calling("acme/a/x", "1.3.0"))
	for version, folder := range map[string]string{"1.0.0": "", "1.1.0": "", "1.2.0": "//module", "1.3.0": "//lib"} {
		h.Locate("acme/a/x", version, "git::"+h.URL+"/git/.git"+folder+"?ref=v"+version)
	}
	plain := commit("v1.0.0", map[string]string{"main.tf": "variable \"a\" {}\n"})
	commit("v1.1.0", map[string]string{"big.bin": pointer})
	commit("v1.2.0", map[string]string{"module/main.tf": "variable \"a\" {}\n"}, "lib")
	commit("v1.3.0", nil, "lib")
	backend := &cgi.Handler{
		Path: filepath.Join(git(t, ".", "--exec-path"), "git-http-backend"), Root: "/git/",
		Env: []string{"GIT_PROJECT_ROOT=" + repository, "GIT_HTTP_EXPORT_ALL=1"},
	}
	h.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		isGit := strings.HasPrefix(r.URL.Path, "/git/")
		if isGit {
			backend.ServeHTTP(w, r)
		}
		return isGit
	})
	roots := x509.NewCertPool()
	authority, err := os.ReadFile(h.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots.AppendCertsFromPEM(authority)
	a := moduleAddress(t, "registry.example.com/acme/a/x")
	m := newStore(t).modulesOf(nil)
	m.Client = client.New(nil, "larder/test", &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}})
	m.Client.Wait = time.Millisecond
	add := func(version string) (string, error) {
		results, err := m.Add(t.Context(), filling.Wanted{Address: a, Constraint: version, Upstream: h.URL})
		if err != nil {
			return "", err
		}
		return strings.Join(lines(results), "\n") + " " + results[0].Pin.Source + " " + results[0].Pin.Commit, nil
	}
	if _, err := add("1.0.0"); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "not a known forge") {
		t.Errorf("without Git: %v", err)
	}
	m.Git = true
	source := strings.TrimSuffix(h.URL, "/") + "/git/"
	for _, c := range []struct{ version, want string }{
		{"1.0.0", a.String() + " 1.0.0 added " + source + " " + plain},
		{"1.0.0", a.String() + " 1.0.0 unchanged " + source + " " + plain},
		{"1.1.0", "these files are pointers of Git LFS, without their content: big.bin"},
		{"1.2.0", "it lacks submodules outside the module's folder: lib"},
		{"1.3.0", "invalid commit: lib is a submodule, whose files are not in the commit"},
	} {
		got, err := add(c.version)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", c.version, got, c.want)
		}
	}
	git(t, repository, "tag", "--force", "v1.0.0", "v1.1.0")
	if _, err := add("1.0.0"); !errors.Is(err, registry.ErrNotAdmitted) || !strings.Contains(err.Error(), "it was commit "+plain) {
		t.Errorf("a moved tag: %v", err)
	}
}
