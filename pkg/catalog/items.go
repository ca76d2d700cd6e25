package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// decode decodes the data of an item into v. Errors are [registry.ErrCorrupt].
func decode(item Item, v any) error {
	if err := json.Unmarshal(item.Data, v); err != nil {
		// Not wrapped: an ErrInvalid for a version would blame the caller.
		return corrupt(item.Key, err.Error())
	}
	return nil
}

// corrupt returns the error for an item that is not as it was written.
func corrupt(k Key, problem string) error {
	return fmt.Errorf("item %s: %s: %w", k.Shown(), problem, registry.ErrCorrupt)
}

// encode returns the change that writes v to an item, given as it was read.
func encode(item Item, v any) (Change, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return Change{}, fmt.Errorf("cannot encode item %s: %w", item.Shown(), err)
	}
	item.Data = data
	return put(item), nil
}

func put(item Item) Change {
	return Change{Key: item.Key, Revision: item.Revision, Data: item.Data, Expires: item.Expires}
}

func get(ctx context.Context, t Table, k Key, v any) error {
	item, err := t.Get(ctx, k)
	if err != nil {
		return err
	}
	return decode(item, v)
}

// getOrEmpty returns an item, which has revision 0 if it is absent.
func getOrEmpty(ctx context.Context, t Table, k Key) (Item, error) {
	item, err := t.Get(ctx, k)
	if errors.Is(err, registry.ErrNotFound) {
		return Item{Key: k}, nil
	}
	return item, err
}

// query returns all items that a query selects, page after page.
func query(ctx context.Context, t Table, q Query) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for {
			page, err := t.Query(ctx, q)
			if err != nil {
				yield(Item{}, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.After = page.Next
		}
	}
}

// snapshot is [Table.Snapshot], repeated while concurrent writes prevent it.
func snapshot(ctx context.Context, t Table, keys ...Key) (items []Item, err error) {
	err = retry(ctx, func() (err error) {
		items, err = t.Snapshot(ctx, keys...)
		return err
	})
	return items, err
}

// update makes a change that depends on stored items. It reads the items in one
// snapshot and passes them to edit, which returns the changes. update writes
// these in one transaction, or nothing if there are none. If another writer
// interferes, it starts again. If another release wrote the registry, update
// returns [registry.ErrSchema] without calling edit.
func update(ctx context.Context, t Table, keys []Key, edit func(items []Item) ([]Change, error)) error {
	keys = append(slices.Clone(keys), schemaKey)
	return retry(ctx, func() error {
		items, err := t.Snapshot(ctx, keys...)
		if err != nil {
			return err
		}
		items, schema := items[:len(keys)-1], items[len(keys)-1]
		changes, err := edit(items)
		if err != nil || len(changes) == 0 {
			return err
		}
		if schema.Revision == 0 {
			schema.Data = []byte("{}")
			changes = append(changes, put(schema))
		}
		return t.Write(ctx, changes...)
	})
}

// retry repeats attempt while it returns [registry.ErrConflict]. After 200
// attempts it returns [registry.ErrUnavailable].
func retry(ctx context.Context, attempt func() error) error {
	const (
		attempts = 200
		maxWait  = 100 * time.Millisecond
	)
	wait := time.Millisecond
	for range attempts {
		err := attempt()
		if !errors.Is(err, registry.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(wait)): //nolint:gosec // jitter, not a secret
		}
		wait = min(2*wait, maxWait)
	}
	return fmt.Errorf("%w: other writers were faster %d times", registry.ErrUnavailable, attempts)
}

// Unreadable is an item whose data cannot be read or does not match its key.
type Unreadable struct {
	// Name is the number of a version, or the last part of the item's key.
	Name string
	Err  error
}

// readable returns the records of a partition that can be read. It returns the
// others separately, including those for which check returns an error.
func readable[T any](ctx context.Context, t Table, partition, prefix string, check func(name string, record T) error) (
	records []T, unreadable []Unreadable, err error,
) {
	records = []T{}
	for item, err := range query(ctx, t, Query{Partition: partition, Prefix: prefix}) {
		if err != nil {
			return nil, nil, err
		}
		var record T
		name := strings.TrimPrefix(item.Sort, prefix)
		err := decode(item, &record)
		if err == nil {
			if problem := check(name, record); problem != nil {
				err = corrupt(item.Key, problem.Error())
			}
		}
		if err != nil {
			unreadable = append(unreadable, Unreadable{name, err})
			continue
		}
		records = append(records, record)
	}
	return records, unreadable, nil
}

// checkName returns an error if the name in a record is not that of its key.
func checkName(recorded, name string) error {
	if recorded != name {
		return fmt.Errorf("it is the record of %.100q", recorded)
	}
	return nil
}

// inWholeSeconds returns a time as an item can have it, rounded up.
func inWholeSeconds(t time.Time) time.Time {
	return t.Add(time.Second - time.Nanosecond).Truncate(time.Second).UTC()
}

// expiry returns a time as an item can have it, rounded up. The zero time means now.
func expiry(t time.Time) time.Time {
	if t.IsZero() {
		t = time.Now()
	}
	return inWholeSeconds(t)
}
