package doctor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

const (
	// timeout is how long clients wait for an answer.
	timeout = 10 * time.Second
	// idle is how long clients wait for the next byte of a download.
	idle = time.Minute
	// slowAnswer is the shortest timeout of common clients.
	slowAnswer = 5 * time.Second
	// maxAnswer and maxPackage limit how many bytes are read.
	maxAnswer  = 8 << 20
	maxPackage = 4 << 30
)

// Errors that the transport does not return itself.
var (
	errTooLong = errors.New("too long")
	errIdle    = errors.New("idle")
)

// answer is the response to a request, whatever its status.
type answer struct {
	request string
	status  int
	header  http.Header
	url     *url.URL // after redirects
	tls     *tls.ConnectionState
	body    []byte
	at      time.Time // this machine's time at about the middle of the request
	took    time.Duration
	// credential is the credential for the host, and credentialSent reports
	// whether the server that answered received it.
	credential     credential
	credentialSent bool
}

// send sends one GET request. It does not retry, because failures that clients
// hide by retrying are findings.
func (e *examination) send(ctx context.Context, u *url.URL, c credential) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := e.request(ctx, u, c)
	if err != nil {
		return nil, err
	}
	begun, start := e.Now(), time.Now()
	response, err := e.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	took := time.Since(start)
	a := &answer{
		request:        "GET " + e.shown(u),
		status:         response.StatusCode,
		header:         response.Header,
		url:            response.Request.URL,
		tls:            response.TLS,
		at:             begun.Add(took / 2),
		credential:     c,
		credentialSent: response.Request.Header.Get("Authorization") != "",
	}
	a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	a.took = time.Since(start)
	if err == nil && len(a.body) > maxAnswer {
		err = errTooLong
	}
	return a, err
}

// follow is the redirect policy of the HTTP client. It forwards the credential
// as clients do. By the rules of net/http that is to the same host name and its
// subdomains. A given token stays at its host and port.
func (e *examination) follow(request *http.Request, via []*http.Request) error {
	sent := request.Header.Get("Authorization")
	err := client.CheckRedirect(request, via)
	if sent != "" && request.URL.Scheme == "https" && (e.Token == "" || !e.isOwn(via[0].URL)) {
		request.Header.Set("Authorization", sent) //nolint:gosec // net/http decided to forward it
	}
	return err
}

// get sends one GET request with the registry's credential. If the status is
// neither 200 nor in want, it adds a step and returns nil.
func (e *examination) get(ctx context.Context, name string, u *url.URL, scope string, want ...int) *answer {
	return e.getAs(ctx, name, u, e.credential, scope, want...)
}

// getAs is like get, with the credential of another host.
func (e *examination) getAs(ctx context.Context, name string, u *url.URL, c credential, scope string,
	want ...int) *answer {
	a, err := e.send(ctx, u, c)
	if err != nil {
		result, fix := e.explainError(u, err)
		e.wrong(name, "GET "+e.shown(u), result, fix)
		return nil
	}
	if slices.Contains(append(want, http.StatusOK), a.status) {
		e.slow(name, a)
		return a
	}
	result, fix := e.explainStatus(a, scope)
	e.wrong(name, a.request, result, fix)
	return nil
}

// getFile sends one GET request without a credential, as clients do for files.
// If that fails, it adds a step and returns nil.
func (e *examination) getFile(ctx context.Context, name string, u *url.URL) *answer {
	a, err := e.send(ctx, u, credential{})
	switch {
	case err != nil:
		result, fix := e.explainError(u, err)
		e.wrong(name, "GET "+e.shown(u), result, fix)
	case a.status != http.StatusOK:
		e.storeFailed(name, a.request, u, a.status, a.header, a.body)
	default:
		return a
	}
	return nil
}

// slow adds a warning if some clients do not wait that long for the answer.
func (e *examination) slow(name string, a *answer) {
	if a.took > slowAnswer {
		e.warn(name, a.request,
			fmt.Sprintf("the answer took %s, but some clients only wait %s", a.took.Round(time.Second/10), slowAnswer),
			"find the slow part; the registry's log has the time that it spent on each request")
	}
}

// explainStatus explains the status of a request that may carry the credential.
// scope is the part of a read scope that allows the request.
func (e *examination) explainStatus(a *answer, scope string) (result, fix string) {
	result = status(a.status)
	switch a.status {
	case http.StatusUnauthorized:
		return e.unauthenticated(a)
	case http.StatusForbidden:
		if a.credential.given && !a.credentialSent {
			return e.keptBack(a)
		}
		if !a.credentialSent {
			return result + ": this cannot be read without a credential", e.getCredential(
				a.credential.host) + "; also check any proxy or firewall in front of the registry"
		}
		if !a.isRefusal() {
			return fmt.Sprintf(
					"%s, but not in the registry's format: either the token %s does not allow this, or something in front of the "+
						"registry denied it",
					result,
					a.credential.Place,
				),
				"check any proxy or firewall in front of the registry; if there is none, " + e.getScope(a.credential.host, scope)
		}
		return fmt.Sprintf(
				"%s: the registry accepts the token %s, but its scope does not allow this",
				result,
				a.credential.Place,
			),
			e.getScope(a.credential.host, scope)
	case http.StatusNotFound, http.StatusGone:
		return result + ": it does not exist, or discovery names the wrong path", "check the spelling of the address, and " +
			"check that it has been published"
	case http.StatusTooManyRequests:
		return result + ": the client sent too many requests", "wait, then find out which limit of the registry was reached"
	}
	if a.status >= 500 {
		if isDenied(a.body) {
			return result + denied, giveBack
		}
		return result + ": the registry failed", "check the registry's log"
	}
	return result + ", which clients do not accept", "check whether a proxy, a firewall or a login page is in front of " +
		"the registry"
}

// denied explains the answer of a registry that may not use one of its own
// files, and giveBack is the fix.
const (
	denied   = ": permission denied for a file in the registry's folder, because it belongs to another user"
	giveBack = "on the registry's machine, run `larder verify` as the user of the server; it names the files, and how " +
		"to give them back"
)

// isDenied reports whether the body of an answer is that of such a registry.
func isDenied(body []byte) bool {
	var failed struct {
		Code string `json:"code"`
	}
	return json.Unmarshal(body, &failed) == nil && failed.Code == errs.CodePermission
}

// decode reads the JSON body of an answer. If that fails, it adds a step and
// returns false.
func (e *examination) decode(name string, a *answer, into any) bool {
	if err := json.Unmarshal(a.body, into); err != nil {
		e.wrong(name, a.request, status(a.status)+", but the body is not the JSON that clients expect",
			"check whether a proxy or a login page is in front of the registry")
		return false
	}
	return true
}

// isJSON reports whether the content type is JSON, by the comparison that
// clients use.
func (a *answer) isJSON() bool {
	media, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	return err == nil && media == "application/json"
}

// contentType returns the content type of an answer, or "missing".
func (e *examination) contentType(header http.Header) string {
	if t := header.Get("Content-Type"); t != "" {
		return e.quote(t)
	}
	return "missing"
}

func status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

func (e *examination) request(ctx context.Context, u *url.URL, c credential) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", e.Agent)
	if c.Token != "" && u.Scheme == "https" && (!c.given || e.isOwn(u)) {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return request, nil
}

// isOwn reports whether a URL is an https URL of the registry's own host and
// port.
func (e *examination) isOwn(u *url.URL) bool {
	return u.Scheme == "https" && sameHost(u.Host, e.Host)
}

// sameHost reports whether two texts are the same host and port.
func sameHost(a, b string) bool {
	return registry.CanonicalHost(a) == registry.CanonicalHost(b)
}

// file is a downloaded file.
type file struct {
	request string
	header  http.Header
	size    int64
	sha256  string
	// unpacked reports that the transport removed Content-Encoding: gzip, as
	// clients do.
	unpacked bool
}

// download writes a file to w. If it cannot read all of it, it adds a step and
// returns nil.
func (e *examination) download(ctx context.Context, name string, u *url.URL, l located, w io.Writer) *file {
	f := &file{request: "GET " + e.shown(u)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(idle, func() { cancel(errIdle) })
	defer watch.Stop()
	fail := func(err error) *file {
		result, fix := e.explainError(u, cmp.Or(context.Cause(ctx), err))
		if f.header != nil {
			result, fix = fmt.Sprintf("the download ended after %d bytes: %s", f.size,
				result), "try again; if it ends there again, check the network and any proxy on the way"
		}
		e.wrong(name, f.request, result, fix)
		return nil
	}
	request, err := e.request(ctx, u, l.credential)
	if err != nil {
		e.wrong(name, f.request, "the download URL is not valid", "publish the version again")
		return nil
	}
	if l.direct {
		// OpenTofu sends the same, so that the transport does not unpack the file.
		request.Header.Set("Accept-Encoding", "identity, gzip, *;q=0.1")
	}
	response, err := e.http.Do(request)
	if err != nil {
		return fail(err)
	}
	defer response.Body.Close()
	sent := response.Request.Header.Get("Authorization") != ""
	rejections := []int{http.StatusBadRequest, http.StatusForbidden, http.StatusUnauthorized}
	rejected := slices.Contains(rejections, response.StatusCode)
	switch {
	case response.StatusCode == http.StatusOK:
	case rejected && l.withheld:
		e.skip(name, status(response.StatusCode)+" without the registry's credential, so the archive was not read")
		return nil
	case rejected && sent:
		e.wrong(name, f.request,
			status(response.StatusCode)+" to a request with the registry's credential, which OpenTofu sends because of "+
				"use_registry_credentials",
			"make the server accept that credential, or make the registry answer without use_registry_credentials")
		return nil
	default:
		body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // the status is enough
		e.storeFailed(name, f.request, u, response.StatusCode, response.Header, body)
		return nil
	}
	hash := sha256.New()
	f.header, f.unpacked = response.Header, response.Uncompressed
	f.size, err = io.Copy(io.MultiWriter(w, hash), io.LimitReader(watched{response.Body, watch}, maxPackage))
	if err != nil {
		return fail(err)
	}
	f.sha256 = hex.EncodeToString(hash.Sum(nil))
	return f
}

// encoded adds a step if the transport unpacked the file, which explains a
// wrong checksum. It reports whether it did.
func (e *examination) encoded(name string, f *file) bool {
	if f.unpacked {
		e.wrong(name, f.request, "it is served with Content-Encoding: gzip, so clients unpack it twice",
			"remove that header from the stored object")
	}
	return f.unpacked
}

// watched is a reader that restarts a timer with each read.
type watched struct {
	io.Reader
	watch *time.Timer
}

func (w watched) Read(b []byte) (int, error) {
	w.watch.Reset(idle)
	return w.Reader.Read(b)
}

// storeFailed adds a step for a file that the store did not return. The body
// contains the reason, which clients do not show.
func (e *examination) storeFailed(name, request string, u *url.URL, code int, header http.Header, body []byte) {
	var storeError struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	_ = xml.Unmarshal(body, &storeError) // other stores may have another format
	result := "the store answered " + status(code)
	if storeError.Code != "" {
		result += " " + e.quote(storeError.Code)
	}
	if code == http.StatusNotFound {
		e.wrong(name, request, result+": the store does not have the file that the registry names",
			"publish the version again to restore the missing file")
		return
	}
	if isDenied(body) {
		e.wrong(name, request, result+denied, giveBack)
		return
	}
	if left, ok := lifetime(u, date(header, e.Now())); ok && left <= 0 || storeError.Message == "Request has expired" {
		e.wrong(name, request, result+": the presigned URL had already expired when the registry returned it",
			"set the clock of the machine that signs it, or use a longer lifetime for URLs, such as 60 minutes")
		return
	}
	fix := map[string]string{
		"RequestTimeTooSkewed": "set the clock of the machine that signs it",
		"SignatureDoesNotMatch": "check that no proxy changes the URL or adds headers, and that the URL is signed with " +
			"the right key",
		"InvalidAccessKeyId": "the key that signed it no longer exists: give the registry's role a new one, or deploy " +
			"it again",
		"ExpiredToken": "the session that signed it has ended: URLs must not live longer than the credentials of " +
			"the role that signs them",
		"NoSuchBucket": "the registry names a bucket that does not exist: check its settings",
	}[storeError.Code]
	if fix == "" {
		fix = "check that the role that signs may read the bucket and its encryption key (s3:GetObject, kms:Decrypt), and " +
			"that no bucket policy or network endpoint denies it"
	}
	what := "it rejects the URL"
	if code == http.StatusForbidden {
		what = "it rejects the presigned URL; clients send no credential here and need none"
	}
	e.wrong(name, request, result+": "+what, fix)
}

// date returns the time in a Date header, or another time if there is none.
func date(header http.Header, or time.Time) time.Time {
	if t, err := http.ParseTime(header.Get("Date")); err == nil {
		return t
	}
	return or
}
