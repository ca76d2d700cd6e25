package filling_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

const header = "# This file is maintained automatically by \"tofu init\".\n# Manual edits may be lost in future " +
	"updates.\n\n"

// lockBlock is what clients write of one provider.
func lockBlock(address, version string, hashes ...string) string {
	text := fmt.Sprintf("provider %q {\n  version     = %q\n  constraints = \"~> 1.0\"\n  hashes = [\n", address, version)
	for _, h := range hashes {
		text += fmt.Sprintf("    %q,\n", h)
	}
	return text + "  ]\n}\n"
}

func TestParseLock(t *testing.T) {
	t.Parallel()
	record(t)
	const other = "registry.opentofu.org/hashicorp/random"
	for _, test := range []struct {
		what, text, want string
	}{
		{
			"a provider", header + lockBlock(inventory.String(), "1.0.0", "h1:a=", "zh:b"),
			"registry.example.com/acme/inventory 1.0.0 [h1:a= zh:b]",
		},
		{
			"with a byte order mark", "\ufeff" + lockBlock(inventory.String(), "1.0.0", "zh:b"),
			"registry.example.com/acme/inventory 1.0.0 [zh:b]",
		},
		{
			"several, in their order",
			lockBlock(other, "3.6.0", "h1:a") + "\n" + lockBlock(inventory.String(), "1.0.0-rc.1+build.5"),
			"registry.opentofu.org/hashicorp/random 3.6.0 [h1:a], registry.example.com/acme/inventory 1.0.0-rc.1+build.5 []",
		},
		{
			"no hashes", "provider \"" + other + "\" {\n  version = \"1.0.0\"\n}\n",
			"registry.opentofu.org/hashicorp/random 1.0.0 []",
		},
		{
			"hashes that are null", "provider \"" + other + "\" {\n  version = \"1.0.0\"\n  hashes = null\n}\n",
			"registry.opentofu.org/hashicorp/random 1.0.0 []",
		},
		{"what later releases add", "format = 2\nprovider \"" + other + "\" {\n  version = \"1.0.0\"\n  signed_by = " +
			"[\"x\"]\n  more \"x\" {\n  }\n}\nmodule \"x\" \"y\" {\n  z = { a = 1 " +
			"}\n}\n", "registry.opentofu.org/hashicorp/random 1.0.0 []"},
		{
			"lists of lists",
			"x = [[], # one\n  [1, 123456789.123456789], [\n    /* two */ [\"a\"]]]\n" + lockBlock(other, "1.0.0"),
			"registry.opentofu.org/hashicorp/random 1.0.0 []",
		},
		{
			"line ends of Windows", strings.ReplaceAll(header+lockBlock(other, "1.0.0", "h1:a"), "\n", "\r\n"),
			"registry.opentofu.org/hashicorp/random 1.0.0 [h1:a]",
		},
		{
			"a name that is not ASCII", lockBlock("bücher.example/acme/inventory", "1.0.0"),
			"xn--bcher-kva.example/acme/inventory 1.0.0 []",
		},
		{
			"no line end", "provider \"" + other + "\" {\n  version = \"1.0.0\"\n}",
			"registry.opentofu.org/hashicorp/random 1.0.0 []",
		},
	} {
		locked, _, err := filling.ParseLock(t.Context(), "test.lock.hcl", []byte(test.text))
		var got []string
		for _, l := range locked {
			if l.File != "test.lock.hcl" {
				t.Errorf("%s: %+v", test.what, l)
			}
			got = append(got, fmt.Sprint(l.Address, " ", l.Version, " ", l.Hashes))
		}
		if err != nil || strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %q, %v", test.what, got, err)
		}
	}
	for _, test := range []struct {
		what, text string
		words      []string
	}{
		{"no HCL", "<html>", []string{"test.lock.hcl:1"}},
		{"a block that does not end", "provider \"" + other + "\" {\n", nil},
		{"no version", "provider \"" + other + "\" {\n}\n", []string{"version"}},
		{"no address", "provider {\n  version = \"1.0.0\"\n}\n", nil},
		{"two addresses", "provider \"a\" \"b\" {\n  version = \"1.0.0\"\n}\n", nil},
		{
			"a provider twice", lockBlock(other, "1.0.0") + lockBlock(inventory.String(), "1.0.0") + lockBlock(other, "1.1.0"),
			[]string{other, "twice"},
		},
		{
			"a provider twice by capital letters",
			lockBlock(other, "1.0.0") + lockBlock("Registry.OpenTofu.org/HashiCorp/random", "1.1.0"), []string{"twice"},
		},
		{"an invalid version", lockBlock(other, "v1.0.0"), []string{other, "v1.0.0"}},
		{"a version that is too large", lockBlock(other, "99999999999999999999999.0.0"), nil},
		{"a version that is not a string", "provider \"" + other + "\" {\n  version = [1]\n}\n", nil},
		{"a version that is null", "provider \"" + other + "\" {\n  version = null\n}\n", nil},
		{"a version by a function", "provider \"" + other + "\" {\n  version = file(\"/etc/passwd\")\n}\n", nil},
		{"a version by a variable", "provider \"" + other + "\" {\n  version = path.module\n}\n", nil},
		{"hashes that are not a list", "provider \"" + other + "\" {\n  version = \"1.0.0\"\n  hashes = {}\n}\n", nil},
		{"a null hash", "provider \"" + other + "\" {\n  version = \"1.0.0\"\n  hashes = [null]\n}\n", nil},
		{"nothing", "", nil},
		{"another encoding", "# caf\xe9\n", nil},
		{"only comments", header + "// and\n/* more\n { [ */\n", nil},
		{"an expression", "x = 1 + 1\n", nil},
		{"two parts", lockBlock("acme/inventory", "1.0.0"), []string{"HOSTNAME/NAMESPACE/TYPE"}},
		{"four parts", lockBlock("a.example.com/b/c/d", "1.0.0"), []string{"HOSTNAME/NAMESPACE/TYPE"}},
		{"a path with ..", lockBlock("registry.example.com/../inventory", "1.0.0"), nil},
		{"a built-in provider", lockBlock("terraform.io/builtin/terraform", "1.0.0"), nil},
		{"deeply nested", "x = " + strings.Repeat("[", 100_000), nil},
		{"deeply nested blocks", strings.Repeat("a {\n", 100_000), nil},
		{"deeply nested templates", "x = " + strings.Repeat(`"${`, 90_000), nil},
		{"too much", strings.Repeat("#\n", filling.MaxText/2+1), nil},
	} {
		locked, _, err := filling.ParseLock(t.Context(), "test.lock.hcl", []byte(test.text))
		failed(t, test.what, err, registry.ErrInvalid, test.words...)
		if locked != nil {
			t.Errorf("%s: %+v", test.what, locked)
		}
	}
}

// Some short texts make the parser of the library overflow the stack, which Go
// cannot recover from, or take very long. They are rejected before it parses
// them.
func TestBombs(t *testing.T) {
	t.Parallel()
	for what, bomb := range map[string]struct{ begin, again, end string }{
		"minus":        {"x = ", "-", "1\n"},
		"not":          {"x = ", "!", "true\n"},
		"conditions":   {"x = ", "a?", "b\n"},
		"directives":   {`x = "`, "%{if a}", "\"\n"},
		"loops":        {`x = "`, "%{for a in b}", "\"\n"},
		"splats":       {"x = a", "[*]", "\n"},
		"here":         {"", "x = <<A\n", ""},
		"minus, lines": {"x = (", "-\n", "1)\n"},
	} {
		text := bomb.begin + strings.Repeat(bomb.again, (filling.MaxText-20)/len(bomb.again)) + bomb.end
		if _, _, err := filling.ParseLock(t.Context(), "test.lock.hcl", []byte(text)); !errors.Is(err,
			registry.ErrInvalid) {
			t.Errorf("%s: %.200v is not ErrInvalid", what, err)
		}
	}
}

// Decoding evaluates expressions. It would write out all digits of 1e100000000,
// which takes minutes. A long chain of indexes takes a minute. Both are
// rejected first.
func TestNothingIsEvaluated(t *testing.T) {
	t.Parallel()
	record(t)
	for what, expression := range map[string]string{
		"a number":        "1e300000",
		"a small number":  "1e-20000",
		"indexes":         "a" + strings.Repeat("[b]", 5000),
		"indexes of none": "[]" + strings.Repeat("[b]", 5000),
	} {
		_, _, err := filling.ParseLock(t.Context(), "test.lock.hcl",
			[]byte("provider \"a.b/c/d\" {\n  version = "+expression+"\n}\n"))
		failed(t, what, err, registry.ErrInvalid)
		if _, ok := errors.AsType[*safehcl.Error](err); !ok {
			t.Errorf("%s: it was evaluated: %.200v", what, err)
		}
	}
	for _, value := range []string{
		strings.Repeat("1", 19), "0." + strings.Repeat("1", 18), "1e5", "1E+5", "a[0]", `"a"[0]`, "1[0]", "{}[0]", "[a\n[0]]",
		"[a # b\n/* c */ [0]]",
	} {
		_, _, err := filling.ParseLock(t.Context(), "test.lock.hcl", []byte("x = "+value+"\n"))
		failed(t, value, err, registry.ErrInvalid)
	}
}

// Providers with a port in their hostname do not prevent mirroring the others.
func TestParseLockLeavesOutPorts(t *testing.T) {
	t.Parallel()
	const port = "127.0.0.1:8443/acme/inventory"
	locked, excluded, err := filling.ParseLock(t.Context(), "test.lock.hcl",
		[]byte(lockBlock(port, "1.0.0")+lockBlock(inventory.String(), "1.0.0")))
	if err != nil || len(locked) != 1 || locked[0].Address != inventory || len(excluded) != 1 || excluded[0] != port {
		t.Errorf("%v, %v, %v", locked, excluded, err)
	}
	for part, want := range map[string]bool{
		inventory.Hostname: true, inventory.Hostname + "/acme": true, inventory.String(): true,
		"registry.example": false, inventory.Hostname + "/ac": false, "": false,
	} {
		if locked[0].Address.IsWithin(part) != want {
			t.Errorf("Named(%q) is %v", part, !want)
		}
	}
}

// The parser never panics, and accepts only versions that can be mirrored.
func FuzzParseLock(f *testing.F) {
	f.Add([]byte(header + lockBlock(inventory.String(), "1.0.0", "h1:a=", "zh:b")))
	f.Add(
		[]byte(lockBlock("bücher.example/acme/inventory", "1.0.0-rc.1+b") + lockBlock("a.b/c/d", "99999999999999999999.1")))
	f.Add([]byte("provider \"a.b/c/d\" {\n  version = \"${1}.0\"\n  hashes = [for x in [\"a\"] : \"h1:${x}\"]\n}\n"))
	f.Add([]byte("x = <<-EOT\n  %{ if true }a%{ else }b%{ endif }\nEOT\ny = !-1 ? [] : {}[*].a.*.b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		locked, _, err := filling.ParseLock(t.Context(), "fuzz", text)
		if err != nil && (!errors.Is(err, registry.ErrInvalid) || locked != nil) {
			t.Errorf("%+v, %v", locked, err)
		}
		for _, l := range locked {
			if again, err := registry.ParseMirrorProvider(l.Address.String()); err != nil || again != l.Address {
				t.Errorf("%v is no address: %v", l.Address, err)
			}
			if again, err := registry.ParseVersion(l.Version.String()); err != nil || again != l.Version {
				t.Errorf("%v is no version: %v", l.Version, err)
			}
		}
	})
}

// locks reads lock files, which are named by their order.
func locks(t testing.TB, texts ...string) []filling.Locked {
	t.Helper()
	var all []filling.Locked
	for i, text := range texts {
		locked, _, err := filling.ParseLock(t.Context(), fmt.Sprintf("%d.lock.hcl", i+1), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, locked...)
	}
	return all
}

func TestLock(t *testing.T) {
	t.Parallel()
	record(t)
	const linux, darwin = "linux_amd64", "darwin_arm64"
	o := newOrigin(t, release{"1.0.0", []string{linux, darwin}, ours, ""},
		release{"1.1.0", []string{linux, darwin}, ours, ""}, release{"1.0.0-rc.1", []string{linux}, ours, ""},
		release{"2.0.0+build.5", []string{linux}, ours, ""})
	h := func(version int, platform string) (h1, zh string) {
		return hashes(t, o.releases[version].zip(t, platform))
	}
	h1, zh := h(0, linux)
	darwinH1, darwinZH := h(0, darwin)
	newerH1, _ := h(1, linux)
	candidateH1, _ := h(2, linux)
	_, builtZH := h(3, linux)
	const foreign = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	foreignZH := "zh:" + strings.Repeat("0", 64)
	lock := func(version string, hashes ...string) string {
		return lockBlock(inventory.String(), version, hashes...)
	}
	type (
		files struct {
			texts     []string
			platforms []string
		}
		result struct {
			want  string
			kind  error
			words []string
		}
	)
	onLinux := func(texts ...string) files { return files{texts, []string{linux}} }
	onBoth := func(texts ...string) files { return files{texts, []string{linux, darwin}} }
	added := func(want string) result { return result{want: want} }
	invalid := func(words ...string) result { return result{kind: registry.ErrInvalid, words: words} }
	missing := func(words ...string) result { return result{kind: registry.ErrNotFound, words: words} }
	for _, test := range []struct {
		what string
		files
		result
	}{
		{"by h1", onLinux(lock("1.0.0", h1)), added("1.0.0 [linux_amd64 added]")},
		{"by zh", onLinux(lock("1.0.0", zh)), added("1.0.0 [linux_amd64 added]")},
		{"one of many", onLinux(lock("1.0.0", foreign, foreignZH, "h9:x", darwinH1, zh)), added("1.0.0 [linux_amd64 added]")},
		{"no hashes", onLinux(lock("1.0.0")), added("1.0.0 [linux_amd64 added]")},
		{"platforms", onBoth(lock("1.0.0", h1, darwinZH)), added("1.0.0 [darwin_arm64 added, linux_amd64 added]")},
		{"not the newest", onLinux(lock("1.0.0-rc.1", candidateH1)), added("1.0.0-rc.1 [linux_amd64 added]")},
		{"build metadata", onLinux(lock("2.0.0+build.5", builtZH)), added("2.0.0+build.5 [linux_amd64 added]")},
		{"two lock files", onLinux(lock("1.0.0", h1), lock("1.0.0", zh)), added("1.0.0 [linux_amd64 added]")},
		{
			"two versions in two lock files", onLinux(lock("1.1.0", newerH1), lock("1.0.0", zh)),
			added("1.1.0 [linux_amd64 added], 1.0.0 [linux_amd64 added]"),
		},
		{"none", onLinux(), added("")},
		{
			"another hash", onLinux(lock("1.0.0", foreign)),
			invalid("1.lock.hcl", linux, "providers lock -platform=linux_amd64", h1, zh),
		},
		{"another zh", onLinux(lock("1.0.0", foreignZH)), invalid("1.lock.hcl")},
		{"the hash of another platform", onBoth(lock("1.0.0", h1, zh)), invalid(darwin)},
		{"the hash of another version", onLinux(lock("1.0.0", newerH1)), invalid()},
		{
			"the same hash of another kind",
			onLinux(lock("1.0.0", "h1:"+strings.TrimPrefix(zh, "zh:"), "h2:"+strings.TrimPrefix(h1, "h1:"))), invalid(),
		},
		{
			"a hash in capital letters", onLinux(lock("1.0.0", "zh:"+strings.ToUpper(strings.TrimPrefix(zh, "zh:")))),
			invalid(),
		},
		{
			"two lock files, only the first has the hash", onLinux(lock("1.0.0", h1), lock("1.0.0", foreign)),
			invalid("2.lock.hcl"),
		},
		{
			"two lock files, only the second has the hash", onLinux(lock("1.0.0", foreign), lock("1.0.0", h1)),
			invalid("1.lock.hcl"),
		},
		{"a version that does not exist", onLinux(lock("1.5.0", h1)), missing("1.5.0", "2.0.0+build.5")},
		{"build metadata that does not exist", onLinux(lock("2.0.0", builtZH)), missing("2.0.0+build.5")},
		{"a platform that does not exist", onBoth(lock("1.0.0-rc.1", candidateH1)), missing(darwin)},
	} {
		s := newStore(t)
		results, err := s.mirror(o).Lock(t.Context(), locks(t, test.texts...), platforms(t, test.platforms...), false)
		if test.kind != nil {
			failed(t, test.what, err, test.kind, test.words...)
			s.empty(t, test.what)
			continue
		}
		if has := strings.ReplaceAll(strings.ReplaceAll(test.want, " added", ""), ",", ""); err != nil ||
			describe(results) != test.want ||
			strings.ReplaceAll(s.has(t), ",", "") != has {
			t.Errorf("%s: %s, %v, %s", test.what, describe(results), err, s.has(t))
		}
		// It can be repeated, and then requests no package.
		before := o.times(".zip")
		again, err := s.mirror(o).Lock(t.Context(), locks(t, test.texts...), platforms(t, test.platforms...), false)
		if err != nil || describe(again) != strings.ReplaceAll(test.want, "added", "unchanged") || o.times(".zip") != before {
			t.Errorf("%s: again: %s, %v", test.what, describe(again), err)
		}
	}
}

// Packages that are already mirrored must match a lock file too.
func TestLockOfMirrored(t *testing.T) {
	t.Parallel()
	record(t)
	const linux = "linux_amd64"
	o, s := simple(t), newStore(t)
	s.mirrors(t, o, wanted(t, linux))
	before := fmt.Sprint(s.records(t))
	foreign := locks(t, lockBlock(inventory.String(), "1.0.0", "zh:"+strings.Repeat("0", 64)))
	for _, names := range [][]string{{linux}, {linux, "darwin_arm64"}} {
		_, err := s.mirror(o).Lock(t.Context(), foreign, platforms(t, names...), false)
		failed(t, fmt.Sprint(names), err, registry.ErrInvalid, "1.lock.hcl")
		if fmt.Sprint(s.records(t)) != before || s.count(t) != 1 {
			t.Errorf("%v: %v, %d objects", names, s.records(t), s.count(t))
		}
	}
	h1, _ := hashes(t, o.releases[0].zip(t, linux))
	o.heal(t)
	if results, err := s.mirror(o).Lock(t.Context(), locks(t, lockBlock(inventory.String(), "1.0.0", h1)),
		platforms(t, linux), false); err != nil ||
		describe(results) != "1.0.0 [linux_amd64 unchanged]" ||
		o.times(".zip") != 0 {
		t.Errorf("%s, %v", describe(results), err)
	}
	// A dry run checks mirrored packages against a lock file. It cannot check
	// others, because it downloads nothing.
	m := s.mirror(o)
	m.DryRun = true
	_, err := m.Lock(t.Context(), foreign, platforms(t, linux), false)
	failed(t, "a dry run", err, registry.ErrInvalid)
}

// A dry run finds out what a lock file without h1 would not let clients install; by h1 it would have to download.
func TestLockDryRun(t *testing.T) {
	t.Parallel()
	record(t)
	o, s := simple(t), newStore(t)
	m := s.mirror(o)
	m.DryRun = true
	foreign := "zh:" + strings.Repeat("0", 64)
	_, err := m.Lock(t.Context(), locks(t, lockBlock(inventory.String(), "1.0.0", foreign)),
		platforms(t, "linux_amd64"), false)
	failed(t, "only zh", err, registry.ErrInvalid, "1.lock.hcl", "linux_amd64")
	results, err := m.Lock(t.Context(), locks(t, lockBlock(inventory.String(), "1.0.0", "h1:AAAA=", foreign)),
		platforms(t, "linux_amd64"), false)
	if err != nil || describe(results) != "1.0.0 [linux_amd64 added]" || o.times(".zip") != 0 {
		t.Errorf("with h1: %s, %v, %d downloads", describe(results), err, o.times(".zip"))
	}
	s.empty(t, "a dry run")
}

// A lock file does not replace a signature.
func TestLockUnsigned(t *testing.T) {
	t.Parallel()
	record(t)
	const linux = "linux_amd64"
	o, s := simple(t), newStore(t)
	o.edit("signing_keys", nil, packagePage("1.0.0", linux))
	h1, _ := hashes(t, o.releases[0].zip(t, linux))
	locked := locks(t, lockBlock(inventory.String(), "1.0.0", h1))
	_, err := s.mirror(o).Lock(t.Context(), locked, platforms(t, linux), false)
	failed(t, "no keys", err, registry.ErrInvalid, "--allow-unsigned")
	s.empty(t, "no keys")
	results, err := s.mirror(o).Lock(t.Context(), locked, platforms(t, linux), true)
	s.gives(t, "unsigned", "1.0.0 [linux_amd64 added]")(results, err)
	noted(t, "unsigned", results, "SHA256SUMS")
}
