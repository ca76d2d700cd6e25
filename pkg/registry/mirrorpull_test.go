package registry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

func TestPulledProviderCurrent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	policy := now.Add(-time.Hour)
	for name, test := range map[string]struct {
		found registry.PulledAddress
		want  bool
	}{
		"nothing":         {registry.PulledAddress{}, false},
		"a look just now": {registry.PulledAddress{PolicySetAt: policy, CheckedAt: now}, true},
		"a look almost ten minutes ago": {
			registry.PulledAddress{PolicySetAt: policy, CheckedAt: now.Add(-10*time.Minute + 1)}, true,
		},
		"a look ten minutes ago": {
			registry.PulledAddress{PolicySetAt: policy, CheckedAt: now.Add(-10 * time.Minute)}, false,
		},
		"a failure that may be repeated":         {registry.PulledAddress{PolicySetAt: policy, RetryAt: now}, false},
		"a failure that may not be repeated yet": {registry.PulledAddress{PolicySetAt: policy, RetryAt: now.Add(1)}, true},
		"a failure after an old look": {
			registry.PulledAddress{PolicySetAt: policy, CheckedAt: now.Add(-time.Hour), RetryAt: now.Add(1)}, true,
		},
		"a failure after a look just now, which may be repeated": {
			registry.PulledAddress{PolicySetAt: policy, CheckedAt: now, RetryAt: now}, false,
		},
		"a look by another policy":    {registry.PulledAddress{PolicySetAt: policy.Add(-1), CheckedAt: now}, false},
		"a failure by another policy": {registry.PulledAddress{PolicySetAt: policy.Add(-1), RetryAt: now.Add(1)}, false},
		"a look by the policy in another time zone": {
			registry.PulledAddress{PolicySetAt: policy.In(time.FixedZone("", 3600)), CheckedAt: now}, true,
		},
	} {
		if got := test.found.Current(now, policy); got != test.want {
			t.Errorf("%s: current is %t, want %t", name, got, test.want)
		}
	}
}

func TestWant(t *testing.T) {
	t.Parallel()
	var p registry.PulledAddress
	for i := range 60 {
		v := registry.Version{Major: uint64(i)}
		if !p.AddPending(v) {
			t.Errorf("%s: it is not new", v)
		}
		if p.AddPending(v) {
			t.Errorf("%s: it is new twice", v)
		}
	}
	if diff := cmp.Diff(50, len(p.Pending)); diff != "" {
		t.Errorf("the number of wanted versions (-want +got):\n%s", diff)
	}
	if got := fmt.Sprint(p.Pending[0], p.Pending[49]); got != "59.0.0 10.0.0" {
		t.Errorf("the first and the last one are %s, want 59.0.0 10.0.0", got)
	}
	// A slice that others share does not change.
	before := p.Pending
	if !p.RemovePending(registry.Version{Major: 59}) {
		t.Error("a wanted version was not wanted")
	}
	if p.RemovePending(registry.Version{Major: 59}) {
		t.Error("a version is wanted after it was removed")
	}
	if diff := cmp.Diff(registry.Version{Major: 59}, before[0]); diff != "" {
		t.Errorf("the first version of the slice from before (-want +got):\n%s", diff)
	}
	if got := fmt.Sprint(len(p.Pending), p.Pending[0]); got != "49 58.0.0" {
		t.Errorf("%s are left, beginning with the second one; want 49 58.0.0", got)
	}
}

func TestPulledVersionValidate(t *testing.T) {
	t.Parallel()
	v := registry.PulledVersion{Version: registry.Version{Major: 1, Metadata: "a"}}
	for n, valid := range map[registry.Version]bool{
		{Major: 1, Metadata: "a"}: true, {Major: 1, Metadata: "b"}: false, {Major: 1}: false, {Major: 2, Metadata: "a"}: false,
	} {
		if err := v.Validate(n); (err == nil) != valid {
			t.Errorf("%s: %v, want an error: %t", n, err, !valid)
		}
	}
}

func TestPullBudgetOrDefault(t *testing.T) {
	t.Parallel()
	byDefault := registry.DefaultPullBudget
	for budget, want := range map[registry.PullBudget]registry.PullBudget{
		{}:                       byDefault,
		{Packages: 1}:            {Packages: 1, Bytes: byDefault.Bytes},
		{Bytes: 1}:               {Packages: byDefault.Packages, Bytes: 1},
		{Packages: 1, Bytes: 2}:  {Packages: 1, Bytes: 2},
		{Packages: -1, Bytes: 2}: {Packages: -1, Bytes: 2}, // nobody may fetch anything
	} {
		if diff := cmp.Diff(want, budget.OrDefault()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", budget, diff)
		}
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	linux, darwin := registry.Platform{OS: "linux", Arch: "amd64"}, registry.Platform{OS: "darwin", Arch: "arm64"}
	of := func(platforms ...registry.Platform) (v registry.MirrorVersion) {
		for _, p := range platforms {
			v.Packages = append(v.Packages, registry.MirrorPackage{ProviderPackage: registry.ProviderPackage{Platform: p}})
		}
		return v
	}
	for name, test := range map[string]struct {
		version registry.MirrorVersion
		wanted  []registry.Platform
		want    bool
	}{
		"one of one":      {of(linux), []registry.Platform{linux}, true},
		"one of two":      {of(linux), []registry.Platform{linux, darwin}, false},
		"two of one":      {of(linux, darwin), []registry.Platform{darwin}, true},
		"none of one":     {of(), []registry.Platform{linux}, false},
		"all, none named": {of(linux), nil, true},
	} {
		if got := test.version.Has(test.wanted); got != test.want {
			t.Errorf("%s: it has them: %t, want %t", name, got, test.want)
		}
	}
}
