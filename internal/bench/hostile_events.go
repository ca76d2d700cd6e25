package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/httpapi"
)

// hostileParts replace the wildcards of routes.
var hostileParts = []string{
	"..", "../../etc/passwd", "%2e%2e%2f", "..%2f..%2f", "%252e%252e", "a\x00b", "%00", "a/b", `a\b`, "", ".", " ",
	strings.Repeat("a", 5000), "\u202egnp.exe", "\u2066a\u2069", "\ufeff", "\xff\xfe", "a\nb", "a\r\nSet-Cookie: b=c",
	"'", `"`, "' OR '1'='1", "1; DROP TABLE items;--", `{"$gt":""}`, `{"S":"a"}`, "{namespace}", "{{7*7}}",
	"${jndi:ldap://a}", "<script>alert(1)</script>", "-1", "99999999999999999999", "1e309", "NaN", "0x10", "١",
	"a:b", "con", "😀", "*", "**",
	"listing", "version/1.0.0", "#", "?a=b", "%", "%zz", ";a=b", "|id", "`id`", "$(id)",
}

// eventForm changes an ordinary event.
type eventForm struct {
	name   string
	change func(*events.APIGatewayV2HTTPRequest)
}

// bodyLimit is the maximum size of an event in Lambda, in bytes.
const bodyLimit = 6 << 20

// eventForms returns the forms of a request that do not depend on its path.
// token and query are secrets that a person could paste.
func eventForms(token, query string) []eventForm {
	text := func(contentType, body string) func(*events.APIGatewayV2HTTPRequest) {
		return func(e *events.APIGatewayV2HTTPRequest) { e.Headers["content-type"], e.Body = contentType, body }
	}
	encoded := func(body string) func(*events.APIGatewayV2HTTPRequest) {
		return func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = body, true }
	}
	named := func(name, value string) func(*events.APIGatewayV2HTTPRequest) {
		return func(e *events.APIGatewayV2HTTPRequest) { e.Headers[name] = value }
	}
	method := func(m string) func(*events.APIGatewayV2HTTPRequest) {
		return func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.Method = m }
	}
	path := func(change func(string) string) func(*events.APIGatewayV2HTTPRequest) {
		return func(e *events.APIGatewayV2HTTPRequest) {
			e.RawPath = change(e.RawPath)
			e.RequestContext.HTTP.Path = e.RawPath
		}
	}
	const asJSON = "application/json"
	large := strings.Repeat("a", bodyLimit-64<<10)
	return []eventForm{
		{"a token in the path", path(func(p string) string { return p + "/" + token })},
		{"a token before the path", path(func(p string) string { return "/" + token + p })},
		{"a presigned query in the path", path(func(p string) string { return p + "%3F" + query })},
		{"a presigned query", func(e *events.APIGatewayV2HTTPRequest) { e.RawQueryString = query }},
		{"a token in the query", func(e *events.APIGatewayV2HTTPRequest) { e.RawQueryString = "token=" + token }},
		{"a query that is none", func(e *events.APIGatewayV2HTTPRequest) { e.RawQueryString = "%zz&&==;\x00\xff" }},
		{"a path without a slash", path(func(p string) string { return strings.TrimPrefix(p, "/") })},
		{"a path of slashes", path(func(p string) string { return strings.Repeat("/", 5000) + p })},
		{"an empty path", path(func(string) string { return "" })},
		{"a path of dots", path(func(p string) string { return p + "/../../.." })},
		{"a path with a bad escape", path(func(p string) string { return p + "%zz" })},
		{"a URL as a path", path(func(p string) string { return "https://evil.example" + p })},
		{"JSON that breaks off", text(asJSON, `{"files":[`)},
		{"JSON of another kind", text(asJSON, `[1,2,3]`)},
		{"JSON null", text(asJSON, `null`)},
		{"JSON with unknown fields", text(asJSON, `{"__proto__":{"admin":true}}`)},
		{"JSON with a field twice", text(asJSON, `{"files":[],"files":null}`)},
		{"JSON numbers out of range", text(asJSON, `{"files":[{"name":"a","size":1e400,"sha256":""}]}`)},
		{"JSON sizes below zero", text(asJSON, `{"files":[{"name":"good.tar.gz","size":-1,"sha256":""}]}`)},
		{"JSON of many files", text(asJSON, `{"files":[`+strings.Repeat(`{"name":"a"},`, 10_000)+`{}]}`)},
		{"deep JSON", text(asJSON, strings.Repeat("[", 100_000))},
		{"deep JSON objects", text(asJSON, strings.Repeat(`{"files":`, 20_000))},
		{"text behind JSON", text(asJSON, `{} evil`)},
		{"a message of control characters", text(asJSON, `{"message":"\u0000\u001b[2J\u202e"}`)},
		{"a large message", text(asJSON, `{"message":"`+large+`"}`)},
		{"XML", text("application/xml", `<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>`)},
		{"a form", text("application/x-www-form-urlencoded", "message=a")},
		{"a content type that is none", text("evil/;;=", "{}")},
		{"another charset", text("application/json; charset=utf-16", "{}")},
		{"a body of UTF-16", text(asJSON, "\xff\xfe{\x00}\x00")},
		{"base64 that is none", encoded("!!!!")},
		{"base64 that breaks off", encoded("YW")},
		{"base64 of bytes", encoded(base64.StdEncoding.EncodeToString([]byte("\x00\xff\xfe")))},
		{"a body of nearly 6 MiB", text(asJSON, large)},
		{"the method EVIL", method("EVIL")},
		{"no method", method("")},
		{"a method in lower case", method("get")},
		{"the method TRACE", method(http.MethodTrace)},
		{"the method HEAD", method(http.MethodHead)},
		{"the method OPTIONS", method(http.MethodOptions)},
		{"a method with a newline", method("GET\r\nA: b")},
		{"a host that is none", named("host", "a b/\\\x00")},
		{"no headers", func(e *events.APIGatewayV2HTTPRequest) { e.Headers = nil }},
		{"a header without a name", named("", "a")},
		{"a header with newlines", named("x-evil", "a\r\nb: c")},
		{"a large header", named("x-evil", strings.Repeat("a", 100<<10))},
		{"a wrong length", named("content-length", "-1")},
		{"a method that overrides", named("x-http-method-override", "DELETE")},
		{"encodings that are none", named("accept-encoding", strings.Repeat("gzip;q=2,", 2000))},
		{"types that are none", named("accept", strings.Repeat("/;q=,", 2000))},
		{"conditions that are none", named("if-none-match", strings.Repeat(`W/"`, 2000))},
		{"ranges", named("range", "bytes=9-1,-,evil")},
		{"cookies", func(e *events.APIGatewayV2HTTPRequest) { e.Cookies = []string{"a=b", "=", "\x00"} }},
		{"another version of events", func(e *events.APIGatewayV2HTTPRequest) { e.Version = "1.0" }},
		{"no context", func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.DomainName = "" }},
		{"an address that is none", func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.SourceIP = "evil\n" }},
	}
}

// event returns an ordinary event for a path.
func event(r httpapi.Route, path, token string) events.APIGatewayV2HTTPRequest {
	key := "ANY " + r.Path
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: key, RawPath: path,
		Headers: map[string]string{"host": "registry.example.com", "authorization": "Bearer " + token},
	}
	e.RequestContext.RouteKey, e.RequestContext.Stage = key, "$default"
	e.RequestContext.DomainName = "registry.example.com"
	e.RequestContext.HTTP = events.APIGatewayV2HTTPRequestContextHTTPDescription{
		Method: r.Method, Path: path, Protocol: "HTTP/1.1", SourceIP: "127.0.0.1",
	}
	return e
}

// eventsOf returns every form of an event for a route.
func eventsOf(r httpapi.Route, token, query string) (names []string, all []events.APIGatewayV2HTTPRequest) {
	for i, part := range append(hostileParts, token, query) {
		n := 0
		path := filled(r, func(name string) string {
			// Some forms replace one wildcard, and others replace all of them.
			if n++; (i+n)%3 == 0 || i%4 == 0 {
				return part
			}
			return ordinaryPart(name)
		})
		if path == r.Path {
			continue // it has no wildcards
		}
		names = append(names, fmt.Sprintf("%.30q in the path", part))
		all = append(all, event(r, path, token))
	}
	for _, form := range eventForms(token, query) {
		e := event(r, filled(r, ordinaryPart), token)
		form.change(&e)
		names, all = append(names, form.name), append(all, e)
	}
	return names, all
}

// events sends hostile events to the functions.
func (a *attacked) events(ctx context.Context) error {
	scopes := []string{"read:**", "publish:modules/acme/**", "publish:providers/acme/**"}
	token, err := newCredential(ctx, a.stack.table, "events", scopes...)
	if err != nil {
		return err
	}
	signature := sha256Hex([]byte(token)) // in the form of a signature
	query := "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=" + signature
	a.secret(token, signature)
	t := table{title: "events, functions", columns: []column{
		{"routes", ""}, {"sent", ""}, {"2xx", ""}, {"4xx", ""}, {"others", ""}, {"5xx", ""},
		{"function errors", ""}, {"ended it", ""},
	}}
	for _, f := range functionRoutes() {
		if a.stack.binaries[f.name] == "" {
			continue
		}
		tally, err := a.eventsTo(ctx, f, token, query)
		if err != nil {
			return err
		}
		others := tally.classes[0] + tally.classes[1] + tally.classes[3]
		t.rows = append(t.rows, row{f.name, []*figure{
			is(float64(len(f.routes))), is(float64(tally.sent)), is(float64(tally.classes[2])),
			is(float64(tally.classes[4])), is(float64(others)), atMost(float64(tally.classes[5]), 0),
			atMost(float64(tally.failed), 0), atMost(float64(tally.died), 0),
		}})
	}
	a.found.tables = append(a.found.tables, t)
	return nil
}

// eventTally counts the responses of a function.
type eventTally struct {
	sent, failed, died int
	classes            [6]int
}

func (a *attacked) eventsTo(ctx context.Context, f routed, token, query string) (eventTally, error) {
	var t eventTally
	function, err := a.stack.function(ctx, f.name)
	if err != nil {
		return t, err
	}
	defer func() { a.retire(function) }()
	for _, r := range f.routes {
		names, all := eventsOf(r, token, query)
		step := max(1, len(all)/min(a.n.attacks, len(all)))
		for i := 0; i < len(all); i += step {
			status, err := status(ctx, function, all[i])
			t.sent++
			switch {
			case ctx.Err() != nil:
				return t, ctx.Err()
			case function.Ended():
				t.died++
			case err != nil:
				t.failed++
			default:
				t.classes[min(status/100, 5)]++
				if status < 500 {
					continue
				}
			}
			a.note(fmt.Sprintf("event for %s %s %s: %s: %d, %.200v", f.name, r.Method, r.Path, names[i], status, err))
			if err != nil {
				a.retire(function)
				if function, err = a.stack.function(ctx, f.name); err != nil {
					return t, err
				}
			}
		}
	}
	return t, nil
}

// retire stops a function and stores its log.
func (a *attacked) retire(f *lambda.Function) {
	f.Close()
	a.logs = append(a.logs, f.Log())
}

// status sends an event to a function and returns the status of its response.
func status(ctx context.Context, f *lambda.Function, e events.APIGatewayV2HTTPRequest) (int, error) {
	payload, err := f.Invoke(ctx, e)
	if err != nil {
		return 0, err
	}
	var found answer
	err = json.Unmarshal(payload, &found)
	return found.StatusCode, err
}
