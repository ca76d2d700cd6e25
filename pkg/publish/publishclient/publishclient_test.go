package publishclient_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	token  = "s3cr3t-t0ken"
	signed = "s1gnature-in-a-url"
)

// fake is a registry that follows the protocol, except for its faults.
type fake struct {
	dir string // of the last publisher's configuration

	t      *testing.T
	server *httptest.Server
	url    string
	// fault may respond to a request in place of the registry, and reports
	// whether it did. n counts the requests of a kind from 1. Kinds are begin,
	// put NAME, inspect, commit, abort and deprecation.
	fault func(kind string, n int, w http.ResponseWriter, r *http.Request) bool
	// record is the response to a commit.
	record protocol.Published

	mu        sync.Mutex
	requests  map[string]int
	order     []string
	stored    map[string][]byte // by SHA-256
	announced protocol.Announcement
	committed bool
	lost      bool   // whether an upload does not continue the one before it
	said      string // of the last deprecation
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, requests: make(map[string]int), stored: make(map[string][]byte)}
	f.server = httptest.NewUnstartedServer(f)
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.server.StartTLS()
	t.Cleanup(f.server.Close)
	f.url = f.server.URL
	return f
}

func (f *fake) host() string { return strings.TrimPrefix(f.server.URL, "https://") }

// publisher returns a client with a token, or without one.
func (f *fake) publisher(t *testing.T, p progress.Reporter, token string) *publishclient.Publisher {
	t.Helper()
	f.dir = t.TempDir()
	file := filepath.Join(f.dir, "tofurc")
	if err := os.WriteFile(
		file, fmt.Appendf(nil, "credentials %q {\n  token = %q\n}\n", f.host(), token), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + file}, "")
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(config, "larder/test", f.server.Client().Transport)
	c.Wait = time.Millisecond
	publisher, err := publishclient.Open(t.Context(), c, f.host())
	if err != nil {
		t.Fatal(err)
	}
	publisher.Progress, publisher.Interval = p, time.Millisecond
	return publisher
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func complain(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string][]string{"errors": {text}})
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/.well-known/terraform.json" {
		answer(w, 200, map[string]string{protocol.PublishService: protocol.PublishPath})
		return
	}
	f.mu.Lock()
	kind := f.kind(r)
	f.requests[kind]++
	n := f.requests[kind]
	f.order = append(f.order, kind)
	f.mu.Unlock()

	authorization := r.Header.Get("Authorization")
	if name, put := strings.CutPrefix(kind, "put "); put {
		if authorization != "" || r.Header.Get("Cookie") != "" {
			f.t.Errorf("the upload of %s has a credential", name)
		}
		if r.Header.Get("If-None-Match") != "*" || r.Header.Get("X-Given") != "as it is, "+name ||
			r.URL.RawQuery != "X-Amz-Signature="+signed {
			f.t.Errorf("the upload of %s: %s %v", name, r.URL, r.Header)
		}
	} else if authorization != "Bearer "+token {
		answer(w, 401, map[string]any{"errors": []string{"authentication required"}, "code": "unauthenticated"})
		return
	}
	if f.fault != nil && f.fault(kind, n, w, r) {
		return
	}
	switch verb, name, _ := strings.Cut(kind, " "); verb {
	case "begin":
		f.begin(w, r)
	case "put":
		f.put(w, r, name)
	case "inspect":
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, file := range f.announced.Files {
			if data, there := f.stored[file.SHA256]; !there || int64(len(data)) != file.Size {
				complain(w, 409, file.Name+" is not uploaded yet")
				return
			}
		}
		answer(w, 200, protocol.Inspected{Passed: true, Files: len(f.announced.Files)})
	case "commit":
		f.mu.Lock()
		defer f.mu.Unlock()
		f.committed = true
		answer(w, 200, f.record)
	case "deprecation":
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.said = r.URL.Path + " " + strings.TrimSpace(string(body))
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// kind returns the kind of a request. The caller must hold the lock of f.
func (f *fake) kind(r *http.Request) string {
	path := strings.Split(r.URL.Path, "/")
	last := path[len(path)-1]
	switch {
	case r.Method == http.MethodPut && last == "deprecation":
		return "deprecation"
	case r.Method == http.MethodPut:
		return "put " + last
	case r.Method == http.MethodDelete:
		return "abort"
	case last == "uploads":
		return "begin"
	}
	return last
}

func (f *fake) begin(w http.ResponseWriter, r *http.Request) {
	var a protocol.Announcement
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announced = a
	if f.committed {
		answer(w, 200, protocol.Begun{Published: &f.record})
		return
	}
	begun := protocol.Begun{Upload: fmt.Sprintf("UPLOAD%d", f.requests["begin"]), ExpiresAt: time.Now().Add(time.Hour)}
	for _, file := range a.Files {
		put := protocol.Put{Name: file.Name}
		put.Stored = f.stored[file.SHA256] != nil && !f.lost
		if !put.Stored {
			put.URL = f.url + "/bucket/" + file.SHA256 + "/" + file.Name + "?X-Amz-Signature=" + signed
			put.Header = map[string]string{
				"Content-Length": fmt.Sprint(file.Size), "If-None-Match": "*", "X-Given": "as it is, " + file.Name,
			}
		}
		begun.Files = append(begun.Files, put)
	}
	answer(w, 201, begun)
}

func (f *fake) put(w http.ResponseWriter, r *http.Request, name string) {
	f.mu.Lock()
	stored := f.stored[strings.Split(r.URL.Path, "/")[2]] != nil
	f.mu.Unlock()
	if stored {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	sum := sha256.Sum256(data)
	at := hex.EncodeToString(sum[:])
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.ContentLength != int64(len(data)) || strings.Split(r.URL.Path, "/")[2] != at:
		f.t.Errorf("the bytes of %s are others", name)
		w.WriteHeader(400)
	case f.stored[at] != nil:
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		f.stored[at] = data
	}
}

// count returns the number of requests of a kind.
func (f *fake) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for k, v := range f.requests {
		if k == kind || strings.HasPrefix(k, kind+" ") {
			n += v
		}
	}
	return n
}

// sent returns how much of a file was uploaded.
func sent(p *progresstest.Recorder, name string) (n int) {
	for _, one := range p.Transfers("uploading " + name) {
		if one.What == "uploading "+name {
			n += int(one.Moved)
		}
	}
	return n
}

func module(t *testing.T) *rules.PreparedModule {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"main.tf", "x.tfvars"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("# a module\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	version, err := registry.ParseTag("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := new(rules.Preparer).Module(t.Context(), rules.Module{
		Dir: dir, Address: registry.Module{
			Namespace: "acme", Name: "vpc", System: "aws",
		}, Version: version, Description: "A network",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(prepared.Close)
	return prepared
}

var signer = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })

// release returns a release for three platforms.
func release(t *testing.T) *rules.PreparedProvider {
	t.Helper()
	dir := t.TempDir()
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_arm64"} {
		var out bytes.Buffer
		z := zip.NewWriter(&out)
		header := &zip.FileHeader{Name: "terraform-provider-inventory_v1.0.0", Method: zip.Store}
		header.SetMode(0o755)
		w, err := z.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		// Larger than files that are sent without 100 Continue.
		_, _ = io.WriteString(w, platform+strings.Repeat("program ", 20<<10))
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(
			filepath.Join(dir, "terraform-provider-inventory_1.0.0_"+platform+".zip"), out.Bytes(), 0o600,
		); err != nil {
			t.Fatal(err)
		}
	}
	manifest := `{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`
	if err := os.WriteFile(filepath.Join(dir, "terraform-registry-manifest.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := signer()
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := new(rules.Preparer).Provider(t.Context(), rules.Provider{
		Dir: dir, Address: registry.Provider{Namespace: "acme", Type: "inventory"}, SignKey: key.Private,
	})
	if err != nil {
		t.Fatal(err)
	}
	return prepared
}

// recorded returns the record that a registry would publish.
func recorded(m *rules.PreparedProvider) protocol.Published {
	record := m.Record
	record.PublishedBy = registry.Publisher{Kind: registry.PublisherUser, Name: "somebody"}
	return protocol.Published{Provider: &record}
}

func TestModule(t *testing.T) {
	t.Parallel()
	f, p := newFake(t), &progresstest.Recorder{}
	m := module(t)
	record := m.Record
	record.PublishedBy = registry.Publisher{Kind: registry.PublisherToken, Name: "ci"}
	f.record = protocol.Published{Module: &record}
	publisher := f.publisher(t, p, token)
	result, err := publisher.Module(t.Context(), m)
	if err != nil || result.Unchanged || result.Record.PublishedBy.String() != "token ci" || len(result.Files) != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	if want := []string{"begin", "put vpc.tar.gz", "inspect", "commit"}; !slices.Equal(f.order, want) {
		t.Errorf("requests: %q", f.order)
	}
	if a := f.announced; a.ContentSHA256 != record.ContentSHA256 || a.Description != "A network" || len(a.Files) != 1 ||
		a.Files[0] != (protocol.File{Name: "vpc.tar.gz", Size: record.Size, SHA256: record.SHA256}) {
		t.Errorf("announced: %+v", a)
	}
	if sent(p, "acme/vpc/aws 1.0.0") != int(record.Size) {
		t.Errorf("progress: %v of %d", p.Transfers(""), record.Size)
	}
	if len(result.Excluded) != 1 || result.Excluded[0].Path != "x.tfvars" {
		t.Errorf("left out: %+v", result.Excluded)
	}
	for _, notCompared := range []bool{false, true} {
		f.record.NotCompared = notCompared
		again, err := publisher.Module(t.Context(), m)
		if err != nil || !again.Unchanged || f.count("put") != 1 || f.count("commit") != 1 {
			t.Errorf("again: %+v, %v", again, err)
		}
		if again.NotCompared != notCompared {
			t.Errorf("not compared: %t, want %t", again.NotCompared, notCompared)
		}
	}
}

func TestProvider(t *testing.T) {
	t.Parallel()
	f, p := newFake(t), &progresstest.Recorder{}
	m := release(t)
	f.record = recorded(m)
	publisher := f.publisher(t, p, token)
	result, err := publisher.Provider(t.Context(), m)
	if err != nil || result.Unchanged || result.Record.PublishedBy.String() != "somebody" {
		t.Fatalf("%+v, %v", result, err)
	}
	slices.Sort(f.order[1:4]) // they are sent at once
	want := []string{"begin"}
	for _, file := range m.Zips() {
		want = append(want, "put "+file.Name)
	}
	slices.Sort(want[1:])
	if diff := cmp.Diff(append(want, "inspect", "commit"), f.order); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	announced := f.announced
	announced.Files = nil
	if diff := cmp.Diff(m.Announcement(), announced); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	if !slices.Equal(announced.Protocols, []string{"6.0"}) {
		t.Errorf("announced protocols are not those of the manifest: %v", announced.Protocols)
	}
	total := 0
	for _, file := range m.Zips() {
		if sent(p, file.Name) != int(file.Size) {
			t.Errorf("progress of %s: %d of %d", file.Name, sent(p, file.Name), file.Size)
		}
		total += int(file.Size)
	}
	if sent(p, "3 files") != total {
		t.Errorf("progress: %d of %d", sent(p, "3 files"), total)
	}
}

// status responds with a status, and with a text unless it is empty.
func status(code int, text string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if text == "" {
			w.WriteHeader(code)
		} else {
			complain(w, code, text)
		}
		return true
	}
}

func xml(code int, name string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(code)
		fmt.Fprintf(w, "<Error><Code>%s</Code><CanonicalRequest>%s</CanonicalRequest></Error>", name, r.URL)
		return true
	}
}

func conflict(text string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Retry-After", "1")
		return status(409, text)(w, r)
	}
}

// badIssuer responds like a registry that cannot use an issuer.
func badIssuer(w http.ResponseWriter, _ *http.Request) bool {
	answer(w, 503, map[string]any{
		"errors": []string{"cannot check the credential: its certificate has expired"}, "code": "issuer", "hint": "Renew it.",
	})
	return true
}

// breaks closes the connection in the middle of an upload.
func breaks(_ http.ResponseWriter, r *http.Request) bool {
	_, _ = io.ReadFull(r.Body, make([]byte, 1000))
	panic(http.ErrAbortHandler)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const linux = "terraform-provider-inventory_1.0.0_linux_amd64.zip"
	const signature = "terraform-provider-inventory_1.0.0_SHA256SUMS.sig"
	const put, inspect = "put " + linux, "inspect"
	type (
		answers = func(http.ResponseWriter, *http.Request) bool
		counts  = map[string]int
	)
	tests := map[string]struct {
		kind   string // of the requests that get this response at first
		times  int
		answer answers
		err    error // nil if the release is published
		not    error
		lost   bool // the registry no longer has the upload
		counts counts
	}{
		"broken upload":   {kind: put, times: 2, answer: breaks, counts: counts{put: 3, "begin": 1}},
		"unavailable":     {kind: put, times: 1, answer: status(503, ""), counts: counts{put: 2}},
		"in another's":    {kind: put, times: 1, answer: xml(409, "ConditionalRequestConflict"), counts: counts{put: 2}},
		"slow connection": {kind: put, times: 1, answer: xml(400, "RequestTimeout"), counts: counts{put: 2}},
		"broken for good": {
			kind: put, times: 99, answer: breaks, err: registry.ErrUnavailable,
			counts: counts{put: 3, "begin": 1, inspect: 0, "abort": 0},
		},
		"other bytes": {kind: put, times: 99, answer: xml(
			400, "XAmzContentChecksumMismatch",
		), err: registry.ErrInvalid, counts: counts{put: 1, "abort": 0}},
		"slow for good": {
			kind: put, times: 99, answer: xml(400, "RequestTimeout"), err: registry.ErrInvalid, counts: counts{"abort": 0},
		},
		"refused by a proxy": {
			kind: inspect, times: 99, answer: status(403, ""), err: registry.ErrForbidden, counts: counts{"abort": 0},
		},
		"expired": {kind: put, times: 1, answer: xml(403, "AccessDenied"), counts: counts{put: 2, "begin": 2, "abort": 0}},
		"expired with its signer": {
			kind: put, times: 1, answer: xml(400, "ExpiredToken"), counts: counts{put: 2, "begin": 2},
		},
		"expired for good": {
			kind: put, times: 99, answer: xml(403, "AccessDenied"), err: errAny, not: registry.ErrForbidden,
			counts: counts{put: 2, "begin": 2, "abort": 0, "commit": 0},
		},
		"redirected": {kind: put, times: 99, answer: func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return true
		}, err: errAny, counts: counts{put: 1, "put elsewhere": 0}},
		"inspection takes long": {kind: inspect, times: 3, answer: func(w http.ResponseWriter, _ *http.Request) bool {
			answer(w, 202, protocol.Inspected{})
			return true
		}, counts: counts{inspect: 4, "commit": 1}},
		"gateway gives up":         {kind: inspect, times: 4, answer: status(503, ""), counts: counts{inspect: 5}},
		"another gateway gives up": {kind: inspect, times: 1, answer: status(504, ""), counts: counts{inspect: 2}},
		"cannot inspect": {
			kind: inspect, times: 99, answer: status(500, "internal error"), err: registry.ErrUnavailable,
			counts: counts{inspect: 9, "abort": 0, "commit": 0},
		},
		"refused": {kind: inspect, times: 99, answer: status(
			400, linux+": invalid provider zip: it unpacks to more than 200 times its size",
		), err: registry.ErrInvalid, counts: counts{inspect: 1, "abort": 1, "commit": 0}},
		"signed by a stranger": {kind: "begin", times: 99, answer: status(
			400, signature+": invalid signature by key 0000000000000001: the key is not one of 0000000000000002",
		), err: registry.ErrInvalid, counts: counts{"put": 0, "abort": 0, "commit": 0}},
		"lost": {
			kind: inspect, times: 1, answer: status(404, "you have no such upload"), lost: true,
			counts: counts{"begin": 2, "put": 6, "abort": 0, "commit": 1},
		},
		"lost for good": {
			kind: inspect, times: 99, answer: status(404, "you have no such upload"), err: errAny, not: registry.ErrNotFound,
			lost: true, counts: counts{"begin": 2, "commit": 0, "abort": 0},
		},
		"lost without a reason": {
			kind: inspect, times: 99, answer: status(404, ""), err: errAny, not: registry.ErrNotFound, lost: true,
		},
		"other content": {
			kind: "begin", times: 99, answer: status(409, "it is already published with different content"),
			err: registry.ErrExists, counts: counts{"begin": 1, "put": 0, "abort": 0},
		},
		"damaged": {kind: "begin", times: 99, answer: func(w http.ResponseWriter, _ *http.Request) bool {
			answer(w, 500, map[string]any{"errors": []string{"its file was damaged"}, "code": "corrupt"})
			return true
		}, err: registry.ErrCorrupt, not: registry.ErrUnavailable, counts: counts{"abort": 0}},
		"unusable issuer": {
			kind: inspect, times: 99, answer: badIssuer, err: registry.ErrIssuer,
			counts: counts{inspect: 1, "abort": 0, "commit": 0},
		},
		"unusable issuer in the commit": {
			kind: "commit", times: 99, answer: badIssuer, err: registry.ErrIssuer,
			counts: counts{"begin": 1, "commit": 1, "abort": 0},
		},
		"unusable issuer at first": {
			kind: "begin", times: 99, answer: badIssuer, err: registry.ErrIssuer, counts: counts{"begin": 1, "put": 0},
		},
		"fails with its own text": {
			kind: "begin", times: 99, answer: status(500, "out of order"), err: registry.ErrUnavailable,
			not: registry.ErrCorrupt, counts: counts{"abort": 0},
		},
		"too many": {
			kind: "begin", times: 99, answer: status(403, "you have 10 uploads in progress, which is the limit"),
			err: registry.ErrForbidden,
		},
		"no scope": {kind: "begin", times: 99, answer: status(403, "forbidden"), err: registry.ErrForbidden},
		"bad token": {
			kind: "begin", times: 99, answer: status(401, "invalid credential"), err: registry.ErrBadCredential,
		},
		"begins the second": {kind: "begin", times: 1, answer: status(503, ""), counts: counts{"begin": 2}},
		"faster": {
			kind: "commit", times: 2, answer: conflict("conflicting write, try again"), counts: counts{"commit": 3},
		},
		"not inspected": {
			kind: "commit", times: 99, answer: conflict(linux + " has not passed inspection yet"), err: registry.ErrConflict,
			counts: counts{"commit": 3, "abort": 0},
		},
		"other was faster": {
			kind: "commit", times: 99, answer: status(409, "it is already published with different content"),
			err: registry.ErrExists, counts: counts{"commit": 1, "abort": 1},
		},
		"commit fails": {
			kind: "commit", times: 99, answer: status(500, ""), err: registry.ErrUnavailable, counts: counts{"abort": 0},
		},
		"commit times out": {kind: "commit", times: 3, answer: status(504, ""), counts: counts{"commit": 4}},
		"commit is lost": {
			kind: "commit", times: 1, answer: status(404, "you have no such upload"), lost: true,
			counts: counts{"begin": 2, "put": 6, "commit": 2, "abort": 0},
		},
		"commit is always lost": {kind: "commit", times: 99, answer: status(
			404, "you have no such upload",
		), err: errAny, not: registry.ErrNotFound, lost: true, counts: counts{"begin": 2, "commit": 2, "abort": 0}},
		"a file is missing": {
			kind: "commit", times: 99, answer: conflict(linux + " was changed or removed after its inspection"),
			err: registry.ErrConflict, counts: counts{"abort": 0},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := newFake(t), &progresstest.Recorder{}
			m := release(t)
			f.record, f.lost = recorded(m), test.lost
			f.fault = func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
				return kind == test.kind && n <= test.times && test.answer(w, r)
			}
			record := func(err error) {
				texts.Error(t, err, replacements(f)...)
				for _, never := range []string{signed, token} {
					if strings.Contains(shown(err), never) {
						t.Errorf("%q has %q in it", shown(err), never)
					}
				}
			}
			result, err := f.publisher(t, p, token).Provider(t.Context(), m)
			switch {
			case test.err == nil:
				if err != nil {
					t.Error(err)
				}
				if by := result.Record.PublishedBy.String(); by != "somebody" {
					t.Errorf("published by %q", by)
				}
				if !f.committed {
					t.Error("nothing was committed")
				}
				for _, file := range m.Zips() {
					want := int(file.Size)
					if test.lost {
						want *= 2 // the store has the file at the second attempt, which is then complete
					}
					if got := sent(p, file.Name); got != want {
						t.Errorf("progress of %s: %d of %d", file.Name, got, want)
					}
				}
			case err == nil || !errors.Is(test.err, errAny) && !errors.Is(err, test.err) ||
				test.not != nil && errors.Is(err, test.not):
				t.Errorf("%v, want %v", err, test.err)
			default:
				record(err)
			}
			texts.Text(t, "steps: "+strings.Join(p.Steps(), "; ")+"\n", f.host(), "HOST")
			for kind, n := range test.counts {
				if got := f.count(kind); got != n {
					t.Errorf("%d requests to %s, want %d: %q", got, kind, n, f.order)
				}
			}
		})
	}
}

// replacements replace the parts of an error that vary from run to run.
func replacements(f *fake) []string {
	return []string{
		f.host(), "HOST", f.dir, "DIR", "the connection ended early", "BROKEN", "the connection failed", "BROKEN",
		"connection reset by peer", "BROKEN", "broken pipe", "BROKEN",
		"Check the host name and the network, and try again later.", "HINT", client.TryLater, "HINT",
	}
}

// errAny is any error.
var errAny = errors.New("any")

// After a timeout or an interruption, the next publish does not upload files
// again.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	f, p := newFake(t), &progresstest.Recorder{}
	m := release(t)
	f.record = recorded(m)
	ctx, cancel := context.WithCancel(t.Context())
	f.fault = func(kind string, n int, _ http.ResponseWriter, r *http.Request) bool {
		if kind == "inspect" && n == 1 {
			cancel()
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // a response could still arrive
		}
		return false
	}
	publisher := f.publisher(t, p, token)
	_, err := publisher.Provider(ctx, m)
	if _, ok := errors.AsType[*publishclient.InterruptedError](err); !ok {
		t.Errorf("got %v, want an InterruptedError", err)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	texts.Error(t, err)
	if f.count("abort") != 0 || f.count("commit") != 0 {
		t.Errorf("requests: %q", f.order)
	}
	for sum := range f.stored {
		if sum == m.Files[1].SHA256 {
			delete(f.stored, sum)
		}
	}
	before := f.count("put")
	if _, err := publisher.Provider(t.Context(), m); err != nil {
		t.Error(err)
	}
	f.committed = false
	if got := f.count("put") - before; got != 1 {
		t.Errorf("%d more uploads, want 1: %q", got, p.Steps())
	}
	if !p.HasStep("2 of 3 files") {
		t.Errorf("the steps do not name the stored files: %q", p.Steps())
	}
	// An interrupted commit may have succeeded.
	ctx, cancel = context.WithCancel(t.Context())
	f.fault = func(kind string, _ int, _ http.ResponseWriter, r *http.Request) bool {
		if kind == "commit" {
			cancel()
			<-r.Context().Done()
			f.mu.Lock()
			defer f.mu.Unlock()
			f.committed = true
			panic(http.ErrAbortHandler) // a response could still arrive
		}
		return false
	}
	aborted := f.count("abort")
	_, err = publisher.Provider(ctx, m)
	if _, ok := errors.AsType[*publishclient.InterruptedError](err); !ok {
		t.Errorf("got %v, want an InterruptedError", err)
	}
	texts.Error(t, err)
	if f.count("abort") != aborted {
		t.Error("the upload was aborted")
	}
	f.fault = nil
	if _, err := publisher.Provider(t.Context(), m); err != nil {
		t.Error(err)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	f := newFake(t)
	f.fault = func(kind string, _ int, w http.ResponseWriter, _ *http.Request) bool {
		if !strings.HasPrefix(kind, "inspect") {
			return false
		}
		answer(w, 202, protocol.Inspected{})
		return true
	}
	publisher := f.publisher(t, nil, token)
	publisher.Timeout = 20 * time.Millisecond
	_, err := publisher.Module(t.Context(), module(t))
	if !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("%v is not registry.ErrUnavailable", err)
	}
	texts.Error(t, err, f.host(), "HOST")
	for _, body := range []string{
		`{"errors":["out of order"],"code":"unavailable","hint":"Ask the operator."}`,
		`{"errors":["out of order"],"code":"unavailable"}`,
	} {
		f.fault = func(kind string, _ int, w http.ResponseWriter, _ *http.Request) bool {
			if !strings.HasPrefix(kind, "inspect") {
				return false
			}
			answer(w, 503, json.RawMessage(body))
			return true
		}
		_, err := publisher.Module(t.Context(), module(t))
		texts.Text(t, "hint: "+registry.Hint(err)+"\n")
	}
}

// The time for an inspection begins again whenever a file has passed.
func TestTimeoutOfEachFile(t *testing.T) {
	t.Parallel()
	m := release(t)
	f := newFake(t)
	f.record = recorded(m)
	p := f.publisher(t, nil, token)
	const polls = 4 // for each file
	for name, test := range map[string]struct {
		passing int // how many files pass
		want    error
	}{
		"all pass": {passing: 3}, "the last one does not": {passing: 2, want: registry.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			inspect := func() protocol.Inspected {
				requests++
				passed := min(requests/polls, test.passing)
				return protocol.Inspected{Passed: passed == len(m.Zips()), Files: passed}
			}
			synctest.Test(t, func(t *testing.T) {
				publisher := *p
				publisher.Interval, publisher.Timeout = time.Second, (polls+1)*time.Second
				publisher.Client = client.New(nil, "larder/test", inMemory{f, inspect})
				var err error
				if publisher.Service, err = publisher.Client.Service(t.Context(), f.host(), protocol.PublishService); err != nil {
					t.Fatal(err)
				}
				if _, err := publisher.Provider(t.Context(), m); !errors.Is(err, test.want) {
					t.Errorf("%v, want %v", err, test.want)
				}
			})
		})
	}
}

// inMemory serves a registry without a network. Its files are stored already.
type inMemory struct {
	*fake
	inspect func() protocol.Inspected
}

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	switch kind := m.kind(r); kind {
	case "terraform.json":
		answer(w, 200, map[string]string{protocol.PublishService: protocol.PublishPath})
	case "begin":
		var a protocol.Announcement
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			return nil, err
		}
		begun := protocol.Begun{Upload: "UPLOAD"}
		for _, f := range a.Files {
			begun.Files = append(begun.Files, protocol.Put{Name: f.Name, Stored: true})
		}
		answer(w, 201, begun)
	case "inspect":
		found := m.inspect()
		answer(w, map[bool]int{true: 200, false: 202}[found.Passed], found)
	default:
		answer(w, 200, m.record)
	}
	response := w.Result()
	response.Request = r
	return response, nil
}

// Responses of the registry are validated.
func TestDishonest(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	begun := func(change func(*protocol.Begun)) func(*fake) {
		return func(f *fake) {
			f.fault = func(kind string, _ int, w http.ResponseWriter, r *http.Request) bool {
				if kind != "begin" {
					return false
				}
				recorder := httptest.NewRecorder()
				f.begin(recorder, r)
				var b protocol.Begun
				_ = json.Unmarshal(recorder.Body.Bytes(), &b)
				change(&b)
				answer(w, 201, b)
				return true
			}
		}
	}
	tests := map[string]func(*fake){
		"no files":          begun(func(b *protocol.Begun) { b.Files = nil }),
		"another file":      begun(func(b *protocol.Begun) { b.Files[0].Name = "../x" }),
		"no URL":            begun(func(b *protocol.Begun) { b.Files[0].URL = "" }),
		"no upload":         begun(func(b *protocol.Begun) { b.Upload = "" }),
		"an upload as path": begun(func(b *protocol.Begun) { b.Upload = "../../2.0.0/uploads/x" }),
		"http":              begun(func(b *protocol.Begun) { b.Files[0].URL = "http://example.com/?" + signed }),
		"a user":            begun(func(b *protocol.Begun) { b.Files[0].URL = "https://u:" + signed + "@example.com/" }),
		"no URL at all":     begun(func(b *protocol.Begun) { b.Files[0].URL = signed }),
		"another length":    begun(func(b *protocol.Begun) { b.Files[0].Header["Content-Length"] = "1" }),
		"a credential":      begun(func(b *protocol.Begun) { b.Files[0].Header["authorization"] = signed }),
		"another host":      begun(func(b *protocol.Begun) { b.Files[0].Header["host"] = "example.com" }),
		"a broken header":   begun(func(b *protocol.Begun) { b.Files[0].Header["X-Given"] = signed + "\n" }),
		"nothing published": func(f *fake) { f.record = protocol.Published{} },
		"another module": func(f *fake) {
			r := *f.record.Module
			r.ContentSHA256 = strings.Repeat("0", 64)
			f.record.Module = &r
		},
		"an odd sum":       func(f *fake) { r := *f.record.Module; r.SHA256 = "\x1b[31m"; f.record.Module = &r },
		"another there":    func(f *fake) { f.committed, f.record = true, protocol.Published{} },
		"neither of these": func(f *fake) { f.record = protocol.Published{Provider: &registry.ProviderVersion{}} },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			m := module(t)
			record := m.Record
			f.record = protocol.Published{Module: &record}
			change(f)
			_, err := f.publisher(t, &progresstest.Recorder{}, token).Module(t.Context(), m)
			if err == nil {
				t.Fatal("there is no error")
			}
			texts.Error(t, err, f.host(), "HOST")
			if strings.Contains(err.Error(), signed) {
				t.Errorf("the error has the URL's signature: %v", err)
			}
		})
	}
	for name, change := range map[string]func(*registry.ProviderVersion){
		"sums":      func(r *registry.ProviderVersion) { r.Sums.SHA256 = strings.Repeat("0", 64) },
		"protocols": func(r *registry.ProviderVersion) { r.Protocols = []string{"5.0"} },
		"packages":  func(r *registry.ProviderVersion) { r.Packages = r.Packages[1:] },
		"hash": func(r *registry.ProviderVersion) {
			r.Packages = slices.Clone(r.Packages)
			r.Packages[0].H1 = "h1:x"
		},
		"key": func(r *registry.ProviderVersion) { r.SigningKey = "\x1b[31m" },
	} {
		t.Run("other "+name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			m := release(t)
			f.record = recorded(m)
			change(f.record.Provider)
			_, err := f.publisher(t, nil, token).Provider(t.Context(), m)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%v is not registry.ErrInvalid", err)
			}
			texts.Error(t, err, f.host(), "HOST")
		})
	}
}

func TestDeprecate(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	publisher := f.publisher(t, nil, token)
	version, err := registry.ParseTag("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := publisher.Deprecate(
		t.Context(), "modules/acme/vpc/aws", &version, protocol.Deprecation{Message: "use 2.0.0", Hide: true},
	); err != nil || f.said != `/v1/publish/modules/acme/vpc/aws/1.0.0/deprecation {"message":"use 2.0.0","hide":true}` {
		t.Errorf("%q, %v", f.said, err)
	}
	if err := publisher.Deprecate(t.Context(), "providers/acme/inventory", nil, protocol.Deprecation{}); err != nil ||
		f.said != `/v1/publish/providers/acme/inventory/deprecation {"message":""}` {
		t.Errorf("%q, %v", f.said, err)
	}
	for code, want := range map[int]error{
		400: registry.ErrInvalid, 403: registry.ErrForbidden, 404: registry.ErrNotFound,
	} {
		f.fault = func(_ string, _ int, w http.ResponseWriter, r *http.Request) bool {
			return status(code, "no such thing")(w, r)
		}
		if err := publisher.Deprecate(
			t.Context(), "providers/acme/inventory", nil, protocol.Deprecation{},
		); !errors.Is(err, want) || err.Error() != f.host()+": no such thing" {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// shown returns the text of an error and its hint.
func shown(err error) string {
	if hint := registry.Hint(err); hint != "" {
		return err.Error() + "\n" + hint
	}
	return err.Error()
}

func TestNoCredential(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	f := newFake(t)
	_, err := f.publisher(t, nil, "").Module(t.Context(), module(t))
	if !errors.Is(err, registry.ErrUnauthenticated) {
		t.Errorf("%v is not registry.ErrUnauthenticated", err)
	}
	texts.Error(t, err, f.host(), "HOST", f.dir, "DIR")
}

// If the URLs expire before all uploads are done, new ones are requested as
// long as there is progress.
func TestExpiresAgain(t *testing.T) {
	t.Parallel()
	f, p := newFake(t), &progresstest.Recorder{}
	m := release(t)
	f.record = recorded(m)
	// With the URLs of each announcement, only the first file arrives.
	arrived := make(map[int]bool)
	f.fault = func(kind string, _ int, w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(kind, "put ") {
			return false
		}
		f.mu.Lock()
		began := f.requests["begin"]
		first := !arrived[began]
		arrived[began] = true
		f.mu.Unlock()
		return !first && xml(403, "AccessDenied")(w, r)
	}
	if _, err := f.publisher(t, p, token).Provider(t.Context(), m); err != nil || f.count("begin") != 3 ||
		f.count("abort") != 0 || len(f.stored) != 3 {
		t.Errorf("%v: %q", err, f.order)
	}
}

func TestNoEndpoint(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]string{"modules.v1": "/v1/modules/"})
	}))
	t.Cleanup(server.Close)
	_, err := publishclient.Open(
		t.Context(), client.New(nil, "larder/test", server.Client().Transport),
		strings.TrimPrefix(server.URL, "https://"),
	)
	if !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("%v is not registry.ErrNotFound", err)
	}
	texts.Error(t, err, strings.TrimPrefix(server.URL, "https://"), "HOST")
}
