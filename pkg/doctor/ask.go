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
)

const (
	// patience is how long clients wait for an answer.
	patience = 10 * time.Second
	// idle is how long a download may go without a byte.
	idle = time.Minute
	// slowness is what the least patient clients wait for.
	slowness = 5 * time.Second
	// maxAnswer and maxPackage bound what is read, in bytes.
	maxAnswer  = 8 << 20
	maxPackage = 4 << 30
)

// What a transport does not say itself.
var (
	errTooLong = errors.New("too long")
	errIdle    = errors.New("idle")
)

// answer is what came back, whatever its status.
type answer struct {
	tried  string
	status int
	header http.Header
	url    *url.URL // after redirects
	tls    *tls.ConnectionState
	body   []byte
	at     time.Time // this machine's, while it was answered
	took   time.Duration
	// credential is what was to be sent, and carried says whether who answered was sent it.
	credential credential
	carried    bool
}

// ask sends one GET. It is not repeated: what clients bear by repeating is something to see here.
func (e *examination) ask(ctx context.Context, u *url.URL, c credential) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, e.patience)
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
	a := &answer{tried: "GET " + e.shown(u), status: response.StatusCode, header: response.Header, url: response.Request.URL, tls: response.TLS, at: begun.Add(took / 2),
		credential: c, carried: response.Request.Header.Get("Authorization") != ""}
	a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	a.took = time.Since(start)
	if err == nil && len(a.body) > maxAnswer {
		err = errTooLong
	}
	return a, err
}

// follow decides on a redirect. A credential goes along as clients send it: to the same name and those below it, as
// net/http has decided before.
func follow(request *http.Request, via []*http.Request) error {
	sent := request.Header.Get("Authorization")
	err := client.CheckRedirect(request, via)
	if sent != "" && request.URL.Scheme == "https" {
		request.Header.Set("Authorization", sent) //nolint:gosec // it is there by net/http's own rule
	}
	return err
}

// asked sends one GET with the credential, and tells of what is no 200 or other status that is wanted.
func (e *examination) asked(ctx context.Context, name string, u *url.URL, scope string, want ...int) *answer {
	return e.askedAs(ctx, name, u, e.credential, scope, want...)
}

// askedAs is asked with the credential of another host.
func (e *examination) askedAs(ctx context.Context, name string, u *url.URL, c credential, scope string, want ...int) *answer {
	a, err := e.ask(ctx, u, c)
	if err != nil {
		seen, do := e.unreachable(u, err)
		e.wrong(name, "GET "+e.shown(u), seen, do)
		return nil
	}
	if slices.Contains(append(want, http.StatusOK), a.status) {
		e.slow(name, a)
		return a
	}
	seen, do := e.refused(a, scope)
	e.wrong(name, a.tried, seen, do)
	return nil
}

// fetched sends one GET as clients do for files: without a credential.
func (e *examination) fetched(ctx context.Context, name string, u *url.URL) *answer {
	a, err := e.ask(ctx, u, credential{})
	switch {
	case err != nil:
		seen, do := e.unreachable(u, err)
		e.wrong(name, "GET "+e.shown(u), seen, do)
	case a.status != http.StatusOK:
		e.refusedFile(name, a.tried, u, a.status, a.header, a.body)
	default:
		return a
	}
	return nil
}

// slow tells of an answer that some clients do not wait for.
func (e *examination) slow(name string, a *answer) {
	if a.took > slowness {
		e.warn(name, a.tried, fmt.Sprintf("the answer took %s, and some clients wait for %s", a.took.Round(time.Second/10), slowness), "see what holds it up: the registry's log has the time that each request took there")
	}
}

// refused says why a request with the credential was refused, and what to do. scope is what it takes to read this.
func (e *examination) refused(a *answer, scope string) (seen, do string) {
	seen = status(a.status)
	switch a.status {
	case http.StatusUnauthorized:
		return e.unauthenticated(a)
	case http.StatusForbidden:
		if !a.carried {
			return seen + ": without a credential this is not to be read", e.getCredential(a.credential.host) + "; see also what stands before the registry: a proxy, a firewall"
		}
		if !a.isRefusal() {
			return fmt.Sprintf("%s, not as a registry answers it: the token %s does not allow this, or something before the registry refuses it", seen, a.credential.Place),
				"see what stands before the registry: a proxy, a firewall; else ask its operator for a token with the scope read:" + scope
		}
		return fmt.Sprintf("%s: the token %s is taken, and its scope does not allow this", seen, a.credential.Place),
			"ask the registry's operator for one with the scope read:" + scope
	case http.StatusNotFound, http.StatusGone:
		return seen + ": there is no such thing, or discovery names another path than it is served at", "check the address and its spelling, and that it has been published"
	case http.StatusTooManyRequests:
		return seen + ": it is asked too often", "wait, and see which throttle of the registry was reached"
	}
	if a.status >= 500 {
		return seen + ": the registry fails", "see its log"
	}
	return seen + ", which clients do not take", "see what stands before the registry: a proxy, a firewall, a page to log in by"
}

// decode reads JSON, and tells where it is none.
func (e *examination) decode(name string, a *answer, into any) bool {
	if err := json.Unmarshal(a.body, into); err != nil {
		e.wrong(name, a.tried, status(a.status)+" with what is no JSON of the form that clients read", "see what stands before the registry: a proxy, a page to log in by")
		return false
	}
	return true
}

// isJSON says whether an answer is marked as JSON, as clients compare it.
func (a *answer) isJSON() bool {
	media, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	return err == nil && media == "application/json"
}

// contentType is what an answer says it is.
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
	if c.Token != "" && u.Scheme == "https" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return request, nil
}

// file is what was downloaded.
type file struct {
	tried  string
	header http.Header
	size   int64
	sha256 string
	// unpacked says that it came with Content-Encoding: gzip, which clients undo as this did.
	unpacked bool
}

// download reads a file to its last byte, and tells where it cannot.
func (e *examination) download(ctx context.Context, name string, u *url.URL, l located, w io.Writer) *file {
	f := &file{tried: "GET " + e.shown(u)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(e.idle, func() { cancel(errIdle) })
	defer watch.Stop()
	fail := func(err error) *file {
		seen, do := e.unreachable(u, cmp.Or(context.Cause(ctx), err))
		if f.header != nil {
			seen, do = fmt.Sprintf("it ends after %d bytes: %s", f.size, seen), "try again; if it ends there again, see what stands between"
		}
		e.wrong(name, f.tried, seen, do)
		return nil
	}
	request, err := e.request(ctx, u, l.credential)
	if err != nil {
		e.wrong(name, f.tried, "its URL is none", "publish it again")
		return nil
	}
	if l.direct {
		request.Header.Set("Accept-Encoding", "identity, gzip, *;q=0.1") // as OpenTofu does, so that nothing is unpacked on its way
	}
	response, err := e.http.Do(request)
	if err != nil {
		return fail(err)
	}
	defer response.Body.Close()
	sent := response.Request.Header.Get("Authorization") != ""
	refusals := []int{http.StatusBadRequest, http.StatusForbidden, http.StatusUnauthorized}
	refused := slices.Contains(refusals, response.StatusCode)
	switch {
	case response.StatusCode == http.StatusOK:
	case refused && l.withheld:
		e.skip(name, status(response.StatusCode)+" without the registry's credential, so that the archive was not read")
		return nil
	case refused && sent:
		e.wrong(name, f.tried, status(response.StatusCode)+" to a request with the registry's credential, which use_registry_credentials has OpenTofu send along", "let it take that credential, or let the registry answer without use_registry_credentials")
		return nil
	default:
		body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // the status says enough
		e.refusedFile(name, f.tried, u, response.StatusCode, response.Header, body)
		return nil
	}
	hash := sha256.New()
	f.header, f.unpacked = response.Header, response.Uncompressed
	f.size, err = io.Copy(io.MultiWriter(w, hash), io.LimitReader(watched{response.Body, watch, e.idle}, maxPackage))
	if err != nil {
		return fail(err)
	}
	f.sha256 = hex.EncodeToString(hash.Sum(nil))
	return f
}

// encoded tells of a file that is not what it should be since it was unpacked on its way, if that is why.
func (e *examination) encoded(name string, f *file) bool {
	if f.unpacked {
		e.wrong(name, f.tried, "it is served with Content-Encoding: gzip, so that clients unpack it once too often", "take that header from the stored object")
	}
	return f.unpacked
}

// watched puts off the end of a download while bytes come.
type watched struct {
	io.Reader
	watch *time.Timer
	idle  time.Duration
}

func (w watched) Read(b []byte) (int, error) {
	w.watch.Reset(w.idle)
	return w.Reader.Read(b)
}

// refusedFile tells of a file that was refused. A store says why in a body that clients do not show.
func (e *examination) refusedFile(name, tried string, u *url.URL, code int, header http.Header, body []byte) {
	var said struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	_ = xml.Unmarshal(body, &said) // another store says nothing, or something else
	seen := "the store answers " + status(code)
	if said.Code != "" {
		seen += " " + e.quote(said.Code)
	}
	if code == http.StatusNotFound {
		e.wrong(name, tried, seen+": the file that the registry names is not in its store", "publish the version again, which puts back what is missing")
		return
	}
	if left, ok := lifetime(u, date(header, e.Now())); ok && left <= 0 || said.Message == "Request has expired" {
		e.wrong(name, tried, seen+": the presigned URL had expired as it was given", "set the clock of the machine that signs it, or let URLs live longer: 60 minutes are usual")
		return
	}
	do := map[string]string{
		"RequestTimeTooSkewed":  "set the clock of the machine that signs it",
		"SignatureDoesNotMatch": "see whether something between changes the URL or adds headers, and whether the key that signs is the right one",
		"InvalidAccessKeyId":    "the key that signs it is gone: give the registry's role a new one, or deploy it again",
		"ExpiredToken":          "the session that signed it had ended: URLs must not outlive the credentials of the role that signs",
		"NoSuchBucket":          "the registry names a bucket that is not there: see its settings",
	}[said.Code]
	if do == "" {
		do = "see that the role that signs may read the bucket and its key for encryption (s3:GetObject, kms:Decrypt), and that no bucket policy or network endpoint is in the way"
	}
	what := "the URL is refused"
	if code == http.StatusForbidden {
		what = "the presigned URL is refused; clients send no credential here, and need none"
	}
	e.wrong(name, tried, seen+": "+what, do)
}

// date is an answer's own time, or another where it tells none.
func date(header http.Header, or time.Time) time.Time {
	if t, err := http.ParseTime(header.Get("Date")); err == nil {
		return t
	}
	return or
}
