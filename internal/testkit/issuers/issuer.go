// Package issuers runs issuers of tokens on loopback: an OpenID Connect provider
// for people, and one for the jobs of a CI service.
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

// openid is where the provider is, within the checkout.
const openid = "internal/testkit/issuers/openid"

// Issuer is an OpenID Connect provider, in a process of its own, to which anybody may sign in. Its public client is
// larder-cli. Access tokens are JWTs where the authorize URL has a resource, which is their audience, and opaque otherwise.
type Issuer struct {
	URL   string
	cmd   *exec.Cmd
	out   bytes.Buffer
	ended chan struct{}
}

// ErrNoNode says that Node.js is not there.
var ErrNoNode = errors.New("node or npm is not on PATH")

// StartIssuer starts a provider on a free port of 127.0.0.1. The first time, it installs the provider's packages.
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
		return nil, fmt.Errorf("the OpenID Connect provider: %w", err)
	}
	if err := installPackages(ctx, npm, dir); err != nil {
		return nil, fmt.Errorf("installing the OpenID Connect provider: %w", err)
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
		return nil, fmt.Errorf("starting the OpenID Connect provider: %w", err)
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
			return nil, fmt.Errorf("starting the OpenID Connect provider: %w\n%s", err, &i.out)
		}
	}
}

// installPackages runs npm ci in a folder where what is installed is missing or older than the lock file.
func installPackages(ctx context.Context, npm, dir string) error {
	lock, err := os.Open(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	defer lock.Close() // which gives the lock back
	// Tests of several packages, each a process, may be here at once.
	for !tryLock(lock) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for another process that does: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	wanted, err := lock.Stat()
	if err != nil {
		return err
	}
	// npm writes this file last, so that it is missing from what was not installed to the end.
	if installed, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err == nil && !installed.ModTime().Before(wanted.ModTime()) {
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

// Close ends the provider.
func (i *Issuer) Close() {
	_ = i.cmd.Process.Kill()
	<-i.ended
}

// SignIn does what a person does in a browser that a client sends to an authorize URL: sign in by a name, and consent. It
// ends when the client, on localhost, has been given what it waits for, and says of its success.
func (i *Issuer) SignIn(ctx context.Context, authorizeURL, name string) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	browser := &http.Client{Jar: jar}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, authorizeURL, nil)
	if err != nil {
		return fmt.Errorf("signing in: %w", withoutQuery(err))
	}
	// There is a form to sign in and one to consent. More mean that it takes no notice of the answers.
	for range 5 {
		page, err := browser.Do(req)
		if tookCode(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("signing in: %w", withoutQuery(err))
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
			return stopped(at, errors.New("it is not the issuer's")) // and no place for a password
		}
		if req, err = fillIn(ctx, at, string(body), name); err != nil {
			return stopped(at, err)
		}
	}
	return stopped(req.URL, errors.New("it asks again and again"))
}

// tookCode says whether an error is a connection to a client on localhost that ended without an answer. A client ends its
// server once it has the code, which may be before its page is out; whether it has, it says itself. One that does not
// listen refuses the connection.
func tookCode(err error) bool {
	var failed *url.Error
	if !errors.As(err, &failed) || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		return false
	}
	at, err := url.Parse(failed.URL)
	return err == nil && at.Hostname() == "localhost" && at.Path == "/login"
}

func stopped(at *url.URL, err error) error {
	return fmt.Errorf("signing in stopped at %s: %w", place(at), err)
}

// place is a URL without what may be secret in it.
func place(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// withoutQuery takes the query out of the URL that an HTTP client's error names.
func withoutQuery(err error) error {
	var failed *url.Error
	if !errors.As(err, &failed) {
		return err
	}
	at, parseErr := url.Parse(failed.URL)
	if parseErr != nil {
		return fmt.Errorf("the authorize URL: %w", failed.Err)
	}
	return fmt.Errorf("it stopped at %s: %w", place(at), failed.Err)
}

// The provider's pages have one form each, whose attributes are all in double quotes.
var (
	formTag      = regexp.MustCompile(`(?s)<form\b([^>]*)>(.*?)</form>`)
	inputTag     = regexp.MustCompile(`<input\b[^>]*>`)
	tagAttribute = regexp.MustCompile(`\b([a-z]+)="([^"]*)"`)
)

// fillIn answers the form of a page: text with a name, and a password with anything.
func fillIn(ctx context.Context, at *url.URL, page, name string) (*http.Request, error) {
	found := formTag.FindStringSubmatch(page)
	if found == nil {
		return nil, errors.New("it has no form")
	}
	to, err := at.Parse(attributes(found[1])["action"])
	if err != nil {
		return nil, fmt.Errorf("its form: %w", withoutQuery(err))
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
