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
	// Inspecting has the files that are being inspected, and the time until
	// which each claim is valid.
	Inspecting map[int]time.Time `json:"inspecting,omitempty"`
}

// inspecting returns how many inspections are running.
func (u openUploads) inspecting(now time.Time) int {
	n := 0
	for _, o := range u {
		for _, until := range o.Inspecting {
			if now.Before(until) {
				n++
			}
		}
	}
	return n
}

// setInspecting records until when the claim to inspect a file is valid. The
// zero time means that the inspection has ended.
func (u openUploads) setInspecting(id string, file int, until time.Time) {
	o, ok := u[id]
	if !ok {
		return // the upload has ended
	}
	if o.Inspecting == nil {
		o.Inspecting = make(map[int]time.Time)
	}
	o.Inspecting[file] = until
	if until.IsZero() {
		delete(o.Inspecting, file)
	}
	u[id] = o
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

// Upload returns an upload and the inspections of its files. If there is no
// such upload, it returns [registry.ErrNotFound].
func (c *Catalog) Upload(ctx context.Context, id string) (u registry.Upload, files []registry.Inspection, err error) {
	found := make(map[Key]Item)
	for item, err := range query(ctx, c.table, Query{Partition: uploadPartition(id)}) {
		if err != nil {
			return u, nil, err
		}
		found[item.Key] = item
	}
	item, there := found[uploadKey(id)]
	if !there {
		return u, nil, fmt.Errorf("upload %s: %w", id, registry.ErrNotFound)
	}
	if err := decode(item, &u); err != nil {
		return u, nil, err
	}
	files = make([]registry.Inspection, len(u.Files))
	for i := range files {
		if item, there := found[inspectionKey(id, i)]; there {
			if err := decode(item, &files[i]); err != nil {
				return u, nil, err
			}
		}
	}
	return u, files, nil
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

// Claim is the inspection of a file of an upload, with or without the right to
// perform it.
type Claim struct {
	Upload registry.Upload
	// File is the index of the file in the upload.
	File  int
	Found registry.Inspection
	// Mine reports whether the holder must inspect the file and record the
	// result.
	Mine bool

	// items are the items that a result changes, as stored by the claim.
	// current reports whether they are up to date.
	items   []Item
	current bool
}

// ClaimInspection claims the inspection of a file until a time. It claims
// nothing if the inspection has ended or another claim is valid. If check
// returns an error for the upload, ClaimInspection returns it and changes
// nothing.
//
// A file whose inspection has ended maxAttempts times without a result is
// rejected. If the owner already has most running inspections, the state is
// running and the claim is not granted.
func (c *Catalog) ClaimInspection(
	ctx context.Context, id, owner string, file int, now, until time.Time, most int, check func(registry.Upload) error,
) (*Claim, error) {
	var claim *Claim
	keys := []Key{uploadKey(id), inspectionKey(id, file), openKey(owner)}
	err := update(ctx, c.table, keys, func(items []Item) ([]Change, error) {
		if items[0].Revision == 0 {
			return nil, fmt.Errorf("upload %s: %w", id, registry.ErrNotFound)
		}
		claim = &Claim{File: file}
		if err := decode(items[0], &claim.Upload); err != nil {
			return nil, err
		}
		if err := check(claim.Upload); err != nil {
			return nil, err
		}
		items = items[1:]
		open, err := claim.read(items, now)
		running := claim.Found.State == registry.InspectionRunning && now.Before(claim.Found.Until)
		if err != nil || running || ended(claim.Found) {
			return nil, err
		}
		switch attempts := claim.Found.Attempts; {
		case attempts >= maxAttempts:
			problem := fmt.Sprintf("its inspection has failed %d times without a result", attempts)
			claim.Found = registry.Inspection{State: registry.InspectionRefused, Problem: problem}
			open.setInspecting(id, file, time.Time{})
		case open.inspecting(now) >= most:
			claim.Found = registry.Inspection{State: registry.InspectionRunning}
			return nil, nil
		default:
			claim.Found = registry.Inspection{State: registry.InspectionRunning, Until: until, Attempts: attempts + 1}
			claim.Mine = true
			open.setInspecting(id, file, until)
		}
		return claim.changes(items, claim.Found, open)
	})
	if err != nil {
		return nil, err
	}
	claim.current = claim.Mine
	return claim, nil
}

func ended(i registry.Inspection) bool {
	return i.State == registry.InspectionPassed || i.State == registry.InspectionRefused
}

// read decodes the inspection of a file and its owner's open uploads.
func (c *Claim) read(items []Item, now time.Time) (openUploads, error) {
	c.Found = registry.Inspection{}
	if items[0].Revision > 0 {
		if err := decode(items[0], &c.Found); err != nil {
			return nil, err
		}
	}
	return decodeOpen(items[1], now)
}

// changes returns the changes that record an inspection. It stores the items as
// they are after these changes.
func (c *Claim) changes(items []Item, i registry.Inspection, open openUploads) ([]Change, error) {
	items[0].Expires = c.Upload.ExpiresAt
	changed, err := encode(items[0], i)
	if err != nil {
		return nil, err
	}
	changes := []Change{changed}
	if items[1].Revision > 0 { // it exists as long as the owner has open uploads
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
	return changes, nil
}

// RecordInspection records the result of an inspection. With state running, it
// renews the claim. With an empty state, it gives up the inspection without
// counting the attempt.
//
// A recorded result does not change, because the same bytes give the same
// result. Only the attempt that has the claim, identified by its number in
// Attempts, can renew it or give it up.
func (c *Catalog) RecordInspection(ctx context.Context, claim *Claim, i registry.Inspection, now time.Time) error {
	id, file := claim.Upload.ID, claim.File
	return retry(ctx, func() error {
		items := claim.items
		if !claim.current {
			var err error
			if items, err = c.table.Snapshot(ctx, inspectionKey(id, file), openKey(claim.Upload.Owner)); err != nil {
				return err
			}
		}
		claim.current = false // until this write succeeds
		found := Claim{Upload: claim.Upload}
		open, err := found.read(items, now)
		if err != nil || ended(found.Found) {
			return err
		}
		next := i
		if !ended(i) && i.Attempts != found.Found.Attempts {
			return nil // another attempt has the claim
		}
		if i.State == "" {
			next.Attempts = max(0, found.Found.Attempts-1)
		}
		open.setInspecting(id, file, i.Until)
		changes, err := claim.changes(items, next, open)
		if err != nil {
			return err
		}
		if err := c.table.Write(ctx, changes...); err != nil {
			return err
		}
		claim.current = true
		return nil
	})
}
