package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// Where uploads are in the table.
const (
	uploadSort = "upload"
	fileSort   = "file/"
	openSort   = "open"
)

func uploadPartition(id string) string { return "uploads/" + id }

// ErrTooManyUploads says that an identity has as many uploads under way as it may have.
var ErrTooManyUploads = fmt.Errorf("%w: too many uploads are under way", registry.ErrForbidden)

// openUploads are those of one identity, by their ids.
type openUploads map[string]openUpload

type openUpload struct {
	// Until is when it ends by itself.
	Until time.Time `json:"until"`
	// What is to be published, as whatOf has it.
	What string `json:"what"`
	// Inspecting has the files whose inspection goes on, and until when it is
	// waited for.
	Inspecting map[int]time.Time `json:"inspecting,omitempty"`
}

// inspecting returns how many inspections of an identity go on.
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

// setInspecting records until when the inspection of a file is waited for; the
// zero time means that it has ended.
func (u openUploads) setInspecting(id string, file int, until time.Time) {
	o, ok := u[id]
	if !ok {
		return // it has ended
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

// whatOf tells uploads of the same from others.
func whatOf(u registry.Upload) (string, error) {
	u.ID, u.CreatedAt, u.ExpiresAt = "", time.Time{}, time.Time{}
	text, err := json.Marshal(u)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// openKey is where those of an identity are: it may hold what no key takes, and be long.
func openKey(owner string) Key {
	sum := sha256.Sum256([]byte(owner))
	return Key{"uploads/of/" + hex.EncodeToString(sum[:]), openSort}
}

// BeginUpload records an upload under an id that no other has, which goes when it expires, and returns it. Where its owner
// has one of the same under way, which goes on for as long as half of that, it returns this one: who has begun something and
// not learnt so, or was interrupted, takes no more by beginning again. It fails with ErrTooManyUploads where its owner has
// that many already.
func (c *Catalog) BeginUpload(ctx context.Context, u registry.Upload, most int) (begun registry.Upload, err error) {
	what, err := whatOf(u)
	if err != nil {
		return u, err
	}
	enough := u.CreatedAt.Add(u.ExpiresAt.Sub(u.CreatedAt) / 2)
	err = retry(ctx, func() error {
		begun = u
		item, open, err := c.open(ctx, u.Owner, u.CreatedAt)
		if err != nil {
			return err
		}
		for id, o := range open {
			if o.What == what && o.Until.After(enough) {
				begun, err = c.Upload(ctx, id)
				return err
			}
		}
		if len(open) >= most {
			return ErrTooManyUploads
		}
		open[u.ID] = openUpload{Until: u.ExpiresAt, What: what}
		item.Expires = latestOf(open)
		counted, err := change(item, open)
		if err != nil {
			return err
		}
		recorded, err := change(Item{Key: Key{uploadPartition(u.ID), uploadSort}, Expires: u.ExpiresAt}, u)
		if err != nil {
			return err
		}
		return c.table.Write(ctx, recorded, counted)
	})
	return begun, err
}

// open returns the uploads of an identity that are under way.
func (c *Catalog) open(ctx context.Context, owner string, now time.Time) (Item, openUploads, error) {
	item, err := c.getOrNew(ctx, openKey(owner))
	if err != nil {
		return item, nil, err
	}
	open := openUploads{}
	if item.Revision > 0 {
		if err := decode(item, &open); err != nil {
			return item, nil, err
		}
	}
	maps.DeleteFunc(open, func(_ string, o openUpload) bool { return !now.Before(o.Until) })
	return item, open, nil
}

func latestOf(open openUploads) time.Time {
	var last time.Time
	for _, o := range open {
		if o.Until.After(last) {
			last = o.Until
		}
	}
	return last
}

// Upload returns an upload.
func (c *Catalog) Upload(ctx context.Context, id string) (registry.Upload, error) {
	var u registry.Upload
	err := c.get(ctx, Key{uploadPartition(id), uploadSort}, &u)
	return u, err
}

// EndUpload records how an upload has ended, unless it has ended already, and returns it.
func (c *Catalog) EndUpload(ctx context.Context, id, how string, now time.Time) (ended registry.Upload, err error) {
	err = retry(ctx, func() error {
		item, err := c.table.Get(ctx, Key{uploadPartition(id), uploadSort})
		if err != nil {
			return err
		}
		ended = registry.Upload{}
		if err := decode(item, &ended); err != nil || ended.Ended != "" {
			return err
		}
		ended.Ended = how
		changed, err := change(item, ended)
		if err != nil {
			return err
		}
		changes := []Change{changed}
		counted, open, err := c.open(ctx, ended.Owner, now)
		if err != nil {
			return err
		}
		if counted.Revision > 0 {
			delete(open, id)
			counted.Expires = latestOf(open)
			if len(open) == 0 {
				counted.Expires = ended.ExpiresAt // it cannot be deleted: a publisher's role may not
			}
			fewer, err := change(counted, open)
			if err != nil {
				return err
			}
			changes = append(changes, fewer)
		}
		return c.table.Write(ctx, changes...)
	})
	return ended, err
}

func inspectionKey(id string, file int) Key {
	return Key{uploadPartition(id), fileSort + strconv.Itoa(file)}
}

// Inspection returns what is known of a file of an upload; nothing as yet is no error.
func (c *Catalog) Inspection(ctx context.Context, id string, file int) (registry.Inspection, error) {
	var i registry.Inspection
	err := c.get(ctx, inspectionKey(id, file), &i)
	if errors.Is(err, registry.ErrNotFound) {
		return i, nil
	}
	return i, err
}

// maxAttempts is how many times an inspection may start without recording a
// result.
const maxAttempts = 3

// Inspect claims the inspection of a file until the given time. It returns what
// is known of the file, and reports whether the caller must inspect it. A file
// whose inspection has died maxAttempts times is refused. If the upload's owner
// has reached the limit of running inspections, the state is running.
func (c *Catalog) Inspect(ctx context.Context, u registry.Upload, file int, now, until time.Time, most int) (found registry.Inspection, mine bool, err error) {
	err = retry(ctx, func() error {
		item, err := c.inspection(ctx, u, file, &found)
		if err != nil {
			return err
		}
		mine = false
		if found.State == registry.InspectionPassed || found.State == registry.InspectionRefused || found.State == registry.InspectionRunning && now.Before(found.Until) {
			return nil
		}
		counted, open, err := c.open(ctx, u.Owner, now)
		if err != nil {
			return err
		}
		switch attempts := found.Attempts; {
		case attempts >= maxAttempts:
			found = registry.Inspection{State: registry.InspectionRefused, Problem: fmt.Sprintf("its inspection has ended %d times without a result", attempts)}
			open.setInspecting(u.ID, file, time.Time{})
		case open.inspecting(now) >= most:
			found = registry.Inspection{State: registry.InspectionRunning}
			return nil
		default:
			found, mine = registry.Inspection{State: registry.InspectionRunning, Until: until, Attempts: attempts + 1}, true
			open.setInspecting(u.ID, file, until)
		}
		return c.writeInspection(ctx, item, found, counted, open)
	})
	return found, mine && err == nil, err
}

// inspection reads what is known of a file of an upload.
func (c *Catalog) inspection(ctx context.Context, u registry.Upload, file int, found *registry.Inspection) (Item, error) {
	*found = registry.Inspection{}
	item, err := c.getOrNew(ctx, inspectionKey(u.ID, file))
	item.Expires = u.ExpiresAt
	if err == nil && item.Revision > 0 {
		err = decode(item, found)
	}
	return item, err
}

// writeInspection writes an inspection, with those that its owner has under way.
func (c *Catalog) writeInspection(ctx context.Context, item Item, i registry.Inspection, counted Item, open openUploads) error {
	changed, err := change(item, i)
	if err != nil {
		return err
	}
	changes := []Change{changed}
	if counted.Revision > 0 { // it is there for as long as its owner has uploads
		counting, err := change(counted, open)
		if err != nil {
			return err
		}
		changes = append(changes, counting)
	}
	return c.table.Write(ctx, changes...)
}

// SetInspection records a result, renews the claim (state running), or gives the
// inspection up without counting the attempt (empty state). A recorded result
// stays as it is: the bytes do not change, so that others find the same. Only
// the attempt that has the claim, by its number in Attempts, renews it or gives
// it up.
func (c *Catalog) SetInspection(ctx context.Context, u registry.Upload, file int, i registry.Inspection, now time.Time) error {
	return retry(ctx, func() error {
		var found registry.Inspection
		item, err := c.inspection(ctx, u, file, &found)
		if err != nil || found.State == registry.InspectionPassed || found.State == registry.InspectionRefused {
			return err
		}
		next, ended := i, i.State == registry.InspectionPassed || i.State == registry.InspectionRefused
		if !ended && i.Attempts != found.Attempts {
			return nil // somebody else has the claim
		}
		if i.State == "" {
			next.Attempts = max(0, found.Attempts-1)
		}
		counted, open, err := c.open(ctx, u.Owner, now)
		if err != nil {
			return err
		}
		open.setInspecting(u.ID, file, i.Until)
		return c.writeInspection(ctx, item, next, counted, open)
	})
}

// HasNamespace says whether anything was ever published in a namespace, or a key added to it.
func (c *Catalog) HasNamespace(ctx context.Context, name string) (bool, error) {
	_, err := c.table.Get(ctx, Key{namespaces, name})
	if errors.Is(err, registry.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
