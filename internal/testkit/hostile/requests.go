package hostile

import (
	"fmt"
	"strings"
)

// Request is a raw HTTP request that a server must survive.
type Request struct {
	Name string
	Raw  []byte
}

// requestForms return a request with a method for a path, such as
// /v1/modules/acme/good/null/versions.
var requestForms = []struct {
	name string
	make func(method, path string) string
}{
	{"plain", func(m, p string) string { return m + " " + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"without a host", func(m, p string) string { return m + " " + p + " HTTP/1.1\r\n\r\n" }},
	{"two hosts", func(m, p string) string { return m + " " + p + " HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" }},
	{"a bad host", header("Host: a b/\\<>")},
	{"HTTP/1.0", func(m, p string) string { return m + " " + p + " HTTP/1.0\r\n\r\n" }},
	{"HTTP/0.9", func(m, p string) string { return m + " " + p + "\r\n" }},
	{"HTTP/2.0", func(m, p string) string { return m + " " + p + " HTTP/2.0\r\nHost: h\r\n\r\n" }},
	{"HTTP/9.9", func(m, p string) string { return m + " " + p + " HTTP/9.9\r\nHost: h\r\n\r\n" }},
	{"a protocol that is none", func(m, p string) string { return m + " " + p + " EVIL/1.1\r\nHost: h\r\n\r\n" }},
	{"lower case", func(m, p string) string { return strings.ToLower(m) + " " + p + " http/1.1\r\nhost: h\r\n\r\n" }},
	{"newlines alone", func(m, p string) string { return m + " " + p + " HTTP/1.1\nHost: h\n\n" }},
	{"carriage returns alone", func(m, p string) string { return m + " " + p + " HTTP/1.1\rHost: h\r\r" }},
	{"empty lines first", func(m, p string) string {
		return "\r\n\r\n\r\n" + m + " " + p + " HTTP/1.1\r\nHost: h\r\n\r\n"
	}},
	{"tabs in the request line", func(m, p string) string { return m + "\t" + p + "\tHTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"spaces in the request line", func(m, p string) string {
		return m + "   " + p + "   HTTP/1.1\r\nHost: h\r\n\r\n"
	}},
	{"a line that breaks off", func(m, p string) string { return m + " " + p }},
	{"headers that break off", func(m, p string) string { return m + " " + p + " HTTP/1.1\r\nHost: h\r\nA: b" }},
	{"a method that is none", func(_, p string) string { return "EVIL " + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"a method of signs", func(_, p string) string { return "(){};: " + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"a long method", func(_, p string) string {
		return strings.Repeat("A", 9000) + " " + p + " HTTP/1.1\r\nHost: h\r\n\r\n"
	}},
	{"TRACE", func(_, p string) string { return "TRACE " + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"HEAD", func(_, p string) string { return "HEAD " + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"OPTIONS", func(_, p string) string { return "OPTIONS " + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"PATCH", func(_, p string) string { return "PATCH " + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"the preface of HTTP/2", func(m, p string) string { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + m + p }},
	{"CONNECT", func(_, p string) string { return "CONNECT 127.0.0.1:1" + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"absolute form",
		func(m, p string) string { return m + " http://evil.example" + p + " HTTP/1.1\r\nHost: h\r\n\r\n" },
	},
	{"absolute form with a user", func(m, p string) string {
		return m + " https://a:b@evil.example:99999" + p + " HTTP/1.1\r\nHost: h\r\n\r\n"
	}},
	{"another scheme",
		func(m, p string) string { return m + " file:///etc/passwd?" + p + " HTTP/1.1\r\nHost: h\r\n\r\n" },
	},
	{"asterisk form", func(m, p string) string { return m + " *" + p + " HTTP/1.1\r\nHost: h\r\n\r\n" }},
	{"two slashes first", at("/%s")},
	{"slashes at the end", at("%s///")},
	{"dots in the path", at("/a/..%s/../.")},
	{"traversal", at("%s/../../../../etc/passwd")},
	{"encoded traversal", at("%s/%%2e%%2e/%%2e%%2e%%2fetc%%2fpasswd")},
	{"double encoding", at("%s/%%252e%%252e%%252f")},
	{"an encoded NUL", at("%s%%00")},
	{"a NUL", at("%s\x00")},
	{"a bad escape", at("%s%%zz")},
	{"an escape that breaks off", at("%s%%")},
	{"bad UTF-8", at("%s\xff\xfe")},
	{"encoded bad UTF-8", at("%s%%ff%%fe")},
	{"an overlong slash", at("%s%%c0%%af..%%c0%%af")},
	{"a backslash", at("%s\\..\\..")},
	{"a fragment", at("%s#fragment")},
	{"parameters", at("%s;a=b;jsessionid=1")},
	{"a query of signs", at("%s?%%&&==&a[]=1&%%00=%%ff;")},
	{"a long query", at("%s?" + strings.Repeat("a=b&", 4000))},
	{"a long path", at("%s/" + strings.Repeat("a", 20000))},
	{"a deep path", at("%s" + strings.Repeat("/a", 5000))},
	{"right to left", at("%s/%%e2%%80%%ae")},
	{"a header without a colon", header("evil")},
	{"a header without a name", header(": evil")},
	{"a space in a name", header("Content Length: 1")},
	{"a space before the colon", header("Content-Length : 1")},
	{"a folded header", header("A: b\r\n c\r\n\td")},
	{"NUL in a header", header("A: b\x00c")},
	{"bad UTF-8 in a header", header("A: \xff\xfe")},
	{"a carriage return in a header", header("A: b\rc: d")},
	{"a large header", header("A: " + strings.Repeat("b", 70<<10))},
	{"many headers", header(strings.TrimSuffix(strings.Repeat("A: b\r\n", 3000), "\r\n"))},
	{"a negative length", body("Content-Length: -1", "evil")},
	{"a length that is none", body("Content-Length: evil", "evil")},
	{"a huge length", body("Content-Length: 99999999999999999999", "evil")},
	{"a length with a sign", body("Content-Length: +4", "evil")},
	{"two lengths", body("Content-Length: 4\r\nContent-Length: 5", "evil!")},
	{"lengths in a list", body("Content-Length: 4, 4", "evil")},
	{"a length above the body", body("Content-Length: 400", "evil")},
	{"a length below the body", body("Content-Length: 1", "evil")},
	{"chunks", body("Transfer-Encoding: chunked", "4\r\nevil\r\n0\r\n\r\n")},
	{"chunks that break off", body("Transfer-Encoding: chunked", "ff\r\nevil")},
	{"chunks of a wrong size", body("Transfer-Encoding: chunked", "zz\r\nevil\r\n0\r\n\r\n")},
	{"chunks of a huge size", body("Transfer-Encoding: chunked", "ffffffffffffffffff\r\nevil\r\n")},
	{"chunks of a negative size", body("Transfer-Encoding: chunked", "-4\r\nevil\r\n0\r\n\r\n")},
	{"chunks with extensions",
		body("Transfer-Encoding: chunked", "4;a="+strings.Repeat("b", 9000)+"\r\nevil\r\n0\r\n\r\n"),
	},
	{"chunks with trailers",
		body("Transfer-Encoding: chunked\r\nTrailer: A", "0\r\nA: b\r\nContent-Length: 9\r\n\r\n"),
	},
	{"chunks with only newlines", body("Transfer-Encoding: chunked", "4\nevil\n0\n\n")},
	{"many chunks", body("Transfer-Encoding: chunked", strings.Repeat("1\r\na\r\n", 5000)+"0\r\n\r\n")},
	{"chunks and a length",
		body("Transfer-Encoding: chunked\r\nContent-Length: 4", "0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"),
	},
	{"a length and chunks", body("Content-Length: 6\r\nTransfer-Encoding: chunked", "0\r\n\r\nG")},
	{"an encoding with a space", body("Transfer-Encoding : chunked\r\nContent-Length: 5", "0\r\n\r\n")},
	{"an encoding with a tab", body("Transfer-Encoding:\tchunked\x0b\r\nContent-Length: 5", "0\r\n\r\n")},
	{"an unknown encoding", body("Transfer-Encoding: xchunked", "0\r\n\r\n")},
	{"two encodings", body("Transfer-Encoding: gzip, chunked", "0\r\n\r\n")},
	{"an encoding twice", body("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "0\r\n\r\n")},
	{"an encoding on HTTP/1.0", func(m, p string) string {
		return m + " " + p + " HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	}},
	{"a body in gzip that is none", body("Content-Encoding: gzip\r\nContent-Length: 4", "evil")},
	{"JSON that is none", body("Content-Type: application/json\r\nContent-Length: 4", "evil")},
	{"a part of a form that is none",
		body("Content-Type: multipart/form-data; boundary=\r\nContent-Length: 4", "evil")},
	{"pipelining", func(m, p string) string {
		return strings.Repeat(m+" "+p+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", 20)
	}},
	{"a second request that is none", func(m, p string) string {
		return m + " " + p + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nevil\r\n\r\n"
	}},
	{"an upgrade to a socket", header("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: evil")},
	{"an upgrade to HTTP/2",
		header("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__"),
	},
	{"an expectation", body("Expect: 100-continue\r\nContent-Length: 4", "")},
	{"an unknown expectation", header("Expect: evil")},
	{"hop-by-hop names", header("Connection: close, Host, Authorization, X-Forwarded-For")},
	{"forwarded from elsewhere",
		header("X-Forwarded-For: ' OR 1=1\r\nX-Original-URL: /evil\r\nX-HTTP-Method-Override: PUT"),
	},
	{"many ranges", header("Range: bytes=" + strings.TrimSuffix(strings.Repeat("0-,", 5000), ","))},
	{"a range that is none", header("Range: bytes=9-1, -, evil, 99999999999999999999-")},
	{"a condition on a tag", header("If-None-Match: *, \"a\", W/\"b\", evil\r\nIf-Match: \"c\"")},
	{"a condition on a time", header("If-Modified-Since: evil\r\nIf-Unmodified-Since: Thu, 99 Foo 9999 99:99:99 GMT")},
	{"encodings to accept", header("Accept-Encoding: gzip;q=9, *;q=0, " + strings.Repeat("a,", 3000) + "evil;q=x")},
	{"types to accept", header("Accept: " + strings.Repeat("*/*;q=0.1,", 3000) + "evil/")},
	{"two credentials", header("Authorization: Bearer a\r\nAuthorization: Basic YTpi")},
	{"a credential of NUL", header("Authorization: Bearer \x00")},
}

// header returns a form with header lines.
func header(lines string) func(method, path string) string {
	return func(m, p string) string { return m + " " + p + " HTTP/1.1\r\nHost: h\r\n" + lines + "\r\n\r\n" }
}

// body returns a form with header lines and a body.
func body(lines, text string) func(method, path string) string {
	return func(m, p string) string {
		if m == "GET" {
			m = "POST"
		}
		return m + " " + p + " HTTP/1.1\r\nHost: h\r\n" + lines + "\r\n\r\n" + text
	}
}

// at returns a form that formats the path.
func at(format string) func(method, path string) string {
	return func(m, p string) string { return fmt.Sprintf(m+" "+format+" HTTP/1.1\r\nHost: h\r\n\r\n", p) }
}

// Requests returns every form of request for every endpoint, such as "GET
// /v1/modules/acme/good/null/versions". It has no duplicates.
func Requests(endpoints []string) []Request {
	var all []Request
	seen := make(map[string]bool)
	for _, endpoint := range endpoints {
		method, path, _ := strings.Cut(endpoint, " ")
		for _, form := range requestForms {
			raw := form.make(method, path)
			if !seen[raw] {
				seen[raw] = true
				all = append(all, Request{form.name + ", " + endpoint, []byte(raw)})
			}
		}
	}
	return all
}
