package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publishapi"
	"github.com/larder-registry/larder/pkg/web"
)

// serverRoutes returns the routes of the server, and functionRoutes those of
// each function.
func serverRoutes() []httpapi.Route {
	all := disk.Routes()
	for _, f := range functionRoutes() {
		all = append(all, f.routes...)
	}
	return all
}

// routed is a function with its routes.
type routed struct {
	name   string
	routes []httpapi.Route
}

func functionRoutes() []routed {
	return []routed{
		{"discovery", discovery.Routes()}, {"modules", modules.Routes()}, {"providers", providers.Routes()},
		{"mirror", mirror.Routes()}, {"metadata", metadata.Routes()}, {"web", web.Routes()},
		{"publish", publishapi.Routes()},
	}
}

// ordinaryParts replace the wildcards of routes in ordinary requests.
var ordinaryParts = map[string]string{
	"namespace": "acme", "name": "good", "system": "null", "type": "note", "version": "1.0.0", "os": "linux",
	"arch": "amd64", "hostname": "registry.example.com", "document": "index.json", "upload": "A", "file": "0",
	"key...": "modules/acme/good",
}

var wildcard = regexp.MustCompile(`\{([^}]*)\}`)

// filled returns the path of a route with its wildcards replaced.
func filled(r httpapi.Route, with func(name string) string) string {
	return wildcard.ReplaceAllStringFunc(r.Path, func(part string) string { return with(part[1 : len(part)-1]) })
}

func ordinaryPart(name string) string { return ordinaryParts[name] }

const (
	// requestsAtOnce is the number of connections that send raw requests.
	requestsAtOnce = 8
	// rawAnswer is the timeout of the response to a raw request.
	rawAnswer = 5 * time.Second
)

// rawTally counts the responses to raw requests.
type rawTally struct {
	sent, closed, silent, ours, standard int
	classes                              [6]int
}

// requests sends raw requests to the server.
func (a *attacked) requests(ctx context.Context) error {
	var endpoints []string
	for _, r := range serverRoutes() {
		endpoints = append(endpoints, r.Method+" "+filled(r, ordinaryPart))
	}
	pasted, err := a.pasted(ctx)
	if err != nil {
		return err
	}
	all := append(pasted, spread(hostile.Requests(endpoints), a.n.attacks*10)...)
	var (
		mu     sync.Mutex
		counts rawTally
	)
	queue := make(chan hostile.Request)
	var workers sync.WaitGroup
	for range requestsAtOnce {
		workers.Go(func() {
			for request := range queue {
				answers, err := a.sendRaw(ctx, request.Raw)
				mu.Lock()
				if problem := counts.count(answers, err); problem != "" {
					a.note(fmt.Sprintf("request: %s: %s", request.Name, problem))
				}
				mu.Unlock()
			}
		})
	}
	for _, request := range all {
		if ctx.Err() != nil {
			break
		}
		queue <- request
	}
	close(queue)
	workers.Wait()
	died, failed := 0, 0
	if a.server.ended() {
		died++
		if err := a.server.start(ctx); err != nil {
			return err
		}
	}
	if err := get(ctx, a.server.client(), a.server.url()+"/.well-known/terraform.json", ""); err != nil {
		failed++
	}
	a.found.tables = append(a.found.tables, table{
		title: "raw requests, larder serve",
		columns: []column{
			{"sent", ""}, {"1xx", ""}, {"2xx", ""}, {"3xx", ""}, {"4xx", ""},
			{"501 or 505 of the HTTP library", ""}, {"closed without an answer", ""}, {"left open", ""},
			{"5xx", ""}, {"ended it", ""}, {"ordinary request fails then", ""},
		},
		rows: []row{{"distinct requests", []*figure{
			is(float64(counts.sent)), is(float64(counts.classes[1])), is(float64(counts.classes[2])),
			is(float64(counts.classes[3])), is(float64(counts.classes[4])), is(float64(counts.standard)),
			is(float64(counts.closed)), is(float64(counts.silent)),
			atMost(float64(counts.ours), 0), atMost(float64(died), 0), atMost(float64(failed), 0),
		}}},
	})
	return nil
}

// pasted returns requests with a secret that a person pasted into the path or
// the query.
func (a *attacked) pasted(ctx context.Context) ([]hostile.Request, error) {
	token, err := a.credential(ctx, a.server, "pasted", "read:**")
	if err != nil {
		return nil, err
	}
	signature := sha256Hex([]byte(token)) // in the form of a signature
	a.secret(signature)
	query := "expires=9999999999&signature=" + signature
	var all []hostile.Request
	for _, path := range []string{
		"/" + token, "/v1/modules/" + token + "/a/b/versions", "/v1/providers/acme/" + token + "/versions",
		"/?token=" + token,
		"/v1/publish/modules/acme/" + token + "/null/1.0.0/uploads", disk.Path + token, "/v1/modules//" +
			token, "//" + token,
		disk.Path + "modules/acme/good/a.tar.gz%3F" + query, disk.Path + "a%3f" + query, disk.Path + "a%253F" + query,
		disk.PutPath + "a%3F" + query, disk.Path + "a?" + query, disk.Path + "a;" + query, disk.Path + "a&" + query,
		disk.Path + "a?" + query + "%zz", disk.Path + "%3Fsignature%3D" + signature, "/" + signature,
	} {
		raw := "GET " + path + " HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + token + "\r\n\r\n"
		all = append(all, hostile.Request{Name: "a secret in the address", Raw: []byte(raw)})
	}
	return all, nil
}

// rawResponse is a response to a raw request.
type rawResponse struct {
	status int
	// ours reports whether it has the form of the registry's errors. Otherwise
	// it is from the HTTP library.
	ours bool
}

// halfOpen is how long a client waits before it closes its side of the
// connection.
const halfOpen = 100 * time.Millisecond

// sendRaw sends bytes over a new connection, and reads the responses.
func (a *attacked) sendRaw(ctx context.Context, raw []byte) ([]rawResponse, error) {
	address := strings.TrimPrefix(a.server.url(), "https://")
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: a.server.server.roots, MinVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(rawAnswer)); err != nil {
		return nil, err
	}
	// The server may respond and close before it has read everything.
	if _, err := connection.Write(raw); err == nil {
		if half, ok := connection.(*tls.Conn); ok {
			// If a client closes its side at once, the server treats it as gone
			// and cancels its request.
			defer time.AfterFunc(halfOpen, func() { _ = half.CloseWrite() }).Stop()
		}
	}
	var answers []rawResponse
	reader := bufio.NewReader(connection)
	for {
		var of *http.Request
		if bytes.HasPrefix(raw, []byte("HEAD ")) {
			of = &http.Request{Method: http.MethodHead}
		}
		response, err := http.ReadResponse(reader, of)
		if err != nil {
			return answers, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		answers = append(answers, rawResponse{
			response.StatusCode, strings.HasPrefix(response.Header.Get("Content-Type"), "application/json"),
		})
		if err != nil {
			return answers, err
		}
	}
}

// count counts the responses to a request, and returns their faults.
func (t *rawTally) count(answers []rawResponse, err error) string {
	t.sent++
	var timeout interface{ Timeout() bool }
	switch {
	case len(answers) == 0 && errors.As(err, &timeout) && timeout.Timeout():
		t.silent++
	case len(answers) == 0:
		t.closed++
	}
	for _, r := range answers {
		switch {
		case r.status < 500:
			t.classes[r.status/100]++
		case (r.status == http.StatusNotImplemented || r.status == http.StatusHTTPVersionNotSupported) && !r.ours:
			t.standard++
		default:
			t.ours++
			return fmt.Sprintf("the response has status %d", r.status)
		}
	}
	return ""
}
