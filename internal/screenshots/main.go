// Command screenshots takes pictures of the registry's pages with realistic
// content. See scripts/screenshots.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/internal/testkit/browser"
	"github.com/larder-registry/larder/internal/testkit/showcase"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// page is a page to take pictures of.
type page struct {
	name, path string
	// empty selects a registry without content, and anonymous a reader without an
	// account.
	empty, anonymous bool
}

const vpc = "/modules/acme/vpc/aws"

var pages = []page{
	{name: "home", path: "/"},
	{name: "search", path: "/search?q=flow+log"},
	{name: "search-none", path: "/search?q=flowlog"},
	{name: "module", path: vpc + "/4.1.0"},
	{name: "module-latest", path: vpc},
	{name: "module-prerelease", path: vpc + "/5.0.0-rc.1"},
	{name: "module-large", path: "/modules/platform/everything/aws"},
	{name: "module-large-by-name", path: "/modules/platform/everything/aws?inputs=a-z"},
	{name: "module-many", path: "/modules/platform/accounts/aws"},
	{name: "module-rootless", path: "/modules/security/iam/aws"},
	{name: "module-deprecated", path: "/modules/acme/network/aws"},
	{name: "module-hidden", path: vpc + "/4.0.1"},
	{name: "submodule", path: vpc + "/4.2.0/modules/endpoints"},
	{name: "example", path: vpc + "/4.2.0/examples/complete"},
	{name: "files", path: vpc + "/4.2.0/files"},
	{name: "file", path: vpc + "/4.2.0/files/main.tf#L12"},
	{name: "versions", path: vpc + "/versions"},
	{name: "used-by", path: vpc + "/used-by"},
	{name: "used-by-none", path: "/mirror/registry.example.net/hashicorp/aws/used-by"},
	{name: "difference", path: vpc + "/compare?from=3.19.0&to=4.2.0"},
	{name: "difference-renamed", path: "/modules/platform/cluster/aws/compare?from=20.37.2&to=21.0.0"},
	{name: "difference-none", path: vpc + "/compare?from=4.1.0&to=4.1.0"},
	{name: "modules", path: "/modules"},
	{name: "namespace", path: "/modules/acme"},
	{name: "providers", path: "/providers"},
	{name: "provider", path: "/providers/acme/inventory"},
	{name: "mirrored", path: "/mirror/registry.example.net/hashicorp/aws"},
	{name: "mirrored-list", path: "/mirror"},
	{name: "mirrored-changed", path: "/mirror/registry.example.net/cloudflare/cloudflare"},
	{name: "mirrored-waits", path: "/mirror/registry.example.net/example/status"},
	{name: "mirrored-fetched", path: "/mirror/registry.example.net/example/weather"},
	{name: "mirrored-module", path: "/mirror-modules/registry.example.net/example-modules/vpc/aws"},
	{name: "mirrored-module-changed", path: "/mirror-modules/registry.example.net/example-modules/vpc/aws/5.16.0"},
	{name: "mirrored-module-versions", path: "/mirror-modules/registry.example.net/example-modules/vpc/aws/versions"},
	{name: "mirrored-modules", path: "/mirror-modules"},
	{name: "setup", path: "/setup"},
	{name: "status", path: "/status"},
	{name: "notfound", path: "/modules/acme/vcp/aws"},
	{name: "withdrawn", path: vpc + "/4.0.2"},
	{name: "login", path: "/login", anonymous: true},
	{name: "empty", path: "/", empty: true},
}

// documented has the pages in the README, with the names of their pictures.
var documented = map[string]string{"module": "module.png", "difference": "difference.png"}

// options are the command line.
type options struct {
	dir       string
	widths    []int
	only      []string
	maxHeight int
	docs      bool
	open      bool
}

func parse(args []string) (options, error) {
	o := options{dir: "screenshots"}
	flags := flag.NewFlagSet("screenshots", flag.ContinueOnError)
	widths := flags.String("widths", "390,1280", "widths in pixels")
	only := flags.String("pages", "", "names of pages; all by default")
	flags.IntVar(&o.maxHeight, "max-height", 4000, "maximum height of a picture in pixels")
	flags.BoolVar(&o.docs, "docs", false, "only write the pictures of the README to docs/images")
	flags.BoolVar(&o.open, "open", false, "show a registry that everyone may read")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		o.dir = flags.Arg(0)
	}
	for text := range strings.SplitSeq(*widths, ",") {
		width, err := strconv.Atoi(text)
		if err != nil || width < 1 {
			return o, fmt.Errorf("%q is not a width", text)
		}
		o.widths = append(o.widths, width)
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.ContainsFunc(pages, func(p page) bool { return p.name == name }) {
			return o, fmt.Errorf("there is no page %s", name)
		}
	}
	return o, nil
}

// selected reports whether a page is one of the pages to take pictures of.
func (o options) selected(p page) bool {
	if o.docs {
		return documented[p.name] != ""
	}
	return len(o.only) == 0 || slices.Contains(o.only, p.name)
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.docs {
		o.dir, o.widths, o.maxHeight = "docs/images", []int{1280}, 900
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	for _, empty := range []bool{false, true} {
		wanted := slices.DeleteFunc(slices.Clone(pages), func(p page) bool { return p.empty != empty || !o.selected(p) })
		if len(wanted) == 0 {
			continue
		}
		if err := o.show(ctx, empty, wanted); err != nil {
			return err
		}
	}
	return nil
}

// show serves a registry and takes pictures of its pages.
func (o options) show(ctx context.Context, empty bool, wanted []page) error {
	dir, err := os.MkdirTemp("", "larder-screenshots-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	data, err := create(ctx, empty, filepath.Join(dir, "registry"))
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	handler := data.Handler("https://"+showcase.Host, o.open, access.Settings{}, slog.New(slog.DiscardHandler))
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that the browser repeats
	server.StartTLS()
	defer server.Close()
	address := server.Listener.Addr().String()
	b, err := browser.Start(ctx, browser.Options{Hosts: map[string]string{showcase.Host: address}})
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	token, err := addToken(ctx, data)
	if err != nil {
		return err
	}
	for _, anonymous := range []bool{false, true} {
		v, err := b.NewPage(ctx, browser.View{})
		if err == nil && !anonymous && !o.open {
			err = logIn(ctx, v, token)
		}
		if err != nil {
			return err
		}
		for _, p := range wanted {
			if p.anonymous != anonymous {
				continue
			}
			if err := o.take(ctx, v, p); err != nil {
				return fmt.Errorf("page %s: %w", p.name, err)
			}
		}
	}
	return nil
}

func create(ctx context.Context, empty bool, dir string) (*local.Data, error) {
	if !empty {
		return showcase.Create(ctx, dir)
	}
	data, _, err := local.Create(ctx, dir)
	return data, err
}

// addToken adds a token that can read everything.
func addToken(ctx context.Context, data *local.Data) (string, error) {
	token, digest := access.NewToken()
	return token, data.Catalog.AddToken(ctx, digest, registry.Token{
		ID: registry.TokenID(digest), Name: "ada@example.com", Scopes: []string{"read:**"}, CreatedBy: "ada",
	})
}

func logIn(ctx context.Context, v *browser.Page, token string) error {
	if _, err := v.Goto(ctx, "https://"+showcase.Host+"/login"); err != nil {
		return err
	}
	if err := v.Fill(ctx, "input[name=token]", token); err != nil {
		return err
	}
	return v.Enter(ctx)
}

func (o options) take(ctx context.Context, v *browser.Page, p page) error {
	if _, err := v.Goto(ctx, "https://"+showcase.Host+p.path); err != nil {
		return err
	}
	for _, width := range o.widths {
		for _, dark := range []bool{false, true} {
			if o.docs && dark {
				continue
			}
			if err := v.SetDark(ctx, dark); err != nil {
				return err
			}
			picture, err := o.picture(ctx, v, width)
			if err != nil {
				return err
			}
			theme := map[bool]string{false: "light", true: "dark"}[dark]
			name := fmt.Sprintf("%s-%s-%d.png", p.name, theme, width)
			if o.docs {
				name = documented[p.name]
				if picture, err = shrink(picture); err != nil {
					return err
				}
			}
			path := filepath.Join(o.dir, name)
			if err := os.WriteFile(path, picture, 0o644); err != nil {
				return err
			}
			fmt.Println(path)
		}
	}
	return nil
}

// picture takes a picture of the document with a width, from its top.
func (o options) picture(ctx context.Context, v *browser.Page, width int) ([]byte, error) {
	if err := v.Resize(ctx, width, 800); err != nil {
		return nil, err
	}
	var height int
	if err := v.Evaluate(ctx, "document.documentElement.scrollHeight", &height); err != nil {
		return nil, err
	}
	if err := v.Resize(ctx, width, min(height, o.maxHeight)); err != nil {
		return nil, err
	}
	// The browser draws blocks that scroll by themselves after the rest, so that a
	// first picture can lack their content.
	if _, err := v.Screenshot(ctx, false); err != nil {
		return nil, err
	}
	return v.Screenshot(ctx, false)
}
