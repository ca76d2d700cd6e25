package list

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// seenProvider is a provider with versions in every state.
var seenProvider = registry.MirrorAddress{
	Hostname: "registry.example.com", Namespace: "acme", Name: "inventory",
}

// originKey returns a signing key of an owner.
func originKey(id, owner string) registry.OriginKey {
	return registry.OriginKey{ID: id, Fingerprint: strings.Repeat("0", 24) + id, Owner: owner}
}

// fillOrigin stores an origin that lists versions in every state at
// [outputDay].
func fillOrigin(t *testing.T, c *catalog.Catalog, mirrored bool) {
	t.Helper()
	first := originKey("34365D9472D7468F", "Acme Releases")
	decision := func(reason string) registry.Decision {
		return registry.Decision{At: outputDay, By: "ada", Reason: reason}
	}
	ago := func(days int) time.Time { return outputDay.AddDate(0, 0, -days) }
	_, err := c.Mirror.UpdateOrigin(t.Context(), seenProvider,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			o.See(map[registry.Version]time.Time{
				parsed("1.0.0"): {}, parsed("1.1.0"): ago(20), parsed("1.6.0"): ago(5).Add(time.Second), parsed("1.9.0"): ago(30),
			}, ago(10))
			o.See(map[registry.Version]time.Time{parsed("1.4.0"): ago(8).Add(30 * time.Second), parsed("1.5.0"): {}}, ago(3))
			o.See(map[registry.Version]time.Time{parsed("1.2.0"): ago(1), parsed("1.3.0"): ago(100)}, ago(2))
			o.Admit(parsed("1.2.0"), decision("CVE-2023-1234 affects us"))
			o.Trust(first)
			other := originKey("0123456789ABCDEF", "Acme Engineering")
			o.Refuse(registry.RefusedVersion{Version: parsed("2.0.0"), Key: other, At: outputDay})
			o.Refuse(registry.RefusedVersion{Version: parsed("2.0.1"), Key: other, At: outputDay})
			o.Refuse(registry.RefusedVersion{Version: parsed("2.1.0"), At: outputDay})
			return true, nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if !mirrored {
		return
	}
	platform, sum := registry.Platform{OS: "linux", Arch: "amd64"}, strings.Repeat("ab", 32)
	for _, v := range []registry.Version{parsed("1.0.0"), parsed("1.1.0"), parsed("1.2.0")} {
		name := seenProvider.Filename(v, platform)
		record := registry.MirrorVersion{Version: v, Packages: []registry.MirrorPackage{{
			ProviderPackage: registry.ProviderPackage{
				Platform: platform, Filename: name, H1: "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
				StoredFile: registry.StoredFile{Object: seenProvider.FileKey(v, sum, name), SHA256: sum, Size: 17 << 10},
			},
			SigningKey: first.ID, MirroredAt: outputDay, MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: "ada"},
		}}}
		if _, _, err := c.Mirror.Add(t.Context(), seenProvider, record, "ada"); err != nil {
			t.Fatal(err)
		}
	}
}

// outputRetry is when a failure ends. Items that end earlier expire.
var outputRetry = outputDay.AddDate(100, 0, 0)

// fillPulled stores what the mirror found when it looked for a client. The latest
// look has failed, or many versions are on request, by an earlier policy.
func fillPulled(t *testing.T, data *local.Data, many bool) {
	t.Helper()
	found := registry.PulledAddress{
		Address: seenProvider.String(), CheckedAt: outputDay.Add(-time.Hour), RequestedAt: outputDay,
		Problem: "the origin did not answer in time\x1b[2J", Pending: []registry.Version{parsed("0.2.0"), parsed("1.0.0")},
		PolicySetAt: outputDay, RetryAt: outputRetry,
	}
	index := protocol.MirrorListing{parsed("0.2.0"), parsed("0.1.0")}
	if many {
		found.Problem, found.PolicySetAt = "", outputDay.Add(-time.Hour)
		for patch := range uint64(12) {
			index = append(index, registry.Version{Minor: 3, Patch: patch})
		}
	}
	var err error
	if found.Index, err = protocol.Compress(index); err != nil {
		t.Fatal(err)
	}
	n := parsed("0.2.0")
	state, err := data.Catalog.Mirror.State(t.Context(), seenProvider, seenProvider.Hostname, &n, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	answer := registry.PulledVersion{PolicySetAt: outputDay, Problem: "the daily budget of the mirror is used up"}
	err = state.Update(t.Context(), func() error {
		state.Pulled, state.Version = found, state.Version.WithAnswer(answer, outputRetry)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// outputDay is the time at which versions have their states.
var outputDay = time.Date(2023, 3, 10, 9, 30, 0, 0, time.UTC)

func now() time.Time { return outputDay }

// listed lists [seenProvider] at [outputDay].
func listed(ctx context.Context, data *local.Data) (MirroredView, error) {
	s := &place.Store{Catalog: data.Catalog, Objects: data.Objects, Now: now}
	return listMirrored(ctx, s.Reader(), seenProvider)
}

// A provider is listed as soon as the mirror has looked at its origin, if the
// policy lets clients fetch it.
func TestListPulled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode registry.PullMode
		want error
	}{
		"pull": {registry.PullClosed, nil}, "no pull": {"", registry.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, _, err := local.Create(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer data.Close()
			fillPulled(t, data, false)
			setRule(t, data.Catalog, registry.MirrorRule{Pull: test.mode})
			v, err := listed(t.Context(), data)
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if test.want != nil {
				return
			}
			want := []string{"0.2.0 failed: the daily budget of the mirror is used up", "0.1.0 on request: "}
			got := output.Mapped(v.Versions, func(v protocol.MirroredVersion) string {
				return v.Version.String() + " " + v.State + ": " + v.Reason
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// trustRefused trusts everything for which versions of [fillOrigin] are refused.
func trustRefused(t *testing.T, c *catalog.Catalog) {
	t.Helper()
	_, err := c.Mirror.UpdateOrigin(t.Context(), seenProvider,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			key := o.Refused[1].Key
			key.Trusted = &registry.Decision{At: outputDay, By: "ada", Reason: "announced on their site"}
			o.Trust(key)
			o.Unsigned, o.Refused = &registry.Decision{At: outputDay, By: "grace"}, nil
			return true, nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

// setRule sets a policy with a rule for [seenProvider].
func setRule(t *testing.T, c *catalog.Catalog, rule registry.MirrorRule) {
	t.Helper()
	setRuleFor(t, c, seenProvider, rule)
}

// setRuleFor sets a policy with a rule for an address.
func setRuleFor(t *testing.T, c *catalog.Catalog, a registry.MirrorAddress, rule registry.MirrorRule) {
	t.Helper()
	rule.Pattern, rule.Line = a.String(), 3
	_, err := c.SetMirrorPolicy(t.Context(), registry.MirrorPolicy{
		Text: fmt.Sprint(rule), Rules: []registry.MirrorRule{rule}, SetAt: outputDay, SetBy: "ada",
	}, "")
	if err != nil {
		t.Fatal(err)
	}
}

// parsed parses a version.
func parsed(version string) registry.Version {
	v, err := registry.ParseVersion(version)
	if err != nil {
		panic(err)
	}
	return v
}

// equalGolden compares a view with a golden file: on terminals, in a pipe, and with
// --quiet. Each line must fit the terminal, except for commands, which are not broken.
func equalGolden(t *testing.T, name string, v MirroredView) {
	t.Helper()
	archive := new(txtar.Archive)
	for _, columns := range []int{80, 160, 0} {
		var shown bytes.Buffer
		v.Text(output.Page{Output: terminal.Output{Writer: &shown, Width: columns}})
		for line := range strings.Lines(shown.String()) {
			if wide := text.StringWidth(strings.TrimSuffix(line, "\n")); columns > 0 && wide > columns &&
				!strings.HasPrefix(line, "`larder ") {
				t.Errorf("this line has %d columns on a terminal of %d:\n%s", wide, columns, line)
			}
		}
		name := "piped"
		if columns > 0 {
			name = fmt.Sprintf("%d columns", columns)
		}
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: shown.Bytes()})
	}
	var quiet bytes.Buffer
	v.Quiet(output.Page{Output: terminal.Output{Writer: &quiet}})
	archive.Files = append(archive.Files, txtar.File{Name: "quiet", Data: quiet.Bytes()})
	golden.Equal(t, filepath.Join("testdata", name+".txtar"), txtar.Format(archive))
}

// A mirrored provider is listed with the versions that are too new or refused,
// also if nothing of it is mirrored. Each line fits the terminal, except for
// commands, which are not broken.
func TestListOrigin(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * 60 * 60
	for _, test := range []struct {
		name     string
		mirrored bool
		rule     *registry.MirrorRule
	}{
		{"minimum age", true, &registry.MirrorRule{MinAge: week, WaitUnknown: true}},
		{"unknown age admitted", true, &registry.MirrorRule{MinAge: week - 60*60}},
		{"keys", true, &registry.MirrorRule{SigningKeys: []string{"34365D9472D7468F"}}},
		{"trusted keys", true, nil},
		{"denied", true, &registry.MirrorRule{Deny: true, Reason: "We do not use it."}},
		{"no policy", true, nil},
		{"nothing mirrored", false, &registry.MirrorRule{MinAge: week}},
		{"on request", true, &registry.MirrorRule{MinAge: week, Pull: registry.PullOpen}},
		{"nothing but requests", false, &registry.MirrorRule{Pull: registry.PullClosed, Upstream: "https://mirror.example.net"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data, _, err := local.Create(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer data.Close()
			fillOrigin(t, data.Catalog, test.mirrored)
			if test.rule != nil && test.rule.Pull != "" {
				fillPulled(t, data, test.mirrored)
			}
			if test.rule != nil {
				setRule(t, data.Catalog, *test.rule)
			}
			if test.name == "trusted keys" {
				trustRefused(t, data.Catalog)
			}
			v, err := listed(t.Context(), data)
			if err != nil {
				t.Fatal(err)
			}
			equalGolden(t, "origin-"+strings.ReplaceAll(test.name, " ", "-"), v)
		})
	}
}

// seenModule is a module with versions in every state.
var seenModule = registry.MirrorAddress{
	Hostname: "registry.example.com", Namespace: "acme", Name: "vpc", System: "aws",
}

// fillModule mirrors versions of [seenModule]. The origin has changed one of them, and
// one that is not mirrored. An operator has accepted what it changed of another.
func fillModule(t *testing.T, c *catalog.Catalog) {
	t.Helper()
	pin := func(commit string) registry.ModulePin {
		return registry.ModulePin{
			Source: "https://github.com/acme/terraform-aws-vpc", Commit: strings.Repeat(commit, 40),
			H1: "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
		}
	}
	accepted := pin("c")
	accepted.Accepted = &registry.Decision{At: outputDay, By: "ada", Reason: "they removed a key from the history"}
	for number, p := range map[string]registry.ModulePin{"1.0.0": pin("a"), "1.1.0": pin("a"), "1.2.0": accepted} {
		v, sum := parsed(number), strings.Repeat("ab", 32)
		record := registry.MirrorVersion{Version: v, Module: &registry.MirroredModule{
			StoredFile: registry.StoredFile{Object: seenModule.FileKey(v, sum, "vpc.tar.gz"), SHA256: sum, Size: 17 << 10},
			Pin:        p, MirroredAt: outputDay, MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: "ada"},
		}}
		if _, _, err := c.Mirror.Add(t.Context(), seenModule, record, "ada"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Mirror.UpdateOrigin(t.Context(), seenModule,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			released := make(map[registry.Version]time.Time)
			for _, number := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"} {
				released[parsed(number)] = outputDay.AddDate(0, 0, -30)
			}
			o.See(released, outputDay.AddDate(0, 0, -20))
			o.See(map[registry.Version]time.Time{parsed("1.4.0"): outputDay.AddDate(0, 0, -1)}, outputDay)
			for _, number := range []string{"1.1.0", "1.3.0"} {
				o.Pin(parsed(number), pin("a"), outputDay)
				o.Refuse(registry.RefusedVersion{Version: parsed(number), Pin: pin("b"), Bound: pin("a"), At: outputDay})
			}
			return true, nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

// A mirrored module is listed with the commits of its versions, and with what the
// origin has changed.
func TestListModule(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * 60 * 60
	for name, rule := range map[string]registry.MirrorRule{
		"minimum age": {MinAge: week, Pull: registry.PullClosed},
		"denied":      {Deny: true, Reason: "We do not use it."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, _, err := local.Create(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer data.Close()
			fillModule(t, data.Catalog)
			setRuleFor(t, data.Catalog, seenModule, rule)
			s := &place.Store{Catalog: data.Catalog, Objects: data.Objects, Now: now}
			v, err := listMirrored(t.Context(), s.Reader(), seenModule)
			if err != nil {
				t.Fatal(err)
			}
			equalGolden(t, "module-"+strings.ReplaceAll(name, " ", "-"), v)
		})
	}
}

// Modules of a host do not distinguish upper and lower case.
func TestListHostOfModules(t *testing.T) {
	t.Parallel()
	data, _, err := local.Create(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	fillModule(t, data.Catalog)
	s := &place.Store{Catalog: data.Catalog, Objects: data.Objects, Now: now}
	for _, part := range []string{"registry.example.com", "registry.example.com/", "registry.example.com/Acme"} {
		v, err := listHost(t.Context(), s.Reader(), part)
		if err != nil {
			t.Fatal(err)
		}
		if len(v.MirroredModules) != 1 {
			t.Errorf("%s has %d modules, want 1", part, len(v.MirroredModules))
		}
	}
}

// A provider that the mirror has never seen is not found. A withdrawn version is
// only listed as withdrawn, also if it is too new.
func TestListOriginWithout(t *testing.T) {
	t.Parallel()
	data, _, err := local.Create(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	list := func(ctx context.Context) (MirroredView, error) { return listed(ctx, data) }
	if _, err := list(t.Context()); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("error %v, want %v", err, registry.ErrNotFound)
	}
	fillOrigin(t, data.Catalog, true)
	setRule(t, data.Catalog, registry.MirrorRule{MinAge: 7 * 24 * 60 * 60})
	withdrawal := registry.Withdrawal{At: outputDay, By: "ada", Reason: "leaked"}
	_, _, err = data.Catalog.Mirror.Withdraw(t.Context(), seenProvider, parsed("1.2.0"), withdrawal, false)
	if err != nil {
		t.Fatal(err)
	}
	v, err := list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range v.Versions {
		if isStored(one) {
			got = append(got, one.Version.String()+" "+one.State)
		}
	}
	want := []string{"1.2.0 withdrawn", "1.1.0 available", "1.0.0 available"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// If the data about the origin or the policy is damaged, the list has the mirrored
// versions and a warning.
func TestListDamagedOrigin(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * 60 * 60
	provider := catalog.Key{Partition: "mirror/providers", Sort: seenProvider.String()}
	for name, test := range map[string]struct {
		damaged  catalog.Key
		data     string
		refused  bool
		warnings []string
	}{
		"origin": {
			provider, `{"address":"` + provider.Sort + `","origin":"eA=="}`, false,
			[]string{"versions that are too new or refused are not listed, because the data about the origin is damaged"},
		},
		"provider": {
			provider, "{", false,
			[]string{"versions that are too new or refused are not listed, because the data about the origin is damaged"},
		},
		"policy": {
			catalog.Key{Partition: "policy", Sort: "mirror"}, "{", true,
			[]string{"versions that are too new are not listed, because the mirror policy is damaged"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data, _, err := local.Create(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			fillOrigin(t, data.Catalog, true)
			setRule(t, data.Catalog, registry.MirrorRule{MinAge: week})
			data.Close()
			damage(t, dir, test.damaged, test.data)
			out, _ := run(t, false, "--store", "dir:"+dir, seenProvider.String())
			for _, want := range append(test.warnings, "1.2.0", "1.1.0", "1.0.0", "Run `larder verify --store ") {
				if !strings.Contains(out, want) {
					t.Errorf("the list lacks %q:\n%s", want, out)
				}
			}
			if refused := strings.Contains(out, "2.0.0"); refused != test.refused {
				t.Errorf("the list has the refused version: %t, want %t\n%s", refused, test.refused, out)
			}
			if strings.Contains(out, "age unknown") {
				t.Errorf("an age that the damage hides is listed as unknown:\n%s", out)
			}
			_, errorOutput := run(t, true, "--store", "dir:"+dir, seenProvider.String())
			if !strings.Contains(errorOutput, test.warnings[0]) {
				t.Errorf("--quiet suppresses the warning:\n%s", errorOutput)
			}
		})
	}
}

// A list has the entries that can be read, and the command fails because of the others.
func TestListDamagedEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, _, err := local.Create(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	data.Close()
	damage(t, dir, catalog.Key{Partition: "namespaces", Sort: "acme"}, `{}`)
	damage(t, dir, catalog.Key{Partition: "catalog/acme", Sort: "modules/acme/dns/aws"}, `{"address":"acme/dns/aws","latest":"1.0.0"}`)
	damage(t, dir, catalog.Key{Partition: "catalog/acme", Sort: "modules/acme/vpc/aws"}, "{")
	for _, args := range [][]string{{}, {"acme"}} {
		out, _, err := try(t, false, append(args, "--store", "dir:"+dir)...)
		if !strings.Contains(out, "acme/dns/aws") {
			t.Errorf("list %q lacks the entry that can be read:\n%s", args, out)
		}
		if !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("list %q: %v, want %v", args, err, registry.ErrCorrupt)
		}
	}
}

// run runs the command, and returns its output and its warnings.
func run(t *testing.T, quiet bool, args ...string) (out, warnings string) {
	t.Helper()
	out, warnings, err := try(t, quiet, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out, warnings
}

// try is run for a command that may fail.
func try(t *testing.T, quiet bool, args ...string) (out, warnings string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := &cli.Program{Finder: place.Finder{
		Printer: output.Printer{Stdout: &stdout, Stderr: &stderr, Quiet: quiet}, Now: now,
	}}
	cmd := Command(c)
	cmd.PreRun = func(cmd *cobra.Command, _ []string) { c.Flags = cmd.Flags() }
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	if err := c.Show(c.Result, nil); err != nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), err
}

// damage writes the data of an item.
func damage(t *testing.T, dir string, key catalog.Key, data string) {
	t.Helper()
	table, err := sqlite.Open(t.Context(), filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	item, err := table.Get(t.Context(), key)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Fatal(err)
	}
	err = table.Write(t.Context(), catalog.Change{Key: key, Revision: item.Revision, Data: []byte(data)})
	if err != nil {
		t.Fatal(err)
	}
}

// The API's document of a mirrored provider is printed safely and completely.
func TestMirrored(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]protocol.MirroredProvider{
		"mirrored": {MinAge: 7 * 24 * 60 * 60, Versions: []protocol.MirroredVersion{
			{
				Version: registry.Version{Major: 3}, State: "too new", PublishedAt: outputDay,
				AvailableAt: outputDay.Add(7 * 24 * time.Hour),
			},
			{
				Version: registry.Version{Major: 2, Minor: 2}, State: "refused", AgeUnknown: true,
				Reason: "signed by key 34365D9472D7468F, which is not trusted", SigningKey: "34365D9472D7468F",
			},
			{
				Version: registry.Version{Major: 2, Minor: 1}, State: "refused",
				Reason: "it has no signature, but earlier versions have",
			},
			{
				Version: registry.Version{Major: 2}, State: "available", AgeUnknown: true,
				Admitted: &registry.Decision{By: "ada", Reason: "CVE-2026-1234\x1b[2J", At: outputDay},
			},
			{Version: registry.Version{Major: 1}, State: "available", PublishedAt: outputDay},
		}},
		"denied": {
			Denied: "line 3 of the mirror policy denies registry.opentofu.org/hashicorp/random: We do not use it.\x1b[2J",
			Versions: []protocol.MirroredVersion{
				{Version: registry.Version{Major: 2}, State: "refused", Reason: "signed by key 34365D9472D7468F, not in the mirror policy", SigningKey: "34365D9472D7468F", KeyDenied: true},
				{Version: registry.Version{Major: 1}, State: "available", PublishedAt: outputDay},
			},
		},
		"pulled": {
			Versions: []protocol.MirroredVersion{
				{Version: registry.Version{Major: 2}, State: "failed", Reason: "the daily budget is used up\x1b[2J", RetryAt: outputRetry},
				{Version: registry.Version{Major: 1}, State: "available", PublishedAt: outputDay},
			},
			Pull: &protocol.MirroredPull{
				Mode: registry.PullClosed, OnRequest: 1, Pending: []registry.Version{{Major: 2}}, CheckedAt: outputDay,
			},
		},
		"looked": {Pull: &protocol.MirroredPull{
			Mode: registry.PullOpen, Upstream: "mirror.example.net", Problem: "the origin did not answer in time", RequestedAt: outputDay,
			RetryAt: outputRetry,
		}},
		"none": {
			Versions: []protocol.MirroredVersion{
				{Version: registry.Version{Major: 2}, State: "too new", AvailableAt: outputRetry},
			},
			Pull: &protocol.MirroredPull{
				Mode: registry.PullClosed, RequestedAt: outputDay, RetryAt: outputRetry,
				Problem: "the origin has no version that may be mirrored: 2.0.0 is too new", FoundNone: true,
			},
		},
		"never": {Pull: &protocol.MirroredPull{Mode: registry.PullOpen}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, one := range d.Versions {
				if one.State == "available" {
					d.Version = &one.Version
					d.Versions[i].Packages = []protocol.MirroredFile{{
						ProviderFile: protocol.ProviderFile{Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Size: 17 << 10},
						MirroredAt:   outputDay, MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: "ada"},
					}}
				}
			}
			v := MirroredView{Address: "registry.opentofu.org/hashicorp/random", MirroredProvider: d, flags: " --registry https://HOST"}
			equalGolden(t, "mirrored-"+name, v)
		})
	}
}
