package admission_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
)

func provider(t *testing.T, s string) registry.MirrorAddress {
	t.Helper()
	p, err := registry.ParseMirrorProvider(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const random = "registry.opentofu.org/hashicorp/random"

func TestRuleOf(t *testing.T) {
	t.Parallel()
	policy := &registry.MirrorPolicy{Rules: []registry.MirrorRule{
		{Line: 1, Pattern: "registry.opentofu.org/hashicorp/consul", Deny: true, Reason: "We do not use it."},
		{Line: 2, Pattern: "registry.opentofu.org/hashicorp/vault", Deny: true},
		{Line: 3, Pattern: "registry.opentofu.org/hashicorp/*", MinAge: 10},
		{Line: 4, Pattern: "registry.opentofu.org/hashicorp/random", MinAge: 20},
		{Line: 5, Pattern: "*/acme/*"},
		{Line: 6, Pattern: "registry.example.com/*/inventory"},
	}}
	const denied = 0
	for address, test := range map[string]struct {
		line  int
		words string
	}{
		random: {3, ""},
		"registry.opentofu.org/hashicorp/consul": {denied, "line 1 of the mirror policy denies " +
			"registry.opentofu.org/hashicorp/consul: We do not use it."},
		"registry.opentofu.org/hashicorp/vault": {denied, "line 2 of the mirror policy denies " +
			"registry.opentofu.org/hashicorp/vault"},
		"registry.opentofu.org/other/random": {denied, "no rule of the mirror policy allows registry.opentofu.org/other/random"},
		"registry.terraform.io/hashicorp/random": {denied, "no rule of the mirror policy allows " +
			"registry.terraform.io/hashicorp/random"},
		"registry.example.net/acme/anything":    {5, ""},
		"registry.example.com/other/inventory":  {6, ""},
		"registry.example.com/other/inventory2": {denied, "no rule of the mirror policy allows"},
	} {
		rule, err := admission.RuleOf(policy, provider(t, address))
		if test.line == denied {
			if !errors.Is(err, registry.ErrNotAdmitted) {
				t.Errorf("%s: %v, want ErrNotAdmitted", address, err)
			} else if !strings.Contains(err.Error(), test.words) {
				t.Errorf("%s: %v, want %q", address, err, test.words)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if rule.Line != test.line {
			t.Errorf("%s: the rule of line %d, want %d", address, rule.Line, test.line)
		}
	}
	if rule, err := admission.RuleOf(nil, provider(t, random)); err != nil || rule.Pattern != "" {
		t.Errorf("without a policy: %+v, %v", rule, err)
	}
	if _, err := admission.RuleOf(&registry.MirrorPolicy{}, provider(t, random)); !errors.Is(err, registry.ErrNotAdmitted) {
		t.Errorf("a policy without rules: %v, want ErrNotAdmitted", err)
	}
}

// No spelling of a module is outside of the rules for it.
func TestRuleOfSpellings(t *testing.T) {
	t.Parallel()
	policy := &registry.MirrorPolicy{Rules: []registry.MirrorRule{
		{Line: 1, Pattern: "*/acme/vpc/*", Deny: true}, {Line: 2, Pattern: "*/*/*/*"},
	}}
	for _, address := range []string{
		"registry.opentofu.org/Acme/VPC/aws", "registry.example.com/Acme/VPC/aws", "registry.example.com/acme/vpc/aws",
	} {
		m, err := registry.ParseMirrorModule(address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admission.RuleOf(policy, m); !errors.Is(err, registry.ErrNotAdmitted) {
			t.Errorf("%s: %v, want ErrNotAdmitted", address, err)
		}
	}
}

// day returns the start of a day of a month. Day 0 is the zero time.
func day(n int) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC)
}

func TestAvailabilityOf(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * 3600
	admitted := &registry.Decision{At: day(4), By: "ada", Reason: "a fix"}
	for name, test := range map[string]struct {
		published, seen int // days
		unseen          bool
		admitted        *registry.Decision
		noMinimum, wait bool
		at              int // the day from which it is available; 0: always
		unknown         bool
	}{
		"no minimum age":                {published: 5, seen: 5, noMinimum: true},
		"at first sight":                {published: 2, at: 9},
		"at first sight, backdated":     {published: 1, at: 8},
		"published, then seen":          {published: 2, seen: 5, at: 12},
		"backdated":                     {published: 1, seen: 5, at: 12},
		"postdated":                     {published: 15, seen: 5, at: 22},
		"postdated, at first sight":     {published: 15, at: 22},
		"no time, at first sight":       {unknown: true},
		"no time":                       {seen: 5, unknown: true},
		"no time, wait":                 {seen: 5, wait: true, unknown: true, at: 12},
		"no time, at first sight, wait": {wait: true, unknown: true},
		"a time, wait":                  {published: 2, seen: 5, wait: true, at: 12},
		"never seen":                    {published: 2, unseen: true, at: 17},
		"never seen, no time":           {unseen: true, unknown: true},
		"never seen, no time, wait":     {unseen: true, unknown: true, wait: true, at: 17},
		"never seen, postdated":         {published: 12, unseen: true, at: 19},
		"admitted":                      {published: 9, seen: 9, admitted: admitted},
		"admitted, no time":             {seen: 9, wait: true, unknown: true, admitted: admitted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := registry.MirrorRule{MinAge: week, WaitUnknown: test.wait}
			if test.noMinimum {
				rule.MinAge = 0
			}
			v := registry.SeenVersion{PublishedAt: day(test.published), SeenAt: day(test.seen), Admitted: test.admitted}
			got := admission.AvailabilityOf(rule, v, !test.unseen, day(10))
			want := admission.Availability{At: day(test.at), AgeUnknown: test.unknown, Admitted: test.admitted}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if test.at > 1 && got.Ready(day(test.at).Add(-time.Nanosecond)) {
				t.Error("it is available earlier")
			}
			if !got.Ready(day(max(test.at, 1))) {
				t.Error("it is not available then")
			}
		})
	}
}

func TestStatusesOf(t *testing.T) {
	t.Parallel()
	version := func(minor uint64) registry.Version { return registry.Version{Major: 1, Minor: minor} }
	admitted := &registry.Decision{At: day(4), By: "ada", Reason: "a fix"}
	o := registry.MirrorOrigin{
		Versions: []registry.SeenVersion{
			{Version: version(6), PublishedAt: day(9), SeenAt: day(9)},
			{Version: version(5), PublishedAt: day(1), SeenAt: day(9)},
			{Version: version(4), PublishedAt: day(8), Admitted: admitted},
			{Version: version(3)},
			{Version: version(2), PublishedAt: day(2)},
			{Version: version(1), PublishedAt: day(1)},
		},
		Refused: []registry.RefusedVersion{
			{Version: version(2), Key: registry.OriginKey{ID: "BBBB"}},
			{Version: version(1), Key: registry.OriginKey{ID: "BBBB"}},
		},
	}
	stored := admission.Stored{
		Listed: []registry.Version{version(4), version(3), version(1), version(0)}, Origin: o,
	}
	describe := func(all []admission.Status) string {
		var lines []string
		for _, s := range all {
			line := s.Version.String() + " " + string(s.State)
			if !s.AvailableAt.IsZero() {
				line += fmt.Sprintf(" until %d", s.AvailableAt.Day())
			}
			if s.AgeUnknown {
				line += ", age unknown"
			}
			if s.Admitted != nil {
				line += ", admitted by " + s.Admitted.By
			}
			if s.Key.ID != "" {
				line += ", signed by " + s.Key.ID
			}
			if s.KeyDenied {
				line += ", which is denied"
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "\n")
	}
	always := func(refused string) string {
		return "1.4.0 available, admitted by ada\n1.3.0 available\n" + refused + "1.1.0 available\n1.0.0 available"
	}
	signedBy := func(keys ...string) *registry.MirrorPolicy {
		return &registry.MirrorPolicy{Rules: []registry.MirrorRule{{Pattern: "*/*/*", SigningKeys: keys}}}
	}
	weekly := func(pattern string, deny bool) *registry.MirrorPolicy {
		return &registry.MirrorPolicy{Rules: []registry.MirrorRule{{Pattern: pattern, MinAge: 7 * 24 * 3600, Deny: deny}}}
	}
	for name, test := range map[string]struct {
		policy *registry.MirrorPolicy
		want   string
	}{
		"no policy":      {nil, always("1.2.0 refused, signed by BBBB\n")},
		"no minimum age": {signedBy(), always("1.2.0 refused, signed by BBBB\n")},
		"denied":         {weekly("*/*/*", true), always("1.2.0 refused, signed by BBBB, which is denied\n")},
		"not allowed":    {weekly("*/acme/*", false), always("1.2.0 refused, signed by BBBB, which is denied\n")},
		"names the key":  {signedBy("BBBB"), always("")},
		"names another":  {signedBy("CCCC"), always("1.2.0 refused, signed by BBBB, which is denied\n")},
		"a minimum age": {weekly("*/*/*", false), "1.6.0 too new until 16\n1.5.0 too new until 16\n" +
			"1.4.0 available, admitted by ada\n1.3.0 available, age unknown\n1.2.0 refused, signed by BBBB\n" +
			"1.1.0 available\n1.0.0 available, age unknown"},
	} {
		got := describe(admission.StatusesOf(test.policy, provider(t, random), stored, day(10)))
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A version that can never be mirrored has no status. It is withdrawn, or it
// differs from a mirrored or withdrawn one only in build metadata.
func TestStatusesOfOthers(t *testing.T) {
	t.Parallel()
	gone, waits := registry.Version{Major: 1}, registry.Version{Major: 2}
	again := registry.Version{Major: 1, Metadata: "b"}
	var o registry.MirrorOrigin
	o.See(map[registry.Version]time.Time{gone: day(9), again: day(9), waits: day(9)}, day(9))
	o.Refuse(registry.RefusedVersion{Version: gone, Key: registry.OriginKey{ID: "BBBB"}, At: day(9)})
	policy := &registry.MirrorPolicy{Rules: []registry.MirrorRule{{Pattern: "*/*/*", MinAge: 7 * 24 * 3600}}}
	got := admission.StatusesOf(policy, provider(t, random),
		admission.Stored{Excluded: []registry.Version{gone}, Origin: o}, day(10))
	if len(got) != 1 {
		t.Fatalf("%d versions have a status, want 1: %+v", len(got), got)
	}
	if got[0].Version != waits {
		t.Errorf("it is the status of %s, want %s", got[0].Version, waits)
	}
}

func TestCheckPlatform(t *testing.T) {
	t.Parallel()
	linux := registry.Platform{OS: "linux", Arch: "amd64"}
	darwin := registry.Platform{OS: "darwin", Arch: "arm64"}
	if err := admission.CheckPlatform(registry.MirrorRule{}, linux); err != nil {
		t.Errorf("a rule without platforms: %v", err)
	}
	rule := registry.MirrorRule{Line: 4, Platforms: []registry.Platform{linux}}
	if err := admission.CheckPlatform(rule, linux); err != nil {
		t.Errorf("a platform of the rule: %v", err)
	}
	if err := admission.CheckPlatform(rule, darwin); !errors.Is(err, registry.ErrNotAdmitted) {
		t.Errorf("another platform: %v, want ErrNotAdmitted", err)
	}
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	const id, fingerprint = "34365D9472D7468F", "C874011F0AB405110D02105534365D9472D7468F"
	key := registry.OriginKey{ID: id, Fingerprint: fingerprint}
	for name, test := range map[string]struct {
		allowed    []string
		key        registry.OriginKey
		named, bad bool
	}{
		"no keys in the rule":          {nil, key, false, false},
		"no signature, no keys":        {nil, registry.OriginKey{}, false, false},
		"its ID":                       {[]string{"0000000000000000", id}, key, true, false},
		"its fingerprint":              {[]string{fingerprint}, key, true, false},
		"another ID":                   {[]string{"0000000000000000"}, key, false, true},
		"a fingerprint of the same ID": {[]string{"000000000000000000000000" + id}, key, false, true},
		"no signature":                 {[]string{id}, registry.OriginKey{}, false, true},
	} {
		named, err := admission.CheckKey(registry.MirrorRule{SigningKeys: test.allowed}, test.key)
		if named != test.named {
			t.Errorf("%s: named is %t", name, named)
		}
		if errors.Is(err, registry.ErrNotAdmitted) != test.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestShowAge(t *testing.T) {
	t.Parallel()
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	for seconds, want := range map[int64]string{
		minute: "1 minute", 90 * minute: "90 minutes", hour: "1 hour", 36 * hour: "36 hours", day: "1 day", 14 * day: "14 days",
	} {
		if got := admission.ShowAge(seconds); got != want {
			t.Errorf("%d seconds are %q, want %q", seconds, got, want)
		}
	}
}
