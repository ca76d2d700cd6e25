// Package storetest is the conformance suite of objects.Store and objects.Stage. Every backend runs it.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Backend is a store under test.
type Backend struct {
	objects.Store
	objects.Stage
	// Remover removes objects, with the permission to do so.
	Remover
	// Client can connect to the store's URLs.
	Client *http.Client
	// SignFor is like SignGet with another lifetime. A negative lifetime returns
	// an expired URL.
	SignFor func(t *testing.T, key string, lifetime time.Duration) string
	// SignPutFor is like SignPut with another lifetime.
	SignPutFor func(t *testing.T, key string, digest objects.Digest, lifetime time.Duration) objects.Upload
	// Staged reports whether an object will expire.
	Staged func(t *testing.T, key string) bool
}

// Remover removes all objects below a prefix, which ends in a slash, with their
// metadata. It returns the number of removed objects. It returns nil if there
// are none, and registry.ErrInvalid for a prefix without a slash.
type Remover interface {
	Remove(ctx context.Context, prefix string) (removed int, err error)
}

// Run checks the contracts of [objects.Store] and [objects.Stage]. open returns
// an empty store.
func Run(t *testing.T, open func(*testing.T) Backend) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*testing.T, Backend)
	}{
		{"PutOnce", putOnce},
		{"WrongBytes", wrongBytes},
		{"Interrupted", interrupted},
		{"BadKeys", badKeys},
		{"Open", openRanges},
		{"Walk", walk},
		{"SignedURL", signedURL},
		{"AlteredURL", alteredURL},
		{"ExpiredURL", expiredURL},
		{"OneOfManyWriters", oneOfManyWriters},
		{"Upload", upload},
		{"UploadOfOtherBytes", uploadOfOtherBytes},
		{"UploadWithOtherHeaders", uploadWithOtherHeaders},
		{"AlteredUpload", alteredUpload},
		{"ExpiredUpload", expiredUpload},
		{"OneOfManyUploads", oneOfManyUploads},
		{"PutStaged", putStaged},
		{"Keep", keep},
		{"KeepByPutOnce", keepByPutOnce},
		{"BadUploads", badUploads},
		{"Remove", remove},
		{"RemoveWhilePutting", removeWhilePutting},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

const key = "modules/acme/vpc/aws/1.0.0-rc.1+b/00ff.tar.gz"

func digest(body string) objects.Digest {
	sum := sha256.Sum256([]byte(body))
	return objects.Digest{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body))}
}

func put(t *testing.T, s objects.Store, key, body string) {
	t.Helper()
	if err := s.PutOnce(t.Context(), key, strings.NewReader(body), digest(body)); err != nil {
		t.Fatalf("PutOnce(%s): %v", key, err)
	}
}

func content(t *testing.T, s objects.Store, key string, offset, length int64) string {
	t.Helper()
	body, err := s.Open(t.Context(), key, offset, length)
	if err != nil {
		t.Fatalf("Open(%s, %d, %d): %v", key, offset, length, err)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("reading %s: %v", key, err)
	}
	return string(got)
}

func keys(t *testing.T, s objects.Store, prefix string) []string {
	t.Helper()
	var found []string
	if err := s.Walk(t.Context(), prefix, func(i objects.Info) error {
		found = append(found, i.Key)
		return nil
	}); err != nil {
		t.Fatalf("Walk(%s): %v", prefix, err)
	}
	return found
}

func putOnce(t *testing.T, s Backend) {
	put(t, s, key, "first")
	for _, body := range []string{"other", "first"} {
		if err := s.PutOnce(t.Context(), key, strings.NewReader(body), digest(body)); !errors.Is(err, registry.ErrExists) {
			t.Errorf("PutOnce of %q over %q: %v, want ErrExists", body, "first", err)
		}
	}
	if got := content(t, s, key, 0, -1); got != "first" {
		t.Errorf("stored: %q", got)
	}
	info, err := s.Stat(t.Context(), key)
	age := time.Since(info.Modified)
	if err != nil || info.Key != key || info.Size != 5 || age > time.Hour || age < -time.Hour {
		t.Errorf("Stat = %+v, %v", info, err)
	}
	if err := s.Walk(t.Context(), key, func(walked objects.Info) error {
		// S3 rounds one of the two times to seconds.
		if walked.Size != info.Size || walked.Modified.Sub(info.Modified).Abs() > time.Second {
			t.Errorf("Walk = %+v, Stat = %+v", walked, info)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	put(t, s, "empty", "")
	if got := content(t, s, "empty", 0, -1); got != "" {
		t.Errorf("stored: %q", got)
	}
	if _, err := s.Stat(t.Context(), "modules/acme"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Stat of the beginning of a key: %v, want ErrNotFound", err)
	}
}

func wrongBytes(t *testing.T, s Backend) {
	good := digest("content")
	for name, test := range map[string]struct {
		body string
		d    objects.Digest
	}{
		"another digest":        {"content", objects.Digest{SHA256: digest("other").SHA256, Size: good.Size}},
		"upper-case digest":     {"content", objects.Digest{SHA256: strings.ToUpper(good.SHA256), Size: good.Size}},
		"shorter than expected": {"content", objects.Digest{SHA256: good.SHA256, Size: good.Size + 1}},
		"longer than expected":  {"content and more", good},
	} {
		if err := s.PutOnce(t.Context(), key, strings.NewReader(test.body), test.d); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if found := keys(t, s, ""); len(found) != 0 {
		t.Errorf("stored: %q", found)
	}
	put(t, s, key, "content")
}

func interrupted(t *testing.T, s Backend) {
	err := s.PutOnce(t.Context(), key, Broken(strings.NewReader("half and half"), 4), digest("half and half"))
	if err == nil {
		t.Error("PutOnce of a body that breaks off succeeds")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.PutOnce(ctx, key, strings.NewReader("content"), digest("content")); err == nil {
		t.Error("PutOnce with a cancelled context succeeds")
	}
	if found := keys(t, s, ""); len(found) != 0 {
		t.Errorf("stored: %q", found)
	}
	put(t, s, key, "content")
}

// Broken returns a body that fails after a number of bytes.
func Broken(body io.ReadSeeker, after int64) io.ReadSeeker {
	return &broken{body, io.MultiReader(io.LimitReader(body, after), iotest.ErrReader(errors.New("the line went dead")))}
}

type broken struct {
	io.Seeker
	io.Reader
}

// invalidKeys are keys that every store rejects.
var invalidKeys = []string{
	"", ".", "..", "/a", "a/", "a//b", "../a", "a/../b", "a/..", "./a", "a\\b", "a\x00b", "a\nb", "\u00e4",
	strings.Repeat("a", 1025),
}

func badKeys(t *testing.T, s Backend) {
	for _, key := range invalidKeys {
		if err := s.PutOnce(t.Context(), key, strings.NewReader("x"), digest("x")); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("PutOnce(%q): %v, want ErrInvalid", key, err)
		}
		if _, err := s.Open(t.Context(), key, 0, -1); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("Open(%q): %v, want ErrInvalid", key, err)
		}
		if _, err := s.Stat(t.Context(), key); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("Stat(%q): %v, want ErrInvalid", key, err)
		}
		if _, err := s.SignGet(t.Context(), key); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("SignGet(%q): %v, want ErrInvalid", key, err)
		}
	}
}

func openRanges(t *testing.T, s Backend) {
	put(t, s, key, "0123456789")
	for _, test := range []struct {
		offset, length int64
		want           string
	}{
		{0, -1, "0123456789"}, {0, 10, "0123456789"}, {0, 1, "0"}, {3, 4, "3456"}, {9, 1, "9"}, {5, -1, "56789"},
		{5, 100, "56789"}, {0, 0, ""}, {3, 0, ""}, {10, 0, ""}, {10, -1, ""}, {10, 5, ""},
	} {
		if got := content(t, s, key, test.offset, test.length); got != test.want {
			t.Errorf("Open(%d, %d) reads %q, want %q", test.offset, test.length, got, test.want)
		}
	}
	for _, length := range []int64{-1, 0, 1} {
		if _, err := s.Open(t.Context(), key, 11, length); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("Open beyond the end for %d bytes: %v, want ErrInvalid", length, err)
		}
	}
	put(t, s, "empty", "")
	for _, length := range []int64{-1, 0, 1} {
		if got := content(t, s, "empty", 0, length); got != "" {
			t.Errorf("an empty object reads %q", got)
		}
	}
	if _, err := s.Open(t.Context(), "missing", 0, -1); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Open of a missing key: %v, want ErrNotFound", err)
	}
	if _, err := s.Stat(t.Context(), "missing"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Stat of a missing key: %v, want ErrNotFound", err)
	}
}

func walk(t *testing.T, s Backend) {
	all := []string{"a-b/1", "a/1", "a/2/3", "a0", "b/1", "modules/acme/two/aws/1.0.0/x", "modules/acme/two2/aws/1.0.0/x"}
	for _, k := range slices.Backward(all) {
		put(t, s, k, k)
	}
	for prefix, want := range map[string][]string{
		"":                  all,
		"a/":                {"a/1", "a/2/3"},
		"a":                 {"a-b/1", "a/1", "a/2/3", "a0"},
		"a/2":               {"a/2/3"},
		"modules/acme/two/": {"modules/acme/two/aws/1.0.0/x"},
		"nothing":           nil,
	} {
		if got := keys(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("Walk(%q) visits %q, want %q", prefix, got, want)
		}
	}
	enough := errors.New("enough")
	visits := 0
	err := s.Walk(t.Context(), "", func(i objects.Info) error {
		if i.Size != int64(len(i.Key)) {
			t.Errorf("%s has %d bytes", i.Key, i.Size)
		}
		visits++
		return enough
	})
	if !errors.Is(err, enough) || visits != 1 {
		t.Errorf("a visit that fails: %v after %d visits", err, visits)
	}
}

func request(t *testing.T, s Backend, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := s.Client.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func sign(t *testing.T, s Backend, key string) string {
	t.Helper()
	u, err := s.SignGet(t.Context(), key)
	if err != nil {
		t.Fatalf("SignGet: %v", err)
	}
	return u
}

func signedURL(t *testing.T, s Backend) {
	body := strings.Repeat("\x1f\x8b0123456789", 1000)
	put(t, s, key, body)
	signed := sign(t, s, key)
	u, err := url.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	if !u.IsAbs() || u.Fragment != "" || !strings.HasSuffix(u.Path, key) {
		t.Errorf("the URL is not an absolute one that ends in the key: %s", u.Path)
	}
	response, got := request(t, s, http.MethodGet, signed)
	if response.StatusCode != http.StatusOK || got != body {
		t.Errorf("GET: %s, %d bytes", response.Status, len(got))
	}
	if e := response.Header.Get("Content-Encoding"); e != "" {
		t.Errorf("Content-Encoding %q: clients would unpack the archive on the way", e)
	}
	// go-getter sorts the query and encodes it again.
	u.RawQuery = u.Query().Encode()
	if response, _ := request(t, s, http.MethodGet, u.String()); response.StatusCode != http.StatusOK {
		t.Errorf("GET with the query encoded again: %s", response.Status)
	}
	response, got = request(t, s, http.MethodGet, signed, "Range", "bytes=2-11")
	if response.StatusCode != http.StatusPartialContent || got != "0123456789" {
		t.Errorf("GET of a range: %s, %q", response.Status, got)
	}
	// go-getter sends HEAD first and continues after any response.
	response, got = request(t, s, http.MethodHead, signed)
	if got != "" || response.StatusCode != http.StatusOK && response.StatusCode != http.StatusForbidden {
		t.Errorf("HEAD: %s, %q", response.Status, got)
	}
	response, _ = request(t, s, http.MethodGet, sign(t, s, "missing.tar.gz"))
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("GET of a missing object: %s", response.Status)
	}
}

func alteredURL(t *testing.T, s Backend) {
	const body, secret = "these bytes are stored", "and these bytes are secret"
	put(t, s, key, body)
	put(t, s, "modules/acme/vpc/aws/2.0.0/secret.tar.gz", secret)
	signed, err := url.Parse(sign(t, s, key))
	if err != nil {
		t.Fatal(err)
	}
	for name, alter := range map[string]func(u *url.URL, q url.Values){
		"another object": func(u *url.URL, _ url.Values) {
			u.Path = strings.Replace(u.Path, key, "modules/acme/vpc/aws/2.0.0/secret.tar.gz", 1)
		},
		"no query":        func(_ *url.URL, q url.Values) { clear(q) },
		"added parameter": func(_ *url.URL, q url.Values) { q.Set("archive", "tar.gz") },
		"terraform-get":   func(_ *url.URL, q url.Values) { q.Set("terraform-get", "1") },
	} {
		u, q := *signed, signed.Query()
		alter(&u, q)
		u.RawQuery, u.RawPath = q.Encode(), ""
		response, got := request(t, s, http.MethodGet, u.String())
		if response.StatusCode != http.StatusForbidden || strings.Contains(got, body) || strings.Contains(got, secret) {
			t.Errorf("%s: %s", name, response.Status)
		}
	}
	// Each parameter is signed: remove it, and change one character of it.
	for name := range signed.Query() {
		for _, change := range []func(string) string{
			func(string) string { return "" },
			func(v string) string { return v + "0" },
			func(v string) string {
				last := byte('1')
				if v[len(v)-1] == last {
					last = '2'
				}
				return v[:len(v)-1] + string(last)
			},
			func(v string) string {
				if strings.HasSuffix(strings.ToLower(name), "signature") {
					return strings.ToUpper(v)
				}
				return v + "A"
			},
		} {
			u, q := *signed, signed.Query()
			q.Set(name, change(q.Get(name)))
			u.RawQuery = q.Encode()
			if response, _ := request(t, s, http.MethodGet, u.String()); response.StatusCode/100 != 4 {
				t.Errorf("%s changed: %s", name, response.Status)
			}
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPost} {
		if response, _ := request(t, s, method, signed.String()); response.StatusCode/100 != 4 {
			t.Errorf("%s: %s", method, response.Status)
		}
	}
	if got := content(t, s, key, 0, -1); got != body {
		t.Errorf("afterwards the object is %q", got)
	}
}

func expiredURL(t *testing.T, s Backend) {
	put(t, s, key, "content")
	if response, _ := request(t, s, http.MethodGet, s.SignFor(t, key, time.Minute)); response.StatusCode != http.StatusOK {
		t.Errorf("a URL of a minute: %s", response.Status)
	}
	response, _ := request(t, s, http.MethodGet, s.SignFor(t, key, -time.Minute))
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("an expired URL: %s, want 403", response.Status)
	}
}

func oneOfManyWriters(t *testing.T, s Backend) {
	const writers = 20
	var (
		wait sync.WaitGroup
		errs = make([]error, writers)
	)
	for i := range writers {
		wait.Go(func() {
			body := bytes.Repeat([]byte{byte('a' + i)}, 64<<10)
			errs[i] = s.PutOnce(t.Context(), key, bytes.NewReader(body), digest(string(body)))
		})
	}
	wait.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			t.Errorf("writers %d and %d both won", won, i)
		case err == nil:
			won = i
		case !errors.Is(err, registry.ErrExists):
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if got := content(t, s, key, 0, -1); won < 0 || got != strings.Repeat(string(rune('a'+won)), 64<<10) {
		t.Errorf("writer %d won, stored is %s…", won, fmt.Sprintf("%.3q", got))
	}
}
