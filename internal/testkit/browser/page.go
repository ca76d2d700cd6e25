package browser

import (
	"context"
	"fmt"
	"strings"
)

// View describes how a page is shown.
type View struct {
	// Width and Height are those of the window in pixels. If zero, they are 1280
	// and 800.
	Width, Height int
	// Dark selects the dark colour scheme.
	Dark bool
	// ForcedColors replaces the colors of pages with a few of the system, until
	// SetDark is called.
	ForcedColors bool
	// NoScripts disables the scripts of pages.
	NoScripts bool
}

// Page is a window with cookies of its own. Its methods must not be called
// concurrently.
type Page struct {
	browser *Browser
	name    string
}

// NewPage opens an empty page.
func (b *Browser) NewPage(ctx context.Context, v View) (*Page, error) {
	if v.Width == 0 {
		v.Width = 1280
	}
	if v.Height == 0 {
		v.Height = 800
	}
	p := &Page{browser: b}
	params := map[string]any{
		"width": v.Width, "height": v.Height, "dark": v.Dark, "forced": v.ForcedColors, "scripts": !v.NoScripts,
	}
	return p, b.call(ctx, "", "newPage", params, &p.name)
}

func (p *Page) call(ctx context.Context, method string, params, result any) error {
	return p.browser.call(ctx, p.name, method, params, result)
}

// Close closes the page and removes its cookies.
func (p *Page) Close(ctx context.Context) error { return p.call(ctx, "close", nil, nil) }

// Response is the response to the request of a page.
type Response struct {
	Status int `json:"status"`
	// Headers has the names in lower case.
	Headers map[string]string `json:"headers"`
}

// Goto loads a URL and waits for the end of loading. The response is that of
// the last redirect.
func (p *Page) Goto(ctx context.Context, url string) (Response, error) {
	var r Response
	return r, p.call(ctx, "goto", map[string]string{"url": url}, &r)
}

// Title returns the title of the document.
func (p *Page) Title(ctx context.Context) (title string, err error) {
	return title, p.call(ctx, "title", nil, &title)
}

// URL returns the URL of the document.
func (p *Page) URL(ctx context.Context) (url string, err error) {
	return url, p.call(ctx, "url", nil, &url)
}

// Content returns the document as HTML.
func (p *Page) Content(ctx context.Context) (html string, err error) {
	return html, p.call(ctx, "content", nil, &html)
}

// Text returns the visible text of the first element that a CSS selector
// selects.
func (p *Page) Text(ctx context.Context, selector string) (text string, err error) {
	return text, p.call(ctx, "text", map[string]string{"selector": selector}, &text)
}

// Click clicks on an element that leads to no other document.
func (p *Page) Click(ctx context.Context, selector string) error {
	return p.call(ctx, "click", map[string]string{"selector": selector}, nil)
}

// Follow clicks on an element, and waits for the document that it leads to. An
// anchor of the same document counts as one.
func (p *Page) Follow(ctx context.Context, selector string) error {
	return p.call(ctx, "follow", map[string]string{"selector": selector}, nil)
}

// Fill replaces the value of a field, like a person who pastes.
func (p *Page) Fill(ctx context.Context, selector, value string) error {
	return p.call(ctx, "fill", map[string]string{"selector": selector, "value": value}, nil)
}

// Press presses a key, such as Escape or a letter.
func (p *Page) Press(ctx context.Context, key string) error {
	return p.call(ctx, "press", map[string]any{"key": key}, nil)
}

// Enter presses Enter, and waits for the document that it leads to.
func (p *Page) Enter(ctx context.Context) error { return p.call(ctx, "enter", nil, nil) }

// Evaluate evaluates a JavaScript expression, even if scripts are disabled. It
// decodes the result as JSON. The policy of the document does not apply.
func (p *Page) Evaluate(ctx context.Context, expression string, result any) error {
	return p.call(ctx, "evaluate", map[string]string{"expression": expression}, result)
}

// Cookie is a cookie of a page.
type Cookie struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Domain   string `json:"domain"`
	Path     string `json:"path"`
	Secure   bool   `json:"secure"`
	HTTPOnly bool   `json:"httpOnly"`
	SameSite string `json:"sameSite,omitempty"`
}

// Cookies returns all cookies of the page, for all hosts.
func (p *Page) Cookies(ctx context.Context) (cookies []Cookie, err error) {
	return cookies, p.call(ctx, "cookies", nil, &cookies)
}

// SetCookie sets a cookie as its host could.
func (p *Page) SetCookie(ctx context.Context, c Cookie) error {
	return p.call(ctx, "setCookie", map[string]Cookie{"cookie": c}, nil)
}

// Resize changes the size of the window in pixels.
func (p *Page) Resize(ctx context.Context, width, height int) error {
	return p.call(ctx, "resize", map[string]int{"width": width, "height": height}, nil)
}

// SetDark selects the dark or the light colour scheme.
func (p *Page) SetDark(ctx context.Context, dark bool) error {
	return p.call(ctx, "look", map[string]bool{"dark": dark}, nil)
}

// SetPrint shows the page as it is on paper, until SetDark is called. dark is the
// color scheme of the system.
func (p *Page) SetPrint(ctx context.Context, dark bool) error {
	return p.call(ctx, "look", map[string]any{"dark": dark, "print": true}, nil)
}

// Screenshot returns a PNG picture of the window, or of the whole document.
func (p *Page) Screenshot(ctx context.Context, whole bool) (png []byte, err error) {
	return png, p.call(ctx, "screenshot", map[string]bool{"fullPage": whole}, &png)
}

// Violation is a rule of accessibility that a document violates.
type Violation struct {
	Rule, Impact, Help string
	Nodes              []struct{ Target, Summary string }
}

// String returns the violation with the selectors of its elements.
func (v Violation) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%s): %s", v.Rule, v.Impact, v.Help)
	for _, n := range v.Nodes {
		fmt.Fprintf(&text, "\n  %s\n    %s", n.Target, strings.ReplaceAll(n.Summary, "\n", "\n    "))
	}
	return text.String()
}

// Axe checks the document with axe: the rules of WCAG 2.2 at level AA, and its
// best practices. With a CSS selector, it checks only the elements that this
// selects.
func (p *Page) Axe(ctx context.Context, selector ...string) (found []Violation, err error) {
	return found, p.call(ctx, "axe", map[string]any{"selector": strings.Join(selector, ", ")}, &found)
}

// AxeColors is like [Page.Axe], with only the rules that depend on colors.
func (p *Page) AxeColors(ctx context.Context, selector ...string) (found []Violation, err error) {
	params := map[string]any{"selector": strings.Join(selector, ", "), "colors": true}
	return found, p.call(ctx, "axe", params, &found)
}

// Overflow returns names of the elements that make the document scroll
// sideways. Content of boxes that scroll does not count.
func (p *Page) Overflow(ctx context.Context) (elements []string, err error) {
	return elements, p.call(ctx, "overflow", nil, &elements)
}

// TabStop is an element that received the focus.
type TabStop struct {
	Name string
	// Outlined reports whether the element has an outline.
	Outlined bool
	// Covered reports whether the middle of the element is outside the window, or
	// below another element.
	Covered bool
}

// TabStops presses Tab until the end of the document, or until the limit. It
// returns the elements that had the focus, in their order.
func (p *Page) TabStops(ctx context.Context, limit int) (stops []TabStop, err error) {
	return stops, p.call(ctx, "tabStops", map[string]int{"limit": limit}, &stops)
}

// Request is a request that a page has made.
type Request struct{ URL, Method, Type string }

// Activity is what has happened in a page since it was opened.
type Activity struct {
	// Requests are all requests, including those that failed.
	Requests []Request
	// Console has messages, Dialogs their texts, and Errors the uncaught errors
	// of scripts.
	Console, Dialogs, Errors []string
	// Violations are actions that the Content-Security-Policy has prevented.
	Violations []string
}

// Activity returns what has happened in the page.
func (p *Page) Activity(ctx context.Context) (a Activity, err error) {
	return a, p.call(ctx, "activity", nil, &a)
}
