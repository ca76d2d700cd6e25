package functions_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// send sends a request with a target that Go's client would change. All servers of
// tests have the certificate that a client trusts.
func send(t *testing.T, trusting *http.Client, host, method, target, token string) (*http.Response, string) {
	t.Helper()
	transport, ok := trusting.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the client has another transport")
	}
	config := transport.TLSClientConfig.Clone()
	config.NextProtos = nil
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n",
		method, target, host, token); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// The gateway's choice of a route and `larder serve` give the same answer, however
// a path is spelled. No answer leads to another host. A path that does not exist
// reads nothing of the table, and opens no session.
func TestSpellings(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.publish(t, "acme/vpc/aws", "1.0.0+a", "")
	data, _, err := local.Create(t.Context(), filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	publisher := publish.Publisher{Catalog: data.Catalog, Objects: data.Objects, By: d.publisher.By}
	own := deployed{publisher: publisher}
	own.publish(t, "acme/vpc/aws", "1.0.0+a", "")
	token, digest := access.NewToken()
	if err := data.Catalog.AddToken(t.Context(), digest, registry.Token{Name: "tests", Scopes: []string{
		"read:**", "publish:**", "publish:*/acme/**",
	}}); err != nil {
		t.Fatal(err)
	}
	serve := httptest.NewUnstartedServer(nil)
	serve.Config.Handler = data.Handler("https://"+serve.Listener.Addr().String(), false, access.Settings{},
		slog.New(slog.DiscardHandler))
	serve.StartTLS()
	defer serve.Close()
	const versions, download = "/v1/modules/acme/vpc/aws/versions", "/v1/modules/acme/vpc/aws/1.0.0+a/download"
	const missing = true
	for _, test := range []struct {
		method, target string
		missing        bool // there is no such path
	}{
		{"GET", "/.well-known/terraform.json", false}, {"HEAD", "/.well-known/terraform.json", false},
		{"POST", "/.well-known/terraform.json", false}, {"OPTIONS", "/.well-known/terraform.json", false},
		{"GET", "/.well-known/terraform.json/", missing}, {"GET", "/.well-known/", missing},
		{"GET", "/.well-known/other", missing}, {"GET", "/.well-known%2Fterraform.json", false},
		{"GET", versions, false}, {"HEAD", versions, false}, {"POST", versions, false}, {"PUT", versions, false},
		{"PATCH", versions, false}, {"DELETE", versions, false}, {"OPTIONS", versions, false}, {"TRACE", versions, false},
		{"GET", versions + "/", missing}, {"GET", versions + "?x=%zz", false}, {"GET", versions + "%3Fx=1", missing},
		{"GET", download, false}, {"HEAD", download, false}, {"GET", strings.ReplaceAll(download, "+", "%2B"), false},
		{"GET", download + "/", missing}, {"GET", strings.ReplaceAll(download, "1.0.0+a", "1.0.0%20a"), missing},
		{"GET", "/v1/modules/acme%2Fvpc%2Faws/versions", false}, {"GET", "/v1/modules/acme%2fvpc/aws/versions", false},
		{"GET", "/v1%2Fmodules/acme/vpc/aws/versions", false}, {"GET", "%2Fv1/modules/acme/vpc/aws/versions", missing},
		{"GET", "/v1/modules/acme/vpc%2F..%2Fvpc/aws/versions", missing},
		{"GET", "/v1/modules/acme/../acme/vpc/aws/versions", missing},
		{"GET", "/v1/modules/acme/%2e%2e/acme/vpc/aws/versions", missing},
		{"GET", "/v1/modules/./acme/vpc/aws/versions", missing}, {"GET", "/..", missing}, {"GET", "/v1/..", missing},
		{"GET", "//" + d.gateway.Host + versions, missing}, {"GET", "//evil.example", missing},
		{"GET", "//evil.example/%2e%2e", missing}, {"GET", "/%2Fevil.example", missing}, {"GET", "//", missing},
		{"GET", "/v1//modules", missing}, {"GET", "/\\evil.example", missing}, {"GET", "/%5Cevil.example", missing},
		{"GET", "/%09/evil.example", missing}, {"GET", "/v1/modules%00", missing}, {"GET", "/v1/modules%23x", missing},
		{"GET", "/v1/modules%3Flimit=1", missing}, {"GET", "/v1/modules;x", missing}, {"GET", "/v1/modules%25", missing},
		{"GET", "/v1/modules", false}, {"HEAD", "/v1/modules", false}, {"GET", "/v1/modules/", missing},
		{"GET", "/v1/modules/acme", false}, {"GET", "/v1/modules/acme/vpc/aws", false},
		{"GET", "/v1/modules/acme/vpc/aws/x/y/z", missing}, {"GET", "/V1/modules", missing},
		{"GET", "/v1", missing}, {"GET", "/v1/", missing}, {"POST", "/v1/", missing}, {"GET", "/v1/nothing", missing},
		{"GET", "/v1/publish", missing}, {"GET", "/v1/publish/", missing}, {"POST", "/v1/publish/nothing", missing},
		{"GET", "/v1/publish/modules/acme/vpc/aws/1.0.0/uploads", false},
		{"POST", "/v1/publish/modules/acme/vpc/aws/1.0.0/uploads", false},
		{"GET", "/v1/publish/../modules", missing}, {"GET", "/v1/mirror/", missing},
		{"GET", "/v1/mirror/registry.example.com/acme/x/index.json", false},
		{"GET", "/v1/mirror/registry.example.com/acme/x/index.json/", missing}, {"GET", "/v1/mirror/a/b", missing},
		{"GET", "/v1/providers/acme/x/versions", false}, {"GET", "/v1/openapi.json", false},
		{"GET", "/", false}, {"HEAD", "/", false}, {"POST", "/", false}, {"OPTIONS", "/", false}, {"GET", "/?x", false},
		{"GET", "/nothing", missing}, {"GET", "/nothing.md", missing}, {"GET", "/favicon.ico", missing},
		{"GET", "/modules", false}, {"GET", "/modules/", missing}, {"GET", "/modules/acme/vpc/aws", false},
		{"GET", "/static/nothing.css", false}, {"GET", "/static/", missing}, {"GET", "/static/../modules", missing},
	} {
		name := test.method + " " + test.target
		d.dynamo.Reads()
		behind, body := send(t, d.gateway.Client(), d.gateway.Host, test.method, test.target, d.token)
		reads := d.dynamo.Reads()
		local, localBody := send(t, serve.Client(), serve.Listener.Addr().String(), test.method, test.target, token)
		if behind.StatusCode != local.StatusCode {
			t.Errorf("%s: %s behind the gateway, and %s of serve", name, behind.Status, local.Status)
		}
		if behind.StatusCode >= 400 && isJSON(body) && body != localBody {
			t.Errorf("%s: %s behind the gateway, and %s of serve", name, body, localBody)
		}
		for _, header := range []string{"Content-Type", "Cache-Control", "Allow", "WWW-Authenticate", "Location"} {
			if a, b := behind.Header.Get(header), local.Header.Get(header); a != b {
				t.Errorf("%s: %s: %q behind the gateway, and %q of serve", name, header, a, b)
			}
		}
		if to := behind.Header.Get("Location"); to != "" && (!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//")) {
			t.Errorf("%s: leads to %s", name, to)
		}
		if !test.missing {
			continue
		}
		if behind.StatusCode != http.StatusNotFound && behind.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s, want 404 or 400", name, behind.Status)
		}
		if reads != (dynamodbtest.Reads{}) {
			t.Errorf("%s: reads of the table: %+v", name, reads)
		}
		if cookies := behind.Cookies(); len(cookies) > 0 {
			t.Errorf("%s: cookies %v", name, cookies)
		}
	}
}

func isJSON(text string) bool { return json.Valid([]byte(text)) }
