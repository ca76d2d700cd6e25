package admission_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
)

// source has a policy, or an error. It counts how often it is read.
type source struct {
	policy *registry.MirrorPolicy
	err    error
	reads  int
}

func (s *source) MirrorPolicy(context.Context) (*registry.MirrorPolicy, error) {
	s.reads++
	return s.policy, s.err
}

// A policy, and that there is none, is cached for a minute.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]*registry.MirrorPolicy{
		"a policy": {Text: `allow "*/*/*" {}`}, "no policy": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1_800_000_000, 0)
			s := &source{policy: policy}
			policies := admission.NewPolicies(s, func() time.Time { return now })
			for _, step := range []struct {
				after time.Duration
				reads int
			}{{0, 1}, {59 * time.Second, 1}, {time.Second, 2}, {-time.Second, 3}} {
				now = now.Add(step.after)
				got, err := policies.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got != policy {
					t.Errorf("%s later: %v, want %v", step.after, got, policy)
				}
				if s.reads != step.reads {
					t.Errorf("%s later: %d reads, want %d", step.after, s.reads, step.reads)
				}
			}
		})
	}
}

// A policy that cannot be read is not cached.
func TestPoliciesUnreadable(t *testing.T) {
	t.Parallel()
	s := &source{err: registry.ErrCorrupt}
	policies := admission.NewPolicies(s, nil)
	for reads := range 2 {
		if _, err := policies.Get(t.Context()); !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("Get returns %v, want %v", err, registry.ErrCorrupt)
		}
		if s.reads != reads+1 {
			t.Errorf("there are %d reads, want %d", s.reads, reads+1)
		}
	}
}
