package disk_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/registry"
)

func digestOf(body string) objects.Digest {
	return objects.Digest{SHA256: sum(body), Size: int64(len(body))}
}

// request returns the PUT request of an upload with a body.
func request(t testing.TB, u objects.Upload, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, u.URL, strings.NewReader(body))
	for name, value := range u.Header {
		r.Header.Set(name, value)
	}
	return r
}

// stage stores an object via a signed URL.
func stage(t testing.TB, s *disk.Store, key, body string) {
	t.Helper()
	u, err := s.SignPut(t.Context(), key, digestOf(body))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if s.Handler().ServeHTTP(w, request(t, u, body)); w.Code != http.StatusOK {
		t.Fatalf("PUT of %s: %d %s", key, w.Code, w.Body)
	}
}

func has(t testing.TB, s *disk.Store, key string) bool {
	t.Helper()
	_, err := s.Stat(t.Context(), key)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	return err == nil
}

const baseURL = "https://127.0.0.1:8443"

// TestStagedExpire checks that signing a URL removes objects that were staged
// two days ago, but not permanent or newer ones.
func TestStagedExpire(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	s.BaseURL = baseURL
	begin := time.Now()
	at := func(after time.Duration) {
		s.Now = func() time.Time { return begin.Add(after) }
		if _, err := s.SignPut(t.Context(), "any", digestOf("any")); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a/staged", "a/kept", "later"} {
		stage(t, s, key, key)
	}
	if _, err := s.Keep(t.Context(), "a/kept"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutOnce(t.Context(), "put", strings.NewReader("put"), digestOf("put")); err != nil {
		t.Fatal(err)
	}
	tomorrow := begin.Add(24 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "staged", sum("later")), tomorrow, tomorrow); err != nil {
		t.Fatal(err)
	}
	at(47 * time.Hour)
	for _, key := range []string{"a/staged", "a/kept", "later", "put"} {
		if !has(t, s, key) {
			t.Errorf("after 47 hours %s is gone", key)
		}
	}
	at(49 * time.Hour)
	for key, want := range map[string]bool{"a/staged": false, "a/kept": true, "later": true, "put": true} {
		if has(t, s, key) != want {
			t.Errorf("after 49 hours %s is there: %t", key, !want)
		}
	}
	if _, err := s.Keep(t.Context(), "a/staged"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Keep of an expired object: %v", err)
	}
	// The object can be stored again, and is then new.
	s.Now = nil
	stage(t, s, "a/staged", "a/staged")
	if !staged(t, dir, "a/staged") || !staged(t, dir, "later") || staged(t, dir, "a/kept") {
		t.Error("the markers are not those of the staged objects")
	}
	at(49*time.Hour + 30*time.Minute) // the last sweep was less than an hour ago
	if !has(t, s, "a/staged") {
		t.Error("each URL sweeps")
	}
	at(73 * time.Hour)
	if has(t, s, "later") || has(t, s, "a/staged") {
		t.Error("after three days something is staged")
	}
}

// TestStagedAfterACrash checks that opening the store sweeps too, in every
// state that a killed process can leave.
func TestStagedAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	s.BaseURL = baseURL
	mark := func(key, content string) {
		name := filepath.Join(dir, "staged", sum(key))
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	age := func() {
		old := time.Now().Add(-49 * time.Hour)
		entries, err := os.ReadDir(filepath.Join(dir, "staged"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.Chtimes(filepath.Join(dir, "staged", e.Name()), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A PUT has created its marker but no object, or a sweep has removed the
	// object but not its marker. Then an operator stores the object.
	mark("left/1", "left/1")
	if err := s.PutOnce(t.Context(), "left/1", strings.NewReader("content"), digestOf("content")); err != nil {
		t.Fatal(err)
	}
	// In the same state, a PUT starts a new period of two days.
	mark("left/2", "left/2")
	age()
	stage(t, s, "left/2", "content")
	open(t, dir)
	if !has(t, s, "left/1") || staged(t, dir, "left/1") {
		t.Error("the object of PutOnce is staged or missing")
	}
	if !has(t, s, "left/2") || !staged(t, dir, "left/2") {
		t.Error("the new object has expired with the old marker")
	}
	// In the same state, nothing else happens.
	mark("left/3", "left/3")
	if _, err := s.Keep(t.Context(), "left/3"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Keep of a marker without an object: %v", err)
	}
	// Invalid markers remove nothing.
	for i, content := range []string{"", "left/1", "../url.key", "left"} {
		mark(fmt.Sprint("other ", i), content)
	}
	age()
	open(t, dir)
	if entries, err := os.ReadDir(filepath.Join(dir, "staged")); err != nil || len(entries) != 0 {
		t.Errorf("markers: %v, %v", entries, err)
	}
	if !has(t, s, "left/1") || has(t, s, "left/2") {
		t.Error("the sweep removed a permanent object, or did not remove a staged one")
	}
	if _, err := os.Stat(filepath.Join(dir, "url.key")); err != nil {
		t.Error(err)
	}
}

// TestKeepOrSweep runs Keep and a sweep by another process at once. If Keep
// succeeds, the object is permanent.
func TestKeepOrSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, other := open(t, dir), open(t, dir)
	s.BaseURL = baseURL
	var permanent, expired int
	for i := range 50 {
		key := fmt.Sprint("key/", i)
		stage(t, s, key, key)
		old := time.Now().Add(-49 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "staged", sum(key)), old, old); err != nil {
			t.Fatal(err)
		}
		var (
			wait sync.WaitGroup
			err  error
		)
		wait.Go(func() {
			time.Sleep(time.Duration(i%5) * 50 * time.Microsecond)
			_, err = s.Keep(t.Context(), key)
		})
		wait.Go(func() {
			time.Sleep(time.Duration(i/5%5) * 50 * time.Microsecond)
			disk.Sweep(other)
		})
		wait.Wait()
		switch {
		case err == nil:
			permanent++
		case errors.Is(err, registry.ErrNotFound):
			expired++
		default:
			t.Error(err)
		}
		if has(t, s, key) != (err == nil) || staged(t, dir, key) {
			t.Fatalf("Keep: %v; the object is there: %t", err, has(t, s, key))
		}
	}
	t.Logf("%d are permanent, %d expired", permanent, expired)
}

// TestUploadsAtOnce uploads objects to one key through two processes. One
// object is stored.
func TestUploadsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stores := []*disk.Store{open(t, dir), open(t, dir)}
	for round := range 10 {
		key := fmt.Sprint("key/", round)
		var (
			wait     sync.WaitGroup
			statuses [8]int
			put      error
		)
		for i := range statuses {
			s := stores[i%2]
			s.BaseURL = baseURL
			body := strings.Repeat(string(rune('a'+i)), 1000)
			u, err := s.SignPut(t.Context(), key, digestOf(body))
			if err != nil {
				t.Fatal(err)
			}
			wait.Go(func() {
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, request(t, u, body))
				statuses[i] = w.Code
			})
		}
		// An operator may store an object at the same time. An object that
		// PutOnce finds or stores is permanent.
		wait.Go(func() { put = stores[0].PutOnce(t.Context(), key, strings.NewReader("put"), digestOf("put")) })
		wait.Wait()
		won := 0
		for _, status := range statuses {
			if status == http.StatusOK {
				won++
			} else if status != http.StatusPreconditionFailed {
				t.Errorf("status %d", status)
			}
		}
		if put == nil {
			won++
		} else if !errors.Is(put, registry.ErrExists) {
			t.Error(put)
		}
		if won != 1 || staged(t, dir, key) || !has(t, stores[0], key) {
			t.Errorf("%v and %v: %d have won, staged: %t", statuses, put, won, staged(t, dir, key))
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "unfinished")); err != nil || len(left) != 0 {
		t.Errorf("unfinished: %v, %v", left, err)
	}
}

// TestBrokenUpload checks that an incomplete body leaves nothing.
func TestBrokenUpload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	s.BaseURL = server.URL
	const body = "0123456789"
	u, err := s.SignPut(t.Context(), "k", digestOf(body))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	off, err := new(net.Dialer).DialContext(t.Context(), "tcp", signed.Host)
	if err != nil {
		t.Fatal(err)
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "PUT %s HTTP/1.1\r\nHost: %s\r\n", signed.RequestURI(), signed.Host)
	for name, value := range u.Header {
		fmt.Fprintf(&head, "%s: %s\r\n", name, value)
	}
	fmt.Fprint(&head, "\r\n", body[:4])
	if _, err := off.Write(head.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := off.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, _ := http.ReadResponse(bufio.NewReader(off), nil)
	if answer == nil || answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a body that breaks off: %v", answer)
	}
	off.Close()
	if has(t, s, "k") || staged(t, dir, "k") {
		t.Error("half a body is stored")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "unfinished")); err != nil || len(left) != 0 {
		t.Errorf("unfinished: %v, %v", left, err)
	}
}

// TestUploadAnswers checks that all responses to a PUT are JSON and contain no
// details.
func TestUploadAnswers(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	s.BaseURL = baseURL
	u, err := s.SignPut(t.Context(), "k", digestOf("content"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		body   string
		edit   func(*http.Request)
		status int
		want   string
	}{
		{"CONTENT", nil, 400, `{"errors":["malformed request"],"code":"invalid"}`},
		{
			"content", func(r *http.Request) { r.Header.Del("If-None-Match") }, 403,
			`{"errors":["forbidden"],"code":"forbidden"}`,
		},
		{
			"content", func(r *http.Request) { r.Header.Add("If-None-Match", "*") }, 403,
			`{"errors":["forbidden"],"code":"forbidden"}`,
		},
		{
			"content", func(r *http.Request) { r.Header.Add("Content-Encoding", "gzip") }, 403,
			`{"errors":["forbidden"],"code":"forbidden"}`,
		},
		{"content", func(r *http.Request) { r.ContentLength = -1 }, 403, `{"errors":["forbidden"],"code":"forbidden"}`},
		{
			"content", func(r *http.Request) { r.URL.Path = "/objects/k" }, 405,
			`{"errors":["method not allowed"],"code":"method_not_allowed"}`,
		},
		{
			"content", func(r *http.Request) { r.Method = http.MethodGet }, 405,
			`{"errors":["method not allowed"],"code":"method_not_allowed"}`,
		},
		{"content", nil, 200, `{}`},
		{"content", nil, 412, `{"errors":["precondition failed"],"code":"precondition_failed"}`},
	} {
		r := request(t, u, test.body)
		if test.edit != nil {
			test.edit(r)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("status %d, want %d", w.Code, test.status)
		}
		if got := w.Body.String(); got != test.want+"\n" {
			t.Errorf("body %s, want %s", got, test.want)
		}
		checkErrorHeader(t, w.Header())
	}
}

// TestPutLifetime checks that the default lifetime of a URL to PUT is an hour,
// for any lifetime of URLs to GET.
func TestPutLifetime(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	s.BaseURL = baseURL
	signed := time.Now()
	for lifetime, hold := range map[time.Duration]time.Duration{0: time.Hour, 5 * time.Minute: 5 * time.Minute} {
		s.Now = func() time.Time { return signed }
		s.Lifetime, s.PutLifetime = 12*time.Hour, lifetime
		key := "k/" + lifetime.String()
		u, err := s.SignPut(t.Context(), key, digestOf("content"))
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{hold, 403}, {hold - 2*time.Second, 200}} {
			s.Now = func() time.Time { return signed.Add(step.after) }
			w := httptest.NewRecorder()
			if s.Handler().ServeHTTP(w, request(t, u, "content")); w.Code != step.want {
				t.Errorf("after %s: %d, want %d", step.after, w.Code, step.want)
			}
		}
	}
	if _, err := open(t, t.TempDir()).SignPut(t.Context(), "k", digestOf("content")); err == nil {
		t.Error("a URL is signed without a base")
	}
}

// FuzzPutQuery checks that a PUT is only accepted with the signed query, in any
// order and encoding.
func FuzzPutQuery(f *testing.F) {
	s, err := disk.Open(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	s.BaseURL = baseURL
	now := time.Now()
	s.Now = func() time.Time { return now }
	u, err := s.SignPut(f.Context(), "a/key", digestOf("content"))
	if err != nil {
		f.Fatal(err)
	}
	signed, err := url.Parse(u.URL)
	if err != nil {
		f.Fatal(err)
	}
	q := signed.Query()
	for _, seed := range []string{
		signed.RawQuery, "signature=" + q.Get("signature") + "&expires=" + q.Get("expires"), signed.RawQuery + "&x=1",
		signed.RawQuery + "&expires=9999999999", signed.RawQuery + ";", strings.ToUpper(signed.RawQuery),
		strings.Replace(signed.RawQuery, "expires=", "expires=0", 1),
		strings.Replace(signed.RawQuery, "expires=", "expires=%2b", 1),
		"expires=" + q.Get("expires") + "%0a7&signature=" + q.Get("signature"), "expires=&signature=", "expires&signature",
		"&&&", "%zz", "",
	} {
		f.Add(seed, "a/key")
	}
	f.Add(signed.RawQuery, "a/key2")
	f.Add(signed.RawQuery, "a/key\n"+q.Get("expires"))
	f.Fuzz(func(t *testing.T, query, key string) {
		r := request(t, u, "CONTENT") // wrong bytes, so that an accepted request stores nothing
		r.URL.RawQuery, r.URL.Path = query, disk.PutPath+key
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		got, err := url.ParseQuery(query)
		same := err == nil && maps.EqualFunc(got, q, slices.Equal) && key == "a/key"
		if (w.Code == http.StatusBadRequest) != same || w.Code < 300 || w.Code >= 500 {
			t.Errorf("%q, %q: %d %s", query, key, w.Code, w.Body)
		}
	})
}
