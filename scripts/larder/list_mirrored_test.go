package main

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

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// seenProvider is a provider with versions in every state.
var seenProvider = must(registry.ParseMirrorProvider("registry.example.com/acme/inventory"))

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
			SigningKey: first.ID, MirroredAt: outputDay, MirroredBy: publisherUser,
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
	found := registry.PulledProvider{
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
			v, err := listMirrorProvider(t.Context(), data.Catalog, seenProvider, outputDay)
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if test.want != nil {
				return
			}
			want := []string{"0.2.0 failed: the daily budget of the mirror is used up", "0.1.0 on request: "}
			got := output.Mapped(v.States, func(v protocol.MirroredVersion) string {
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
	rule.Pattern, rule.Line = seenProvider.String(), 3
	_, err := c.SetMirrorPolicy(t.Context(), registry.MirrorPolicy{
		Text: fmt.Sprint(rule), Rules: []registry.MirrorRule{rule}, SetAt: outputDay, SetBy: "ada",
	}, "")
	if err != nil {
		t.Fatal(err)
	}
}

// parsed parses a version.
func parsed(version string) registry.Version { return must(registry.ParseVersion(version)) }

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
			v, err := listMirrorProvider(t.Context(), data.Catalog, seenProvider, outputDay)
			if err != nil {
				t.Fatal(err)
			}
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
			name := "list-origin-" + strings.ReplaceAll(test.name, " ", "-") + ".txtar"
			golden.Equal(t, filepath.Join("testdata", "output", name), txtar.Format(archive))
		})
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
	list := func(ctx context.Context) (mirrorProviderView, error) {
		return listMirrorProvider(ctx, data.Catalog, seenProvider, outputDay)
	}
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
	for _, s := range v.States {
		if s.Version == parsed("1.2.0") {
			t.Errorf("the withdrawn version has the state %q", s.State)
		}
	}
	if len(v.Versions) != 3 {
		t.Errorf("%d versions, want 3", len(v.Versions))
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
			[]string{"versions that are too new or refused are not listed: item "},
		},
		"provider": {
			provider, "{", false,
			[]string{"versions that are too new or refused are not listed: item "},
		},
		"policy": {
			catalog.Key{Partition: "policy", Sort: "mirror"}, "{", true,
			[]string{"versions that are too new are not listed: mirror policy: item "},
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
			items(t, dir, catalog.Change{Key: test.damaged, Revision: revision(t, dir, test.damaged), Data: []byte(test.data)})
			out, errorOutput, status := runHere(t, "list", "--store", "dir:"+dir, seenProvider.String())
			if status != 0 {
				t.Fatalf("exit code %d, want 0\n%s", status, errorOutput)
			}
			for _, want := range append(test.warnings, "1.2.0", "1.1.0", "1.0.0", "Run `larder verify`") {
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
			_, errorOutput, _ = runHere(t, "list", "--quiet", "--store", "dir:"+dir, seenProvider.String())
			if !strings.Contains(errorOutput, test.warnings[0]) {
				t.Errorf("--quiet suppresses the warning:\n%s", errorOutput)
			}
		})
	}
}

// revision returns the revision of an item.
func revision(t *testing.T, dir string, key catalog.Key) int64 {
	t.Helper()
	table, err := sqlite.Open(t.Context(), filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	item, err := table.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return item.Revision
}

// The versions that are too new, and the keys of refused versions, are completed.
func TestCompleteDecisions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, _, err := local.Create(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	setRule(t, data.Catalog, registry.MirrorRule{MinAge: 7 * 24 * 60 * 60})
	_, err = data.Catalog.Mirror.UpdateOrigin(t.Context(), seenProvider,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			o.See(map[registry.Version]time.Time{parsed("1.0.0"): outputDay}, outputDay)
			o.See(map[registry.Version]time.Time{parsed("1.1.0"): outputDay}, time.Now())
			o.Refuse(registry.RefusedVersion{Version: parsed("2.0.0"), Key: originKey("0123456789ABCDEF", "")})
			o.Refuse(registry.RefusedVersion{Version: parsed("2.1.0")})
			return true, nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"admit": "1.1.0\tfrom ",
		"trust": "unsigned\t2.1.0\n0123456789ABCDEF\t2.0.0\n",
	} {
		out, _, _ := runHere(t, "__complete", "mirror", command, "--store", "dir:"+dir, seenProvider.String(), "")
		if !strings.HasPrefix(out, want) {
			t.Errorf("the completions of larder mirror %s do not begin with %q:\n%s", command, want, out)
		}
	}
}
