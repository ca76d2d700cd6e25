// Package publishclient is the client of the publish API: it publishes to a
// registry with the registry's own credentials. It announces what package releases
// has prepared, uploads it, has the registry inspect it, and commits.
//
// Nothing is visible before the commit. To continue a publish that ended early,
// publish again: what was uploaded is found there, and is not sent twice. A
// credential goes to the registry alone, and no error holds the URL of a file,
// which is a permission.
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
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

const (
	// parallel is how many files are sent or inspected at once.
	parallel = 4
	// pause is between two questions about the same.
	pause = 2 * time.Second
	// patience is how long an inspection may take, which is as long as a function may.
	patience = 15 * time.Minute
	// attempts is how often what fails on the registry's side is asked for.
	attempts = 3
	// farewell is how long giving up an upload may take.
	farewell = 3 * time.Second
)

// Publisher publishes to one registry.
type Publisher struct {
	// Host is how a person writes the registry's.
	Host string
	// Client uploads, and Service is the registry's endpoint.
	Client  *client.Client
	Service *client.Service
	// Progress may be nil.
	Progress progress.Reporter
	// Pause and Patience are what they should be where they are zero.
	Pause, Patience time.Duration
}

// Open finds the endpoint of a registry by discovery. It is registry.ErrNotFound where the registry has none.
func Open(ctx context.Context, c *client.Client, host string) (*Publisher, error) {
	service, err := c.Service(ctx, host, protocol.PublishService)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, registry.WithHint(err,
			"The host is no Larder, or has no endpoint for publishing. Check the host name.")
	}
	if err != nil {
		return nil, err
	}
	return &Publisher{Host: host, Client: c, Service: service}, nil
}

// InterruptedError says that a publish was interrupted.
type InterruptedError struct {
	cause error
	// committing says that the commit was on its way, and may have arrived.
	committing bool
}

func (e *InterruptedError) Error() string {
	if e.committing {
		return "interrupted as it was to become visible: running it again finishes that, or says that it is done"
	}
	return "interrupted: nothing is visible of it, and running it again goes on from what is uploaded"
}

// Unwrap returns what is known of the interruption.
func (e *InterruptedError) Unwrap() error { return e.cause }

// Module publishes a module. Errors are those of publish.Publisher's, in the registry's words, and what its credentials do
// not permit.
func (p *Publisher) Module(ctx context.Context, m *releases.PreparedModule) (releases.ModuleResult, error) {
	ours := m.Record
	published, err := p.publish(ctx, thing{m.Address.String(), m.Address.Path(), ours.Version}, []releases.File{m.Archive}, protocol.Announcement{
		ContentSHA256: ours.ContentSHA256, Description: ours.Description,
	})
	if err != nil {
		return releases.ModuleResult{}, err
	}
	theirs := published.Module
	if theirs == nil || theirs.Version != ours.Version || theirs.ContentSHA256 != ours.ContentSHA256 || !registry.IsSHA256(theirs.SHA256) || theirs.Size < 0 {
		return releases.ModuleResult{}, p.errAnswer("the record that it publishes is not that of what was sent")
	}
	result := m.ModuleResult
	result.Record, result.Unchanged, result.NotCompared = *theirs, published.Unchanged, published.NotCompared
	return result, nil
}

// Provider publishes a provider.
func (p *Publisher) Provider(ctx context.Context, m *releases.PreparedProvider) (releases.ProviderResult, error) {
	ours := m.Record
	published, err := p.publish(ctx, thing{m.Address.String(), m.Address.Path(), ours.Version}, m.Files, protocol.Announcement{Protocols: ours.Protocols})
	if err != nil {
		return releases.ProviderResult{}, err
	}
	theirs := published.Provider
	if theirs == nil || theirs.Version != ours.Version || theirs.Sums.SHA256 != ours.Sums.SHA256 || !slices.Equal(theirs.Protocols, ours.Protocols) ||
		!slices.EqualFunc(theirs.Packages, ours.Packages, samePackage) || !keyID.MatchString(theirs.SigningKey) {
		return releases.ProviderResult{}, p.errAnswer("the record that it publishes is not that of what was sent")
	}
	result := m.ProviderResult
	result.Record, result.Unchanged, result.NotCompared = *theirs, published.Unchanged, published.NotCompared
	// What is printed is checked first.
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

// samePackage compares what follows from a package's bytes.
func samePackage(a, b registry.ProviderPackage) bool {
	a.Object, b.Object = "", ""
	return a == b
}

// Deprecate says of what is published at a path, modules/… or providers/…, or of one version of it, that it should not be
// used any more, or takes that back.
func (p *Publisher) Deprecate(ctx context.Context, path string, version *registry.Version, d protocol.Deprecation) error {
	at := path + "/deprecation"
	if version != nil {
		at = path + "/" + version.String() + "/deprecation"
	}
	_, err := p.Service.Do(ctx, http.MethodPut, at, d, nil)
	return p.explain(err, path)
}

// thing is what is published.
type thing struct {
	address string
	path    string // modules/… or providers/…
	version registry.Version
}

func (t thing) uploads() string { return t.path + "/" + t.version.String() + "/uploads" }

// upload is one under way.
type upload struct {
	protocol.Begun
	at    string
	files []releases.File
	sent  atomic.Int32 // how many of them were stored
}

// parts are the files, by their numbers, in the order in which they go. What says who has made a provider, and of which
// files, is small, and goes before the zips: a signature by a wrong key is found out before hundreds of megabytes are sent.
func (u *upload) parts() [][]int {
	var first, zips []int
	for i, f := range u.files {
		if strings.HasSuffix(f.Name, ".zip") {
			zips = append(zips, i)
		} else {
			first = append(first, i)
		}
	}
	return [][]int{first, zips}
}

func (p *Publisher) publish(ctx context.Context, t thing, files []releases.File, a protocol.Announcement) (protocol.Published, error) {
	for _, f := range files {
		a.Files = append(a.Files, protocol.File{Name: f.Name, Size: f.Size, SHA256: f.SHA256})
	}
	published, err := p.begin(ctx, t, files, a)
	if err != nil && ctx.Err() != nil {
		return protocol.Published{}, &InterruptedError{ctx.Err(), errors.Is(err, errCommitting)}
	}
	return published, p.explain(err, t.path)
}

// begin begins, and goes on to the end. It begins again where the URLs for uploading hold no longer, which is once and as
// often as something was uploaded by them, and once where the registry does not know the upload any more.
//
// An upload is given up only where the registry refuses it for good: who begins the same again goes on with it, and two who
// publish the same at once share it.
func (p *Publisher) begin(ctx context.Context, t thing, files []releases.File, a protocol.Announcement) (protocol.Published, error) {
	for expired, lost := false, false; ; {
		u, err := p.announce(ctx, t, files, a)
		if err != nil {
			return protocol.Published{}, err
		}
		if u.Published != nil {
			u.Published.Unchanged = true
			return *u.Published, nil
		}
		published, err := p.finish(ctx, t, u)
		switch {
		case err == nil:
			return published, nil
		case errors.Is(err, errExpired) && (!expired || u.sent.Load() > 0):
			expired = true
			p.step("uploading took longer than it may; beginning again with what is left")
		case errors.Is(err, errLost) && !lost:
			lost = true
			p.step(p.Host + " does not know the upload any more; beginning again")
		default:
			if ctx.Err() == nil && isFinal(err) {
				p.abort(ctx, u)
			}
			return protocol.Published{}, err
		}
	}
}

// isFinal says whether the registry itself has refused something that it will refuse again. What stands between may answer
// as it likes, and so may the store while a connection is bad.
func isFinal(err error) bool {
	return client.Said(err) != "" && !errors.Is(err, errUploading) &&
		(errors.Is(err, registry.ErrInvalid) || errors.Is(err, registry.ErrForbidden) || errors.Is(err, registry.ErrExists))
}

// finish sends and inspects one part after the other, and commits.
func (p *Publisher) finish(ctx context.Context, t thing, u *upload) (protocol.Published, error) {
	total, end := p.announceMissing(u)
	defer end()
	for _, part := range u.parts() {
		if err := p.send(ctx, t, u, part, total); err != nil {
			return protocol.Published{}, err
		}
		if err := p.inspect(ctx, u, part); err != nil {
			return protocol.Published{}, err
		}
	}
	return p.commit(ctx, t, u)
}

func (p *Publisher) announce(ctx context.Context, t thing, files []releases.File, a protocol.Announcement) (*upload, error) {
	u := &upload{files: files}
	if _, err := p.Service.Repeat(ctx, http.MethodPost, t.uploads(), a, &u.Begun); err != nil {
		return u, err
	}
	if u.Published != nil {
		return u, nil
	}
	same := slices.EqualFunc(u.Files, files, func(put protocol.Put, f releases.File) bool {
		return put.Name == f.Name && (put.Stored || put.URL != "")
	})
	if !same || !uploadID.MatchString(u.Upload) {
		return u, p.errAnswer("it does not say where to put the files")
	}
	u.at = t.uploads() + "/" + u.Upload
	return u, nil
}

// errCommitting marks what failed in the commit.
var errCommitting = errors.New("committing")

var (
	// errUploading marks what failed in sending a file, where the store answers and not the registry.
	errUploading = errors.New("uploading")
	// errExpired says that a URL for uploading holds no longer.
	errExpired = errors.New("its URL has expired")
	// errLost says that the registry has no such upload of this caller's.
	errLost = errors.New("the registry does not know the upload any more")
)

// lost is an error of something that was asked of an upload, which is not to be taken for one of what is published: that
// there is no such upload is not what the caller has asked for.
func (p *Publisher) lost(what string, err error) error {
	if !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	said := cmp.Or(strings.TrimSuffix(client.Said(err), "."), errLost.Error())
	return registry.WithHint(registry.Errorf(errLost, "%s: cannot finish %s: %s", p.Host, what, said), "Publish it again.")
}

// announceMissing reports how much is to be sent, as one transfer.
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

// send puts files where they go, several at once, unless they are there.
func (p *Publisher) send(ctx context.Context, t thing, u *upload, part []int, total func(int64)) error {
	var expired atomic.Value
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, i := range part {
		if u.Files[i].Stored {
			continue
		}
		group.Go(func() error {
			f, put := u.files[i], u.Files[i]
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
			case err == nil, errors.Is(err, registry.ErrExists): // names of objects say what is in them
				u.sent.Add(1)
				return nil
			case errors.Is(err, registry.ErrForbidden):
				// No scope would help. What is on its way already goes on.
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

// inspect has the registry inspect the files, several at once.
func (p *Publisher) inspect(ctx context.Context, u *upload, part []int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, i := range part {
		group.Go(func() error {
			f := u.files[i]
			_, end := progress.Or(p.Progress).Transfer("waiting for "+p.Host+" to inspect "+f.Name, 0)
			defer end()
			err := p.persist(ctx, "inspecting "+f.Name, func() (bool, int, error) {
				var found protocol.Inspected
				status, err := p.Service.Repeat(ctx, http.MethodPost, fmt.Sprintf("%s/files/%d/inspect", u.at, i), nil, &found)
				return found.Passed, status, err
			})
			return p.lost("inspecting "+f.Name, err)
		})
	}
	return group.Wait()
}

func (p *Publisher) commit(ctx context.Context, t thing, u *upload) (published protocol.Published, err error) {
	_, end := progress.Or(p.Progress).Transfer(fmt.Sprintf("publishing %s %s", t.address, t.version), 0)
	defer end()
	err = p.persist(ctx, "publishing", func() (bool, int, error) {
		published = protocol.Published{}
		status, err := p.Service.Repeat(ctx, http.MethodPost, u.at+"/commit", nil, &published)
		return err == nil, status, err
	})
	if err != nil && ctx.Err() != nil {
		return published, fmt.Errorf("%w: %w", errCommitting, err)
	}
	return published, p.lost("publishing", err)
}

// abort gives an upload up, so that it does not count any more among those under way. What is stored stays to be found.
func (p *Publisher) abort(ctx context.Context, u *upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_, _ = p.Service.Do(ctx, http.MethodDelete, u.at, nil, nil) // it ends by itself some time
}

// persist asks until it is done. Where the gateway in front of the registry gives up waiting, the registry goes on.
func (p *Publisher) persist(ctx context.Context, what string, ask func() (done bool, status int, err error)) error {
	wait, until := p.Pause, time.Now().Add(patience)
	if wait == 0 {
		wait = pause
	}
	if p.Patience != 0 {
		until = time.Now().Add(p.Patience)
	}
	for failed, told := 0, false; ; {
		done, status, err := ask()
		unavailable := errors.Is(err, registry.ErrUnavailable)
		switch {
		case err == nil && done:
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
				err = registry.Errorf(registry.ErrUnavailable, "%s: %s has not ended yet", p.Host, what)
			}
			if hint := registry.Hint(err); hint != "" && hint != client.TryLater {
				return err
			}
			return registry.WithHint(err, "Publish it again. What is uploaded is not sent twice.")
		}
		if !told {
			p.step("waiting for " + p.Host + ", which goes on " + what)
			told = true
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

// refusal is what the registry says in words of its own, which stand for themselves.
type refusal struct {
	error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.error }

// explain returns an error in the registry's own words, if it has some, and adds
// to the hint which scope publishing at a path needs, if that is missing.
func (p *Publisher) explain(err error, path string) error {
	said := client.Said(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registry.ErrForbidden) && (said == "" || said == "forbidden"),
		errors.Is(err, registry.ErrUnauthenticated), errors.Is(err, registry.ErrBadCredential):
		hint := strings.TrimSpace(registry.Hint(err) + " Publishing needs the scope publish:" + path + ".")
		return registry.WithHint(err, "%s", hint)
	case said == "", errors.Is(err, errUploading),
		errors.Is(err, registry.ErrUnavailable) && !errors.Is(err, registry.ErrIssuer):
		return err
	}
	return &refusal{err, p.Host + ": " + strings.TrimSuffix(said, ".")}
}

func (p *Publisher) errAnswer(what string) error {
	return registry.Errorf(registry.ErrInvalid, "cannot read the answer of %s: %s", p.Host, what)
}

func (p *Publisher) step(what string) {
	progress.Or(p.Progress).Step(what)
}
