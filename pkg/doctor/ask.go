package doctor

import (
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
}

// ask sends one GET. It is not repeated: what clients bear by repeating is something to see here.
func (e *examination) ask(ctx context.Context, u *url.URL, token string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := e.request(ctx, u)
	if err != nil {
		return nil, err
	}
	if token != "" && u.Scheme == "https" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	begun, start := e.Now(), time.Now()
	response, err := e.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	took := time.Since(start)
	a := &answer{tried: "GET " + shown(u), status: response.StatusCode, header: response.Header, url: response.Request.URL, tls: response.TLS, at: begun.Add(took / 2)}
	a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	a.took = time.Since(start)
	if err == nil && len(a.body) > maxAnswer {
		err = errors.New("it is too long")
	}
	return a, err
}

// asked sends one GET with the credential, and tells of what is no 200 or other status that is wanted.
func (e *examination) asked(ctx context.Context, name string, u *url.URL, scope string, want ...int) *answer {
	return e.answered(name, u, scope, func() (*answer, error) { return e.ask(ctx, u, e.credential.Token) }, want...)
}

// fetched sends one GET as clients do for files: without a credential.
func (e *examination) fetched(ctx context.Context, name string, u *url.URL) *answer {
	a, err := e.ask(ctx, u, "")
	switch {
	case err != nil:
		e.wrong(name, "GET "+shown(u), "no answer: "+client.Reason(err), "see that the machines of clients reach "+quote(u.Host))
	case a.status != http.StatusOK:
		e.refusedFile(name, a.tried, u, a.status, a.header, a.body)
	default:
		return a
	}
	return nil
}

func (e *examination) answered(name string, u *url.URL, scope string, send func() (*answer, error), want ...int) *answer {
	a, err := send()
	if err != nil {
		e.wrong(name, "GET "+shown(u), "no answer: "+client.Reason(err), "clients wait for ten seconds: see what the registry's log says")
		return nil
	}
	for _, status := range append(want, http.StatusOK) {
		if a.status == status {
			e.slow(name, a)
			return a
		}
	}
	seen, do := e.refused(a, scope)
	e.wrong(name, a.tried, seen, do)
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
		return e.unauthenticated()
	case http.StatusForbidden:
		if e.credential.Token == "" {
			return seen + ": without a credential this is not to be read", e.getCredential()
		}
		return fmt.Sprintf("%s: the token %s is taken, and its scope does not reach this", seen, e.credential.Place),
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
func (a *answer) contentType() string {
	if t := a.header.Get("Content-Type"); t != "" {
		return quote(t)
	}
	return "missing"
}

func status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

func (e *examination) request(ctx context.Context, u *url.URL) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", e.Agent)
	return request, nil
}

// file is what was downloaded.
type file struct {
	tried  string
	header http.Header
	size   int64
	sha256 string
}

// download reads a file to its last byte, without a credential, and tells where it cannot.
func (e *examination) download(ctx context.Context, name string, u *url.URL, w io.Writer) *file {
	f := &file{tried: "GET " + shown(u)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := time.AfterFunc(idle, cancel)
	defer watch.Stop()
	request, err := e.request(ctx, u)
	if err != nil {
		e.wrong(name, f.tried, "its URL is none", "publish it again")
		return nil
	}
	// As clients do it, but that the transport must not unpack what is to be hashed.
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := e.http.Do(request)
	if err != nil {
		e.wrong(name, f.tried, "no answer: "+client.Reason(err), "see that the machines of clients reach "+quote(u.Host))
		return nil
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // the status says enough
		e.refusedFile(name, f.tried, u, response.StatusCode, response.Header, body)
		return nil
	}
	hash := sha256.New()
	f.header = response.Header
	f.size, err = io.Copy(io.MultiWriter(w, hash), io.LimitReader(watched{response.Body, watch}, maxPackage))
	if err == nil && response.ContentLength >= 0 && f.size != response.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		e.wrong(name, f.tried, fmt.Sprintf("it ends after %d bytes: %s", f.size, client.Reason(err)), "try again; if it ends there again, see what stands between")
		return nil
	}
	f.sha256 = hex.EncodeToString(hash.Sum(nil))
	if encoding := f.header.Get("Content-Encoding"); encoding != "" {
		e.wrong(name, f.tried, "it is served with Content-Encoding: "+quote(encoding)+", so that clients unpack it once too often", "take that header from the stored object")
		return nil
	}
	return f
}

// watched puts off the end of a download while bytes come.
type watched struct {
	io.Reader
	watch *time.Timer
}

func (w watched) Read(b []byte) (int, error) {
	w.watch.Reset(idle)
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
		seen += " " + quote(said.Code)
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
