package presign_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/objects/presign"
	"github.com/larder-registry/larder/pkg/registry"
)

// reader returns a reader of the objects of a server.
func reader(t *testing.T, serve http.HandlerFunc) *presign.Reader {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	signer, err := presign.New(aws.Config{
		Region: "eu-central-1", Credentials: from(someone), BaseEndpoint: &server.URL,
	}, "larder-archives", presign.Options{PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	return presign.NewReader(signer, server.Client())
}

func TestReader(t *testing.T) {
	t.Parallel()
	r := reader(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/larder-archives/modules/c" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if r.URL.Path != "/larder-archives/modules/a" || !r.URL.Query().Has("X-Amz-Signature") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
	})
	for _, test := range []struct {
		name, key      string
		offset, length int64
		want           string
		err            error
	}{
		{"all", "modules/a", 0, -1, "0123456789", nil},
		{"to the end", "modules/a", 7, -1, "789", nil},
		{"a part", "modules/a", 2, 3, "234", nil},
		{"nothing", "modules/a", 2, 0, "", nil},
		{"beyond the end", "modules/a", 11, -1, "", registry.ErrInvalid},
		{"missing", "modules/b", 0, -1, "", registry.ErrNotFound},
		{"missing, without the permission to list", "modules/c", 0, -1, "", registry.ErrNotFound},
		{"no key", "../a", 0, -1, "", registry.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			body, err := r.Open(t.Context(), test.key, test.offset, test.length)
			if !errors.Is(err, test.err) {
				t.Fatalf("the error is %v, want %v", err, test.err)
			}
			if err != nil {
				return
			}
			defer body.Close()
			got, err := io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
		})
	}
}

// A server that fails is unavailable, and no error has a part of the URL.
func TestReaderFails(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"overloaded": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"cut off":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"redirected": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/"+r.URL.RawQuery, http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := reader(t, serve).Open(t.Context(), "modules/a", 0, -1)
			if !errors.Is(err, registry.ErrUnavailable) {
				t.Errorf("the error is %v, want %v", err, registry.ErrUnavailable)
			}
			if err != nil && strings.Contains(err.Error(), "X-Amz") {
				t.Errorf("the error has the URL: %v", err)
			}
		})
	}
}
