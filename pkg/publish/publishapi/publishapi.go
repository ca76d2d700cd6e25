// Package publishapi serves the publish API. With it, holders of the registry's
// own credentials publish without access to the table or the bucket. A caller
// announces files, uploads them with presigned URLs to their final place, has
// them inspected, and commits.
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
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
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
	Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error
}

const (
	// lifetime is how long an upload may take. It is much shorter than the days
	// after which the store removes files without a version.
	lifetime = 12 * time.Hour
	// lease is how long other requests wait for an inspection that does not
	// renew it, and renew is how often it does.
	lease = 20 * time.Second
	renew = 7 * time.Second
	// turn is how long a request inspects one file after another. It then returns
	// 202, before the gateway's timeout of 30 seconds, so that others get a slot.
	turn = 20 * time.Second
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
	// maxAnnouncement bounds an announcement, and maxSums the SHA256SUMS in it, in
	// bytes. An upload with the largest one fits into an item of the table.
	maxAnnouncement = 512 << 10
	maxSums         = 128 << 10
	// maxListed is how many objects of a version are listed. A file that is stored
	// but not found is sent again.
	maxListed = 1000
)

// Routes returns the routes of the publish API.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// Readable defines what a handler can read.
type Readable int

const (
	// OwnObjects are the objects that the publish API stores. The function's
	// role permits no others, and does not permit listing the namespaces. So the
	// handler does not report that a namespace is new.
	OwnObjects Readable = iota
	// AllObjects includes the objects that operators store, and the names of all
	// namespaces.
	AllObjects
)

// New returns a handler that serves the publish API.
func New(
	published *catalog.Catalog, stored Objects, readable Readable, inspector Inspector, limits settings.PublishLimits,
) http.Handler {
	return httpapi.Mux(newHandler(published, stored, readable, inspector, limits).endpoints()...)
}

// ReadOnly returns a handler that refuses all requests, for a registry that is a
// read-only copy of another one.
func ReadOnly() http.Handler {
	endpoints := (&handler{}).endpoints()
	for i := range endpoints {
		endpoints[i].Serve = refuse
	}
	return httpapi.Mux(endpoints...)
}

func refuse(http.ResponseWriter, *http.Request) error {
	const text = "this registry is a read-only copy"
	return errs.WithHint(httpapi.Explain(errs.ErrForbidden, text), "Publish to the registry that it copies.")
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
			{http.MethodPost, uploads + "/{upload}/inspect", h.inspect},
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
	announced(registry.Version, protocol.Announcement) error
	// check returns the version if it is published, and registry.ErrNotFound if
	// it can be published. Any other error is the reason why it cannot be
	// published.
	check(context.Context, registry.Version) (protocol.Published, error)
	// checkSame returns a rules.ExistsError unless the published content
	// equals the announced content.
	checkSame(context.Context, protocol.Published, protocol.Announcement) error
	// accept checks the content of an announcement that is not published.
	accept(context.Context, protocol.Announcement) error
	// read inspects a stored file of an upload.
	read(ctx context.Context, u registry.Upload, file int) (registry.Inspection, error)
	// assemble returns the record for inspected files and their publisher.
	assemble(u registry.Upload, by registry.Publisher, now time.Time) (publication, error)
	deprecate(ctx context.Context, v *registry.Version, d protocol.Deprecation, by string) error
	// addCopy records a copy of the version in another registry.
	addCopy(ctx context.Context, v registry.Version, target, by string) error
}

// publication is what a commit makes visible.
type publication struct {
	// keep are the files of the record.
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
	if err := s.announced(s.version, a); err != nil {
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
	vacant, _ := errors.AsType[*catalog.VacantError](err)
	if vacant != nil {
		err = s.accept(ctx, a)
	}
	if err != nil {
		return explain(err)
	}
	now := h.now().UTC().Truncate(time.Second)
	u := registry.Upload{
		ID: rand.Text(), Path: s.path, Version: s.version, Owner: caller.ID,
		Description: a.Description, Protocols: a.Protocols, CopiedFrom: a.CopiedFrom, Claimed: a.Claimed,
		AllowSecrets: a.AllowSecrets, Sums: string(a.Sums), Signature: a.Signature, CreatedAt: now, ExpiresAt: now.Add(lifetime),
	}
	for _, f := range a.Files {
		u.Files = append(u.Files, registry.UploadFile{Name: f.Name, StoredFile: registry.StoredFile{
			Object: registry.UploadKey(s.path, s.version, f.SHA256, f.Name), SHA256: f.SHA256, Size: f.Size,
		}})
	}
	var newcomer *protocol.Newcomer
	if a.CopiedFrom == nil && (vacant.NewNamespace == "" || h.readable == AllObjects) {
		namespaces := func() ([]string, error) { return h.catalog.Namespaces(ctx) }
		if newcomer, err = rules.FindNewcomer(vacant.Vacancy, namespaces, caller.Recognizes); err != nil {
			return err
		}
	}
	id := u.ID
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
	puts, err := h.puts(ctx, u, u.ID != id)
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusCreated, httpapi.NoStore, protocol.Begun{
		Upload: u.ID, ExpiresAt: u.ExpiresAt, Files: puts, Newcomer: newcomer,
	})
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
	if a.Claimed != nil {
		if a.CopiedFrom != nil {
			return fmt.Errorf("%w publish: a copy has the claimed source in copied_from", registry.ErrInvalid)
		}
		if err := a.Claimed.Check(); err != nil {
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

var errEnough = errors.New("enough objects are listed")

// puts returns how to upload the files. If the upload continues, it reports those
// that are stored already. A new upload rarely has any, and the store rejects a
// second PUT, so they are not listed.
func (h *handler) puts(ctx context.Context, u registry.Upload, continues bool) ([]protocol.Put, error) {
	var stored map[string]int64
	if continues {
		var err error
		if stored, err = h.sizes(ctx, u); err != nil {
			return nil, err
		}
	}
	puts := make([]protocol.Put, len(u.Files))
	for i, f := range u.Files {
		puts[i].Name = f.Name
		if size, there := stored[f.Object]; there && size == f.Size {
			puts[i].Stored = true
			continue
		}
		signed, err := h.objects.SignPut(ctx, f.Object, objects.Digest{SHA256: f.SHA256, Size: f.Size})
		if err != nil {
			return nil, err
		}
		puts[i].URL, puts[i].Header = signed.URL, signed.Header
	}
	return puts, nil
}

// sizes returns the sizes of the stored objects of an upload's version by their
// keys, for at most maxListed objects.
func (h *handler) sizes(ctx context.Context, u registry.Upload) (map[string]int64, error) {
	stored := make(map[string]int64)
	err := h.objects.Walk(ctx, registry.UploadPrefix(u.Path, u.Version), func(i objects.Info) error {
		if stored[i.Key] = i.Size; len(stored) == maxListed {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return stored, nil
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

func (h *handler) upload(ctx context.Context, s subject, caller access.Caller, id string) (registry.Upload, error) {
	u, err := h.catalog.Upload(ctx, id)
	if errors.Is(err, registry.ErrNotFound) {
		err = errNoUpload
	}
	if err == nil {
		err = h.live(s, caller)(u)
	}
	return u, err
}

func (h *handler) inspect(w http.ResponseWriter, r *http.Request) error {
	s, caller, err := h.target(r)
	if err != nil {
		return err
	}
	u, err := h.inspectUpload(r.Context(), s, caller, r.PathValue("upload"))
	if err != nil {
		return err
	}
	if file := u.Refused(); file >= 0 {
		return errRefused(u.Files[file])
	}
	status, found := http.StatusOK, protocol.Inspected{Passed: true, Files: len(u.Files)}
	if pending := u.Pending(); pending >= 0 {
		w.Header().Set("Retry-After", "1")
		status, found = http.StatusAccepted, protocol.Inspected{Files: pending}
	}
	httpapi.WriteJSON(w, status, httpapi.NoStore, found)
	return nil
}

// inspectUpload inspects files of an upload, and returns the upload. It inspects
// none while another request does so, or no slot of the process or of the table
// is free.
func (h *handler) inspectUpload(ctx context.Context, s subject, caller access.Caller, id string) (
	registry.Upload, error,
) {
	release, ok := h.slots.take(ctx, caller.ID, 0)
	if !ok {
		u, err := h.upload(ctx, s, caller, id)
		if err != nil || u.Pending() < 0 {
			return u, err
		}
		if release, ok = h.slots.take(ctx, caller.ID, slotTimeout); !ok {
			return u, nil
		}
	}
	defer release()
	now, live := h.now(), h.live(s, caller)
	var rejected error
	claim, err := h.catalog.ClaimInspection(ctx, id, caller.ID, now, now.Add(lease), h.limits.Inspections,
		func(u registry.Upload) error { rejected = live(u); return rejected })
	if rejected == nil && errors.Is(err, registry.ErrNotFound) {
		err = errNoUpload
	}
	if err != nil {
		return registry.Upload{}, err
	}
	if !claim.Mine {
		return claim.Upload, nil
	}
	slot, err := h.takeSlot(ctx, claim.Upload)
	if err != nil {
		if errors.Is(err, registry.ErrExists) {
			err = nil
		}
		// The attempt has not begun, so it does not count.
		err = errors.Join(err, claim.GiveUp(context.WithoutCancel(ctx), h.now(), false))
		return claim.Upload, err
	}
	if slot != nil {
		defer func() { _ = slot.Release(context.WithoutCancel(ctx)) }() // it also expires
	}
	return h.inspectClaimed(ctx, s, claim, slot)
}

// takeSlot takes a slot of the table for the inspection of an upload. It returns
// nil if all its files are too small to need one. If none is free, that is
// [registry.ErrExists].
func (h *handler) takeSlot(ctx context.Context, u registry.Upload) (*catalog.Lease, error) {
	large := func(f registry.UploadFile) bool { return f.State == "" && f.Size >= slotBytes }
	if h.limits.AllInspections == 0 || !slices.ContainsFunc(u.Files, large) {
		return nil, nil
	}
	return h.catalog.TakeInspectionSlot(ctx, h.limits.AllInspections, h.now().Add(lease))
}

// inspectClaimed inspects the files of a claimed upload, one after another, until
// its turn is over. It continues if the caller disconnects, because the caller
// will request it again. The slot may be nil.
func (h *handler) inspectClaimed(
	ctx context.Context, s subject, claim *catalog.Claim, slot *catalog.Lease,
) (registry.Upload, error) {
	deadline, limited := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if limited { // a function's deadline
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	// It ticks across files, so that many short inspections renew the slot too.
	tick := time.NewTicker(h.renew)
	defer tick.Stop()
	for end := h.now().Add(turn); claim.Mine; {
		found, err := h.readLeased(ctx, s, claim, slot, tick.C)
		switch {
		case err == nil:
			found.State = registry.InspectionPassed
		case errors.Is(err, registry.ErrInvalid):
			found = registry.Inspection{
				State:   registry.InspectionRefused,
				Problem: printable.Line(err.Error(), maxProblem),
				Hint:    printable.Line(registry.Hint(err), maxProblem),
			}
		default:
			// The result is unknown, so the next request inspects the file again.
			return claim.Upload, errors.Join(err, claim.GiveUp(ctx, h.now(), errors.Is(err, inspection.ErrDied)))
		}
		now, until := h.now(), time.Time{}
		if now.Before(end) {
			until = now.Add(lease)
		}
		if err := claim.Record(ctx, found, now, until); err != nil {
			return claim.Upload, err
		}
	}
	return claim.Upload, nil
}

// readLeased reads the claimed file, and renews the claim and the slot at the
// same time.
func (h *handler) readLeased(
	ctx context.Context, s subject, claim *catalog.Claim, slot *catalog.Lease, tick <-chan time.Time,
) (registry.Inspection, error) {
	u, file := claim.Upload, claim.File
	working, done := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { h.renewLease(working, claim, slot, tick) })
	defer renewing.Wait()
	defer done() // in any case: a lease that is renewed forever would block further inspections
	return h.read(ctx, s, u, file)
}

func errRefused(f registry.UploadFile) error {
	err := fmt.Errorf("%w file %s", registry.ErrInvalid, f.Name)
	if f.Hint != "" {
		err = registry.WithHint(err, "%s", f.Hint)
	}
	return httpapi.Explain(err, f.Name+": "+f.Problem)
}

const maxProblem = 2 << 10 // bytes

func (h *handler) renewLease(
	ctx context.Context, claim *catalog.Claim, slot *catalog.Lease, tick <-chan time.Time,
) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			// If this fails, another request starts over and gets the same
			// result.
			until := h.now().Add(lease)
			_ = claim.Renew(ctx, h.now(), until)
			if slot != nil {
				_ = slot.Renew(ctx, until)
			}
		}
	}
}

func (h *handler) read(ctx context.Context, s subject, u registry.Upload, file int) (registry.Inspection, error) {
	f := u.Files[file]
	found, err := s.read(ctx, u, file)
	if err == nil || errors.Is(err, registry.ErrInvalid) {
		return found, err
	}
	unavailable := fmt.Errorf("%w: reading %s: %w", registry.ErrUnavailable, f.Name, err)
	if errors.Is(err, registry.ErrUnavailable) {
		return found, unavailable
	}
	// Find out whether it is the fault of the file or of the store.
	info, failed := h.objects.Stat(ctx, f.Object)
	switch {
	case errors.Is(err, registry.ErrNotFound), errors.Is(failed, registry.ErrNotFound):
		err = fmt.Errorf("%w: object %s is missing", registry.ErrConflict, f.Object)
		return found, httpapi.Explain(err, f.Name+" is not uploaded yet")
	case failed != nil && ctx.Err() == nil:
		return found, failed
	case failed == nil && info.Size != f.Size:
		return found, fmt.Errorf(
			"%w file: it has %d bytes, but %d were announced", registry.ErrInvalid, info.Size, f.Size,
		)
	}
	return found, unavailable
}

func (h *handler) commit(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	s, caller, err := h.target(r)
	if err != nil {
		return err
	}
	u, err := h.upload(ctx, s, caller, r.PathValue("upload"))
	if err != nil {
		return err
	}
	if err := checkInspected(u); err != nil {
		return err
	}
	p, err := s.assemble(u, caller.Publisher, h.now().UTC().Truncate(time.Second))
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

// checkInspected returns an error unless all files of an upload have passed
// inspection.
func checkInspected(u registry.Upload) error {
	if file := u.Refused(); file >= 0 {
		return errRefused(u.Files[file])
	}
	if file := u.Pending(); file >= 0 {
		name := u.Files[file].Name
		return httpapi.Explain(
			fmt.Errorf("%w: file %s is not inspected", registry.ErrConflict, name), name+" has not passed inspection yet",
		)
	}
	return nil
}

func (h *handler) keep(ctx context.Context, f registry.StoredFile) error {
	info, err := h.objects.Keep(ctx, f.Object)
	if errors.Is(err, registry.ErrNotFound) || err == nil && info.Size != f.Size {
		name := path.Base(f.Object)
		if name == registry.DocsName || name == registry.FilesName {
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
