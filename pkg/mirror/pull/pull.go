// Package pull is the worker that fetches providers and modules when clients request
// them.
//
// The function that serves the mirror invokes it, and never waits longer than
// its clients do. The worker stores all its findings in the catalog. Processes
// that wait at the same time read the same answer.
//
// A lease in the table lets only one process check the same part of an origin,
// or copy the same version. A process that ends leaves a lease that expires, and
// nothing else: packages are stored in the way of package filling.
//
// A failure of an origin is an answer, which is cached for a minute. Only a
// failure of this registry is an error.
package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// By is the publisher of the packages that clients made the mirror fetch.
var By = registry.Publisher{Name: "pull-through mirror"}

// Options are the options of [New].
type Options struct {
	Catalog *catalog.Catalog
	Objects publish.Objects
	// Client reads from origins. It must have no credentials and no proxy.
	Client *client.Client
	// Clients is that of [filling.Pull].
	Clients func(networks ...netip.Prefix) (*client.Client, error)
	// Inspector reads the archives of modules.
	Inspector filling.Inspector
	// Policies has the policy of the mirror. If nil, it is read from Catalog and
	// cached for a minute.
	Policies *admission.Policies
	Log      *slog.Logger
	// MaxBytes is the maximum size of the packages of one version together, in
	// bytes. The temporary folder must have room for them.
	MaxBytes int64
	// Copies is the maximum number of copies at once, in all processes that use
	// the table. If 0, the caller limits them.
	Copies int
	// Lease is how long the lease of a process that ended prevents others from
	// copying the same version. If 0, it is 45 seconds, because Lambda retries after
	// a minute.
	Lease time.Duration
	// OnBound is called with one of [Bounds] when it has an effect. If nil, it is only
	// logged. It may be called concurrently.
	OnBound func(bound string)
	// Now returns the time. If nil, [time.Now] is used.
	Now func() time.Time
}

// Worker fetches providers. It is safe for concurrent use.
type Worker struct {
	options Options
	from    filling.Pull
	lookups *lookups
}

// New returns a worker.
func New(o Options) *Worker {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Lease == 0 {
		o.Lease = copyLease
	}
	if o.Policies == nil {
		o.Policies = admission.NewPolicies(o.Catalog, o.Now)
	}
	w := &Worker{options: o, lookups: newLookups()}
	w.from = filling.Pull{
		Mirror: &filling.Mirror{
			Catalog: o.Catalog, Objects: o.Objects, Client: o.Client, Inspector: o.Inspector, Now: o.Now,
			Publisher: &publish.Publisher{Catalog: o.Catalog, Objects: o.Objects, By: By, Now: o.Now},
		},
		Clients: o.Clients, MaxBytes: o.MaxBytes,
	}
	return w
}

// Do handles a request, unless another process handles it. It returns an error
// if the request is not valid, or if this registry failed. It also returns one
// if a copy failed and may succeed later. If there is no answer by the deadline
// of the request, the error is nil.
func (w *Worker) Do(ctx context.Context, request protocol.PullRequest) (response protocol.PullResponse, err error) {
	defer w.recovered(ctx, &err)
	response, err = w.do(ctx, request)
	if errors.Is(err, errBusy) && !errors.Is(err, context.Canceled) {
		return protocol.PullResponse{}, nil
	}
	return response, err
}

// recovered makes a panic an error, in a deferred call. What an origin sends must
// not end the process, which may serve clients.
func (w *Worker) recovered(ctx context.Context, err *error) {
	if p := recover(); p != nil {
		w.options.Log.LogAttrs(ctx, slog.LevelError, "panic", slog.Any("panic", p),
			slog.String("stack", string(debug.Stack())))
		*err = fmt.Errorf("%w: panic", registry.ErrUnavailable)
	}
}

func (w *Worker) do(ctx context.Context, request protocol.PullRequest) (response protocol.PullResponse, err error) {
	if request.Action == protocol.PullNightly {
		return protocol.PullResponse{}, w.nightly(ctx)
	}
	p, err := registry.ParseMirrorAddress(request.Address)
	if err != nil {
		return protocol.PullResponse{}, err
	}
	ctx = forCaller(ctx, request.Caller)
	if !request.Deadline.IsZero() {
		// The answer must be stored before the caller stops waiting.
		var cancel context.CancelFunc
		left := request.Deadline.Sub(w.options.Now())
		ctx, cancel = context.WithTimeout(ctx, left-min(margin, left/2))
		defer cancel()
	}
	if err := w.options.Policies.Refresh(ctx, request.PolicySetAt); err != nil {
		return protocol.PullResponse{}, err
	}
	// A look-up has room before it takes a lease, which others wait for.
	holders := w.holders(ctx, p)
	defer func() {
		// A client that has left would have waited longer.
		if errors.Is(err, errBusy) && !errors.Is(ctx.Err(), context.Canceled) {
			w.reached(ctx, boundOf(err), holders, slog.String(p.Kind(), p.String()))
		}
	}()
	if request.Action == protocol.PullIndex {
		err = w.lookups.do(ctx, holders, func(ctx context.Context) error { return w.index(ctx, p) })
		return protocol.PullResponse{}, late(ctx, err)
	}
	v, err := registry.ParseVersion(request.Version)
	if err != nil {
		return protocol.PullResponse{}, err
	}
	switch request.Action {
	case protocol.PullVersion:
		err = w.lookups.do(ctx, holders, func(ctx context.Context) (err error) {
			response.Copy, err = w.version(ctx, p, v)
			return err
		})
		return response, late(ctx, err)
	case protocol.PullCopy:
		return protocol.PullResponse{}, w.copyInTurn(ctx, p, v)
	}
	return protocol.PullResponse{}, fmt.Errorf("%w action %.40q", registry.ErrInvalid, request.Action)
}

// late returns nil if the deadline ended the wait for an origin.
func late(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) && !isOwnFailure(err) {
		return nil
	}
	return err
}

const (
	// margin is the time to store an answer before the caller stops waiting. If
	// the caller does not wait long, it is a quarter of that.
	margin = time.Second
	// maxIndex is the maximum size of the compressed versions of a provider, in
	// bytes. It leaves room for the other parts of an item of DynamoDB.
	maxIndex = 200 << 10
	// maxAnswer is the maximum size of the compressed answer for a version with its
	// SHA256SUMS, its signature and keys, in bytes. A larger one is stored without them.
	maxAnswer = 300 << 10
	// offerTime is how long the answer for a version is cached, unless one of its
	// URLs ends earlier. handover is the least time, in which all who wait for the
	// answer read it.
	offerTime = 2 * time.Minute
	handover  = 2 * time.Second
	// waitTime is how long clients wait for a copy before one of them makes sure
	// that it has begun.
	waitTime = 15 * time.Second
	// serviceTime is how long the result of discovery is cached.
	serviceTime = 10 * time.Minute
)

// rule returns the policy, and its rule for a provider. If readers may not fetch
// the provider, the rule has no mode.
func (w *Worker) rule(ctx context.Context, p registry.MirrorAddress) (
	*registry.MirrorPolicy, registry.MirrorRule, error,
) {
	policy, err := w.options.Policies.Get(ctx)
	if err != nil || policy == nil {
		return nil, registry.MirrorRule{}, err
	}
	rule, err := admission.RuleOf(policy, p)
	if err != nil {
		return policy, registry.MirrorRule{}, nil //nolint:nilerr // documented above
	}
	return policy, rule, nil
}

// state reads the data about a provider, and about a version if v is not nil.
func (w *Worker) state(ctx context.Context, rule registry.MirrorRule, p registry.MirrorAddress, v *registry.Version) (
	*catalog.MirrorState, error,
) {
	host, _ := admission.Origin(rule, p)
	return w.options.Catalog.Mirror.State(ctx, p, host, v, w.options.Now())
}

// checking and locating are the leases of a check, and of a look-up of a version.
func checking(s *catalog.MirrorState) *registry.Lease { return &s.Pulled.Checking }
func locating(s *catalog.MirrorState) *registry.Lease { return &s.Version.Locating }

// index checks the versions of a provider, unless the last check is current.
func (w *Worker) index(ctx context.Context, p registry.MirrorAddress) error {
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" {
		return err
	}
	return w.check(ctx, policy, rule, p, w.options.Now(), func(found registry.PulledAddress) bool {
		return found.Current(w.options.Now(), policy.SetAt)
	})
}

// check checks the versions of a provider and stores the result, unless isDone
// returns true. If a client requested it, that was at requestedAt. Otherwise
// requestedAt is the zero time.
func (w *Worker) check(ctx context.Context, policy *registry.MirrorPolicy, rule registry.MirrorRule,
	p registry.MirrorAddress, requestedAt time.Time, isDone func(registry.PulledAddress) bool) error {
	_, discovers := admission.Origin(rule, p)
	return w.once(ctx, work{
		state:  func(ctx context.Context) (*catalog.MirrorState, error) { return w.state(ctx, rule, p, nil) },
		lease:  checking,
		isDone: func(s *catalog.MirrorState) bool { return isDone(s.Pulled) },
		isWorking: func(ctx context.Context) (bool, error) {
			found, err := w.options.Catalog.Mirror.Pulled(ctx, p)
			return found.Checking.Held(w.options.Now()), err
		},
		begin: func(s *catalog.MirrorState, lease registry.Lease) {
			if discovers && s.Service.URL == "" && !s.Service.Finding.Held(w.options.Now()) {
				s.Service.Finding = lease // it is the next step
			}
			// An operator can change the mirror during the check.
			s.Pulled.Changes = max(s.Pulled.Changes, 1)
			if len(s.Pulled.Index) == 0 {
				s.Pulled.RetryAt = w.options.Now().Add(registry.PullRetry).UTC()
			}
		},
		do: func(ctx context.Context, s *catalog.MirrorState, end func() error) error {
			return w.checkOrigin(ctx, policy, p, requestedAt, s, end)
		},
	})
}

// checkOrigin requests the versions of a provider and stores them. end ends the
// lease in an edit of s.
func (w *Worker) checkOrigin(ctx context.Context, policy *registry.MirrorPolicy, p registry.MirrorAddress,
	requestedAt time.Time, s *catalog.MirrorState, end func() error) error {
	unknown, changes := len(s.Pulled.Index) == 0 && !requestedAt.IsZero(), s.Pulled.Changes
	if unknown {
		if err := w.lookups.miss(ctx, w.options.Now()); err != nil {
			return err
		}
	}
	from, begin := w.from.With(s), w.options.Now()
	from.Services = w.services(p, s)
	listing, failed := from.List(ctx, policy, p)
	if failed != nil && !isAnswer(failed) {
		// It still counts as a miss. Otherwise readers who leave at once could flood the
		// origin.
		return failed
	}
	w.log(ctx, "listed the versions of an origin", p, failed)
	now := w.options.Now().UTC()
	ctx, cancel := storeContext(ctx)
	defer cancel()
	return s.Update(ctx, func() error {
		if err := errors.Join(end(), from.Settle()); err != nil {
			return err
		}
		if failed != nil {
			var err error
			if listing, err = w.lastVersions(from, policy, p); err != nil {
				return err
			}
		}
		found := &s.Pulled
		if !requestedAt.IsZero() {
			found.RequestedAt = requestedAt.UTC()
		}
		if !found.PolicySetAt.Equal(policy.SetAt) {
			found.Failing = registry.BackOff{}
		}
		found.PolicySetAt = policy.SetAt
		if found.Changes != changes {
			found.PolicySetAt = time.Time{}
		}
		if err := setIndex(found, s.Origin, listing); err != nil {
			return err
		}
		if unknown && found.Index != nil {
			w.lookups.hit(ctx)
			unknown = false
		}
		found.Problem, found.FoundNone, found.IsTransient, found.RetryAt = "", false, false, time.Time{}
		if failed != nil {
			countFailure(&found.Failing, policy.SetAt, begin, now, failed)
			found.Problem, found.IsTransient, found.RetryAt = problem(failed), !isFinal(failed), retryAt(found.Failing, now)
			return nil //nolint:nilerr // the problem has it
		}
		found.Failing = registry.BackOff{}
		found.CheckedAt = now
		if found.Index == nil {
			found.CheckedAt, found.RetryAt = time.Time{}, now.Add(registry.PullRetry)
			found.Problem, found.FoundNone = "the origin has no version of it", true
			if listing.Withheld != nil {
				found.Problem = "the origin has no version that may be mirrored: " + problem(listing.Withheld)
			}
		}
		return nil
	})
}

// lastVersions returns the last known versions of a provider, without those that
// clients may not get any more.
func (w *Worker) lastVersions(from filling.Pull, policy *registry.MirrorPolicy, p registry.MirrorAddress) (
	filling.Listing, error,
) {
	if len(from.State.Pulled.Index) == 0 {
		return filling.Listing{}, nil
	}
	index, err := protocol.Decode[protocol.MirrorIndex](from.State.Pulled.Index)
	if err != nil {
		return filling.Listing{}, nil //nolint:nilerr // the index is only a cache
	}
	return from.LastVersions(policy, p, index)
}

// setIndex sets the index of a provider. If the versions are too many for its item,
// it has the newest ones.
func setIndex(found *registry.PulledAddress, o registry.MirrorOrigin, listing filling.Listing) (err error) {
	known, err := protocol.Compress(o)
	if err != nil {
		return err
	}
	found.Index, err = indexOf(listing, min(maxIndex, catalog.MaxMirrorItem-len(known)))
	return err
}

// indexOf returns the index.json of a listing. It is nil if there are no versions. If
// it would have more than most bytes, it has the newest versions.
func indexOf(listing filling.Listing, most int) (protocol.Document, error) {
	for versions := listing.Versions; len(versions) > 0; versions = versions[:len(versions)/2] {
		index, err := protocol.Compress(protocol.MirrorListing(versions).Index(listing.Verifiable))
		if err != nil || len(index) <= most {
			return index, err
		}
	}
	return nil, nil
}

// version finds out where clients get a version that the mirror lacks. It
// reports whether the caller must start to copy it.
func (w *Worker) version(ctx context.Context, p registry.MirrorAddress, v registry.Version) (
	startCopy bool, err error,
) {
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" {
		return false, err
	}
	isDone := func(found registry.PulledVersion) bool { return found.Current(w.options.Now(), policy.SetAt) }
	err = w.once(ctx, work{
		state: func(ctx context.Context) (*catalog.MirrorState, error) { return w.state(ctx, rule, p, &v) },
		lease: locating,
		isDone: func(s *catalog.MirrorState) bool {
			d := admission.RulesOf(policy, p).Decide(known(s, rule, v), w.options.Now())
			return isDone(s.Version) || d.State == admission.Withdrawn || d.IsComplete
		},
		isWorking: func(ctx context.Context) (bool, error) {
			found, err := w.options.Catalog.Mirror.PulledVersion(ctx, p, v)
			if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrCorrupt) {
				return false, nil
			}
			return !isDone(found) && found.Locating.Held(w.options.Now()), err
		},
		do: func(ctx context.Context, s *catalog.MirrorState, end func() error) (err error) {
			startCopy, err = w.locate(ctx, policy, rule, p, v, s, end)
			return err
		},
	})
	return startCopy && err == nil, err
}

// locate finds out about a version, and stores it. end ends the lease in an edit of s.
func (w *Worker) locate(ctx context.Context, policy *registry.MirrorPolicy, rule registry.MirrorRule,
	p registry.MirrorAddress, v registry.Version, s *catalog.MirrorState, end func() error) (startCopy bool, err error) {
	now := w.options.Now()
	from := w.from.With(s)
	from.Services = w.services(p, s)
	answer, failed := w.offer(ctx, policy, rule, p, v, from)
	if failed != nil && !isAnswer(failed) {
		return false, failed
	}
	answer.PolicySetAt = policy.SetAt
	until, isShort := w.options.Now().Add(offerTime), false
	switch {
	case failed != nil:
		answer.Problem, answer.IsTransient, until = problem(failed), !isFinal(failed), now.Add(registry.PullRetry)
	case rule.Pull == registry.PullClosed:
		until = w.options.Now().Add(waitTime)
	default:
		until, isShort = offerUntil(answer, w.options.Now(), w.options.Now(), handover)
	}
	w.log(ctx, "located a version at an origin", p, failed, slog.String("version", v.String()))
	ctx, cancel := storeContext(ctx)
	defer cancel()
	err = s.Update(ctx, func() error {
		if err := end(); err != nil {
			return err
		}
		if err := from.Settle(); errors.Is(err, registry.ErrNotAdmitted) {
			failed, answer = err, registry.PulledVersion{PolicySetAt: policy.SetAt, Problem: problem(err)}
			until = now.Add(registry.PullRetry)
		} else if err != nil {
			return err
		}
		startCopy = false
		// An earlier copy can have failed meanwhile, which is a better answer.
		if s.Version.Current(now, policy.SetAt) {
			return nil
		}
		// An invalid version does not delay others.
		isInvalid := errors.Is(failed, registry.ErrInvalid) || errors.Is(failed, registry.ErrExists)
		if failed != nil && !isInvalid && s.Pulled.PolicySetAt.Equal(policy.SetAt) && len(s.Pulled.Index) > 0 {
			countFailure(&s.Pulled.Failing, policy.SetAt, now, w.options.Now(), failed)
			until = retryAt(s.Pulled.Failing, w.options.Now())
		}
		s.Version = s.Version.WithAnswer(answer, until)
		// A copy has more time than a client, so that a slow origin is mirrored too.
		startCopy = failed == nil || errors.Is(failed, context.DeadlineExceeded)
		if startCopy && isShort {
			// Otherwise each client would start a copy after one that failed.
			startCopy = !s.Version.Refused.Waits(now, policy.SetAt) && !s.Pulled.Slow.Waits(now, policy.SetAt)
		}
		if startCopy || errors.Is(failed, registry.ErrNotAdmitted) {
			s.Pulled.RequestedAt = w.options.Now().UTC()
			if len(s.Pulled.Index) > 0 {
				s.Pulled.AddPending(v)
			}
		}
		if errors.Is(failed, registry.ErrNotAdmitted) {
			outdate(s)
		}
		return nil
	})
	return startCopy, err
}

// outdate makes the mirror check the versions of a provider again, because one of
// them turned out to be refused. Clients would choose it, and get no package.
func outdate(s *catalog.MirrorState) {
	s.Pulled.PolicySetAt = time.Time{}
	s.Pulled.Changes++
}

// offerUntil returns until when an answer with URLs is cached, and whether that is
// short because one of them ends. at and some are those of [filling.LastUse].
func offerUntil(answer registry.PulledVersion, now, at time.Time, some time.Duration) (until time.Time, isShort bool) {
	until = now.Add(offerTime)
	if end := filling.LastUse(answer, at, some); !end.IsZero() && end.Before(until) {
		return end, true
	}
	return until, false
}

// offer returns the packages of a version at its origin. In closed mode it only
// checks that the version may be copied.
func (w *Worker) offer(ctx context.Context, policy *registry.MirrorPolicy, rule registry.MirrorRule,
	p registry.MirrorAddress, v registry.Version, from filling.Pull) (answer registry.PulledVersion, err error) {
	try := func() error {
		if rule.Pull == registry.PullClosed {
			return from.Check(ctx, policy, p, v)
		}
		answer, err = from.Offer(ctx, policy, p, v)
		if data, failed := protocol.Compress(answer); failed != nil || len(data) > maxAnswer {
			answer = registry.PulledVersion{Archives: answer.Archives} // the copy requests the rest again
		}
		return err
	}
	err = try()
	// The version can be newer than the last check of the origin.
	if errors.Is(err, registry.ErrNotFound) && !errors.Is(err, filling.ErrOrigin) &&
		!errors.Is(err, registry.ErrWithdrawn) {
		var checked bool
		if checked, err = w.refreshAgain(ctx, policy, rule, p, from.State, err); checked {
			err = try()
		}
	}
	return answer, err
}

// refreshAgain checks the versions of a provider, unless another check was less
// than [registry.PullRetry] ago. Then it returns unlisted. Otherwise it replaces what
// s has of the provider.
func (w *Worker) refreshAgain(ctx context.Context, policy *registry.MirrorPolicy, rule registry.MirrorRule,
	p registry.MirrorAddress, s *catalog.MirrorState, unlisted error) (checked bool, err error) {
	begin := w.options.Now()
	isRecent := func(found registry.PulledAddress) bool {
		checked = checked || found.CheckedAt.After(begin)
		recent := begin.Before(found.RetryAt) || begin.Before(found.CheckedAt.Add(registry.PullRetry))
		return recent && !found.PolicySetAt.IsZero()
	}
	if !isRecent(s.Pulled) {
		err := w.check(ctx, policy, rule, p, begin, isRecent)
		if err == nil {
			err = s.Reread(ctx)
		}
		if err != nil {
			return checked, err
		}
		checked = checked || !s.Pulled.CheckedAt.Before(begin.UTC())
	}
	switch {
	case s.Pulled.IsTransient:
		return false, transientError(s.Pulled.Problem)
	case s.Pulled.Problem != "":
		return false, fmt.Errorf("%w: %s", registry.ErrNotFound, s.Pulled.Problem)
	case !checked:
		return false, unlisted
	}
	return true, nil
}

// transientError is the problem of a check of an origin that did not answer.
type transientError string

func (e transientError) Error() string { return string(e) }
func (transientError) Unwrap() error   { return filling.ErrOrigin }

// isOwnFailure reports whether this registry is the cause of an error.
func isOwnFailure(err error) bool {
	return errors.Is(err, registry.ErrUnavailable) && !errors.Is(err, filling.ErrOrigin)
}

// isAnswer reports whether an error is an answer to a client, because the origin
// or the policy is its cause.
func isAnswer(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false // the process ends, or no client waits any more
	}
	if errors.Is(err, errFull) {
		return false // this registry is the cause
	}
	if isOwnFailure(err) {
		return false // a timeout of the table is one too
	}
	for _, answer := range []error{
		filling.ErrOrigin, registry.ErrNotAdmitted, registry.ErrWithdrawn, registry.ErrNotFound, registry.ErrInvalid,
		registry.ErrExists, context.DeadlineExceeded,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// problem describes the failure of an origin for people, in one line.
func problem(err error) string {
	switch {
	case errors.Is(err, registry.ErrUnauthenticated), errors.Is(err, registry.ErrForbidden):
		return "the origin requires a credential, and the mirror sends none; use `larder mirror add`"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "the origin did not answer in time"
	case errors.Is(err, registry.ErrNotAdmitted):
		return printable.Mark(admission.Reason(err), maxProblem)
	}
	return printable.Mark(err.Error(), maxProblem)
}

// maxProblem is the maximum length of a problem, in bytes.
const maxProblem = 300

// storeContext returns a context for storing an answer. It stays valid for 2
// seconds, even if ctx ends before.
func storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
}

// finding is the lease of discovery.
func finding(s *catalog.MirrorState) *registry.Lease { return &s.Service.Finding }

// services shares the results of discovery between processes.
func (w *Worker) services(p registry.MirrorAddress, s *catalog.MirrorState) filling.Services {
	return func(ctx context.Context, host string, discover func(context.Context) (string, error)) (string, error) {
		store := func(at string) error {
			return s.Update(ctx, func() error {
				s.Service = catalog.OriginService{URL: at, Until: w.options.Now().Add(serviceTime).UTC()}
				return nil
			})
		}
		if s.Service.URL == "" && s.Service.Finding.Owner == s.Pulled.Checking.Owner && s.Service.Finding.Owner != "" {
			// The lease came with that of the check.
			at, err := discover(ctx)
			if err != nil {
				return "", err
			}
			return at, store(at)
		}
		err := w.once(ctx, work{
			state:  func(context.Context) (*catalog.MirrorState, error) { return s, nil },
			lease:  finding,
			isDone: func(s *catalog.MirrorState) bool { return s.Service.URL != "" },
			isWorking: func(ctx context.Context) (bool, error) {
				found, err := w.options.Catalog.Mirror.OriginService(ctx, p, host)
				if err == nil && !found.Finding.Held(w.options.Now()) {
					err = s.Reread(ctx)
				}
				return found.Finding.Held(w.options.Now()), err
			},
			do: func(ctx context.Context, _ *catalog.MirrorState, _ func() error) error {
				at, err := discover(ctx)
				if err != nil {
					return err
				}
				return store(at)
			},
		})
		return s.Service.URL, err
	}
}

func (w *Worker) log(ctx context.Context, what string, p registry.MirrorAddress, failed error, more ...slog.Attr) {
	level := slog.LevelInfo
	attributes := append([]slog.Attr{slog.String(p.Kind(), p.String())}, more...)
	if failed != nil {
		level = slog.LevelWarn
		attributes = append(attributes, slog.String("error", printable.Mark(failed.Error(), 2*maxProblem)))
	}
	w.options.Log.LogAttrs(ctx, level, what, attributes...)
}
