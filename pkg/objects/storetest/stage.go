package storetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// send sends an upload in the way that a client does.
func send(t *testing.T, s Backend, method string, u objects.Upload, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, u.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range u.Header {
		r.Header.Set(name, value) // http sets the length from the body
	}
	response, err := s.Client.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(got)
}

func signPut(t *testing.T, s Backend, key, body string) objects.Upload {
	t.Helper()
	u, err := s.SignPut(t.Context(), key, digest(body))
	if err != nil {
		t.Fatalf("SignPut(%s): %v", key, err)
	}
	return u
}

func stage(t *testing.T, s Backend, key, body string) {
	t.Helper()
	if status, answer := send(t, s, http.MethodPut, signPut(t, s, key, body), body); status != http.StatusOK {
		t.Fatalf("PUT of %s: %d %s", key, status, answer)
	}
}

// checkEmpty checks that the store is empty and still accepts an object.
func checkEmpty(t *testing.T, s Backend) {
	t.Helper()
	if found := keys(t, s, ""); len(found) != 0 {
		t.Errorf("stored: %q", found)
	}
	stage(t, s, key, "the right bytes")
}

func upload(t *testing.T, s Backend) {
	body := strings.Repeat("\x1f\x8b0123456789", 4000)
	u := signPut(t, s, key, body)
	sum := sha256.Sum256([]byte(body))
	if want := map[string]string{
		"Content-Length":        strconv.Itoa(len(body)),
		"Content-Type":          "application/octet-stream",
		"If-None-Match":         "*",
		"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum[:]),
		"X-Amz-Tagging":         "larder=staged",
	}; !maps.Equal(u.Header, want) {
		t.Errorf("the headers are %v, want %v", u.Header, want)
	}
	if status, answer := send(t, s, http.MethodPut, u, body); status != http.StatusOK {
		t.Fatalf("PUT: %d %s", status, answer)
	}
	if got := content(t, s, key, 0, -1); got != body {
		t.Errorf("%d bytes are stored, of %d", len(got), len(body))
	}
	if info, err := s.Stat(t.Context(), key); err != nil || info.Size != int64(len(body)) {
		t.Errorf("Stat = %+v, %v", info, err)
	}
	if found := keys(t, s, ""); len(found) != 1 || found[0] != key {
		t.Errorf("Walk visits %q", found)
	}
	response, got := request(t, s, http.MethodGet, sign(t, s, key))
	if response.StatusCode != http.StatusOK || got != body || response.Header.Get("Content-Encoding") != "" {
		t.Errorf("GET: %s, %d bytes, %v", response.Status, len(got), response.Header)
	}
	if !s.Staged(t, key) {
		t.Error("it is not staged")
	}
	// The URL can be used once.
	if status, answer := send(t, s, http.MethodPut, u, body); status != http.StatusPreconditionFailed {
		t.Errorf("the second PUT: %d %s, want 412", status, answer)
	}
	other := strings.ToUpper(body)
	status, answer := send(t, s, http.MethodPut, signPut(t, s, key, other), other)
	if status != http.StatusPreconditionFailed {
		t.Errorf("a PUT of other bytes: %d %s, want 412", status, answer)
	}
	put(t, s, "put/once", "kept")
	status, answer = send(t, s, http.MethodPut, signPut(t, s, "put/once", "kept"), "kept")
	if status != http.StatusPreconditionFailed || s.Staged(t, "put/once") {
		t.Errorf("a PUT over what PutOnce has put: %d %s, want 412", status, answer)
	}
	if got := content(t, s, key, 0, -1); got != body {
		t.Errorf("afterwards %d bytes are stored, of %d", len(got), len(body))
	}
}

func putStaged(t *testing.T, s Backend) {
	const body = "documentation"
	stage := func(key, body string, of objects.Digest) error {
		return s.PutStaged(t.Context(), key, strings.NewReader(body), of)
	}
	if err := stage(key, body, digest(body)); err != nil {
		t.Fatal(err)
	}
	if got := content(t, s, key, 0, -1); got != body {
		t.Errorf("stored %q", got)
	}
	if !s.Staged(t, key) {
		t.Error("the object is not staged")
	}
	if err := stage(key, body, digest(body)); !errors.Is(err, registry.ErrExists) {
		t.Errorf("the second time: %v, want ErrExists", err)
	}
	if _, err := s.Keep(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := stage(key, body, digest(body)); !errors.Is(err, registry.ErrExists) {
		t.Errorf("of a permanent object: %v, want ErrExists", err)
	}
	if s.Staged(t, key) {
		t.Error("the permanent object became staged")
	}
	const other = "modules/acme/vpc/aws/2.0.0/other"
	if err := stage(other, "DOCUMENTATION", digest(body)); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("with other bytes: %v, want ErrInvalid", err)
	}
	if err := stage("../"+other, body, digest(body)); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("with a bad key: %v, want ErrInvalid", err)
	}
	if found := keys(t, s, ""); len(found) != 1 {
		t.Errorf("stored: %q", found)
	}
}

func uploadOfOtherBytes(t *testing.T, s Backend) {
	const body = "the right bytes"
	u := signPut(t, s, key, body)
	if status, answer := send(t, s, http.MethodPut, u, "THE RIGHT BYTES"); status != http.StatusBadRequest {
		t.Errorf("other bytes: %d %s, want 400", status, answer)
	}
	for name, other := range map[string]string{"none": "", "fewer": body[:5], "more": body + "!"} {
		if status, answer := send(t, s, http.MethodPut, u, other); status != http.StatusForbidden {
			t.Errorf("%s bytes: %d %s, want 403", name, status, answer)
		}
	}
	checkEmpty(t, s)
}

func uploadWithOtherHeaders(t *testing.T, s Backend) {
	const body = "the right bytes"
	u := signPut(t, s, key, body)
	of := digest("THE RIGHT BYTES")
	sum := sha256.Sum256([]byte("THE RIGHT BYTES"))
	if of.Size != digest(body).Size {
		t.Fatal("the sizes must be equal")
	}
	changes := map[string]map[string]string{
		"put again":     {"If-None-Match": ""},
		"another sum":   {"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum[:])},
		"no sum":        {"X-Amz-Checksum-Sha256": ""},
		"kept":          {"X-Amz-Tagging": "larder=kept"},
		"two tags":      {"X-Amz-Tagging": "larder=staged&larder=kept"},
		"no tag":        {"X-Amz-Tagging": ""},
		"another type":  {"Content-Type": "text/html"},
		"condition":     {"If-None-Match": `"etag"`},
		"for the world": {"X-Amz-Acl": "public-read"},
		"redirecting":   {"X-Amz-Website-Redirect-Location": "https://elsewhere.example.com/"},
		"another class": {"X-Amz-Storage-Class": "GLACIER"},
	}
	for name, header := range changes {
		changed := objects.Upload{URL: u.URL, Header: maps.Clone(u.Header)}
		for k, v := range header {
			changed.Header[k] = v
			if v == "" {
				delete(changed.Header, k)
			}
		}
		for _, bytes := range []string{body, "THE RIGHT BYTES"} {
			if status, answer := send(t, s, http.MethodPut, changed, bytes); status != http.StatusForbidden {
				t.Errorf("%s: %d %s, want 403", name, status, answer)
			}
		}
	}
	checkEmpty(t, s)
	// A header that makes clients unpack the archive is rejected by the PUT or
	// by Keep.
	const other = "modules/acme/vpc/aws/2.0.0/encoded.tar.gz"
	u = signPut(t, s, other, body)
	u.Header["Content-Encoding"] = "gzip"
	if status, _ := send(t, s, http.MethodPut, u, body); status == http.StatusOK {
		if _, err := s.Keep(t.Context(), other); !errors.Is(err, registry.ErrInvalid) || !s.Staged(t, other) {
			t.Errorf("Keep of an object with Content-Encoding: %v", err)
		}
	} else if status != http.StatusForbidden {
		t.Errorf("Content-Encoding: %d", status)
	}
}

func alteredUpload(t *testing.T, s Backend) {
	const body = "the right bytes"
	u := signPut(t, s, key, body)
	signed, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	if !signed.IsAbs() || signed.Fragment != "" || !strings.HasSuffix(signed.Path, key) {
		t.Errorf("the URL is not an absolute one that ends in the key: %s", signed.Path)
	}
	with := func(u *url.URL) objects.Upload {
		return objects.Upload{URL: u.String(), Header: signPut(t, s, key, body).Header}
	}
	elsewhere := *signed
	elsewhere.Path, elsewhere.RawPath = strings.Replace(signed.Path, key, "modules/acme/vpc/aws/2.0.0/other.tar.gz", 1), ""
	added := *signed
	added.RawQuery += "&versionId=1"
	none := *signed
	none.RawQuery = ""
	for name, altered := range map[string]url.URL{
		"another object": elsewhere, "an added parameter": added, "no query": none,
	} {
		if status, answer := send(t, s, http.MethodPut, with(&altered), body); status != http.StatusForbidden {
			t.Errorf("%s: %d %s, want 403", name, status, answer)
		}
	}
	for name := range signed.Query() {
		for _, change := range []func(string) string{
			func(string) string { return "" },
			func(v string) string { return v + "0" },
			func(v string) string {
				return v[:len(v)-1] + map[bool]string{true: "1", false: "2"}[v[len(v)-1] == '2']
			},
		} {
			altered, q := *signed, signed.Query()
			q.Set(name, change(q.Get(name)))
			altered.RawQuery = q.Encode()
			if status, answer := send(t, s, http.MethodPut, with(&altered), body); status/100 != 4 {
				t.Errorf("%s changed: %d %s", name, status, answer)
			}
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
		if status, _ := send(t, s, method, objects.Upload{URL: u.URL}, ""); status/100 != 4 {
			t.Errorf("%s with a URL to PUT: %d", method, status)
		}
	}
	// A URL to GET cannot be used to write.
	get, err := url.Parse(sign(t, s, key))
	if err != nil {
		t.Fatal(err)
	}
	mixed := *signed
	mixed.RawQuery = get.RawQuery
	for _, u := range []*url.URL{get, &mixed} {
		if status, answer := send(t, s, http.MethodPut, with(u), body); status/100 != 4 {
			t.Errorf("PUT with a URL to GET: %d %s", status, answer)
		}
	}
	checkEmpty(t, s)
	mixed = *get
	mixed.RawQuery = signed.RawQuery
	response, got := request(t, s, http.MethodGet, mixed.String())
	if response.StatusCode != http.StatusForbidden || strings.Contains(got, body) {
		t.Errorf("GET of an object with a query to PUT: %s", response.Status)
	}
}

func expiredUpload(t *testing.T, s Backend) {
	const body = "the right bytes"
	status, answer := send(t, s, http.MethodPut, s.SignPutFor(t, key, digest(body), -time.Minute), body)
	if status != http.StatusForbidden {
		t.Errorf("an expired URL: %d %s, want 403", status, answer)
	}
	if found := keys(t, s, ""); len(found) != 0 {
		t.Errorf("stored: %q", found)
	}
	status, answer = send(t, s, http.MethodPut, s.SignPutFor(t, key, digest(body), time.Minute), body)
	if status != http.StatusOK {
		t.Errorf("a URL of a minute: %d %s", status, answer)
	}
}

func oneOfManyUploads(t *testing.T, s Backend) {
	const writers = 20
	var (
		wait     sync.WaitGroup
		statuses [writers]int
	)
	of := func(i int) string { return strings.Repeat(string(rune('a'+i)), 64<<10) }
	for i := range writers {
		u := signPut(t, s, key, of(i))
		wait.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, u.URL, bytes.NewReader([]byte(of(i))))
			if err != nil {
				return
			}
			for name, value := range u.Header {
				r.Header.Set(name, value)
			}
			if response, err := s.Client.Do(r); err == nil {
				statuses[i] = response.StatusCode
				response.Body.Close()
			}
		})
	}
	wait.Wait()
	won := -1
	for i, status := range statuses {
		switch {
		case status == http.StatusOK && won >= 0:
			t.Errorf("writers %d and %d both won", won, i)
		case status == http.StatusOK:
			won = i
		// S3 may also return a conflict.
		case status != http.StatusPreconditionFailed && status != http.StatusConflict:
			t.Errorf("writer %d: %d", i, status)
		}
	}
	if got := content(t, s, key, 0, -1); won < 0 || got != of(won) {
		t.Errorf("writer %d won, stored is %.3q…", won, got)
	}
	if !s.Staged(t, key) {
		t.Error("the stored object is not staged")
	}
}

func keep(t *testing.T, s Backend) {
	stage(t, s, key, "content")
	stage(t, s, "another", "content")
	for range 2 {
		info, err := s.Keep(t.Context(), key)
		if err != nil {
			t.Errorf("Keep: %v", err)
		}
		if info.Key != key || info.Size != int64(len("content")) || info.Modified.IsZero() {
			t.Errorf("Keep returned %+v", info)
		}
		if s.Staged(t, key) || !s.Staged(t, "another") {
			t.Error("Keep changed another object")
		}
	}
	if got := content(t, s, key, 0, -1); got != "content" {
		t.Errorf("afterwards the object is %q", got)
	}
	status, _ := send(t, s, http.MethodPut, signPut(t, s, key, "content"), "content")
	if status != http.StatusPreconditionFailed || s.Staged(t, key) {
		t.Errorf("a PUT over a permanent object: %d", status)
	}
	put(t, s, "put/once", "content")
	if _, err := s.Keep(t.Context(), "put/once"); err != nil {
		t.Errorf("Keep of an object stored by PutOnce: %v", err)
	}
	// The beginning of a key is not a key either. versitygw returns tags for it
	// if it is a folder.
	for _, missing := range []string{"missing", "not/there", key + ".sig"} {
		if _, err := s.Keep(t.Context(), missing); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("Keep(%s), which is missing: %v, want ErrNotFound", missing, err)
		}
	}
	// Several clients commit at once.
	var (
		wait sync.WaitGroup
		errs [8]error
	)
	for i := range errs {
		wait.Go(func() { _, errs[i] = s.Keep(t.Context(), "another") })
	}
	wait.Wait()
	if err := errors.Join(errs[:]...); err != nil || s.Staged(t, "another") {
		t.Errorf("Keep by several at once: %v", err)
	}
}

// keepByPutOnce checks that PutOnce of an object that the publish API has
// staged makes it permanent.
func keepByPutOnce(t *testing.T, s Backend) {
	stage(t, s, key, "content")
	err := s.PutOnce(t.Context(), key, strings.NewReader("content"), digest("content"))
	if !errors.Is(err, registry.ErrExists) {
		t.Errorf("PutOnce of a staged object: %v, want ErrExists", err)
	}
	if s.Staged(t, key) {
		t.Error("it is still staged")
	}
}

func badUploads(t *testing.T, s Backend) {
	for _, key := range invalidKeys {
		if _, err := s.SignPut(t.Context(), key, digest("x")); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("SignPut(%q): %v, want ErrInvalid", key, err)
		}
		if _, err := s.Keep(t.Context(), key); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("Keep(%q): %v, want ErrInvalid", key, err)
		}
	}
	good := digest("content")
	for name, bad := range map[string]objects.Digest{
		"no digest":          {Size: 7},
		"a short one":        {SHA256: good.SHA256[:62], Size: 7},
		"an upper-case one":  {SHA256: strings.ToUpper(good.SHA256), Size: 7},
		"a negative size":    {SHA256: good.SHA256, Size: -1},
		"nothing":            digest(""),
		"more than S3 takes": {SHA256: good.SHA256, Size: 5<<30 + 1},
	} {
		if _, err := s.SignPut(t.Context(), key, bad); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("SignPut with %s: %v, want ErrInvalid", name, err)
		}
	}
}
