package publishapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// testAPI is a local registry with a publish API, and with the faults, the log
// and the clock of a test.
type testAPI struct {
	url     string
	dir     string
	table   *sqlite.Table
	catalog *catalog.Catalog
	store   *disk.Store
	faults  *faults
	// stopped is the time on the registry's clock once a test has called at.
	stopped atomic.Pointer[time.Time]
	since   time.Time // the first call of at
	log     logged
	// failing reports that responses of 500 and more are expected.
	failing bool
	tokens  []string
}

// logged is a log with concurrent writers.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var limits = settings.PublishLimits{FileBytes: 1 << 20, Files: 6, Uploads: 4, Inspections: 10}

// openWith opens an empty registry, whose inspections renew their leases at an
// interval.
func openWith(t testing.TB, renew time.Duration) *testAPI {
	t.Helper()
	d := &testAPI{dir: t.TempDir()}
	var err error
	if d.table, err = sqlite.Create(t.Context(), filepath.Join(d.dir, "larder.db")); err != nil {
		t.Fatal(err)
	}
	if d.store, err = disk.Open(d.dir); err != nil {
		t.Fatal(err)
	}
	d.catalog = catalog.New(d.table)
	d.faults = &faults{Store: d.store}
	var served http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { served.ServeHTTP(w, r) }))
	d.url, d.store.BaseURL = server.URL, server.URL
	control := access.New(access.Settings{}, d.catalog)
	published := publishapi.NewAt(
		catalog.New(tableOf{d.table, d.faults}), objectsOf{d.faults}, inspectorOf{d.faults}, limits, d.now, renew,
	)
	served = httpapi.Wrap(slog.New(slog.NewTextHandler(&d.log, nil)), httpapi.Join(
		httpapi.Service{Routes: publishapi.Routes(), Handler: control.RequirePublish(published)},
		httpapi.Service{Routes: modules.Routes(), Handler: control.RequireRead(modules.New(d.catalog.Modules, d.store))},
		httpapi.Service{Routes: disk.Routes(), Handler: d.store.Handler()},
	))
	t.Cleanup(func() {
		server.Close()
		_ = d.table.Close()
		_ = d.store.Close()
		d.checkLog(t)
	})
	return d
}

// open opens a registry with a short interval.
func open(t testing.TB) *testAPI {
	t.Helper()
	return openWith(t, time.Hour)
}

// checkLog checks that the log has no secrets and no unexpected errors.
func (d *testAPI) checkLog(t testing.TB) {
	text := d.log.String()
	for _, secret := range append([]string{"signature=", "expires=", "larder_", "Bearer", d.url}, d.tokens...) {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q:\n%.4000s", secret, text)
		}
	}
	if !d.failing && strings.Contains(text, "status=5") {
		t.Errorf("something failed:\n%.4000s", text)
	}
}

// faults are faults of the catalog and the store. Each function that is set is
// called before the real one.
type faults struct {
	Store *disk.Store

	// publish is called before a version is written, and published after that.
	publish, published func() error
	// end is called before the end of an upload is written.
	end   func() error
	stage func() error
	// listed is called with each object that is listed. others is the number of
	// objects that are listed before the real ones.
	listed func() error
	others int
	keep   func(key string) error
	stat   func(key string) error
	opened func(key string, stored io.ReadCloser) (io.ReadCloser, error)
	// inspected is called with the result of an inspection.
	inspected func(*inspection.Found)
	claims    claims
}

// tableOf is a table whose writes can fail.
type tableOf struct {
	catalog.Table
	*faults
}

func fails(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (t tableOf) Write(ctx context.Context, changes ...catalog.Change) error {
	var publishes, ends bool
	for _, c := range changes {
		publishes = publishes || strings.HasPrefix(c.Sort, "version/")
		ends = ends || c.Sort == "upload" && decode[registry.Upload](c.Data).Ended != ""
	}
	if publishes {
		if err := fails(t.publish); err != nil {
			return err
		}
	}
	if ends {
		if err := fails(t.end); err != nil {
			return err
		}
	}
	if err := t.Table.Write(ctx, changes...); err != nil {
		return err
	}
	for _, c := range changes {
		t.claims.written(c)
	}
	if publishes {
		return fails(t.published)
	}
	return nil
}

func decode[T any](data []byte) (v T) {
	if err := json.Unmarshal(data, &v); err != nil {
		panic(err)
	}
	return v
}

// claims counts started inspections of files.
type claims struct {
	mu    sync.Mutex
	state map[catalog.Key]registry.Upload
	begun int
}

// written counts the inspections that a change starts. A renewal belongs to the
// same attempt.
func (c *claims) written(change catalog.Change) {
	if change.Sort != "upload" {
		return
	}
	now := decode[registry.Upload](change.Data)
	c.mu.Lock()
	defer c.mu.Unlock()
	before, there := c.state[change.Key]
	for i, f := range now.Files {
		if there && f.Attempts > before.Files[i].Attempts {
			c.begun++
		}
	}
	if c.state == nil {
		c.state = make(map[catalog.Key]registry.Upload)
	}
	c.state[change.Key] = now
}

// count returns the number of started inspections of files.
func (c *claims) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// inspectorOf is an inspector whose results a test changes.
type inspectorOf struct{ *faults }

func (i inspectorOf) Inspect(
	ctx context.Context, request inspection.Request, source io.ReaderAt,
) (inspection.Found, error) {
	found, err := inspection.InThisProcess{}.Inspect(ctx, request, source)
	if err == nil && i.inspected != nil {
		i.inspected(&found)
	}
	return found, err
}

type objectsOf struct{ *faults }

func (o objectsOf) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	stored, err := o.Store.Open(ctx, key, offset, length)
	if err != nil || o.opened == nil {
		return stored, err
	}
	return o.opened(key, stored)
}

func (o objectsOf) Stat(ctx context.Context, key string) (objects.Info, error) {
	if o.stat != nil {
		if err := o.stat(key); err != nil {
			return objects.Info{}, err
		}
	}
	return o.Store.Stat(ctx, key)
}

func (o objectsOf) SignPut(ctx context.Context, key string, digest objects.Digest) (objects.Upload, error) {
	return o.Store.SignPut(ctx, key, digest)
}

func (o objectsOf) PutStaged(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	if err := fails(o.stage); err != nil {
		return err
	}
	return o.Store.PutStaged(ctx, key, body, digest)
}

func (o objectsOf) Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error {
	visited := func(i objects.Info) error {
		if err := fails(o.listed); err != nil {
			return err
		}
		return visit(i)
	}
	for i := range o.others {
		if err := visited(objects.Info{Key: fmt.Sprint(prefix, i)}); err != nil {
			return err
		}
	}
	return o.Store.Walk(ctx, prefix, visited)
}

func (o objectsOf) Keep(ctx context.Context, key string) (objects.Info, error) {
	if o.keep != nil {
		if err := o.keep(key); err != nil {
			return objects.Info{}, err
		}
	}
	return o.Store.Keep(ctx, key)
}

// token creates a token with scopes, separated by spaces.
func (d *testAPI) token(t testing.TB, scopes string) string {
	t.Helper()
	token, digest := access.NewToken()
	name := "ci"
	if len(d.tokens) > 0 {
		name += "-" + digest[:12]
	}
	if err := d.catalog.AddToken(
		t.Context(), digest,
		registry.Token{ID: digest[:12], Name: name, Scopes: strings.Fields(scopes), CreatedAt: time.Now()},
	); err != nil {
		t.Fatal(err)
	}
	d.tokens = append(d.tokens, token)
	return token
}

// answer is a response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// text returns the text of an error response.
func (a answer) text() string {
	var e struct{ Errors []string }
	if json.Unmarshal(a.body, &e) != nil || len(e.Errors) != 1 {
		return "no error: " + string(a.body)
	}
	return e.Errors[0]
}

// into decodes a response that must have a status.
func (a answer) into(t testing.TB, status int, v any) {
	t.Helper()
	if a.status != status {
		t.Fatalf("%d %s, want %d", a.status, a.body, status)
	}
	if v == nil {
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
}

// shown returns the text of an error response, and its hint on a separate line.
func (a answer) shown() string {
	if hint := a.hint(); hint != "" {
		return a.text() + "\n" + hint
	}
	return a.text()
}

// hint returns the hint of an error response, or "".
func (a answer) hint() string {
	var body struct{ Hint string }
	if json.Unmarshal(a.body, &body) != nil {
		return ""
	}
	return body.Hint
}

// refused checks that a response has a status, and records its text and its hint
// without the parts that vary.
func (a answer) refused(t testing.TB, texts *golden.Texts, status int, replace ...string) {
	t.Helper()
	if a.status != status {
		t.Errorf("%d %s, want %d", a.status, a.shown(), status)
	}
	texts.Text(t, fmt.Sprintf("%d %s\n", a.status, a.shown()), replace...)
}

// code returns the code of an error response.
func (a answer) code(t testing.TB) string {
	t.Helper()
	var body struct{ Code string }
	if err := json.Unmarshal(a.body, &body); err != nil {
		t.Errorf("%v: %s", err, a.body)
	}
	return body.Code
}

// send sends a request. A string is the body itself, and any other value is
// sent as JSON.
func (d *testAPI) send(t testing.TB, token, method, path string, body any) answer {
	t.Helper()
	a, err := d.try(t.Context(), token, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (d *testAPI) try(ctx context.Context, token, method, path string, body any) (answer, error) {
	var in io.Reader = http.NoBody
	switch body := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(body)
	default:
		data, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		in = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, d.url+path, in)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return do(r)
}

func do(r *http.Request) (answer, error) {
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	return answer{w.StatusCode, w.Header, body}, err
}

// upload is an upload in progress. Its archives are announced in the order of
// their names.
type upload struct {
	*testAPI
	protocol.Begun
	token string
	path  string // modules/…/VERSION or providers/…/VERSION
	files map[string][]byte
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// announce returns the announcement of files.
func announce(files map[string][]byte) protocol.Announcement {
	var a protocol.Announcement
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch data := files[name]; {
		case strings.HasSuffix(name, "_SHA256SUMS"):
			a.Sums = data
		case strings.HasSuffix(name, ".sig"):
			a.Signature = data
		case strings.HasSuffix(name, "_manifest.json"):
			a.Manifest = data
		default:
			a.Files = append(a.Files, protocol.File{Name: name, Size: int64(len(data)), SHA256: sum(data)})
		}
	}
	if _, module := files["vpc.tar.gz"]; !module {
		a.Protocols = []string{"5.0", "6.0"}
	}
	return a
}

// begin begins an upload, which must succeed.
func (d *testAPI) begin(t testing.TB, token, path string, files map[string][]byte) *upload {
	t.Helper()
	u := &upload{testAPI: d, token: token, path: path, files: files}
	d.send(
		t, token, http.MethodPost, protocol.PublishPath+path+"/uploads", announce(files),
	).into(t, http.StatusCreated, &u.Begun)
	return u
}

// put uploads the bytes of a file.
func (u *upload) put(t testing.TB, file int, data []byte) answer {
	t.Helper()
	put := u.Files[file]
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, put.URL, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range put.Header {
		if name != "Content-Length" {
			r.Header.Set(name, value)
		}
	}
	a, err := do(r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// sendFile uploads a file, unless the registry reports that it is stored. Like the
// client, it accepts the answer that the store has the object.
func (u *upload) sendFile(t testing.TB, file int) (sent bool, last answer) {
	t.Helper()
	put := u.Files[file]
	if put.Stored {
		return true, answer{}
	}
	last = u.put(t, file, u.files[put.Name])
	return last.status == http.StatusOK || last.status == http.StatusPreconditionFailed, last
}

// putAll uploads all files.
func (u *upload) putAll(t testing.TB) *upload {
	t.Helper()
	for i, put := range u.Files {
		if sent, last := u.sendFile(t, i); !sent {
			t.Fatalf("put %s: %d %s", put.Name, last.status, last.body)
		}
	}
	return u
}

func (u *upload) at(more string) string {
	return protocol.PublishPath + u.path + "/uploads/" + u.Upload + more
}

func (u *upload) inspect(t testing.TB) answer {
	t.Helper()
	return u.send(t, u.token, http.MethodPost, u.at("/inspect"), nil)
}

// inspectAll inspects all files, which must pass.
func (u *upload) inspectAll(t testing.TB) *upload {
	t.Helper()
	u.inspect(t).into(t, http.StatusOK, nil)
	return u
}

func (u *upload) commit(t testing.TB) answer {
	t.Helper()
	return u.send(t, u.token, http.MethodPost, u.at("/commit"), nil)
}

func (u *upload) abort(t testing.TB) answer {
	t.Helper()
	return u.send(t, u.token, http.MethodDelete, u.at(""), nil)
}

// publish publishes, and returns the result or the step that was rejected. It
// aborts a rejected upload.
func (d *testAPI) publish(
	t testing.TB, token, path string, a protocol.Announcement, files map[string][]byte,
) (step string, last answer) {
	t.Helper()
	u := &upload{testAPI: d, token: token, path: path, files: files}
	if last = d.send(
		t, token, http.MethodPost, protocol.PublishPath+path+"/uploads", a,
	); last.status != http.StatusCreated {
		return "begin", last
	}
	last.into(t, http.StatusCreated, &u.Begun)
	defer func() {
		if last.status != http.StatusOK {
			u.abort(t).into(t, http.StatusNoContent, nil)
		}
	}()
	for i, put := range u.Files {
		if sent, refused := u.sendFile(t, i); !sent {
			return "put " + put.Name, refused
		}
	}
	if last = u.inspect(t); last.status != http.StatusOK {
		// A rejection is permanent.
		for name, again := range map[string]answer{"inspection": u.inspect(t), "commit": u.commit(t)} {
			if again.status != last.status {
				t.Errorf("%s after a rejected file: status %d, want %d", name, again.status, last.status)
			}
			if again.text() != last.text() {
				t.Errorf("%s after a rejected file: %q, want %q", name, again.text(), last.text())
			}
		}
		return "inspect", last
	}
	last = u.commit(t)
	return "commit", last
}

// publishes publishes a valid version.
func (d *testAPI) publishes(t testing.TB, token, path string, files map[string][]byte) {
	t.Helper()
	if step, last := d.publish(t, token, path, announce(files), files); step != "commit" || last.status != http.StatusOK {
		t.Fatalf("%s: %d %s", step, last.status, last.body)
	}
}

// visible returns everything that is visible, or could be after a fault: items
// with their revisions, and permanent objects.
func (d *testAPI) visible(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	for _, partition := range []string{
		"modules/acme/vpc/aws", "modules/new/vpc/aws", "providers/acme/inventory", "catalog/acme", "catalog/new",
		"namespaces", "keys/acme", "keys/other",
	} {
		page, err := d.table.Query(t.Context(), catalog.Query{Partition: partition})
		if err != nil || page.Next != "" {
			t.Fatal(err, page.Next)
		}
		for _, item := range page.Items {
			fmt.Fprintf(&out, "%s %s %d %s\n", item.Partition, item.Sort, item.Revision, item.Data)
		}
	}
	for key, state := range d.objects(t) {
		if state == "kept" {
			out.WriteString(key + "\n")
		}
	}
	return sortLines(out.String())
}

func sortLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// objects returns the stored objects with their states.
func (d *testAPI) objects(t testing.TB) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := d.store.Walk(t.Context(), "", func(i objects.Info) error {
		_, err := os.Stat(filepath.Join(d.dir, "staged", sum([]byte(i.Key))))
		switch {
		case err == nil:
			found[i.Key] = "staged"
		case errors.Is(err, fs.ErrNotExist):
			found[i.Key] = "kept"
		default:
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// overwrite replaces the bytes of the one object whose key contains a text.
func (d *testAPI) overwrite(t testing.TB, in string, data []byte) {
	t.Helper()
	for key := range d.objects(t) {
		if strings.Contains(key, in) {
			path := filepath.Join(d.dir, "objects", key)
			if err := errors.Join(os.Remove(path), os.WriteFile(path, data, 0o600)); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("there is no object %s", in)
}

// now returns the time on the registry's clock.
func (d *testAPI) now() time.Time {
	if stopped := d.stopped.Load(); stopped != nil {
		return *stopped
	}
	return time.Now()
}

// at stops the registry's clock at a time after the first call of at.
func (d *testAPI) at(passed time.Duration) {
	if d.since.IsZero() {
		d.since = time.Now()
	}
	to := d.since.Add(passed)
	d.stopped.Store(&to)
}
