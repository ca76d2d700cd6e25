package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// opener returns a function that opens the same bytes each time.
func opener(data []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

func TestUpload(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	data := bytes.Repeat([]byte("0123456789"), 100<<10)
	xml := func(code int, name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Canonical>%s</Canonical></Error>", name, r.URL)
		}
	}
	breaks := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 1<<10))
		panic(http.ErrAbortHandler)
	}
	tests := map[string]struct {
		answers []http.HandlerFunc // to the first attempts; later ones succeed
		err     error
		sent    int64 // 0: all bytes; negative: none
		tries   int32
	}{
		"well":   {tries: 1},
		"broken": {answers: []http.HandlerFunc{breaks, breaks}, tries: 3},
		"broken for good": {
			answers: []http.HandlerFunc{breaks, breaks, breaks}, err: registry.ErrUnavailable, sent: -1, tries: 3,
		},
		"unavailable": {answers: []http.HandlerFunc{status(500), status(503)}, tries: 3},
		"slowed down": {answers: []http.HandlerFunc{xml(503, "SlowDown")}, tries: 2},
		"timed out":   {answers: []http.HandlerFunc{xml(400, "RequestTimeout")}, tries: 2},
		"another's":   {answers: []http.HandlerFunc{xml(409, "ConditionalRequestConflict")}, tries: 2},
		"there":       {answers: []http.HandlerFunc{xml(412, "PreconditionFailed")}, err: registry.ErrExists, tries: 1},
		"expired": {
			answers: []http.HandlerFunc{xml(403, "AccessDenied")}, err: registry.ErrForbidden, sent: -1, tries: 1,
		},
		"of an expired": {
			answers: []http.HandlerFunc{xml(400, "ExpiredToken")}, err: registry.ErrForbidden, sent: -1, tries: 1,
		},
		"other bytes": {answers: []http.HandlerFunc{xml(400, "BadDigest")}, err: registry.ErrInvalid, sent: -1, tries: 1},
		"redirected": {answers: []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.example.com/", http.StatusTemporaryRedirect)
		}}, err: registry.ErrInvalid, sent: -1, tries: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				n := int(tries.Add(1))
				if r.Method != http.MethodPut || r.ContentLength != int64(len(data)) || r.Header.Get("X-Given") != "a" ||
					r.Header.Get("Authorization") != "" || r.URL.RawQuery != "signature="+secret {
					t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
				}
				if n <= len(test.answers) {
					test.answers[n-1](rw, r)
					return
				}
				if got, err := io.ReadAll(r.Body); err == nil && !bytes.Equal(got, data) {
					t.Error("other bytes arrive")
				}
			})
			var sent atomic.Int64
			err := w.client(t, "TF_TOKEN_bucket_example_com=x").Upload(t.Context(), client.Upload{
				URL: "https://bucket.example.com/key?signature=" + secret,
				Header: map[string]string{
					"x-given": "a", "content-length": fmt.Sprint(len(data)), "host": "bucket.example.com",
				},
				Size: int64(len(data)), Open: opener(data), Sent: func(n int64) { sent.Add(n) },
			})
			check(t, texts, err, test.err, brokenConnection...)
			want := int64(len(data))
			if test.sent < 0 {
				want = 0
			}
			if sent.Load() != want {
				t.Errorf("%d bytes were sent, want %d", sent.Load(), want)
			}
			if tries.Load() != test.tries {
				t.Errorf("%d attempts, want %d", tries.Load(), test.tries)
			}
		})
	}
}

// An error with the file is returned unchanged, and the upload is not repeated.
func TestUploadOfABrokenFile(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	broken := errors.New("input/output error")
	for name, test := range map[string]struct {
		open func() (io.ReadCloser, error)
		err  error
	}{
		"gone":      {func() (io.ReadCloser, error) { return nil, os.ErrNotExist }, os.ErrNotExist},
		"shorter":   {opener(make([]byte, 99)), registry.ErrInvalid},
		"longer":    {opener(make([]byte, 101)), registry.ErrInvalid},
		"not there": {func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(broken)), nil }, broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opened atomic.Int32
			w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			err := w.client(t).Upload(t.Context(), client.Upload{URL: "https://bucket.example.com/", Size: 100,
				Open: func() (io.ReadCloser, error) {
					opened.Add(1)
					return test.open()
				}})
			check(t, texts, err, test.err)
			if opened.Load() > 2 { // once by net/http before the request, and once to send
				t.Errorf("the file was opened %d times", opened.Load())
			}
		})
	}
}

func TestUploadThatStops(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWithin(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			hang(w, r)
		})
		c := w.client(t)
		u := client.Upload{URL: "https://bucket.example.com/", Size: 3, Open: opener([]byte("abc"))}
		check(t, texts, c.Upload(t.Context(), u), registry.ErrUnavailable)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Upload(ctx, u); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestUploadRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, status(200))
	for _, u := range []client.Upload{
		{
			URL: "http://bucket.example.com/?" + secret,
		}, {URL: "ftp://bucket.example.com/"}, {URL: "https://u:" + secret + "@bucket.example.com/"},
		{URL: "https:///x"}, {URL: "/x"}, {URL: "%" + secret}, {URL: ""},
		{URL: "https://bucket.example.com/", Header: map[string]string{"authorization": secret}},
		{URL: "https://bucket.example.com/", Header: map[string]string{"Content-Length": "2"}},
		{URL: "https://bucket.example.com/", Header: map[string]string{"Host": "other.example.com"}},
	} {
		u.Size, u.Open = 1, opener([]byte("a"))
		if err := w.client(t).Upload(t.Context(), u); !errors.Is(err, registry.ErrInvalid) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%+v: %v", u.Header, err)
		}
	}
	if n := w.requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
	// Nobody can intercept a connection within this machine.
	if err := w.client(t).Upload(
		t.Context(), client.Upload{URL: "http://" + w.plain + "/", Size: 1, Open: opener([]byte("a"))},
	); err != nil {
		t.Error(err)
	}
}

// An error response arrives before a large file is sent, with HTTP/1.1 and
// HTTP/2.
func TestUploadThatIsRefusedEarly(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusPreconditionFailed)
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		var read atomic.Int64
		err := client.New(
			nil, "larder/test", server.Client().Transport,
		).Upload(t.Context(), client.Upload{URL: server.URL, Size: 1 << 30, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.LimitReader(zeros{&read}, 1<<30)), nil
		}})
		if !errors.Is(err, registry.ErrExists) || read.Load() > 64<<20 {
			t.Errorf("http2 %t: %v after %d bytes", http2, err, read.Load())
		}
		server.Close()
	}
}

type zeros struct{ read *atomic.Int64 }

func (z zeros) Read(p []byte) (int, error) {
	z.read.Add(int64(len(p)))
	return len(p), nil
}
