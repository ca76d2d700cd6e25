package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// ErrTooManyUploads means that an identity has the maximum number of open
// uploads.
var ErrTooManyUploads = fmt.Errorf("%w: too many open uploads", registry.ErrForbidden)

// openUploads are the open uploads of one identity, by their IDs.
type openUploads map[string]openUpload

type openUpload struct {
	// Until is when the upload expires.
	Until time.Time `json:"until"`
	// What identifies the content to publish, as returned by whatOf.
	What string `json:"what"`
	// Inspecting is until when a claim to inspect it is valid.
	Inspecting time.Time `json:"inspecting,omitzero"`
}

// inspecting returns how many inspections are running.
func (u openUploads) inspecting(now time.Time) int {
	n := 0
	for _, o := range u {
		if now.Before(o.Inspecting) {
			n++
		}
	}
	return n
}

// setInspecting records until when the claim to inspect an upload is valid. The
// zero time means that no request inspects it.
func (u openUploads) setInspecting(id string, until time.Time) {
	if o, ok := u[id]; ok { // otherwise the upload has ended
		o.Inspecting = until
		u[id] = o
	}
}

// whatOf returns a digest that is the same for uploads of the same content.
func whatOf(u registry.Upload) (string, error) {
	u.ID, u.CreatedAt, u.ExpiresAt = "", time.Time{}, time.Time{}
	text, err := json.Marshal(u)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// BeginUpload stores an upload, whose ID must be new, and returns it. The upload
// is absent after it expires. If its owner has an open upload of the same
// content with at least half of its time left, BeginUpload returns that one. So
// a publish that was interrupted and starts again uses no additional upload. If
// the owner already has most open uploads, BeginUpload returns
// [ErrTooManyUploads].
func (c *Catalog) BeginUpload(ctx context.Context, u registry.Upload, most int) (begun registry.Upload, err error) {
	what, err := whatOf(u)
	if err != nil {
		return u, err
	}
	enough := u.CreatedAt.Add(u.ExpiresAt.Sub(u.CreatedAt) / 2)
	err = update(ctx, c.table, []Key{openKey(u.Owner)}, func(items []Item) ([]Change, error) {
		begun = u
		open, err := decodeOpen(items[0], u.CreatedAt)
		if err != nil {
			return nil, err
		}
		for id, o := range open {
			if o.What == what && o.Until.After(enough) {
				var same registry.Upload
				if err := get(ctx, c.table, uploadKey(id), &same); err != nil {
					return nil, err
				}
				if same.Ended == "" {
					begun = same
					return nil, nil
				}
				delete(open, id)
			}
		}
		if len(open) >= most {
			if err := c.dropEnded(ctx, open); err != nil {
				return nil, err
			}
		}
		if len(open) >= most {
			return nil, ErrTooManyUploads
		}
		open[u.ID] = openUpload{Until: u.ExpiresAt, What: what}
		items[0].Expires = open.last()
		counted, err := encode(items[0], open)
		if err != nil {
			return nil, err
		}
		recorded, err := encode(Item{Key: uploadKey(u.ID), Expires: u.ExpiresAt}, u)
		return []Change{recorded, counted}, err
	})
	return begun, err
}

// dropEnded removes the uploads that have ended from open. It is needed because
// a commit ends its upload without updating the count.
func (c *Catalog) dropEnded(ctx context.Context, open openUploads) error {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(open)), maxChanges) {
		keys := make([]Key, len(ids))
		for i, id := range ids {
			keys[i] = uploadKey(id)
		}
		items, err := c.table.Snapshot(ctx, keys...)
		if err != nil {
			return err
		}
		for i, item := range items {
			var u registry.Upload
			if item.Revision > 0 {
				if err := decode(item, &u); err != nil {
					return err
				}
			}
			if item.Revision == 0 || u.Ended != "" {
				delete(open, ids[i])
			}
		}
	}
	return nil
}

func decodeOpen(item Item, now time.Time) (openUploads, error) {
	open := openUploads{}
	if item.Revision > 0 {
		if err := decode(item, &open); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(open, func(_ string, o openUpload) bool { return !now.Before(o.Until) })
	return open, nil
}

func (u openUploads) last() time.Time {
	var last time.Time
	for _, o := range u {
		if o.Until.After(last) {
			last = o.Until
		}
	}
	return last
}

// Upload returns an upload. If there is no such upload, it returns
// [registry.ErrNotFound].
func (c *Catalog) Upload(ctx context.Context, id string) (u registry.Upload, err error) {
	if err := get(ctx, c.table, uploadKey(id), &u); err != nil {
		return u, fmt.Errorf("upload %s: %w", id, err)
	}
	return u, nil
}

// EndUpload records how an upload of an owner has ended, unless it had already
// ended, and returns the upload. If check returns an error, EndUpload returns
// it and changes nothing.
func (c *Catalog) EndUpload(
	ctx context.Context, id, owner, how string, now time.Time, check func(registry.Upload) error,
) (ended registry.Upload, err error) {
	keys := []Key{uploadKey(id), openKey(owner)}
	err = update(ctx, c.table, keys, func(items []Item) ([]Change, error) {
		if items[0].Revision == 0 {
			return nil, fmt.Errorf("upload %s: %w", id, registry.ErrNotFound)
		}
		ended = registry.Upload{}
		if err := decode(items[0], &ended); err != nil {
			return nil, err
		}
		if err := check(ended); err != nil || ended.Ended != "" {
			return nil, err
		}
		ended.End(how)
		return endUpload(items[0], items[1], ended, now)
	})
	return ended, err
}

// endUpload returns the changes that record the end of an upload, in its own
// item and in the item that counts its owner's uploads.
func endUpload(item, counted Item, ended registry.Upload, now time.Time) ([]Change, error) {
	changed, err := encode(item, ended)
	if err != nil || counted.Revision == 0 {
		return []Change{changed}, err
	}
	open, err := decodeOpen(counted, now)
	if err != nil {
		return nil, err
	}
	delete(open, ended.ID)
	counted.Expires = open.last()
	if len(open) == 0 {
		counted.Expires = ended.ExpiresAt // the role of the publish API cannot delete the item
	}
	fewer, err := encode(counted, open)
	return []Change{changed, fewer}, err
}

// maxAttempts is how many times an inspection can start without recording a
// result.
const maxAttempts = 3

// Claim is an upload, with or without the right to inspect its files. Methods
// must not be called concurrently.
type Claim struct {
	// Upload is the upload as it was last read or written.
	Upload registry.Upload
	// Mine reports whether the holder must inspect a file, and then call Record
	// or GiveUp. File is its index.
	Mine bool
	File int

	table Table
	// items are those of the upload and of its owner's open uploads, as stored by
	// the claim. current reports whether they are up to date.
	items   []Item
	current bool
}

// ClaimInspection claims the inspection of the files of an upload until a time.
// It claims nothing if the inspection has ended or another claim is valid, or if
// the owner already has most running inspections. If check returns an error for
// the upload, ClaimInspection returns it and changes nothing.
//
// A file whose inspection has ended maxAttempts times without a result is
// rejected.
func (c *Catalog) ClaimInspection(
	ctx context.Context, id, owner string, now, until time.Time, most int, check func(registry.Upload) error,
) (*Claim, error) {
	var claim *Claim
	keys := []Key{uploadKey(id), openKey(owner)}
	err := update(ctx, c.table, keys, func(items []Item) ([]Change, error) {
		if items[0].Revision == 0 {
			return nil, fmt.Errorf("upload %s: %w", id, registry.ErrNotFound)
		}
		claim = &Claim{table: c.table}
		if err := decode(items[0], &claim.Upload); err != nil {
			return nil, err
		}
		if err := check(claim.Upload); err != nil {
			return nil, err
		}
		open, err := decodeOpen(items[1], now)
		if err != nil {
			return nil, err
		}
		next := claim.Upload
		if next.Pending() < 0 || now.Before(next.ClaimedUntil) {
			return nil, nil
		}
		file := startNext(&next, until)
		if file >= 0 && open.inspecting(now) >= most {
			return nil, nil
		}
		next.Claims++
		open.setInspecting(id, next.ClaimedUntil)
		return claim.changes(items, next, open, file)
	})
	if err != nil {
		return nil, err
	}
	claim.current = claim.Mine
	return claim, nil
}

// startNext starts the inspection of the next file of an upload, and returns its
// index. It returns -1 if there is none, or if that file has failed too often.
func startNext(u *registry.Upload, until time.Time) int {
	u.ClaimedUntil = time.Time{}
	file := u.Pending()
	if file < 0 {
		return -1
	}
	u.Files = slices.Clone(u.Files)
	if attempts := u.Files[file].Attempts; attempts >= maxAttempts {
		problem := fmt.Sprintf("its inspection has failed %d times without a result", attempts)
		u.Files[file].Inspection = registry.Inspection{State: registry.InspectionRefused, Problem: problem}
		return -1
	}
	u.Files[file].Attempts++
	u.ClaimedUntil = until
	return file
}

// changes returns the changes that store an upload, and its owner's open uploads
// unless they are nil. The claim is then one of the file, or none if it is -1.
func (c *Claim) changes(items []Item, u registry.Upload, open openUploads, file int) ([]Change, error) {
	changed, err := encode(items[0], u)
	if err != nil {
		return nil, err
	}
	changes := []Change{changed}
	if open != nil && items[1].Revision > 0 { // it exists as long as the owner has open uploads
		counted, err := encode(items[1], open)
		if err != nil {
			return nil, err
		}
		changes = append(changes, counted)
	}
	c.items = slices.Clone(items)
	for i, change := range changes {
		c.items[i].Data = change.Data
		c.items[i].Revision++
	}
	c.Upload, c.Mine, c.File = u, file >= 0, file
	return changes, nil
}

// Record records the result of the claimed file, and claims the next one until a
// time. If that is the zero time, or no file is left, the claim ends.
//
// Record and the other methods change nothing if the claim has expired and
// another request has taken it, or if the upload has ended. Mine is then false.
func (c *Claim) Record(ctx context.Context, found registry.Inspection, now, until time.Time) error {
	next := c.with(found)
	file := -1
	if !until.IsZero() {
		file = startNext(&next, until)
	}
	return c.write(ctx, now, next, file, false)
}

// Renew extends the claim until a time.
func (c *Claim) Renew(ctx context.Context, now, until time.Time) error {
	next := c.Upload
	next.ClaimedUntil = until
	return c.write(ctx, now, next, c.File, true)
}

// GiveUp ends the claim without a result. The attempt counts if counts is set.
func (c *Claim) GiveUp(ctx context.Context, now time.Time, counts bool) error {
	attempts := c.Upload.Files[c.File].Attempts
	if !counts {
		attempts--
	}
	return c.write(ctx, now, c.with(registry.Inspection{Attempts: attempts}), -1, false)
}

// with returns the upload, not claimed, with another inspection of the claimed
// file.
func (c *Claim) with(i registry.Inspection) registry.Upload {
	u := c.Upload
	u.Files = slices.Clone(u.Files)
	// The item has room for as many notes as a record, but not for a problem too.
	room := errs.MaxNotes
	for n := range u.Files {
		if i.State == registry.InspectionRefused {
			u.Files[n].Notes = nil
		}
		room -= len(u.Files[n].Notes)
	}
	i.Notes = i.Notes[:min(len(i.Notes), max(0, room))]
	u.Files[c.File].Inspection, u.ClaimedUntil = i, time.Time{}
	return u
}

// write stores an upload with a claim of a file, or none if it is -1. It changes
// the count of inspections if the claim ends, or if count is set. Between files
// it does not, because all uploads of the owner share that item.
func (c *Claim) write(ctx context.Context, now time.Time, next registry.Upload, file int, count bool) error {
	return retry(ctx, func() error {
		items := c.items
		if !c.current {
			var err error
			if items, err = c.table.Snapshot(ctx, c.items[0].Key, c.items[1].Key); err != nil {
				return err
			}
			var u registry.Upload
			if items[0].Revision > 0 {
				if err := decode(items[0], &u); err != nil {
					return err
				}
			}
			if u.Claims != next.Claims || u.Ended != "" {
				c.Mine = false
				return nil
			}
		}
		c.current = false // until this write succeeds
		var open openUploads
		if count || file < 0 {
			var err error
			if open, err = decodeOpen(items[1], now); err != nil {
				return err
			}
			open.setInspecting(next.ID, next.ClaimedUntil)
		}
		written := *c
		changes, err := written.changes(items, next, open, file)
		if err != nil {
			return err
		}
		if err := c.table.Write(ctx, changes...); err != nil {
			return err
		}
		*c = written
		c.current = true
		return nil
	})
}
