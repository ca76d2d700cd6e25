// Package issuers runs issuers of tokens on loopback: an OpenID Connect
// provider for people, and one for the jobs of a CI service.
package issuers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// openid is the path of the provider, within the checkout.
const openid = "internal/testkit/issuers/openid"

// Issuer is an OpenID Connect provider in its own process. Anyone may sign in.
// Its public client is larder-cli. If the authorize URL has a resource, access
// tokens are JWTs with the resource as the audience. Otherwise they are opaque.
type Issuer struct {
	URL   string
	cmd   *exec.Cmd
	out   bytes.Buffer
	ended chan struct{}
}

// ErrNoNode means that Node.js is not installed.
var ErrNoNode = errors.New("node or npm is not on PATH")

// StartIssuer starts a provider on a free port of 127.0.0.1. The first call
// installs the provider's packages. The caller closes the issuer.
func StartIssuer(ctx context.Context) (*Issuer, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, ErrNoNode
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, ErrNoNode
	}
	dir, err := programs.InCheckout(openid)
	if err != nil {
		return nil, fmt.Errorf("cannot find the OpenID Connect provider: %w", err)
	}
	if err := installPackages(ctx, npm, dir); err != nil {
		return nil, fmt.Errorf("cannot install the OpenID Connect provider: %w", err)
	}
	address, err := programs.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	i := &Issuer{URL: "http://" + address, ended: make(chan struct{})}
	i.cmd = exec.CommandContext(ctx, node, "provider.mjs", port)
	i.cmd.Dir = dir
	i.cmd.Stdout, i.cmd.Stderr = &i.out, &i.out
	if err := i.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the OpenID Connect provider: %w", err)
	}
	go func() {
		_ = i.cmd.Wait()
		close(i.ended)
	}()
	for attempt := 0; ; attempt++ {
		err := i.answers(ctx)
		if err == nil {
			return i, nil
		}
		select {
		case <-i.ended:
			attempt = 600
		case <-time.After(50 * time.Millisecond):
		}
		if attempt >= 600 {
			i.Close()
			return nil, fmt.Errorf("cannot start the OpenID Connect provider: %w\n%s", err, &i.out)
		}
	}
}

// installPackages runs npm ci in a folder, unless the installed packages are
// newer than the lock file.
func installPackages(ctx context.Context, npm, dir string) error {
	lock, err := os.Open(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	defer lock.Close() // this releases the lock
	// Tests of several packages, each in its own process, may run this at the
	// same time.
	for !tryLock(lock) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for another installation: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	wanted, err := lock.Stat()
	if err != nil {
		return err
	}
	// npm writes this file last, so an incomplete installation does not have
	// it.
	if installed, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err == nil &&
		!installed.ModTime().Before(wanted.ModTime()) {
		return nil
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--loglevel=error", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return nil
}

func (i *Issuer) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.URL+"/.well-known/openid-configuration", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// Close stops the provider.
func (i *Issuer) Close() {
	_ = i.cmd.Process.Kill()
	<-i.ended
}

// SignIn signs in like a person in the browser that a client opens with an
// authorize URL: with a name and with consent. It returns when the client on
// localhost has received its response. It does not check the client's success.
func (i *Issuer) SignIn(ctx context.Context, authorizeURL, name string) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	browser := &http.Client{Jar: jar}
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
		case page.StatusCode/100 != 2:
			return stopped(at, errors.New(page.Status))
		case at.Hostname() == "localhost" && at.Path == "/login":
			return nil
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
