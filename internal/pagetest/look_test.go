package pagetest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/browser"
)

// someRows selects rows of inputs of all kinds, and the other parts of the page.
const someRows = ".head, .sections, aside, #use, thead, tbody tr:nth-child(-n + 20)"

// pages are the pages of all kinds.
var pages = []struct {
	name, path string
	status     int // 0 for 200
	anonymous  bool
	// again means that the other pages have the same parts, so that fewer states
	// are checked with axe and the keyboard.
	again bool
	// menus means that the menus of the page are checked too.
	menus bool
	// only selects what axe checks, if it is not the document.
	only string
}{
	{name: "home", path: "/", menus: true},
	{name: "search", path: "/search?q=flow+log"},
	{name: "search without results", path: "/search?q=flowlog", again: true},
	{name: "modules", path: "/modules", again: true},
	{name: "namespace", path: "/modules/acme", again: true},
	{name: "module", path: vpc, menus: true},
	{name: "deprecated version", path: vpc + "/4.1.0", again: true},
	{name: "hidden version", path: vpc + "/4.0.1", again: true},
	{name: "pre-release", path: vpc + "/5.0.0-rc.1", again: true},
	{name: "withdrawn version", path: vpc + "/4.0.2", status: http.StatusNotFound, again: true},
	{name: "large module", path: "/modules/platform/everything/aws", again: true, only: someRows},
	{name: "large module by name", path: "/modules/platform/everything/aws?inputs=a-z", again: true, only: someRows},
	{name: "module with many submodules", path: "/modules/platform/accounts/aws", again: true, only: someRows + ", .pair"},
	{name: "module without root", path: "/modules/security/iam/aws", again: true},
	{name: "deprecated module", path: "/modules/acme/network/aws", again: true},
	{name: "submodule", path: vpc + "/4.2.0/modules/endpoints", again: true},
	{name: "example", path: vpc + "/4.2.0/examples/complete", again: true},
	{name: "files", path: vpc + "/4.2.0/files", again: true},
	{name: "file", path: vpc + "/4.2.0/files/main.tf", again: true},
	{name: "versions", path: vpc + "/versions", again: true},
	{name: "uses", path: vpc + "/used-by"},
	{name: "uses of a mirrored provider", path: "/mirror/registry.example.net/hashicorp/aws/used-by", again: true},
	{name: "difference", path: vpc + "/compare?from=3.19.0&to=4.2.0"},
	{name: "providers", path: "/providers", again: true},
	{name: "provider", path: "/providers/acme/inventory", menus: true},
	{name: "old version of a provider", path: "/providers/acme/inventory/1.0.0", again: true},
	{name: "mirrored providers", path: "/mirror", again: true},
	{name: "mirrored provider", path: "/mirror/registry.example.net/hashicorp/aws", menus: true},
	{name: "mirrored module", path: mirroredModule, menus: true},
	{name: "mirrored module that changed", path: mirroredModule + "/5.16.0", again: true},
	{name: "versions of a mirrored module", path: mirroredModule + "/versions", again: true},
	{name: "versions of a mirrored provider", path: "/mirror/registry.example.net/hashicorp/aws/versions", again: true},
	{name: "waiting provider", path: "/mirror/registry.example.net/example/status", again: true},
	{name: "fetched provider", path: "/mirror/registry.example.net/example/weather", again: true},
	{name: "guide", path: "/setup"},
	{name: "status", path: "/status", again: true},
	{name: "not found", path: "/modules/acme/vcp/aws", status: http.StatusNotFound, again: true},
	{name: "unknown path", path: "/no/such/page", status: http.StatusNotFound, again: true},
	{name: "login", path: "/login", anonymous: true},
	{name: "empty registry", path: "https://" + empty + "/", anonymous: true},
}

// widths are those of phones, tablets and computers.
var widths = []int{320, 360, 389, 390, 768, 1024, 1280, 1920}

// Each page works at each width, in both color schemes, and with the keyboard.
func (s *site) testLook(t *testing.T) {
	t.Parallel()
	// The browser has two people with an account, so that as many processors are
	// busy.
	people := map[bool]chan *person{true: make(chan *person, 1), false: make(chan *person, 2)}
	people[true] <- s.person(t, browser.View{})
	people[false] <- s.account(t, browser.View{})
	people[false] <- s.account(t, browser.View{})
	for _, test := range pages {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			free := people[test.anonymous]
			shared := <-free
			defer func() { free <- shared }()
			p := *shared
			p.t, p.ctx = t, t.Context()
			before := p.activity()
			p.must(p.page.Resize(p.ctx, 1280, 800))
			p.opens(test.path, max(test.status, http.StatusOK))
			p.checkActivity(before)
			p.checkClosed(test.again, test.only)
			p.checkOpen(test.again, test.only)
			if test.menus {
				p.checkMenus()
			}
		})
	}
}

// checkClosed checks a document whose details are closed.
func (p *person) checkClosed(again bool, only string) {
	p.t.Helper()
	for _, width := range widths {
		p.checkLayout(width)
		if width == 1280 {
			p.checkAxe(false, only)
		}
		if width == 390 || width == 1280 && !again {
			p.checkFocus(width)
		}
	}
}

// checkOpen checks a document whose details are open. The color scheme changes
// only colors, and the width only the layout, so that not each combination needs
// all rules.
func (p *person) checkOpen(again bool, only string) {
	p.t.Helper()
	isOther := p.openDetails("details:not(.menu)") > 0
	for _, width := range widths {
		if isOther || width == 390 {
			p.checkLayout(width)
		}
		switch {
		case width == 390 && again:
			p.checkColors(true, only)
		case width == 390:
			p.checkAxe(true, only)
			p.checkColors(false, only)
		case width == 1280 && !again && isOther:
			p.checkAxe(true, only)
		}
	}
}

// checkMenus checks open menus. They cover elements, which axe would report.
func (p *person) checkMenus() {
	p.t.Helper()
	if p.openDetails("details.menu") == 0 {
		p.t.Error("there is no menu")
	}
	for _, width := range widths {
		p.checkLayout(width)
		switch width {
		case 390:
			p.checkAxe(true, ".panel")
		case 1280:
			p.checkAxe(false, ".panel")
		}
	}
}

func (p *person) activity() browser.Activity {
	p.t.Helper()
	a, err := p.page.Activity(p.ctx)
	p.must(err)
	return a
}

// checkActivity checks what has happened since an earlier activity, which is the
// load of one page.
func (p *person) checkActivity(before browser.Activity) {
	p.t.Helper()
	a := p.activity()
	loaded := a.Requests[len(before.Requests):]
	var kinds []string
	for _, r := range loaded {
		if !strings.HasPrefix(r.URL, base+"/") && !strings.HasPrefix(r.URL, "https://"+empty+"/") {
			p.t.Errorf("request to %s", r.URL)
		}
		if !slices.Contains([]string{"document", "stylesheet", "script", "image", "other"}, r.Type) {
			p.t.Errorf("request of type %s to %s", r.Type, r.URL)
		}
		kinds = append(kinds, r.Type)
	}
	if len(loaded) > 4 {
		p.t.Errorf("%d requests: %s", len(loaded), kinds)
	}
	for name, events := range map[string][]string{
		"message": a.Console[len(before.Console):], "dialog": a.Dialogs[len(before.Dialogs):],
		"error": a.Errors[len(before.Errors):], "violation": a.Violations[len(before.Violations):],
	} {
		for _, text := range events {
			// The browser logs each document that has an error status.
			if !strings.HasPrefix(text, "Failed to load resource: the server responded with a status of 404") {
				p.t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// checkLayout checks that at a width, nothing makes the document scroll
// sideways, and open menus are within the window.
func (p *person) checkLayout(width int) {
	p.t.Helper()
	const outside = `[...document.querySelectorAll("details[open] > .panel")].map((e) => e.getBoundingClientRect())
		.filter((box) => box.left < 0 || box.right > innerWidth || box.width < 40).map((box) => JSON.stringify(box))`
	p.must(p.page.Resize(p.ctx, width, 800))
	wide, err := p.page.Overflow(p.ctx)
	p.must(err)
	if len(wide) > 0 {
		p.t.Errorf("at %d: the document scrolls sideways because of %q", width, wide)
	}
	for _, box := range evaluate[[]string](p, outside) {
		p.t.Errorf("at %d: a menu is outside the window: %s", width, box)
	}
}

// maxStops bounds the elements of a page that the test visits with Tab.
const maxStops = 30

// checkFocus checks that each element that gets the focus is visible, and shows
// it.
func (p *person) checkFocus(width int) {
	p.t.Helper()
	p.must(p.page.Resize(p.ctx, width, 600))
	// Tab then begins at the first element, wherever an earlier check has ended.
	evaluate[any](p, `document.body.tabIndex = -1, document.body.focus(), document.body.removeAttribute("tabindex"),
		document.activeElement.blur(), scrollTo(0, 0)`)
	stops, err := p.page.TabStops(p.ctx, maxStops)
	p.must(err)
	if len(stops) < 4 {
		p.t.Errorf("at %d: Tab reaches only %v", width, stops)
	}
	for _, stop := range stops {
		if !stop.Outlined {
			p.t.Errorf("at %d: %s does not show the focus", width, stop.Name)
		}
		if stop.Covered {
			p.t.Errorf("at %d: %s is hidden when it has the focus", width, stop.Name)
		}
	}
}

// checkAxe checks the document with axe, or the elements that a selector selects.
func (p *person) checkAxe(dark bool, selector string) {
	p.t.Helper()
	p.checkWith(p.page.Axe, dark, selector)
}

// checkColors is like checkAxe, for the rules that depend on colors.
func (p *person) checkColors(dark bool, selector string) {
	p.t.Helper()
	p.checkWith(p.page.AxeColors, dark, selector)
}

func (p *person) checkWith(
	axe func(context.Context, ...string) ([]browser.Violation, error), dark bool, selector string,
) {
	p.t.Helper()
	p.must(p.page.SetDark(p.ctx, dark))
	evaluate[any](p, `scrollTo(0, 0)`) // below the sticky bar, elements have another size
	found, err := axe(p.ctx, selector)
	p.must(err)
	for _, v := range found {
		p.t.Errorf("at %d, dark %t: %s", evaluate[int](p, "innerWidth"), dark, v)
	}
}

// openDetails opens what a selector selects, and returns its number.
func (p *person) openDetails(selector string) int {
	p.t.Helper()
	return evaluate[int](p, `(() => {
		const all = document.querySelectorAll("`+selector+`");
		all.forEach((e) => { e.open = true; });
		return all.length;
	})()`)
}
