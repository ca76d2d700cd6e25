package admission

import (
	"context"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/ttlcache"
)

// policyTime is how long a policy is cached.
const policyTime = time.Minute

// Source reads the policy of the mirror, or nil if none was ever set. A catalog
// is one.
type Source interface {
	MirrorPolicy(ctx context.Context) (*registry.MirrorPolicy, error)
}

// Policies caches the policy of the mirror for readers that show it, and for
// long runs. It is safe for concurrent use. Create one with [NewPolicies].
type Policies struct {
	source Source
	now    func() time.Time
	cached *ttlcache.Cache[struct{}, *registry.MirrorPolicy]
}

// NewPolicies returns the cached policy of a source. now is the clock, or nil for
// the time of the system.
func NewPolicies(source Source, now func() time.Time) *Policies {
	return NewPoliciesWithLifetime(policyTime, source, now)
}

// NewPoliciesWithLifetime is like [NewPolicies], with another time for which the
// policy is cached. It is for sources that cost nothing to read.
func NewPoliciesWithLifetime(lifetime time.Duration, source Source, now func() time.Time) *Policies {
	if now == nil {
		now = time.Now
	}
	return &Policies{source, now, ttlcache.New[struct{}, *registry.MirrorPolicy](1, lifetime)}
}

// Refresh makes the next Get read the policy again, unless the cached one is not
// older than setAt.
func (p *Policies) Refresh(ctx context.Context, setAt time.Time) error {
	policy, err := p.Get(ctx)
	if err == nil && (policy == nil && !setAt.IsZero() || policy != nil && policy.SetAt.Before(setAt)) {
		now := p.now()
		p.cached.Add(struct{}{}, policy, now, now)
	}
	return err
}

// Get returns the policy, which can be as old as its lifetime in the cache and
// must not be changed. It is nil if none was ever set. Errors are those of the
// source, and are not cached.
func (p *Policies) Get(ctx context.Context) (*registry.MirrorPolicy, error) {
	begin := p.now()
	if found, ok := p.cached.Get(struct{}{}, begin); ok {
		return found, nil
	}
	policy, err := p.source.MirrorPolicy(ctx)
	if err != nil {
		return nil, err
	}
	p.cached.Add(struct{}{}, policy, begin, time.Time{})
	return policy, nil
}
