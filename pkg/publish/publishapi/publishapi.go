// Package publishapi serves the publish API. With it, holders of the registry's
// own credentials publish without access to the table or the bucket. A caller
// announces files, uploads them with presigned URLs to their final place, has
// each inspected, and commits.
//
// The package does not trust its callers. Everything that becomes visible
// derives from the stored bytes, which it reads itself, and from the path that
// access control has authorized. The names, sizes and digests of an
// announcement state what the bytes must be, and the store rejects any others.
// Nothing is visible until the commit. A published version never changes,
// regardless of who requests it and how often.
//
// It must run behind access.Control.RequirePublish.
package publishapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/secrets"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Inspector reads an archive to its end. It returns registry.ErrInvalid if the
// archive is invalid, and any other error if reading fails.
type Inspector interface {
	Inspect(ctx context.Context, request inspection.Request, source io.ReaderAt) (inspection.Found, error)
}

// Objects stores the files.
type Objects interface {
	objects.Reader
	objects.Stage
}

const (
	// lifetime is how long an upload may take. It is much shorter than the days
	// after which the store removes files without a version.
	lifetime = 12 * time.Hour
	// lease is how long other requests wait for an inspection that does not
	// renew it, and renew is how often it does.
	lease = 20 * time.Second
	renew = 7 * time.Second
	// slotBytes is the size of a file from which its inspection needs a slot of the
	// table. A smaller one cannot unpack to more than about 66 MiB.
	slotBytes = 64 << 10
	// parallel is how many requests one publish sends to the store at once. A
	// publish may have hundreds of files, and the gateway's timeout is too
	// short to handle them one by one.
	parallel = 8
	// maxInspections is how many inspections run at once in a process. Each may
	// use DefaultMaxMemory of package inspection. A function runs one. An
	// identity has at most inspectionShare of them.
	maxInspections  = 4
	inspectionShare = 2
	// slotTimeout is how long a request waits for a slot before it returns 202.
	slotTimeout = 2 * time.Second
	// maxAnnouncement bounds an announcement, in bytes.
	maxAnnouncement = 256 << 10
)

// Routes returns the routes of the publish API.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// Readable defines which objects a handler can read.
type Readable int

const (
	// OwnObjects are the objects that the publish API stores. The function's
	// role permits no others.
	OwnObjects Readable = iota
	// AllObjects includes the objects that operators store.
	AllObjects
)

// New returns a handler that serves the publish API.
func New(
	published *catalog.Catalog, stored Objects, readable Readable, inspector Inspector, limits settings.PublishLimits,
) http.Handler {
	return httpapi.Mux(newHandler(published, stored, readable, inspector, limits).endpoints()...)
}

type handler struct {
	catalog   *catalog.Catalog
	objects   Objects
	readable  Readable
	inspector Inspector
	limits    settings.PublishLimits
	now       func() time.Time
	renew     time.Duration
	slots     *slots
}

func newHandler(
	published *catalog.Catalog, stored Objects, readable Readable, inspector Inspector, limits settings.PublishLimits,
) *handler {
	slots := newSlots(maxInspections, inspectionShare)
	return &handler{published, stored, readable, inspector, limits, time.Now, renew, slots}
}

func (h *handler) endpoints() []httpapi.Endpoint {
	var all []httpapi.Endpoint
	for _, thing := range []string{
		protocol.PublishPath + "modules/{namespace}/{name}/{system}",
		protocol.PublishPath + "providers/{namespace}/{type}",
	} {
		uploads := thing + "/{version}/uploads"
		for _, e := range []struct {
			method, path string
			serve        httpapi.HandlerFunc
		}{
			{http.MethodPost, uploads, h.begin},
			{http.MethodPost, uploads + "/{upload}/files/{file}/inspect", h.inspect},
			{http.MethodPost, uploads + "/{upload}/commit", h.commit},
			{http.MethodDelete, uploads + "/{upload}", h.abort},
			{http.MethodPut, thing + "/deprecation", h.deprecate},
			{http.MethodPut, thing + "/{version}/deprecation", h.deprecate},
			{http.MethodPut, thing + "/{version}/copies", h.addCopy},
		} {
			all = append(all, httpapi.Endpoint{Route: httpapi.Route{Method: e.method, Path: e.path}, Serve: e.serve})
		}
	}
	return all
}

// subject is the version of a module or a provider in a request's path, with
// the rules of its kind.
type subject struct {
	path      string // modules/… or providers/…
	namespace string
	version   registry.Version
	kind
}

// kind has the rules in which modules and providers differ.
type kind interface {
	// announced checks an announcement by the rules for names.
	announced(context.Context, registry.Version, protocol.Announcement) error
	// check returns the version if it is published, and registry.ErrNotFound if
	// it can be published. Any other error is the reason why it cannot be
	// published.
	check(context.Context, registry.Version) (protocol.Published, error)
	// checkSame returns a rules.ExistsError unless the published content
	// equals the announced content.
	checkSame(context.Context, protocol.Published, protocol.Announcement) error
	// read inspects a stored file of an upload.
	read(ctx context.Context, u registry.Upload, file int) (registry.Inspection, error)
	// assemble returns the record for inspected files and their publisher, with
	// the files that it needs.
	assemble(
		ctx context.Context, u registry.Upload, found []registry.Inspection, by registry.Publisher, now time.Time,
	) (publication, error)
	deprecate(ctx context.Context, v *registry.Version, d protocol.Deprecation, by string) error
	// addCopy records a copy of the version in another registry.
	addCopy(ctx context.Context, v registry.Version, target, by string) error
}

// publication is what a commit makes visible.
type publication struct {
	keep []registry.StoredFile
	// content is the part of an announcement that identifies its content, for
	// comparing it with a published version.
	content protocol.Announcement
	// commit makes the version visible and ends the upload. If the version is
	// not published yet, it calls prepare first.
	commit func(ctx context.Context, prepare func(context.Context) error) (protocol.Published, error)
}

func (h *handler) about(r *http.Request) (subject, error) {
	var s subject
	if name := r.PathValue("name"); name != "" {
		m, err := registry.ParseModule(r.PathValue("namespace") + "/" + name + "/" + r.PathValue("system"))
		if err != nil {
			return s, explain(err)
		}
		s = subject{path: m.Path(), namespace: m.Namespace, kind: module{h, m}}
	} else {
		p, err := registry.ParseProvider(r.PathValue("namespace") + "/" + r.PathValue("type"))
		if err != nil {
			return s, explain(err)
		}
		s = subject{path: p.Path(), namespace: p.Namespace, kind: provider{h, p}}
	}
	if text := r.PathValue("version"); text != "" {
		var err error
		if s.version, err = registry.ParseTag(text); err == nil && s.version.String() != text {
			err = fmt.Errorf("%w version %q: write it without the v of a tag, as %s", registry.ErrInvalid, text, s.version)
		}
		if err != nil {
			return s, explain(err)
		}
	}
	return s, nil
}

// explain lets the caller see an error about the caller's own input.
func explain(err error) error {
	if errors.Is(err, registry.ErrInvalid) || errors.Is(err, registry.ErrExists) {
		return httpapi.Explain(err, err.Error())
	}
	return err
}

func (h *handler) begin(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	s, err := h.about(r)
	if err != nil {
		return err
	}
	caller, err := publisher(r)
	if err != nil {
		return err
	}
	if err := rules.CheckNamespace(s.namespace); err != nil {
		return explain(err)
	}
	if err := h.mayBegin(ctx, s, caller); err != nil {
		return err
	}
	var a protocol.Announcement
	if err := httpapi.ReadJSON(r, maxAnnouncement, &a); err != nil {
		return err
	}
	if err := h.check(a); err != nil {
		return explain(err)
	}
	if err := s.announced(ctx, s.version, a); err != nil {
		return explain(err)
	}
	stored, err := s.check(ctx, s.version)
	if err == nil {
		if err := s.checkSame(ctx, stored, a); err != nil {
			return explain(err)
		}
		if stored.NotCompared, err = h.checkStored(ctx, s, stored); err != nil {
			return err
		}
		stored.Unchanged = true
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, protocol.Begun{Published: &stored})
		return nil
	}
	if !errors.Is(err, registry.ErrNotFound) {
		return explain(err)
	}
	now := h.now().UTC().Truncate(time.Second)
	u := registry.Upload{
		ID: rand.Text(), Path: s.path, Version: s.version, Owner: caller.ID,
		Description: a.Description, Protocols: a.Protocols, CopiedFrom: a.CopiedFrom, AllowSecrets: a.AllowSecrets,
		CreatedAt: now, ExpiresAt: now.Add(lifetime),
	}
	for _, f := range a.Files {
		u.Files = append(u.Files, registry.UploadFile{Name: f.Name, StoredFile: registry.StoredFile{
			Object: registry.UploadKey(s.path, s.version, f.SHA256, f.Name), SHA256: f.SHA256, Size: f.Size,
		}})
	}
	u, err = h.catalog.BeginUpload(ctx, u, h.limits.Uploads)
	if errors.Is(err, catalog.ErrTooManyUploads) {
		return httpapi.Explain(registry.WithHint(
			err, "Finish them, or wait: they expire after %.0f hours.", lifetime.Hours(),
		),
			fmt.Sprintf("you have %d uploads in progress, which is the limit", h.limits.Uploads))
	}
	if err != nil {
		return err
	}
	puts := make([]protocol.Put, len(u.Files))
	err = each(ctx, len(u.Files), func(ctx context.Context, i int) (err error) {
		puts[i], err = h.put(ctx, u.Files[i])
		return err
	})
	if err != nil {
		return err
	}
	httpapi.WriteJSON(
		w, http.StatusCreated, httpapi.NoStore, protocol.Begun{Upload: u.ID, ExpiresAt: u.ExpiresAt, Files: puts},
	)
	return nil
}

// checkStored returns registry.ErrCorrupt unless the files of a published
// version are stored unchanged. skipped reports that it has not compared files
// that an operator has stored and that the handler cannot read.
func (h *handler) checkStored(ctx context.Context, s subject, p protocol.Published) (skipped bool, err error) {
	var files []registry.StoredFile
	if p.Module != nil {
		// Without its documentation, a version can still be installed.
		files = []registry.StoredFile{p.Module.Archive()}
	} else {
		files = p.Provider.Files()
	}
	if h.readable == OwnObjects {
		all := len(files)
		files = slices.DeleteFunc(slices.Clone(files), func(f registry.StoredFile) bool {
			return f.Object != registry.UploadKey(s.path, s.version, f.SHA256, path.Base(f.Object))
		})
		skipped = len(files) < all
	}
	return skipped, each(ctx, len(files), func(ctx context.Context, i int) error {
		f, name := files[i], path.Base(files[i].Object)
		err := objects.CheckStored(ctx, h.objects, f)
		what := "is damaged in"
		if errors.Is(err, registry.ErrNotFound) {
			what = "is missing from"
			err = fmt.Errorf("object %s is missing, and its version is %w", f.Object, registry.ErrCorrupt)
		}
		if errors.Is(err, registry.ErrCorrupt) {
			const text = "version %s is published, but its file %s %s the registry's store"
			return httpapi.Explain(err, fmt.Sprintf(text, s.version, name, what))
		}
		return err
	})
}

func publisher(r *http.Request) (access.Caller, error) {
	caller, ok := access.CallerOf(r.Context())
	if !ok {
		return caller, fmt.Errorf("%w: the request has no caller", registry.ErrForbidden)
	}
	return caller, nil
}

// mayBegin returns an error if the publish would be the first in a namespace
// and the caller's scopes do not name it.
func (h *handler) mayBegin(ctx context.Context, s subject, caller access.Caller) error {
	if caller.NamesNamespace(s.path) {
		return nil
	}
	known, err := h.catalog.HasNamespace(ctx, s.namespace)
	if err != nil || known {
		return err
	}
	kind, _, _ := strings.Cut(s.path, "/")
	err = registry.WithHint(
		registry.ErrForbidden, "Get the scope publish:%s/%s/** from the registry's operator.", kind, s.namespace,
	)
	return httpapi.Explain(err, fmt.Sprintf("namespace %s is empty, and its first publish needs a scope "+
		"that names it, such as publish:%s/%s/**", s.namespace, kind, s.namespace))
}

// each calls do with each number below n, several at once, until one fails.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func (h *handler) check(a protocol.Announcement) error {
	if len(a.Files) == 0 || len(a.Files) > h.limits.Files {
		return fmt.Errorf(
			"%w publish: it has %d files, but this registry accepts 1 to %d", registry.ErrInvalid, len(a.Files), h.limits.Files,
		)
	}
	if err := rules.CheckDescription(a.Description); err != nil {
		return err
	}
	if a.CopiedFrom != nil {
		if err := a.CopiedFrom.Check(); err != nil {
			return err
		}
	}
	if err := secrets.CheckAllowed(a.AllowSecrets); err != nil {
		return err
	}
	if a.ContentSHA256 != "" {
		if err := (objects.Digest{SHA256: a.ContentSHA256}).Check(); err != nil {
			return fmt.Errorf("content_sha256: %w", err)
		}
	}
	seen := make(map[string]bool)
	for _, f := range a.Files {
		switch {
		case f.Size <= 0 || f.Size > h.limits.FileBytes:
			return fmt.Errorf(
				"%w file %.200q: it has %d bytes, but this registry accepts 1 to %d", registry.ErrInvalid, f.Name, f.Size,
				h.limits.FileBytes,
			)
		case f.Name == "" || len(f.Name) > 250 || strings.ContainsAny(f.Name, `/\`) || !errs.IsPlain(f.Name) ||
			seen[f.Name]:
			return fmt.Errorf(
				"%w file name %.200q: a file needs a plain and unique name", registry.ErrInvalid, f.Name,
			)
		}
		if err := (objects.Digest{SHA256: f.SHA256, Size: f.Size}).Check(); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		seen[f.Name] = true
	}
	return nil
}

// put returns how to upload a file, unless it is stored already.
func (h *handler) put(ctx context.Context, f registry.UploadFile) (protocol.Put, error) {
	info, err := h.objects.Stat(ctx, f.Object)
	if err == nil && info.Size == f.Size {
		return protocol.Put{Name: f.Name, Stored: true}, nil
	}
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return protocol.Put{}, err
	}
	signed, err := h.objects.SignPut(ctx, f.Object, objects.Digest{SHA256: f.SHA256, Size: f.Size})
	if err != nil {
		return protocol.Put{}, err
	}
	return protocol.Put{Name: f.Name, URL: signed.URL, Header: signed.Header}, nil
}

func (h *handler) target(r *http.Request) (subject, access.Caller, error) {
	s, err := h.about(r)
	if err != nil {
		return s, access.Caller{}, err
	}
	caller, err := publisher(r)
	return s, caller, err
}

// own returns a check that an upload belongs to the subject and to the caller.
// It fails like for an upload that does not exist.
func (h *handler) own(s subject, caller access.Caller) func(registry.Upload) error {
	return func(u registry.Upload) error {
		if u.Owner != caller.ID || u.Path != s.path || u.Version != s.version || !h.now().Before(u.ExpiresAt) {
			return errNoUpload
		}
		return nil
	}
}

var errNoUpload = httpapi.Explain(registry.WithHint(registry.ErrNotFound, "Publish it again."),
	"you have no such upload of this version: it has ended or never existed")

// live returns the check of own, which also fails if the upload was aborted.
func (h *handler) live(s subject, caller access.Caller) func(registry.Upload) error {
	own := h.own(s, caller)
	return func(u registry.Upload) error {
		if u.Ended == registry.UploadAborted {
			return errNoUpload
		}
		return own(u)
	}
}

func (h *handler) upload(ctx context.Context, s subject, caller access.Caller, id string) (
	registry.Upload, []registry.Inspection, error,
) {
	u, found, err := h.catalog.Upload(ctx, id)
	if errors.Is(err, registry.ErrNotFound) {
		err = errNoUpload
	}
	if err == nil {
		err = h.live(s, caller)(u)
	}
	return u, found, err
}

func (h *handler) inspect(w http.ResponseWriter, r *http.Request) error {
	s, caller, err := h.target(r)
	if err != nil {
		return err
	}
	file, err := strconv.Atoi(r.PathValue("file"))
	if err != nil || strconv.Itoa(file) != r.PathValue("file") {
		file = -1 // no upload has this file
	}
	u, found, err := h.inspectFile(r.Context(), s, caller, r.PathValue("upload"), file)
	switch {
	case err != nil:
		return err
	case found.State == registry.InspectionRefused:
		return errRefused(u.Files[file], found)
	case found.State == registry.InspectionRunning:
		w.Header().Set("Retry-After", "1")
		httpapi.WriteJSON(w, http.StatusAccepted, httpapi.NoStore, protocol.Inspected{})
	default:
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, protocol.Inspected{Passed: true})
	}
	return nil
}

// inspectFile returns the inspection of a file. It inspects the file first if
// no other request has done so, and slots of the process and of the table are
// free.
func (h *handler) inspectFile(
	ctx context.Context, s subject, caller access.Caller, id string, file int,
) (registry.Upload, registry.Inspection, error) {
	var rejected error
	check := func(u registry.Upload) error {
		rejected = h.live(s, caller)(u)
		if rejected == nil && (file < 0 || file >= len(u.Files)) {
			rejected = httpapi.Explain(registry.ErrNotFound, fmt.Sprintf("the upload has files 0 to %d", len(u.Files)-1))
		}
		return rejected
	}
	release, ok := h.slots.take(ctx, caller.ID, 0)
	if !ok {
		u, found, err := h.upload(ctx, s, caller, id)
		if err == nil {
			err = check(u)
		}
		if err != nil {
			return u, registry.Inspection{}, err
		}
		if state := found[file].State; state == registry.InspectionPassed || state == registry.InspectionRefused {
			return u, found[file], nil
		}
		if release, ok = h.slots.take(ctx, caller.ID, slotTimeout); !ok {
			return u, registry.Inspection{State: registry.InspectionRunning}, nil
		}
	}
	defer release()
	now := h.now()
	claim, err := h.catalog.ClaimInspection(ctx, id, caller.ID, file, now, now.Add(lease), h.limits.Inspections, check)
	if rejected == nil && errors.Is(err, registry.ErrNotFound) {
		err = errNoUpload
	}
	if err != nil {
		return registry.Upload{}, registry.Inspection{}, err
	}
	if !claim.Mine {
		return claim.Upload, claim.Found, nil
	}
	slot, err := h.takeSlot(ctx, claim)
	if err != nil {
		if errors.Is(err, registry.ErrExists) {
			err = nil
		}
		// The attempt has not begun, so it does not count.
		givenUp := registry.Inspection{Attempts: claim.Found.Attempts}
		return claim.Upload, registry.Inspection{State: registry.InspectionRunning},
			errors.Join(err, h.catalog.RecordInspection(context.WithoutCancel(ctx), claim, givenUp, h.now()))
	}
	if slot != nil {
		defer func() { _ = slot.Release(context.WithoutCancel(ctx)) }() // it also expires
	}
	found, err := h.inspectNow(ctx, s, claim, slot)
	return claim.Upload, found, err
}

// takeSlot takes a slot of the table for a claimed inspection. It returns nil if the
// inspection is too short to need one. If none is free, that is
// [registry.ErrExists].
func (h *handler) takeSlot(ctx context.Context, claim *catalog.Claim) (*catalog.Lease, error) {
	if h.limits.AllInspections == 0 || claim.Upload.Files[claim.File].Size < slotBytes {
		return nil, nil
	}
	return h.catalog.TakeInspectionSlot(ctx, h.limits.AllInspections, h.now().Add(lease))
}

// inspectNow reads a stored file and records the result for the attempt that
// has the claim. It continues if the caller disconnects, because the caller
// will request it again.
func (h *handler) inspectNow(ctx context.Context, s subject, claim *catalog.Claim, slot *catalog.Lease) (
	registry.Inspection, error,
) {
	deadline, limited := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if limited { // a function's deadline
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	attempt := claim.Found.Attempts
	givenUp := registry.Inspection{Attempts: attempt}
	found, err := h.readLeased(ctx, s, claim, slot)
	switch {
	case err == nil:
		found.State = registry.InspectionPassed
	case isAsYet(err):
		rejected := registry.Inspection{State: registry.InspectionRefused, Problem: err.Error(), Hint: registry.Hint(err)}
		return rejected, h.catalog.RecordInspection(ctx, claim, givenUp, h.now())
	case errors.Is(err, registry.ErrInvalid):
		found = registry.Inspection{
			State:   registry.InspectionRefused,
			Problem: printable.Line(err.Error(), maxProblem),
			Hint:    printable.Line(registry.Hint(err), maxProblem),
		}
	case errors.Is(err, inspection.ErrDied):
		// The claim ends now, and the attempt counts.
		died := registry.Inspection{State: registry.InspectionRunning, Until: h.now(), Attempts: attempt}
		return found, errors.Join(err, h.catalog.RecordInspection(ctx, claim, died, h.now()))
	default:
		// The result is unknown, so the next request inspects the file again.
		return found, errors.Join(err, h.catalog.RecordInspection(ctx, claim, givenUp, h.now()))
	}
	return found, h.catalog.RecordInspection(ctx, claim, found, h.now())
}

// readLeased reads a stored file, and renews its claim and its slot at the same
// time. The slot may be nil.
func (h *handler) readLeased(ctx context.Context, s subject, claim *catalog.Claim, slot *catalog.Lease) (
	registry.Inspection, error,
) {
	attempt := claim.Found.Attempts
	working, done := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { h.renewLease(working, claim, slot, attempt) })
	defer renewing.Wait()
	defer done() // in any case: a lease that is renewed forever would block further inspections
	return h.read(ctx, s, claim.Upload, claim.File)
}

// asYet is a problem with a file that may be gone the next time.
type asYet struct{ error }

func (e asYet) Unwrap() error { return e.error }

func isAsYet(err error) bool {
	_, is := errors.AsType[asYet](err)
	return is
}

func errRefused(f registry.UploadFile, found registry.Inspection) error {
	err := fmt.Errorf("%w file %s", registry.ErrInvalid, f.Name)
	if found.Hint != "" {
		err = registry.WithHint(err, "%s", found.Hint)
	}
	return httpapi.Explain(err, f.Name+": "+strings.TrimPrefix(found.Problem, f.Name+": "))
}

const maxProblem = 2 << 10 // bytes

func (h *handler) renewLease(ctx context.Context, claim *catalog.Claim, slot *catalog.Lease, attempt int) {
	tick := time.NewTicker(h.renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// If this fails, another request starts over and gets the same
			// result.
			running := registry.Inspection{State: registry.InspectionRunning, Until: h.now().Add(lease), Attempts: attempt}
			_ = h.catalog.RecordInspection(ctx, claim, running, h.now())
			if slot != nil {
				_ = slot.Renew(ctx, running.Until)
			}
		}
	}
}

func (h *handler) read(ctx context.Context, s subject, u registry.Upload, file int) (registry.Inspection, error) {
	f := u.Files[file]
	info, err := h.objects.Stat(ctx, f.Object)
	if errors.Is(err, registry.ErrNotFound) {
		return registry.Inspection{}, errMissing(f)
	}
	if err != nil {
		return registry.Inspection{}, err
	}
	if info.Size != f.Size {
		return registry.Inspection{}, fmt.Errorf(
			"%w file: it has %d bytes, but %d were announced", registry.ErrInvalid, info.Size, f.Size,
		)
	}
	found, err := s.read(ctx, u, file)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		err = errMissing(f) // it expired during the inspection
	case err != nil && !errors.Is(err, registry.ErrInvalid) && !errors.Is(err, registry.ErrConflict) &&
		!errors.Is(err, registry.ErrSchema):
		// Any other error is not the fault of the file, and may be gone the
		// next time.
		err = fmt.Errorf("%w: reading %s: %w", registry.ErrUnavailable, f.Name, err)
	}
	return found, err
}

// readAll reads a small stored file, and checks that its bytes are the
// announced ones.
func (h *handler) readAll(ctx context.Context, f registry.UploadFile, most int64) ([]byte, error) {
	if f.Size > most {
		return nil, fmt.Errorf("%s: %w file: it has %d bytes, more than %d", f.Name, registry.ErrInvalid, f.Size, most)
	}
	stored, err := h.open(ctx, f)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, errMissing(f)
	}
	if err != nil {
		return nil, err
	}
	defer stored.Close()
	var data bytes.Buffer
	if err := objects.Copy(&data, stored, objects.Digest{SHA256: f.SHA256, Size: f.Size}); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	return data.Bytes(), nil
}

// source is a stored file that is being read. It reports an early end as an
// error of the store, and not of the file.
type source struct {
	io.ReadCloser
	left int64
}

func (h *handler) open(ctx context.Context, f registry.UploadFile) (*source, error) {
	stored, err := h.objects.Open(ctx, f.Object, 0, -1)
	return &source{ReadCloser: stored, left: f.Size}, err
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.left -= int64(n)
	if errors.Is(err, io.EOF) && s.left > 0 {
		err = io.ErrUnexpectedEOF // the store has announced more bytes
	}
	return n, err
}

// errMissing returns the error for a file that is not stored, or no longer
// stored. It is not a fault of the file's content.
func errMissing(f registry.UploadFile) error {
	return httpapi.Explain(
		fmt.Errorf("%w: object %s is missing", registry.ErrConflict, f.Object), f.Name+" is not uploaded yet",
	)
}

func (h *handler) commit(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	s, caller, err := h.target(r)
	if err != nil {
		return err
	}
	u, found, err := h.upload(ctx, s, caller, r.PathValue("upload"))
	if err != nil {
		return err
	}
	if err := inspected(u, found); err != nil {
		return err
	}
	p, err := s.assemble(ctx, u, found, caller.Publisher, h.now().UTC().Truncate(time.Second))
	if err != nil {
		return explain(err)
	}
	// Files are marked as permanent, then checked, and then named by a record. In
	// this order, no file of a record can expire. If two commits with different
	// content race, the files of the rejected one remain without a record.
	answer, err := p.commit(ctx, func(ctx context.Context) error {
		return each(ctx, len(p.keep), func(ctx context.Context, i int) error { return h.keep(ctx, p.keep[i]) })
	})
	if errors.Is(err, errLostDocs) { // clients start over if the upload has ended
		_, err := h.catalog.EndUpload(ctx, u.ID, u.Owner, registry.UploadAborted, h.now(), h.own(s, caller))
		return cmp.Or(err, errNoUpload)
	}
	if errors.Is(err, registry.ErrNotFound) { // aborted at the same time
		return errNoUpload
	}
	if err != nil {
		return explain(err)
	}
	if answer.Unchanged {
		if err := s.checkSame(ctx, answer, p.content); err != nil {
			return explain(err)
		}
		answer.Unchanged = u.Ended == ""
		if _, err := h.catalog.EndUpload(
			ctx, u.ID, u.Owner, registry.UploadCommitted, h.now(), h.own(s, caller),
		); err != nil {
			return err
		}
	}
	httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, answer)
	return nil
}

// inspected returns an error unless all files of an upload have passed
// inspection.
func inspected(u registry.Upload, found []registry.Inspection) error {
	for i, f := range u.Files {
		switch found[i].State {
		case registry.InspectionPassed:
		case registry.InspectionRefused:
			return errRefused(f, found[i])
		default:
			return httpapi.Explain(
				fmt.Errorf("%w: file %s is not inspected", registry.ErrConflict, f.Name),
				f.Name+" has not passed inspection yet",
			)
		}
	}
	return nil
}

func (h *handler) keep(ctx context.Context, f registry.StoredFile) error {
	err := h.objects.Keep(ctx, f.Object)
	var info objects.Info
	if err == nil {
		info, err = h.objects.Stat(ctx, f.Object)
	}
	if errors.Is(err, registry.ErrNotFound) || err == nil && info.Size != f.Size {
		name := path.Base(f.Object)
		if name == registry.DocsName {
			return errLostDocs
		}
		err := fmt.Errorf("%w: object %s is gone", registry.ErrConflict, f.Object)
		return httpapi.Explain(registry.WithHint(err, "Publish it again."), name+" was changed or removed after its inspection")
	}
	return err
}

// errLostDocs means that staged documentation is gone, for example because an
// earlier upload of the same content has staged it and it has expired. Only the
// inspection of another upload stores it again.
var errLostDocs = fmt.Errorf("%w: the staged documentation is gone", registry.ErrConflict)

func (h *handler) abort(w http.ResponseWriter, r *http.Request) error {
	s, caller, err := h.target(r)
	if err != nil {
		return err
	}
	ended, err := h.catalog.EndUpload(
		r.Context(), r.PathValue("upload"), caller.ID, registry.UploadAborted, h.now(), h.own(s, caller),
	)
	if errors.Is(err, registry.ErrNotFound) {
		err = errNoUpload
	}
	if err != nil {
		return err
	}
	if ended.Ended == registry.UploadCommitted {
		return httpapi.Explain(registry.ErrExists, "the version is already published")
	}
	httpapi.WriteNoContent(w, httpapi.NoStore)
	return nil
}

func (h *handler) deprecate(w http.ResponseWriter, r *http.Request) error {
	s, err := h.about(r)
	if err != nil {
		return err
	}
	var d protocol.Deprecation
	if err := httpapi.ReadJSON(r, maxAnnouncement, &d); err != nil {
		return err
	}
	if err := rules.CheckDeprecation(d.Message); err != nil {
		return explain(err)
	}
	var version *registry.Version
	if r.PathValue("version") != "" {
		version = &s.version
	}
	if d.Hide && (version == nil || d.Message == "" || strings.HasPrefix(s.path, "providers/")) {
		return explain(
			fmt.Errorf(
				"%w deprecation: you can hide only a version of a module, and only with a message", registry.ErrInvalid,
			),
		)
	}
	caller, err := publisher(r)
	if err != nil {
		return err
	}
	err = s.deprecate(r.Context(), version, d, caller.Publisher.String())
	if errors.Is(err, registry.ErrNotFound) {
		return httpapi.Explain(err, "nothing is published with that name and version")
	}
	if err != nil {
		return explain(err)
	}
	httpapi.WriteNoContent(w, httpapi.NoStore)
	return nil
}

// addCopy records that a version was copied to another registry.
func (h *handler) addCopy(w http.ResponseWriter, r *http.Request) error {
	s, err := h.about(r)
	if err != nil {
		return err
	}
	caller, err := publisher(r)
	if err != nil {
		return err
	}
	var c protocol.Copy
	if err := httpapi.ReadJSON(r, maxAnnouncement, &c); err != nil {
		return err
	}
	if err := (registry.CopiedFrom{Source: c.Target}).Check(); err != nil {
		return explain(fmt.Errorf("%w copy: the target %.100q is not HOST/NAMESPACE/…", registry.ErrInvalid, c.Target))
	}
	err = s.addCopy(r.Context(), s.version, c.Target, caller.Publisher.String())
	if errors.Is(err, registry.ErrNotFound) {
		return httpapi.Explain(err, "nothing is published with that name and version")
	}
	if err != nil {
		return explain(err)
	}
	httpapi.WriteNoContent(w, httpapi.NoStore)
	return nil
}
