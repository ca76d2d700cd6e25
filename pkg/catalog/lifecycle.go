package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/larder-registry/larder/pkg/registry"
)

// Deprecation says that a version should not be used any more.
type Deprecation struct {
	// Message says why. An empty one ends a deprecation.
	Message string
	// Hide takes a version of a module out of the listing too.
	Hide bool
	// By is who deprecates.
	By string
}

// Deprecated is what became of a deprecation.
type Deprecated struct {
	// Latest is the latest version that is listed now.
	Latest registry.Version
	// Unchanged says that it was so before. The audit trail has it all the same.
	Unchanged bool
	// Relisted says that the version was hidden, and is listed again.
	Relisted bool
}

// Deprecate deprecates a version, or all versions if n is nil. Clients print the
// message of a provider as a warning. A deprecation that is there already, or the
// end of one that is not there, changes nothing but the audit trail, which may have
// lost the one before. Errors are registry.ErrNotFound, registry.ErrWithdrawn and, for the last listed version,
// which cannot be hidden, registry.ErrInvalid.
func (v Versions[A, R]) Deprecate(ctx context.Context, a A, n *registry.Version, d Deprecation) (
	result Deprecated, err error,
) {
	err = v.update(ctx, a, n, nil, func(s *state[R]) (registry.AuditEntry, error) {
		hidden := s.exists && s.recordErr == nil && s.record.Withdrawal() == nil && !s.record.Listed()
		err := v.edit(s, n, d)
		result = Deprecated{Latest: s.index.summary.Latest, Unchanged: errors.Is(err, errUnchanged)}
		if err != nil && !result.Unchanged {
			return registry.AuditEntry{}, err
		}
		result.Relisted = hidden && s.record.Listed()
		entry := registry.AuditEntry{By: d.By, Action: registry.AuditDeprecate, Detail: d.Message}
		switch {
		case d.Message == "":
			entry.Action = registry.AuditUndeprecate
		case d.Hide || result.Unchanged && hidden:
			entry.Action = registry.AuditHide
		}
		return entry, nil
	})
	if err != nil {
		return Deprecated{}, fmt.Errorf("cannot deprecate %s: %w", a, err)
	}
	return result, nil
}

// maxMessages bounds the messages of a provider's deprecated versions together, in
// bytes, so that its entry stays small.
const maxMessages = 64 << 10

// edit deprecates the version of a state, or all versions if n is nil. Errors are
// those of Deprecate, and errUnchanged if it is so already.
func (v Versions[A, R]) edit(s *state[R], n *registry.Version, d Deprecation) error {
	if n == nil {
		if s.indexErr == nil && s.index.summary.Unlisted {
			return fmt.Errorf("no version is listed: %w", registry.ErrNotFound)
		}
		if s.indexErr == nil && s.index.summary.Deprecated == d.Message && v.isWarned(s) {
			return errUnchanged
		}
		s.index.summary.Deprecated = d.Message
		return s.indexErr
	}
	switch err := s.published(); {
	case s.exists && s.recordErr == nil && s.record.Number() != *n:
		return fmt.Errorf("version %s: %w", n, registry.ErrNotFound)
	case s.exists && s.recordErr == nil && s.record.Withdrawal() != nil:
		return s.record.Withdrawal().Gone(*n)
	case err != nil:
		return err
	case s.indexErr != nil:
		return s.indexErr
	}
	listed := !s.index.summary.Unlisted
	record, err := v.kind.deprecate(s.record, d.Message, d.Hide)
	if err != nil {
		return err
	}
	if reflect.DeepEqual(record, s.record) {
		return errUnchanged
	}
	v.set(s, record)
	size := 0
	for _, d := range s.index.summary.DeprecatedVersions {
		size += len(d.Message)
	}
	if size > maxMessages {
		return fmt.Errorf("%w deprecation: the messages of all deprecated versions have %d bytes, more than %d: "+
			"deprecate the whole provider, or use shorter messages", registry.ErrInvalid, size, maxMessages)
	}
	if listed && s.index.summary.Unlisted {
		return fmt.Errorf("%w hiding: %s is the only version that is listed: publish another one first",
			registry.ErrInvalid, n)
	}
	return nil
}

// isWarned reports whether the listing warns of the deprecation of all versions
// as the entry has it.
func (v Versions[A, R]) isWarned(s *state[R]) bool {
	return !v.kind.warns() || s.index.listing.deprecated() == s.index.summary.Deprecated
}

// Withdraw takes a version out of the registry for good. Its record becomes a
// tombstone, the index shows it no more, and its number is never published
// again. If no other version is listed, the address is as one that never was.
// Objects are not removed.
//
// It returns what is recorded then: if the version was withdrawn before, that is
// the first withdrawal, and nothing changes. A version that is neither stored nor
// listed is registry.ErrNotFound, unless missing says that its record was lost: a
// tombstone then keeps others from publishing something else under its number.
func (v Versions[A, R]) Withdraw(ctx context.Context, a A, n registry.Version, w registry.Withdrawal, missing bool) (
	recorded registry.Withdrawal, changed bool, err error,
) {
	err = v.update(ctx, a, &n, nil, func(s *state[R]) (registry.AuditEntry, error) {
		recorded, changed = w, false
		known := missing || s.recordErr != nil || s.exists && s.record.Number() == n
		for _, listed := range s.index.listing.versions() {
			if s.recordErr != nil && listed.Same(n) && listed != n {
				return registry.AuditEntry{}, sameNumber(n, listed) // its objects are below the listed one's key
			}
			known = known || !s.exists && listed == n
		}
		if !known {
			return registry.AuditEntry{}, registry.ErrNotFound
		}
		if s.recordErr == nil && s.exists {
			if before := s.record.Withdrawal(); before != nil {
				recorded = *before
				return registry.AuditEntry{}, errUnchanged
			}
			if s.record.Number() != n {
				return registry.AuditEntry{}, sameNumber(n, s.record.Number())
			}
		}
		changed = true
		v.set(s, v.kind.tombstone(n, w))
		return registry.AuditEntry{By: w.By, Action: registry.AuditWithdraw, Detail: w.Reason}, nil
	})
	if err != nil {
		return registry.Withdrawal{}, false, fmt.Errorf("cannot withdraw %s %s: %w", a, n, err)
	}
	return recorded, changed, nil
}

// Withdrawal returns how a version was withdrawn, with nil if it was not, or if
// that cannot be read, so that it can be withdrawn. A version that never was is
// registry.ErrNotFound.
func (v Versions[A, R]) Withdrawal(ctx context.Context, a A, n registry.Version) (*registry.Withdrawal, error) {
	record, err := v.Check(ctx, a, n)
	switch {
	case errors.Is(err, registry.ErrWithdrawn) && record.Number() == n:
		return record.Withdrawal(), nil
	case errors.Is(err, registry.ErrExists):
		return nil, fmt.Errorf("%s %s: %w", a, n, registry.ErrNotFound)
	case errors.Is(err, registry.ErrCorrupt):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	return nil, nil
}
