package mirror

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Worker fetches providers from origins. Its results are in [Pulled].
type Worker interface {
	// Do waits for the end of the work, or of ctx.
	Do(context.Context, protocol.PullRequest) (protocol.PullResponse, error)
	// Start does not wait for the work.
	Start(context.Context, protocol.PullRequest) error
}

// Pulled reads the findings of a [Worker], which can be empty.
type Pulled interface {
	Pulled(context.Context, registry.MirrorAddress) (registry.PulledAddress, error)
	// PulledVersion returns registry.ErrNotFound if there is nothing.
	PulledVersion(context.Context, registry.MirrorAddress, registry.Version) (registry.PulledVersion, error)
	// Found returns the record of a version, with registry.ErrWithdrawn if it is
	// withdrawn, and what PulledVersion returns.
	Found(context.Context, registry.MirrorAddress, registry.Version) (
		registry.MirrorVersion, registry.PulledVersion, error)
}

// Pulling lets clients make the mirror fetch what it lacks.
type Pulling struct {
	Pulled   Pulled
	Worker   Worker
	Policies *admission.Policies
	// Now returns the time. If nil, time.Now is used.
	Now func() time.Time
	// Wait is how long a client waits for the worker, from the arrival of its
	// request. If the last known versions can be sent instead, it is a quarter
	// of that. If 0, it is 8 seconds, because clients give up after 10.
	Wait time.Duration
}

// startTime is how long starting a copy may take.
const startTime = time.Second

// firstPoll and maxPoll are the times between two reads of the table.
const firstPoll, maxPoll = 50 * time.Millisecond, 500 * time.Millisecond

// rule returns the rule by which clients may make the mirror fetch a provider.
// It has no mode if they may not.
func (p *Pulling) rule(ctx context.Context, address registry.MirrorAddress) (
	rule registry.MirrorRule, setAt time.Time, err error,
) {
	if p == nil {
		return rule, setAt, nil
	}
	policy, err := p.Policies.Get(ctx)
	if err != nil || policy == nil {
		return rule, setAt, err
	}
	rule, denied := admission.RuleOf(policy, address)
	if denied != nil {
		return registry.MirrorRule{}, setAt, nil //nolint:nilerr // documented above
	}
	return rule, policy.SetAt, nil
}

// explained adds to the error of a provider that is not mirrored why the policy denies
// it.
func (p *Pulling) explained(ctx context.Context, address registry.MirrorAddress, err error) error {
	if p == nil || !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	policy, failed := p.Policies.Get(ctx)
	if reason := admission.Denial(policy, address); failed == nil && reason != "" {
		return fmt.Errorf("%w: %s", registry.ErrNotFound, reason)
	}
	return err
}

func (p *Pulling) now() time.Time {
	if p != nil && p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

func (p *Pulling) wait() time.Duration { return cmp.Or(p.Wait, 8*time.Second) }

// index returns the versions of a provider that may be fetched. If nothing is
// known of its origin, it returns why as unknown. That is registry.ErrNotFound,
// or registry.ErrUnavailable if the worker failed: with a 404, clients would go
// past the mirror.
func (p *Pulling) index(ctx context.Context, begin time.Time, address registry.MirrorAddress, setAt time.Time) (
	index protocol.Document, unknown, err error,
) {
	known, err := p.cached(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	var failed error
	if !known.Current(p.now(), setAt) {
		until := begin.Add(p.wait())
		usable := len(known.Index) > 0 && !known.PolicySetAt.Before(setAt)
		if usable {
			until = begin.Add(p.wait() / 4)
		}
		request := protocol.PullRequest{Action: protocol.PullIndex, Address: address.String(), PolicySetAt: setAt}
		_, failed = p.do(ctx, begin, until, request)
		if usable && errors.Is(failed, errNoAnswer) {
			failed = nil
		}
		if known, err = p.cached(ctx, address); err != nil {
			return nil, nil, err
		}
	}
	switch {
	// An index from before a change of the policy or of the mirror can have
	// versions that clients must not get.
	case len(known.Index) > 0 && !known.PolicySetAt.Before(setAt):
		return known.Index, nil, nil
	case failed != nil:
		return nil, unavailable(failed), nil
	case known.Problem != "" && !known.IsTransient:
		return nil, fmt.Errorf("%w: %s", registry.ErrNotFound, known.Problem), nil
	}
	return nil, unansweredError{cmp.Or(known.Problem, noAnswer)}, nil
}

// unansweredError is [registry.ErrNotFound], because an origin did not answer. It has
// the problem. The origin may have the provider.
type unansweredError struct{ problem string }

func (e unansweredError) Error() string { return registry.ErrNotFound.Error() + ": " + e.problem }
func (e unansweredError) Unwrap() error { return registry.ErrNotFound }

// noAnswer is the problem if an origin gives no answer in time.
const noAnswer = "the origin did not answer in time"

// errNoAnswer means that the worker has not answered in time. It answers earlier
// than a client stops waiting, also if an origin does not answer.
var errNoAnswer = errors.New("it did not answer in time")

// unavailable returns the error for a failure of the worker. It does not wrap
// it, because an error of its own kind could be one of the client.
func unavailable(failed error) error {
	return fmt.Errorf("%w: the worker of the mirror failed: %s", registry.ErrUnavailable, failed.Error())
}

// cached returns the findings about a provider's origin. If they cannot be read, they
// are empty, and the worker reports that.
func (p *Pulling) cached(ctx context.Context, address registry.MirrorAddress) (registry.PulledAddress, error) {
	found, err := p.Pulled.Pulled(ctx, address)
	if errors.Is(err, registry.ErrCorrupt) {
		return registry.PulledAddress{}, nil
	}
	return found.Forgotten(p.now()), err
}

// platforms returns the platforms of a mirrored version, with those that its origin has.
func (p *Pulling) platforms(ctx context.Context, address registry.MirrorAddress, v registry.Version) (
	[]registry.Platform, error,
) {
	known, err := p.cached(ctx, address)
	if err != nil || len(known.Index) == 0 {
		return nil, err
	}
	index, err := protocol.Decode[protocol.MirrorIndex](known.Index)
	if err != nil {
		return nil, nil //nolint:nilerr // it is only a cache
	}
	return index.Platforms()[v], nil
}

// isCurrent reports whether findings about a version apply, with the policy of setAt
// or a later one. Processes learn of a policy at different times.
func (p *Pulling) isCurrent(found registry.PulledVersion, setAt time.Time) bool {
	return p.now().Before(found.Until) && !found.PolicySetAt.Before(setAt)
}

// cachedVersion returns the findings about a version that apply. ok is false if there
// are none.
func (p *Pulling) cachedVersion(ctx context.Context, address registry.MirrorAddress, n registry.Version,
	setAt time.Time) (found registry.PulledVersion, ok bool, err error) {
	found, err = p.Pulled.PulledVersion(ctx, address, n)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrCorrupt) ||
		err == nil && !p.isCurrent(found, setAt) {
		return registry.PulledVersion{}, false, nil
	}
	return found, err == nil, err
}

// do sends a request to the worker and waits until a time. If the worker has not
// answered by then, that is [errNoAnswer]. The worker may continue for as long as
// a client without any answer would wait.
func (p *Pulling) do(ctx context.Context, begin, until time.Time, request protocol.PullRequest) (
	protocol.PullResponse, error,
) {
	request.Deadline, request.Caller = begin.Add(p.wait()), CallerID(requestlog.From(ctx).Caller)
	waiting, cancel := context.WithTimeout(ctx, until.Sub(p.now()))
	defer cancel()
	response, err := p.Worker.Do(waiting, request)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return protocol.PullResponse{}, errNoAnswer
	}
	return response, err
}

// CallerID returns a short id of a caller for [protocol.PullRequest]. It is the
// beginning of a digest, so that requests that failed do not have the name.
func CallerID(name string) string {
	if name == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:6])
}

// version returns what was found out about a version that the mirror lacks, with
// the packages that can be offered in time. stored is the record of a version of
// which the mirror lacks some platforms, or empty. The record that version returns is
// the one that is stored in the end. If there is neither a record nor a package, found
// has the problem.
func (p *Pulling) version(ctx context.Context, begin time.Time, address registry.MirrorAddress, n registry.Version,
	rule registry.MirrorRule, setAt time.Time, versions Versions, stored registry.MirrorVersion) (
	record registry.MirrorVersion, found registry.PulledVersion, err error,
) {
	none := registry.PulledVersion{}
	found, ok, err := p.cachedVersion(ctx, address, n, setAt)
	if err != nil {
		return stored, none, err
	}
	if !ok {
		failed := p.locate(ctx, begin, address, n, setAt)
		record, found, err = p.Pulled.Found(ctx, address, n)
		if errors.Is(err, registry.ErrWithdrawn) {
			return registry.MirrorVersion{}, none, nil // meanwhile
		}
		if err != nil {
			return stored, none, err
		}
		if !record.IsEmpty() {
			stored = record
		}
		if !record.IsEmpty() && record.Has(rule.Platforms) {
			return record, none, nil // it was copied meanwhile
		}
		if ok = p.isCurrent(found, setAt); !ok {
			found = none
		}
		requestlog.From(ctx).Err = failed
		// If the copy has not started, there is nothing to wait for.
		if failed != nil && found.Problem == "" && len(found.Archives) == 0 {
			if stored.IsEmpty() {
				return stored, none, failed
			}
			return stored, none, nil
		}
		if !ok {
			explain(ctx, address, n, noAnswer)
			return stored, registry.PulledVersion{Problem: noAnswer, IsTransient: true}, nil
		}
	}
	if rule.Pull == registry.PullOpen {
		explain(ctx, address, n, found.Problem)
		return stored, found, nil
	}
	c := awaitedCopy{versions, address, n, rule, setAt, begin.Add(p.wait())}
	return p.waitForCopy(ctx, c, found, stored)
}

// locate makes the worker find out where a version is, and copy it.
func (p *Pulling) locate(ctx context.Context, begin time.Time, address registry.MirrorAddress,
	n registry.Version, setAt time.Time) error {
	request := protocol.PullRequest{
		Action: protocol.PullVersion, Address: address.String(), Version: n.String(), PolicySetAt: setAt,
	}
	response, err := p.do(ctx, begin, begin.Add(p.wait()), request)
	if err == nil && response.Copy {
		request.Action, request.Caller = protocol.PullCopy, CallerID(requestlog.From(ctx).Caller)
		// The answer does not depend on it.
		starting, cancel := context.WithTimeout(ctx, startTime)
		defer cancel()
		err = p.Worker.Start(starting, request)
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// awaitedCopy is the copy of a version that a client waits for, until a time.
type awaitedCopy struct {
	versions Versions
	address  registry.MirrorAddress
	version  registry.Version
	rule     registry.MirrorRule
	setAt    time.Time // of the policy
	until    time.Time
}

// waitForCopy waits until a version is copied, until it turns out that it cannot
// be, or until c.until. It returns the record that is stored then, and the problem.
func (p *Pulling) waitForCopy(ctx context.Context, c awaitedCopy, found registry.PulledVersion,
	stored registry.MirrorVersion) (registry.MirrorVersion, registry.PulledVersion, error) {
	none := registry.PulledVersion{}
	for poll := firstPoll; ; poll = min(2*poll, maxPoll) {
		record, err := c.versions.Get(ctx, c.address, c.version)
		switch {
		case errors.Is(err, registry.ErrWithdrawn):
			return registry.MirrorVersion{}, none, nil
		case err != nil && !errors.Is(err, registry.ErrNotFound):
			return stored, none, err
		case err == nil && (stored.IsEmpty() || record.Has(c.rule.Platforms)):
			return record, none, nil
		case err == nil:
			stored = record
		}
		if found.Failed {
			return stored, none, unavailable(errors.New(found.Problem))
		}
		if found.Problem != "" {
			explain(ctx, c.address, c.version, found.Problem)
			return stored, found, nil
		}
		if p.now().Add(poll).After(c.until) {
			explain(ctx, c.address, c.version, admission.NotCopied)
			return stored, registry.PulledVersion{Problem: admission.NotCopied, IsTransient: true}, nil
		}
		select {
		case <-ctx.Done():
			return stored, none, ctx.Err()
		case <-time.After(poll):
		}
		if found, _, err = p.cachedVersion(ctx, c.address, c.version, c.setAt); err != nil {
			return stored, none, err
		}
	}
}

// explain adds to the log why a version cannot be offered, unless there is no
// problem.
func explain(ctx context.Context, address registry.MirrorAddress, n registry.Version, problem string) {
	if problem != "" {
		requestlog.From(ctx).Note = fmt.Sprintf("mirrored %s %s %s: %s", address.Kind(), address, n, problem)
	}
}
