package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
	"github.com/larder-registry/larder/pkg/web/session"
)

// visit is a request for a page. Its context is that of the caller, for package
// access.
type visit struct {
	*http.Request
	// account is the caller. It has no name if it is anonymous.
	account session.Account
	// own is the registry's host, and host its form in addresses.
	own  registry.Host
	host string
	// wanted is the address that the request names, unless that is its path.
	wanted string
}

// page is a page to show.
type page struct {
	// template is the name of the files of the page, without .html and .md.
	template string
	// title is the title of the document, without the host.
	title string
	// description is a text about the page for programs that show links to it.
	// It can be empty.
	description string
	// canonical is the path of the page if it is also at others. It can be
	// empty.
	canonical string
	// status is 0 for 200.
	status int
	// ownSearch means that the top bar has no search field, because the page has
	// a larger one or needs none.
	ownSearch bool
	// query is the text of the search field.
	query string
	// model is what the template shows.
	model any
	// markdown is the path of the Markdown form, if it is not that of the page
	// with .md.
	markdown string
	// respond writes the response, if that is not a page.
	respond func(http.ResponseWriter)
}

// pageFunc loads a page. The error is registry.ErrNotFound if the page does not
// exist, or the caller may not read it.
type pageFunc func(v *visit) (page, error)

// view is what the layout shows around a page.
type view struct {
	Title, Description, Host, Release, Query string
	Account                                  session.Account
	// CanLogIn means that a login would change something.
	CanLogIn bool
	// CanSetUp means that the page of the setup needs no login first.
	CanSetUp bool
	// CanSeeStatus means that the page of the status exists for the caller.
	CanSeeStatus bool
	// Path is the path of the page, and Markdown that of its Markdown form.
	// Canonical is a URL.
	Path, Markdown, Canonical string
	// Previewed means that programs that show a link get the title.
	Previewed bool
	// OwnSearch means that the top bar has no search field.
	OwnSearch bool
	// Next is the path and the query of the page, to which a login leads back.
	Next string
	// Page is the model of the page.
	Page any
}

// addressOf returns the address in a source if the source is in this registry.
func (v *visit) addressOf(source string) (address string, found bool) {
	host, address, _ := strings.Cut(source, "/")
	return address, registry.CanonicalHost(host) == v.own
}

// visit returns the visit of a request, without its caller.
func (h *handler) visit(r *http.Request) *visit {
	own := registry.CanonicalHost(cmp.Or(h.Host, r.Host))
	return &visit{Request: r, own: own, host: own.Display()}
}

// page returns the handler of a page. It identifies the caller first.
func (h *handler) page(load pageFunc) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, err := h.identify(r)
		return h.serve(w, v, err, load)
	}
}

// identify returns the visit of a request, with its caller unless there is an
// error.
func (h *handler) identify(r *http.Request) (*visit, error) {
	v := h.visit(r)
	ctx, account, err := h.Accounts.Identify(r)
	v.account = account
	if err == nil {
		v.Request = r.WithContext(ctx)
	}
	return v, err
}

// serve loads and writes a page. err is that of identify.
func (h *handler) serve(w http.ResponseWriter, v *visit, err error, load pageFunc) error {
	var p page
	if err == nil {
		p, err = load(v)
	}
	switch {
	case errors.Is(err, session.ErrEnded):
		session.Forget(w)
		return toLogin(w, v.Request, "&ended=1")
	case errors.Is(err, registry.ErrBadCredential), errors.Is(err, registry.ErrUnauthenticated) && isMarkdown(v.Request):
		return err // a program sends its credential in a header
	case errors.Is(err, registry.ErrUnauthenticated):
		return toLogin(w, v.Request, "")
	case err == nil && p.respond != nil:
		p.respond(w)
		return nil
	}
	if err != nil {
		requestlog.From(v.Context()).Err = err
		p = h.failure(v, err)
	}
	return h.write(w, v, p)
}

// logDamage logs the first cause of something that a page lacks. The error can
// be nil.
func logDamage(ctx context.Context, err error) {
	entry := requestlog.From(ctx)
	entry.Err = cmp.Or(entry.Err, err)
}

// inBackground runs a function at the same time as its caller, and returns a
// function that waits for its error. A panic is an error too, which ends no
// other request.
func inBackground(run func() error) (wait func() error) {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				done <- fmt.Errorf("panic: %v", cause)
			}
		}()
		done <- run()
	}()
	return sync.OnceValue(func() error { return <-done })
}

// toLogin redirects to the login, which leads back to the page. more are further
// parameters.
func toLogin(w http.ResponseWriter, r *http.Request, more string) error {
	w.Header().Set("Location", "/login?next="+url.QueryEscape(r.URL.RequestURI())+more)
	httpapi.WriteEmpty(w, http.StatusSeeOther, httpapi.NoStore)
	return nil
}

// write writes a page in the requested form. It writes a 304 if the client has
// that page already.
func (h *handler) write(w http.ResponseWriter, v *visit, p page) error {
	form, contentType := ".html", "text/html; charset=utf-8"
	if isMarkdown(v.Request) {
		form, contentType = ".md", "text/markdown; charset=utf-8"
	}
	var body bounded
	body.Grow(usualPage)
	err := render(&body, p.template+form, h.view(v, p))
	if errors.Is(err, errTooLarge) {
		body = bounded{}
		p = page{template: "toolarge", title: p.title, canonical: p.canonical}
		err = render(&body, p.template+form, h.view(v, p))
	}
	if err != nil {
		return fmt.Errorf("cannot render the page %s%s: %w", p.template, form, err)
	}
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", httpapi.Revalidate)
	header.Add("Vary", "Cookie")
	header.Add("Vary", "Authorization")
	header.Add("Vary", "Accept-Encoding")
	status := p.status
	if status == 0 {
		status = http.StatusOK
		sum := sha256.Sum256(body.Bytes())
		// Weak, because the body can be compressed or not.
		tag := `W/"` + hex.EncodeToString(sum[:16]) + `"`
		header.Set("ETag", tag)
		if httpapi.HasTag(v.Header.Values("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	} else {
		header.Set("Cache-Control", httpapi.NoStore)
	}
	text := body.Bytes()
	if httpapi.Accepts(v.Header.Values("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		text = compress(text)
	}
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error means that the client has disconnected
	return nil
}

// maxPage is the size of the largest page in bytes, before compression. Pages of
// real modules are far smaller.
const maxPage = 5 << 19

// usualPage is more than the size of most pages, in bytes.
const usualPage = 32 << 10

// errTooLarge means that a page exceeds [maxPage].
var errTooLarge = errors.New("the page is too large")

// bounded is a buffer of at most [maxPage] bytes. It ends the rendering of a
// page that is larger.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxPage {
		return 0, errTooLarge
	}
	return b.Buffer.Write(p)
}

func (h *handler) view(v *visit, p page) view {
	path := v.URL.EscapedPath()
	markdown := cmp.Or(p.markdown, path+".md")
	if path == "/" {
		markdown = "/index.md"
	}
	isLogin := strings.HasPrefix(path, "/login")
	if isLogin {
		markdown = ""
	} else if v.URL.RawQuery != "" && p.markdown == "" {
		markdown += "?" + v.URL.RawQuery
	}
	description, _ := cutDescription(strings.Join(strings.Fields(p.description), " "))
	canonical := p.canonical
	if own, err := registry.ParseHost(string(v.own)); err != nil {
		canonical = "" // a request can have any host
	} else if canonical != "" {
		canonical = own.URL() + canonical
	}
	return view{
		Title: p.title, Description: description, Host: v.host, Account: v.account, Release: h.Release, Query: p.query, Path: path,
		Markdown: markdown, Canonical: canonical, Next: v.URL.RequestURI(), OwnSearch: p.ownSearch,
		CanSetUp: !isLogin || h.isPublic(v.Request),
		CanLogIn: !isLogin && (h.Local == nil || !h.Local.Open), CanSeeStatus: access.CanReadAll(v.Context()),
		Previewed: p.status == 0 && !isLogin, Page: p.model,
	}
}

// compressors are reused, because one needs about a megabyte.
var compressors = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, compression)
	if err != nil {
		panic(err) // the level is valid
	}
	return w
}}

// compression is the level of gzip. Higher levels need twice the time for pages
// that are only a little smaller.
const compression = 5

func compress(text []byte) []byte {
	var out bytes.Buffer
	w, _ := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(&out)
	_, _ = w.Write(text) // a buffer returns no error
	_ = w.Close()
	return out.Bytes()
}

func (h *handler) failure(v *visit, err error) page {
	switch {
	case errors.Is(err, registry.ErrNotFound), errors.Is(err, registry.ErrInvalid), errors.Is(err, registry.ErrForbidden):
		return h.notFound(v, err)
	case errors.Is(err, registry.ErrUnavailable):
		return page{
			template: "failure", title: "Unavailable", status: http.StatusServiceUnavailable,
			model: failure{RequestID: requestlog.From(v.Context()).RequestID, Passing: true},
		}
	}
	return page{
		template: "failure", title: "Error", status: http.StatusInternalServerError,
		model: failure{RequestID: requestlog.From(v.Context()).RequestID},
	}
}

// failure is the page for an error of the registry.
type failure struct {
	RequestID string
	// Passing means that the same request can succeed later.
	Passing bool
	// InLogin means that a login failed.
	InLogin bool
}

// missing is the page for an address that does not exist or that the caller may
// not read. Both are the same page.
type missing struct {
	// Address is the address that was requested.
	Address string
	// Word is the name in the address, for a search.
	Word string
	// Near are the nearest pages that the caller may read.
	Near []link
	// NoVersion is set if only the version does not exist.
	NoVersion *noVersion
}

func (h *handler) notFound(v *visit, err error) page {
	m := missing{Address: strings.Trim(v.URL.Path, "/")}
	errors.As(err, &m.NoVersion)
	// A source has no kind, and its second part is a name.
	kinds, name := []search.Kind{search.Modules}, 1
	if strings.Count(m.Address, "/") == 1 {
		kinds = []search.Kind{search.Providers, search.Modules}
	}
	for _, k := range []search.Kind{search.Modules, search.Providers, search.Mirrored, search.MirroredModules} {
		if rest, found := strings.CutPrefix(m.Address, string(k)); found {
			_, name = k.Shape()
			m.Address, kinds = rest, []search.Kind{k}
			break
		}
	}
	parts := strings.Split(m.Address, "/")
	if m.Address == strings.Trim(v.URL.Path, "/") {
		m.Near = h.mirroredSources(v, parts)
	}
	for _, k := range kinds {
		if near := h.near(v, k, parts); near != nil && m.Near == nil {
			m.Near = []link{*near}
		}
	}
	m.Address = cmp.Or(v.wanted, m.Address)
	words := strings.Split(m.Address, "/")
	m.Word = words[min(name, len(words)-1)]
	return page{template: "notfound", title: "Not found", status: http.StatusNotFound, ownSearch: true, model: m}
}

// near returns the nearest page of an address or a namespace. If the address
// exists, that is its page. It returns nil if there is none.
func (h *handler) near(v *visit, k search.Kind, parts []string) *link {
	length, _ := k.Shape()
	what := strings.Join(parts[:min(length, len(parts))], "/")
	near := h.index.Nearest(v.Context(), k, what, access.Readable[*search.Entry](v.Context()))
	path := "/" + string(k) + near
	isPage := strings.Count(near, "/") == length-1 || near != "" && !k.IsMirrored() // a namespace has one too
	if !isPage || path == v.URL.Path {
		return nil
	}
	return &link{near, path}
}
