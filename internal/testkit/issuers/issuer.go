// Package issuers runs issuers of tokens on loopback: an OpenID Connect
// provider for people, and one for the jobs of a CI service.
package issuers

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"github.com/larder-registry/larder/internal/testkit/nodejs"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// openid is the path of the provider, within the checkout.
const openid = "internal/testkit/issuers/openid"

// Issuer is an OpenID Connect provider in its own process. Anyone may sign in.
// Its public client is larder-cli. If the authorize URL has a resource, access
// tokens are JWTs with the resource as the audience. Otherwise they are opaque.
// If it has callbacks, larder-web is another public client, and [Confidential]
// one with a secret.
type Issuer struct {
	URL string
	*programs.Server
}

// Confidential is a client with the secret [Secret].
const (
	Confidential = "larder-web:confidential"
	Secret       = "not a secret: +/=%"
)

// StartIssuer starts a provider on a free port of 127.0.0.1. Its web clients have
// the callbacks, which are https URLs. The first call installs the provider's
// packages. Without Node.js, the error is [nodejs.ErrMissing]. The caller closes
// the issuer.
func StartIssuer(ctx context.Context, callbacks ...string) (*Issuer, error) {
	dir, err := programs.InCheckout(openid)
	if err != nil {
		return nil, fmt.Errorf("cannot find the OpenID Connect provider: %w", err)
	}
	node, err := nodejs.Install(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("cannot install the OpenID Connect provider: %w", err)
	}
	address, err := programs.ReserveAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(ctx, node, append([]string{"provider.mjs", port}, callbacks...)...)
	cmd.Dir = dir
	server, err := programs.Serve(ctx, cmd, address)
	if err != nil {
		return nil, fmt.Errorf("cannot start the OpenID Connect provider: %w", err)
	}
	return &Issuer{"http://" + address, server}, nil
}

// SignIn signs in like a person in the browser that a client opens with an
// authorize URL: with a name and with consent. It returns when the client on
// localhost has received its response. It does not check the client's success.
func (i *Issuer) SignIn(ctx context.Context, authorizeURL, name string) error {
	return i.visit(ctx, &http.Client{}, authorizeURL, name, func(page *http.Response) bool {
		at := page.Request.URL
		return page.StatusCode/100 == 2 && at.Hostname() == "localhost" && at.Path == "/login"
	})
}

// SignInToPages is like [Issuer.SignIn] for a web client. It does not follow the
// issuer's redirect to the callback, and returns its URL.
func (i *Issuer) SignInToPages(ctx context.Context, authorizeURL, name, callback string) (redirect string, err error) {
	browser := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), callback+"?") {
			redirect = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}}
	err = i.visit(ctx, browser, authorizeURL, name, func(*http.Response) bool { return redirect != "" })
	return redirect, err
}

// visit follows the issuer's pages in a browser, and fills in their forms, until
// it has arrived at a page.
func (i *Issuer) visit(
	ctx context.Context, browser *http.Client, authorizeURL, name string, arrived func(*http.Response) bool,
) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	browser.Jar = jar
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, authorizeURL, nil)
	if err != nil {
		return fmt.Errorf("cannot sign in: %w", withoutQuery(err))
	}
	// There is one form to sign in and one to consent. More forms mean that the
	// issuer ignores the responses.
	for range 5 {
		page, err := browser.Do(req)
		if tookCode(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot sign in: %w", withoutQuery(err))
		}
		body, err := io.ReadAll(io.LimitReader(page.Body, 1<<20))
		_ = page.Body.Close()
		at := page.Request.URL
		switch {
		case err != nil:
			return stopped(at, err)
		case arrived(page):
			return nil
		case page.StatusCode/100 != 2:
			return stopped(at, errors.New(page.Status))
		case "http://"+at.Host != i.URL:
			return stopped(at, errors.New("the page is not the issuer's")) // do not send it a password
		}
		if req, err = fillIn(ctx, at, string(body), name); err != nil {
			return stopped(at, err)
		}
	}
	return stopped(req.URL, errors.New("it returns a form again and again"))
}

// tookCode reports whether an error means that a client on localhost closed the
// connection without a response. A client stops its server when it has the
// code, which may be before it has sent its page. The client itself reports its
// success. A client that does not listen refuses the connection.
func tookCode(err error) bool {
	var failed *url.Error
	if !errors.As(err, &failed) || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		return false
	}
	at, err := url.Parse(failed.URL)
	return err == nil && at.Hostname() == "localhost" && at.Path == "/login"
}

func stopped(at *url.URL, err error) error {
	return fmt.Errorf("cannot sign in at %s: %w", place(at), err)
}

// place returns a URL without parts that may be secret.
func place(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// withoutQuery removes the query from the URL in an HTTP client's error.
func withoutQuery(err error) error {
	var failed *url.Error
	if !errors.As(err, &failed) {
		return err
	}
	at, parseErr := url.Parse(failed.URL)
	if parseErr != nil {
		return fmt.Errorf("invalid authorize URL: %w", failed.Err)
	}
	return fmt.Errorf("the request to %s failed: %w", place(at), failed.Err)
}

// Each page of the provider has one form, with its attributes in double quotes.
var (
	formTag      = regexp.MustCompile(`(?s)<form\b([^>]*)>(.*?)</form>`)
	inputTag     = regexp.MustCompile(`<input\b[^>]*>`)
	tagAttribute = regexp.MustCompile(`\b([a-z]+)="([^"]*)"`)
)

// fillIn returns the request of a page's form, with a name in text fields and
// any password.
func fillIn(ctx context.Context, at *url.URL, page, name string) (*http.Request, error) {
	found := formTag.FindStringSubmatch(page)
	if found == nil {
		return nil, errors.New("the page has no form")
	}
	to, err := at.Parse(attributes(found[1])["action"])
	if err != nil {
		return nil, fmt.Errorf("invalid form: %w", withoutQuery(err))
	}
	values := url.Values{}
	for _, tag := range inputTag.FindAllString(found[2], -1) {
		field := attributes(tag)
		value := field["value"]
		switch field["type"] {
		case "text":
			value = name
		case "password":
			value = "any"
		}
		values.Set(field["name"], value)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), strings.NewReader(values.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return req, nil
}

func attributes(tag string) map[string]string {
	all := make(map[string]string)
	for _, a := range tagAttribute.FindAllStringSubmatch(tag, -1) {
		all[a[1]] = html.UnescapeString(a[2])
	}
	return all
}
