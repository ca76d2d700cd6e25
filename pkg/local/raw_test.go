package local_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/access"
)

// The forms of raw requests for METHOD and PATH. SECRET is a text that someone
// has pasted into the address.
var (
	requestLines = []string{
		"METHOD PATH HTTP/1.1\r\n\r\n", "METHOD PATH HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "METHOD PATH HTTP/1.0\r\n\r\n",
		"METHOD PATH\r\n", "METHOD PATH HTTP/2.0\r\nHost: h\r\n\r\n", "METHOD PATH HTTP/9.9\r\nHost: h\r\n\r\n",
		"METHOD PATH EVIL/1.1\r\nHost: h\r\n\r\n", "get PATH http/1.1\r\nhost: h\r\n\r\n",
		"METHOD PATH HTTP/1.1\nHost: h\n\n", "METHOD PATH HTTP/1.1\rHost: h\r\r",
		"\r\n\r\nMETHOD PATH HTTP/1.1\r\nHost: h\r\n\r\n", "METHOD\tPATH\tHTTP/1.1\r\nHost: h\r\n\r\n",
		"METHOD   PATH   HTTP/1.1\r\nHost: h\r\n\r\n", "METHOD PATH", "METHOD PATH HTTP/1.1\r\nHost: h\r\nA: b",
		"(){};: PATH HTTP/1.1\r\nHost: h\r\n\r\n", strings.Repeat("A", 9000) + " PATH HTTP/1.1\r\nHost: h\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nMETHOD PATH", "CONNECT 127.0.0.1:1PATH HTTP/1.1\r\nHost: h\r\n\r\n",
		"METHOD *PATH HTTP/1.1\r\nHost: h\r\n\r\n", "METHOD https://a:b@evil.example:99999PATH HTTP/1.1\r\nHost: h\r\n\r\n",
		"METHOD file:///etc/passwd?PATH HTTP/1.1\r\nHost: h\r\n\r\n",
		strings.Repeat("METHOD PATH HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", 20),
		"METHOD PATH HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nevil\r\n\r\n",
	}
	requestPaths = []string{
		"/PATH", "PATH///", "/a/..PATH/../.", "PATH/%252e%252e%252f", "PATH\x00", "PATH%", "PATH\xff\xfe", "PATH%ff%fe",
		"PATH%c0%af..%c0%af", `PATH\..\..`, "PATH#fragment", "PATH;a=b;jsessionid=1", "PATH?%&&==&a[]=1&%00=%ff;",
		"PATH?" + strings.Repeat("a=b&", 4000), "PATH" + strings.Repeat("/a", 5000), "PATH/%e2%80%ae",
		"/SECRET", "PATH/SECRET", "/?token=SECRET", "/v1/modules/SECRET/a/b/versions", "/v1/modules//SECRET", "//SECRET",
		"/objects/SECRET", "/objects/a%3Fexpires=9&signature=SECRET", "/objects/a%253Fexpires=9&signature=SECRET",
		"/objects/a?expires=9&signature=SECRET%zz", "/objects/a;signature=SECRET", "/objects/%3Fsignature%3DSECRET",
	}
	requestHeaders = []string{
		"evil", ": evil", "Content Length: 1", "Content-Length : 1", "A: b\r\n c\r\n\td", "A: b\x00c", "A: \xff\xfe",
		"A: b\rc: d", "A: " + strings.Repeat("b", 70<<10), strings.Repeat("A: b\r\n", 3000) + "A: b", "Host: a b/\\<>",
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: evil",
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", "Expect: evil",
		"Connection: close, Host, Authorization, X-Forwarded-For",
		"X-Forwarded-For: ' OR 1=1\r\nX-Original-URL: /evil\r\nX-HTTP-Method-Override: PUT",
		"Range: bytes=" + strings.Repeat("0-,", 5000) + "0-", "Range: bytes=9-1, -, evil, 99999999999999999999-",
		"If-None-Match: *, \"a\", W/\"b\", evil\r\nIf-Match: \"c\"",
		"If-Modified-Since: evil\r\nIf-Unmodified-Since: Thu, 99 Foo 9999 99:99:99 GMT",
		"Accept-Encoding: gzip;q=9, *;q=0, " + strings.Repeat("a,", 3000) + "evil;q=x",
		"Accept: " + strings.Repeat("*/*;q=0.1,", 3000) + "evil/",
		"Authorization: Bearer a\r\nAuthorization: Basic YTpi", "Authorization: Bearer \x00",
	}
	// Each begins with header lines.
	requestBodies = []string{
		"Content-Length: -1\r\n\r\nevil", "Content-Length: evil\r\n\r\nevil", "Content-Length: +4\r\n\r\nevil",
		"Content-Length: 99999999999999999999\r\n\r\nevil", "Content-Length: 4\r\nContent-Length: 5\r\n\r\nevil!",
		"Content-Length: 4, 4\r\n\r\nevil", "Content-Length: 400\r\n\r\nevil", "Content-Length: 1\r\n\r\nevil",
		"Transfer-Encoding: chunked\r\n\r\nff\r\nevil", "Transfer-Encoding: chunked\r\n\r\nzz\r\nevil\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nevil\r\n",
		"Transfer-Encoding: chunked\r\n\r\n4;a=" + strings.Repeat("b", 9000) + "\r\nevil\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\nA: b\r\nContent-Length: 9\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\na\r\n", 5000) + "0\r\n\r\n",
		"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n",
		"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding:\tchunked\x0b\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nevil",
		"Content-Type: application/json\r\nContent-Length: 4\r\n\r\nevil",
		"Content-Type: multipart/form-data; boundary=\r\nContent-Length: 4\r\n\r\nevil",
	}
)

// A server answers each raw request with 4xx, or as usual. Go's HTTP library
// answers some with 501 or 505. The server then still works, and its log has no
// error and no secret.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	publishModule(t, r.data)
	secret, _ := access.NewToken()
	const head = " HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer SECRET\r\n"
	forms := slices.Clone(requestLines)
	for _, path := range requestPaths {
		forms = append(forms, "METHOD "+path+head+"\r\n")
	}
	for _, lines := range requestHeaders {
		forms = append(forms, "METHOD PATH"+head+lines+"\r\n\r\n")
	}
	for _, rest := range requestBodies {
		forms = append(forms, "POST PATH"+head+rest)
	}
	queue := make(chan string)
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for request := range queue {
				failed := r.sendRaw(t, request, 50*time.Millisecond)
				if failed != "" {
					failed = r.sendRaw(t, request, time.Minute)
				}
				if failed != "" {
					t.Errorf("%.300q: %s", request, failed)
				}
			}
		})
	}
	for _, endpoint := range []string{
		"GET /v1/modules/acme/vpc/aws/versions", "GET /v1/mirror/registry.example.com/acme/note/index.json", "GET /",
		"GET /objects/modules/acme/vpc/aws/1.0.0/x", "POST /v1/publish/modules/acme/vpc/aws/1.0.0/uploads",
	} {
		method, path, _ := strings.Cut(endpoint, " ")
		for _, form := range forms {
			queue <- strings.NewReplacer("METHOD", method, "PATH", path, "SECRET", secret).Replace(form)
		}
	}
	close(queue)
	senders.Wait()
	if response, _ := r.raw(t, "GET", "/v1/modules/acme/vpc/aws/versions"); response.StatusCode != http.StatusOK {
		t.Errorf("an ordinary request afterwards: %s", response.Status)
	}
	for _, text := range []string{"level=ERROR", secret} {
		if log := r.log.String(); strings.Contains(log, text) {
			t.Errorf("the log has %s:\n%s", text, log)
		}
	}
}

// sendRaw sends a request over a new connection, and returns the status of a
// response that is a failure of the server. The server may close the connection
// without a response. The client closes its side after a while, for requests that
// break off. That cancels a request that the server is still working on.
func (r running) sendRaw(t *testing.T, request string, open time.Duration) (failed string) {
	t.Helper()
	conn, err := (&tls.Dialer{Config: r.tls}).DialContext(t.Context(), "tcp", r.Host)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(open + time.Minute))
	if _, err := io.WriteString(conn, request); err == nil {
		defer time.AfterFunc(open, func() { _ = conn.(*tls.Conn).CloseWrite() }).Stop()
	}
	for reader := bufio.NewReader(conn); ; {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return failed
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		ours := strings.HasPrefix(response.Header.Get("Content-Type"), "application/json")
		unsupported := response.StatusCode == http.StatusNotImplemented ||
			response.StatusCode == http.StatusHTTPVersionNotSupported
		if response.StatusCode >= 500 && (ours || !unsupported) {
			failed = response.Status
		}
	}
}
