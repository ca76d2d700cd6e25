package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/larder-registry/larder/pkg/registry"
)

// Deprecation deprecates a version or an address, or ends its deprecation.
type Deprecation struct {
	// Message is the reason. An empty message ends a deprecation.
	Message string
	// Hide also removes a version of a module from the listing.
	Hide bool
	// By names the caller.
	By string
}

// Deprecated is the result of a deprecation.
type Deprecated struct {
	// Latest is the latest version that is listed now.
	Latest registry.Version
	// Unchanged means that nothing changed. The audit trail has an entry
	// regardless.
	Unchanged bool
	// Relisted means that the version was hidden and is listed again.
	Relisted bool
}

func (v versions[A, R]) Deprecate(ctx context.Context, a A, n *registry.Version, d Deprecation) (
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

// maxMessages bounds the total size of the messages of a provider's deprecated
// versions, in bytes. It limits the size of the catalog entry.
const maxMessages = 64 << 10

// edit deprecates the version of a state, or all versions if n is nil. It
// returns the errors of [Versions.Deprecate], and errUnchanged if nothing
// changes.
func (v versions[A, R]) edit(s *state[R], n *registry.Version, d Deprecation) error {
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
	if err := s.editable(); err != nil {
		return err
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
		return registry.WithHint(
			fmt.Errorf("%w deprecation: the messages of all deprecated versions have %d bytes, more than %d",
				registry.ErrInvalid, size, maxMessages),
			"Deprecate the whole provider, or use shorter messages.")
	}
	if listed && s.index.summary.Unlisted {
		return registry.WithHint(
			fmt.Errorf("%w deprecation: %s is the only listed version, so it cannot be hidden", registry.ErrInvalid, n),
			"Publish another version first.")
	}
	return nil
}

// editable returns nil if the record can be changed. If the version does not
// exist, it returns [registry.ErrNotFound]. If it was withdrawn, it also returns
// [registry.ErrWithdrawn]. Otherwise it is [registry.ErrCorrupt].
func (s *state[R]) editable() error {
	switch err := s.published(); {
	case s.exists && s.recordErr == nil && s.record.Number() != s.number:
		return fmt.Errorf("version %s: %w", s.number, registry.ErrNotFound)
	case s.exists && s.recordErr == nil && s.record.Withdrawal() != nil:
		return s.record.Withdrawal().Gone(s.number)
	case err != nil:
		return err
	}
	return s.indexErr
}

// isWarned reports whether the listing has the same warning for all versions as
// the entry.
func (v versions[A, R]) isWarned(s *state[R]) bool {
	return !v.kind.warns() || s.index.listing.deprecated() == s.index.summary.Deprecated
}

func (v versions[A, R]) AddCopy(
	ctx context.Context, a A, n registry.Version, target, by string,
) (changed bool, err error) {
	err = v.update(ctx, a, &n, nil, func(s *state[R]) (registry.AuditEntry, error) {
		changed = false
		if err := s.editable(); err != nil {
			return registry.AuditEntry{}, err
		}
		record, isNew := v.kind.addCopy(s.record, target)
		if !isNew {
			return registry.AuditEntry{}, errUnchanged
		}
		changed = true
		v.set(s, record)
		return registry.AuditEntry{By: by, Action: registry.AuditCopy, Detail: "to " + target}, nil
	})
	if err != nil {
		return false, fmt.Errorf("cannot record a copy of %s %s: %w", a, n, err)
	}
	return changed, nil
}

// SetDocs sets the documentation, the files and the contents of a version of a
// module, own or mirrored, which may have been published without them. The
// caller stores the objects first. changed reports whether the record had
// others.
//
// Errors are [registry.ErrInvalid] if the address is that of a provider,
// [registry.ErrNotFound], [registry.ErrWithdrawn] and [registry.ErrCorrupt].
func (c *Catalog) SetDocs(
	ctx context.Context, a registry.Address, n registry.Version, made registry.Documents, contents []byte, by string,
) (changed bool, err error) {
	switch a := a.(type) {
	case registry.Module:
		changed, err = modules(c.table).setDocs(ctx, a, n, made, by, func(v *registry.ModuleVersion) {
			v.Documents, v.Contents = made, contents
		})
	case registry.MirrorAddress:
		if !a.IsModule() {
			return false, notModule(a)
		}
		changed, err = mirrored(c.table).setDocs(ctx, a, n, made, by, func(v *registry.MirrorVersion) {
			if v.Module != nil {
				module := *v.Module
				module.Documents, module.Contents = made, contents
				v.Module = &module
			}
		})
	default:
		return false, notModule(a)
	}
	if err != nil {
		return false, fmt.Errorf("cannot document %s %s: %w", a, n, err)
	}
	return changed, nil
}

func notModule(a registry.Address) error {
	return fmt.Errorf("cannot document %s: %w address: it is not that of a module", a, registry.ErrInvalid)
}

func (v versions[A, R]) setDocs(
	ctx context.Context, a A, n registry.Version, made registry.Documents, by string, set func(*R),
) (changed bool, err error) {
	err = v.update(ctx, a, &n, nil, func(s *state[R]) (registry.AuditEntry, error) {
		changed = false
		if err := s.editable(); err != nil {
			return registry.AuditEntry{}, err
		}
		record := s.record
		set(&record)
		if err := record.Validate(a.Path()); err != nil {
			return registry.AuditEntry{}, err
		}
		if reflect.DeepEqual(record, s.record) {
			return registry.AuditEntry{}, errUnchanged
		}
		changed = true
		v.set(s, record)
		return registry.AuditEntry{By: by, Action: registry.AuditDocument, Detail: "sha256:" + made.Docs.SHA256}, nil
	})
	return changed, err
}

func (v versions[A, R]) Withdraw(ctx context.Context, a A, n registry.Version, w registry.Withdrawal, missing bool) (
	recorded registry.Withdrawal, changed bool, err error,
) {
	err = v.update(ctx, a, &n, nil, func(s *state[R]) (registry.AuditEntry, error) {
		recorded, changed = w, false
		found := missing || s.recordErr != nil || s.exists && s.record.Number() == n
		for _, listed := range s.index.listing.versions() {
			if s.recordErr != nil && listed.Same(n) && listed != n {
				return registry.AuditEntry{}, sameNumber(n, listed) // the objects have the listed version's key
			}
			found = found || !s.exists && listed == n
		}
		if !found {
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

func (v versions[A, R]) Withdrawal(ctx context.Context, a A, n registry.Version) (*registry.Withdrawal, error) {
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
