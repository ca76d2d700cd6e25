// Package publishclient is the client of the publish API. It publishes to a
// registry with the registry's own credentials. It announces a release that
// package rules has prepared, uploads it, has the registry inspect it, and
// commits.
//
// Nothing is visible before the commit. If a publish was interrupted, publish
// again: the registry has the uploaded files, which are not sent twice.
// Credentials are sent only to the registry. Errors never contain the URL of a
// file, which grants a permission.
package publishclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

const (
	// parallel is how many files are sent at once.
	parallel = 4
	// interval is the time between two requests for the same result.
	interval = 2 * time.Second
	// timeout is how long the inspection of a file may take. It equals the maximum
	// duration of a function.
	timeout = 15 * time.Minute
	// attempts is how often a request that fails in the registry is sent.
	attempts = 3
	// abortTimeout is how long aborting an upload may take.
	abortTimeout = 3 * time.Second
)

// Publisher publishes to one registry. Create one with [Open].
type Publisher struct {
	// Host is the registry's host in the form for people.
	Host string
	// Client uploads files, and Service is the registry's publish API.
	Client  *client.Client
	Service *client.Service
	// Confirm is called before a publish sends any file, if the result will have a
	// Newcomer. If it returns an error, the publish returns that error. If nil, the
	// publish continues.
	Confirm func(protocol.Newcomer) error
	// Progress may be nil.
	Progress progress.Reporter
	// Interval is the time between two requests for the same result, and
	// Timeout bounds the inspection of a file. If zero, two seconds and 15 minutes are
	// used.
	Interval, Timeout time.Duration
}

// Open finds the publish API of a registry by discovery. It returns
// registry.ErrNotFound if the registry has none.
func Open(ctx context.Context, c *client.Client, host string) (*Publisher, error) {
	service, err := c.Service(ctx, host, protocol.PublishService)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, registry.WithHint(err,
			"The host is not a Larder registry, or does not have the publish API. Check the host name.")
	}
	if err != nil {
		return nil, err
	}
	return &Publisher{Host: host, Client: c, Service: service}, nil
}

// InterruptedError means that a publish was interrupted.
type InterruptedError struct {
	cause error
	// committing reports that the commit was sent, and may have arrived.
	committing bool
}

func (e *InterruptedError) Error() string {
	if e.committing {
		return "interrupted during the commit: the version may be visible already"
	}
	return "interrupted: nothing is visible yet"
}

// Unwrap returns the cause of the interruption.
func (e *InterruptedError) Unwrap() error { return e.cause }

// Module publishes a module. Errors are those of publish.Publisher with the
// registry's texts, and errors about the credential.
func (p *Publisher) Module(ctx context.Context, m *rules.PreparedModule) (rules.ModuleResult, error) {
	ours := m.Record
	published, newcomer, err := p.publish(ctx, thing{
		m.Address.String(), m.Address.Path(), ours.Version, m.CheckNew,
	}, []rules.File{m.Archive}, protocol.Announcement{
		ContentSHA256: ours.ContentSHA256, Description: ours.Description, CopiedFrom: ours.CopiedFrom,
		Claimed: ours.Claimed, AllowSecrets: ours.AllowedSecrets,
	})
	if err != nil {
		return rules.ModuleResult{}, err
	}
	theirs := published.Module
	if theirs == nil || theirs.Version != ours.Version || theirs.ContentSHA256 != ours.ContentSHA256 ||
		!registry.IsSHA256(theirs.SHA256) || theirs.Size < 0 {
		return rules.ModuleResult{}, p.errAnswer("the published record does not match the release")
	}
	result := m.ModuleResult
	result.Record, result.Unchanged, result.NotCompared = *theirs, published.Unchanged, published.NotCompared
	result.Newcomer = newcomer
	result.Record.Notes, result.Notes = checked(theirs.Notes), checked(published.Notes)
	return result, nil
}

// checked returns notes of a registry that can be printed.
func checked(notes []string) (all []string) {
	for _, note := range notes[:min(len(notes), errs.MaxNotes)] {
		all = append(all, printable.Line(note, errs.MaxNote))
	}
	return all
}

// Provider publishes a provider. Errors are those of [Publisher.Module].
func (p *Publisher) Provider(ctx context.Context, m *rules.PreparedProvider) (rules.ProviderResult, error) {
	ours := m.Record
	published, newcomer, err := p.publish(
		ctx, thing{m.Address.String(), m.Address.Path(), ours.Version, m.CheckNew}, m.Zips(), m.Announcement(),
	)
	if err != nil {
		return rules.ProviderResult{}, err
	}
	theirs := published.Provider
	if theirs == nil || theirs.Version != ours.Version || theirs.Sums.SHA256 != ours.Sums.SHA256 ||
		!slices.Equal(theirs.Protocols, ours.Protocols) ||
		!slices.EqualFunc(theirs.Packages, ours.Packages, samePackage) || !keyID.MatchString(theirs.SigningKey) {
		return rules.ProviderResult{}, p.errAnswer("the published record does not match the release")
	}
	result := m.ProviderResult
	result.Record, result.Unchanged, result.NotCompared = *theirs, published.Unchanged, published.NotCompared
	result.Newcomer = newcomer
	result.Record.Notes = checked(theirs.Notes)
	// Check texts before they are printed.
	if d := published.Dropped; d != nil && !slices.ContainsFunc(d.Platforms, isNoPlatform) {
		result.Dropped = d
	}
	return result, nil
}

var (
	keyID    = regexp.MustCompile(`^[0-9A-F]{16}$`)
	uploadID = regexp.MustCompile(`^[0-9A-Za-z_-]{1,128}$`)
)

func isNoPlatform(p registry.Platform) bool {
	_, err := registry.ParsePlatform(p.String())
	return err != nil
}

// samePackage compares the fields that derive from a package's bytes.
func samePackage(a, b registry.ProviderPackage) bool {
	a.Object, b.Object = "", ""
	return a == b
}

// Deprecate deprecates the module or provider at a path, modules/… or
// providers/…, or one version of it. An empty message undoes that.
func (p *Publisher) Deprecate(
	ctx context.Context, path string, version *registry.Version, d protocol.Deprecation,
) error {
	at := path + "/deprecation"
	if version != nil {
		at = path + "/" + version.String() + "/deprecation"
	}
	_, err := p.Service.Do(ctx, http.MethodPut, at, d, nil)
	return p.explain(err, path)
}

// AddCopy records that a version was copied to another registry. target is the
// address there, with its host.
func (p *Publisher) AddCopy(ctx context.Context, path string, version registry.Version, target string) error {
	_, err := p.Service.Do(ctx, http.MethodPut, path+"/"+version.String()+"/copies", protocol.Copy{Target: target}, nil)
	return p.explain(err, path)
}

// thing is a version to publish.
type thing struct {
	address string
	path    string // modules/… or providers/…
	version registry.Version
	// check returns why the files must not be sent, unless the same content is
	// published already.
	check func() error
}

func (t thing) uploads() string { return t.path + "/" + t.version.String() + "/uploads" }

// upload is an upload in progress.
type upload struct {
	protocol.Begun
	at    string
	files []rules.File
	sent  atomic.Int32 // number of stored files
}

// what describes the files for people.
func (u *upload) what() string {
	if len(u.files) == 1 {
		return u.files[0].Name
	}
	return fmt.Sprintf("%d files", len(u.files))
}

// publish also returns what it creates, or nil.
func (p *Publisher) publish(
	ctx context.Context, t thing, files []rules.File, a protocol.Announcement,
) (_ protocol.Published, newcomer *protocol.Newcomer, _ error) {
	for _, f := range files {
		a.Files = append(a.Files, protocol.File{Name: f.Name, Size: f.Size, SHA256: f.SHA256})
	}
	published, newcomer, err := p.begin(ctx, t, files, a)
	if err != nil && ctx.Err() != nil {
		interrupted := &InterruptedError{ctx.Err(), errors.Is(err, errCommitting)}
		if interrupted.committing {
			return protocol.Published{}, nil, registry.WithHint(interrupted, "Publish again to complete it.")
		}
		return protocol.Published{}, nil, registry.WithHint(interrupted, "Publish again to continue from the uploaded files.")
	}
	if published.Unchanged { // another publisher was faster
		newcomer = nil
	}
	return published, newcomer, p.explain(err, t.path)
}

// begin publishes from the announcement to the commit. It starts over if the
// URLs have expired, but more than once only if a file was uploaded each time.
// It also starts over once if the registry no longer has the upload.
//
// It aborts an upload only if the registry rejects it permanently, or if it may not
// be sent. Anyone who publishes the same again continues the upload, and two
// concurrent publishes of the same content share it.
func (p *Publisher) begin(
	ctx context.Context, t thing, files []rules.File, a protocol.Announcement,
) (_ protocol.Published, newcomer *protocol.Newcomer, _ error) {
	asked := false
	for expired, lost := false, false; ; {
		u, err := p.announce(ctx, t, files, a)
		if err != nil {
			return protocol.Published{}, nil, err
		}
		if u.Published != nil {
			u.Published.Unchanged = true
			return *u.Published, nil, nil
		}
		if err := t.check(); err != nil {
			p.abort(ctx, u)
			return protocol.Published{}, nil, err
		}
		if !asked {
			asked = true
			if newcomer, err = p.confirm(u, t, a); err != nil {
				p.abort(ctx, u)
				return protocol.Published{}, nil, err
			}
		}
		published, err := p.finish(ctx, t, u)
		switch {
		case err == nil:
			return published, newcomer, nil
		case errors.Is(err, errExpired) && (!expired || u.sent.Load() > 0):
			expired = true
			p.step("the upload URLs have expired; starting over with the remaining files")
		case errors.Is(err, errLost) && !lost:
			lost = true
			p.step(p.Host + " no longer has the upload; starting over")
		default:
			if ctx.Err() == nil && isFinal(err) {
				p.abort(ctx, u)
			}
			return protocol.Published{}, nil, err
		}
	}
}

// confirm returns what the registry reports as new, after Confirm has accepted it.
func (p *Publisher) confirm(u *upload, t thing, a protocol.Announcement) (*protocol.Newcomer, error) {
	if u.Newcomer == nil || a.CopiedFrom != nil {
		return nil, nil //nolint:nilnil // nothing is new
	}
	newcomer := checkNewcomer(*u.Newcomer, t)
	if newcomer != nil && p.Confirm != nil {
		return newcomer, p.Confirm(*newcomer)
	}
	return newcomer, nil
}

// checkNewcomer returns what a registry reports as new, without any text that is not
// a name. It returns nil if that concerns another thing.
func checkNewcomer(n protocol.Newcomer, t thing) *protocol.Newcomer {
	namespace, _, _ := strings.Cut(t.address, "/")
	near := n.Near
	switch {
	case n.NewNamespace == namespace:
		if _, err := registry.ParseModule(near + "/name/system"); err != nil {
			near = ""
		}
		return &protocol.Newcomer{NewNamespace: namespace, Near: near}
	case n.NewNamespace == "" && n.NewAddress == t.address && strings.EqualFold(near, t.address):
		return &protocol.Newcomer{NewAddress: t.address, Near: near}
	}
	return nil
}

// isFinal reports whether the registry itself has rejected something
// permanently. Other servers in between may return anything, and so may the
// store on a bad connection.
func isFinal(err error) bool {
	return client.ErrorText(err) != "" && !errors.Is(err, errUploading) &&
		(errors.Is(err, registry.ErrInvalid) || errors.Is(err, registry.ErrForbidden) || errors.Is(err, registry.ErrExists))
}

// finish sends the files, has them inspected, and commits.
func (p *Publisher) finish(ctx context.Context, t thing, u *upload) (protocol.Published, error) {
	err := p.send(ctx, t, u)
	if err == nil {
		err = p.inspect(ctx, u)
	}
	if err != nil {
		return protocol.Published{}, err
	}
	return p.commit(ctx, t, u)
}

func (p *Publisher) announce(
	ctx context.Context, t thing, files []rules.File, a protocol.Announcement,
) (*upload, error) {
	u := &upload{files: files}
	_, err := p.Service.Repeat(ctx, http.MethodPost, t.uploads(), a, &u.Begun)
	if err != nil {
		return u, err
	}
	if u.Published != nil {
		return u, nil
	}
	same := slices.EqualFunc(u.Files, files, func(put protocol.Put, f rules.File) bool {
		return put.Name == f.Name && (put.Stored || put.URL != "")
	})
	if !same || !uploadID.MatchString(u.Upload) {
		return u, p.errAnswer("no URLs for the files")
	}
	u.at = t.uploads() + "/" + u.Upload
	return u, nil
}

// errCommitting marks errors of the commit.
var errCommitting = errors.New("committing")

var (
	// errUploading marks errors of sending a file, which come from the store
	// and not from the registry.
	errUploading = errors.New("uploading")
	// errExpired means that the URL for an upload has expired.
	errExpired = errors.New("its URL has expired")
	// errLost means that the registry has no such upload of this caller.
	errLost = errors.New("the registry no longer has the upload")
)

// lost converts a registry.ErrNotFound about an upload, so that it is not
// mistaken for one about the published version.
func (p *Publisher) lost(what string, err error) error {
	if !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	text := cmp.Or(strings.TrimSuffix(client.ErrorText(err), "."), errLost.Error())
	return registry.WithHint(registry.Errorf(errLost, "%s: cannot finish %s: %s", p.Host, what, text), "Publish it again.")
}

// announceMissing reports the size of all files to send as one transfer.
func (p *Publisher) announceMissing(u *upload) (sent func(int64), end func()) {
	missing, size := 0, int64(0)
	for i, put := range u.Files {
		if !put.Stored {
			missing++
			size += u.files[i].Size
		}
	}
	if stored := len(u.Files) - missing; stored > 0 {
		p.step(fmt.Sprintf("%d of %d files are stored already", stored, len(u.Files)))
	}
	if missing > 1 {
		return progress.Or(p.Progress).Transfer(fmt.Sprintf("uploading %d files", missing), size)
	}
	return func(int64) {}, func() {}
}

// send uploads the files, several at once, unless they are stored already.
func (p *Publisher) send(ctx context.Context, t thing, u *upload) error {
	total, end := p.announceMissing(u)
	defer end()
	var expired atomic.Value
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, put := range u.Files {
		if put.Stored {
			continue
		}
		group.Go(func() error {
			f := u.files[i]
			name := f.Name
			if len(u.files) == 1 {
				name = t.address + " " + t.version.String()
			}
			one, end := progress.Or(p.Progress).Transfer("uploading "+name, f.Size)
			defer end()
			sent := func(n int64) { one(n); total(n) }
			open := func() (io.ReadCloser, error) { return f.Open() }
			err := p.Client.Upload(ctx, client.Upload{URL: put.URL, Header: put.Header, Size: f.Size, Open: open, Sent: sent})
			switch {
			case err == nil, errors.Is(err, registry.ErrExists): // names of objects derive from their content
				u.sent.Add(1)
				return nil
			case errors.Is(err, registry.ErrForbidden):
				// No scope would help. Transfers in progress continue.
				expired.Store(registry.Errorf(errExpired, "cannot upload %s: its URL has expired", f.Name))
				return nil
			}
			return registry.Errorf(errUploading, "cannot upload %s: %w", f.Name, err)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	err, _ := expired.Load().(error)
	return err
}

// inspect has the registry inspect the files.
func (p *Publisher) inspect(ctx context.Context, u *upload) error {
	what := "inspecting " + u.what()
	_, end := progress.Or(p.Progress).Transfer("waiting for "+p.Host+" to inspect "+u.what(), 0)
	defer end()
	passed := 0
	err := p.persist(ctx, what, func() (outcome, int, error) {
		var found protocol.Inspected
		status, err := p.Service.Repeat(ctx, http.MethodPost, u.at+"/inspect", nil, &found)
		now := outcome{found.Passed, found.Files > passed && found.Files <= len(u.files)}
		if now.advanced {
			passed = found.Files
		}
		return now, status, err
	})
	return p.lost(what, err)
}

func (p *Publisher) commit(ctx context.Context, t thing, u *upload) (published protocol.Published, err error) {
	_, end := progress.Or(p.Progress).Transfer(fmt.Sprintf("publishing %s %s", t.address, t.version), 0)
	defer end()
	err = p.persist(ctx, "publishing", func() (outcome, int, error) {
		published = protocol.Published{}
		status, err := p.Service.Repeat(ctx, http.MethodPost, u.at+"/commit", nil, &published)
		return outcome{done: err == nil}, status, err
	})
	if err != nil && ctx.Err() != nil {
		return published, fmt.Errorf("%w: %w", errCommitting, err)
	}
	return published, p.lost("publishing", err)
}

// abort aborts an upload, so that it no longer counts towards the limit. Stored
// files remain for the next publish.
func (p *Publisher) abort(ctx context.Context, u *upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_, _ = p.Service.Do(ctx, http.MethodDelete, u.at, nil, nil) // it expires anyway
}

// outcome is the outcome of a request that is repeated until it is done. The
// time for it begins again if it has advanced.
type outcome struct{ done, advanced bool }

// persist repeats a request until it is done. If the gateway in front of the
// registry times out, the registry continues.
func (p *Publisher) persist(ctx context.Context, what string, send func() (outcome, int, error)) error {
	wait, most := cmp.Or(p.Interval, interval), cmp.Or(p.Timeout, timeout)
	until := time.Now().Add(most)
	for failed, reported := 0, false; ; {
		now, status, err := send()
		if now.advanced {
			until = time.Now().Add(most)
		}
		unavailable := errors.Is(err, registry.ErrUnavailable)
		switch {
		case err == nil && now.done:
			return nil
		case errors.Is(err, registry.ErrIssuer):
			return err
		case err == nil, unavailable && status != http.StatusInternalServerError:
			failed = 0
		case unavailable, errors.Is(err, registry.ErrConflict):
			if failed++; failed == attempts {
				return err
			}
		default:
			return err
		}
		if time.Now().After(until) {
			if err == nil {
				err = registry.Errorf(registry.ErrUnavailable, "%s: %s is still in progress", p.Host, what)
			}
			if hint := registry.Hint(err); hint != "" && hint != client.TryLater {
				return err
			}
			return registry.WithHint(err, "Publish it again. Uploaded files are not sent twice.")
		}
		if !reported {
			p.step("waiting for " + p.Host + ", which is still " + what)
			reported = true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// refusal is an error with the registry's own text.
type refusal struct {
	error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.error }

// explain returns an error with the registry's own text, if there is one. If a
// scope is missing, it adds to the hint which scope publishing at a path needs.
func (p *Publisher) explain(err error, path string) error {
	text := client.ErrorText(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registry.ErrForbidden) && (text == "" || text == "forbidden"),
		errors.Is(err, registry.ErrUnauthenticated), errors.Is(err, registry.ErrBadCredential):
		hint := strings.TrimSpace(registry.Hint(err) + " Publishing needs the scope publish:" + path + ".")
		return registry.WithHint(err, "%s", hint)
	case text == "", errors.Is(err, errUploading),
		errors.Is(err, registry.ErrUnavailable) && !errors.Is(err, registry.ErrIssuer):
		return err
	}
	return &refusal{err, p.Host + ": " + strings.TrimSuffix(text, ".")}
}

func (p *Publisher) errAnswer(what string) error {
	return registry.Errorf(registry.ErrInvalid, "cannot read the response of %s: %s", p.Host, what)
}

func (p *Publisher) step(what string) {
	progress.Or(p.Progress).Step(what)
}
