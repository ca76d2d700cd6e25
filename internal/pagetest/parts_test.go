package pagetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/browser"
)

// Each page has its content without scripts, and nothing that needs one.
func (s *site) testWithoutScripts(t *testing.T) {
	t.Parallel()
	p, anonymous := s.account(t, browser.View{NoScripts: true}), s.person(t, browser.View{NoScripts: true})
	for _, test := range pages {
		if test.again {
			continue
		}
		p := map[bool]*person{false: p, true: anonymous}[test.anonymous]
		p.opens(test.path, max(test.status, http.StatusOK))
		if p.text("h1") == "" {
			t.Errorf("%s: there is no heading", test.name)
		}
		if n := evaluate[int](p, `document.querySelectorAll(".copy").length`); n > 0 {
			t.Errorf("%s: %d buttons do nothing without scripts", test.name, n)
		}
	}
}

// The button of a block copies its code, and reports it for a while.
func (s *site) testCopy(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{})
	p.open(vpc)
	evaluate[any](p, `(() => {
		const write = navigator.clipboard.writeText.bind(navigator.clipboard);
		navigator.clipboard.writeText = (text) => { window.copied = text; return write(text); };
	})()`)
	if text := p.text("#use .copy"); text != "Copy" {
		t.Errorf("the button is %q", text)
	}
	p.click("#use .copy")
	p.wait(`document.querySelector("#use .copy").textContent === "Copied"`)
	if !evaluate[bool](p, `copied === document.querySelector("#use pre").textContent && copied.startsWith("module")`) {
		t.Errorf("the button copies %q", evaluate[string](p, "copied"))
	}
	p.wait(`document.querySelector("#use .copy").textContent === "Copy"`)
}

// The button reports that a browser has not copied.
func (s *site) testNotCopied(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{})
	for name, clipboard := range map[string]string{
		"denied":  `{ writeText: () => Promise.reject(new DOMException("denied", "NotAllowedError")) }`,
		"missing": "undefined",
	} {
		p.open(vpc)
		evaluate[any](p, `(() => {
			Object.defineProperty(navigator, "clipboard", { value: `+clipboard+` });
			window.shown = [];
			const button = document.querySelector("#use .copy");
			new MutationObserver(() => shown.push(button.textContent)).observe(button, { childList: true });
		})()`)
		p.click("#use .copy")
		p.wait(`shown.length === 2`)
		if shown := evaluate[[]string](p, "shown"); !slices.Equal(shown, []string{"Not copied", "Copy"}) {
			t.Errorf("%s: the button shows %q", name, shown)
		}
		if selected := evaluate[string](p, "getSelection().toString()"); !strings.Contains(selected, `module "vpc"`) {
			t.Errorf("%s: the selected text is %q", name, selected)
		}
	}
}

// Escape and a click outside close a menu. Only one is open at a time.
func (s *site) testMenus(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{})
	p.open(vpc)
	wantOpen := func(when, want string) {
		t.Helper()
		open := evaluate[string](p, `[...document.querySelectorAll("details[open]")].map((e) => e.className).join(", ")`)
		if open != want {
			t.Errorf("%s, %q is open, want %q", when, open, want)
		}
	}
	const picker, account = "menu picker", "menu account"
	p.must(p.page.Press(p.ctx, "Escape"))
	wantOpen("after Escape without a menu", "")
	p.click(".picker summary")
	wantOpen("after a click", picker)
	p.click(".picker .panel time")
	wantOpen("after a click in the menu", picker)
	p.click("h2.sr + *")
	wantOpen("after a click outside", "")
	p.click(".picker summary")
	p.click(".account summary")
	wantOpen("after a click on another menu", account)
	evaluate[any](p, `document.querySelector(".account button").focus()`)
	p.must(p.page.Press(p.ctx, "Escape"))
	wantOpen("after Escape", "")
	if !evaluate[bool](p, `document.activeElement === document.querySelector(".account summary")`) {
		t.Errorf("after Escape, %s has the focus", evaluate[string](p, "document.activeElement.outerHTML"))
	}
	p.must(p.page.Press(p.ctx, "Space"))
	wantOpen("after Space", account)
	p.click(".account summary")
	wantOpen("after another click", "")
}

// A slash leads to the search, unless a person writes it.
func (s *site) testSearchKey(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{})
	for _, test := range []struct{ path, focus, name, value string }{
		{"/", "", "q", ""},
		{vpc, "", "q", ""},
		{vpc, ".picker summary", "q", ""},
		{vpc, "#q", "q", "/"},
		{"/modules/platform/everything/aws", ".filter", "", "/"},
		{vpc + "/compare?from=3.19.0&to=4.2.0", "select", "from", "3.19.0"},
	} {
		p.open(test.path)
		evaluate[any](p, `document.activeElement.blur()`)
		if test.focus != "" {
			evaluate[any](p, `document.querySelector("`+test.focus+`").focus()`)
		}
		p.must(p.page.Press(p.ctx, "/"))
		if name := evaluate[string](p, `document.activeElement.name`); name != test.name {
			t.Errorf("%s %s: the field %q has the focus, want %q", test.path, test.focus, name, test.name)
		}
		if value := evaluate[string](p, `document.activeElement.value`); value != test.value {
			t.Errorf("%s %s: the field has %q, want %q", test.path, test.focus, value, test.value)
		}
	}
}

// On paper, a page has all its content and nothing to click, black on white.
func (s *site) testPrint(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{})
	for _, path := range []string{
		vpc + "/4.1.0", "/modules/platform/everything/aws", "/providers/acme/inventory", vpc + "/compare?from=3.19.0&to=4.2.0",
		vpc + "/4.2.0/files/main.tf", "/search?q=flow+log",
	} {
		p.opens(path, http.StatusOK)
		p.must(p.page.SetPrint(p.ctx, true))
		if shown := evaluate[[]string](p, `[...document.querySelectorAll(
			"header, footer, nav.sections, button, input, .skip, .panel")].filter((e) => e.checkVisibility()).map((e) => e.outerHTML)`,
		); len(shown) > 0 {
			t.Errorf("%s: on paper are %.300q", path, shown)
		}
		if closed := evaluate[[]string](p, `[...document.querySelectorAll("main details:not(.menu) > :last-child")]
			.filter((e) => !e.checkVisibility()).map((e) => e.outerHTML)`); len(closed) > 0 {
			t.Errorf("%s: not on paper are %.300q", path, closed)
		}
		if colors := evaluate[string](p, `(({ backgroundColor, color }) => backgroundColor + " " + color)(getComputedStyle(document.body))`); colors !=
			"rgb(255, 255, 255) rgb(25, 28, 26)" {
			t.Errorf("%s: the colors are %s", path, colors)
		}
		p.must(p.page.Resize(p.ctx, 718, 1000)) // of A4 with its margins
		wide, err := p.page.Overflow(p.ctx)
		p.must(err)
		if len(wide) > 0 {
			t.Errorf("%s: the paper is too narrow for %q", path, wide)
		}
		for _, cut := range evaluate[[]string](p, `[...document.querySelectorAll("pre, .across, .scroll")]
			.filter((e) => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== "visible").map((e) => e.outerHTML)`) {
			t.Errorf("%s: cut off: %.300s", path, cut)
		}
	}
}

// The filter shows the inputs that contain a text, with their headings. The heading
// of the optional ones is a list of its own. The filter needs a script.
func (s *site) testFilter(t *testing.T) {
	t.Parallel()
	const path, shown = "/modules/platform/everything/aws", `[...document.querySelectorAll("%s")].filter(e => e.checkVisibility()).length`
	rows, bodies := fmt.Sprintf(shown, "#inputs tr[id^=input-]"), fmt.Sprintf(shown, "#inputs tbody")
	p := s.account(t, browser.View{})
	p.open(path)
	all := evaluate[int](p, rows)
	for _, test := range []struct {
		text         string
		rows, bodies int
	}{{"Subnet_size", 1, 2}, {"network_name", 1, 1}, {"no such input", 0, 0}, {"_", all, 16}} {
		p.fill(".filter", test.text)
		if got := evaluate[int](p, rows); got != test.rows {
			t.Errorf("%q shows %d of %d inputs, want %d", test.text, got, all, test.rows)
		}
		if got := evaluate[int](p, bodies); got != test.bodies {
			t.Errorf("%q shows %d lists, want %d", test.text, got, test.bodies)
		}
	}
	p.fill(".filter", "no such input")
	evaluate[any](p, `location.hash = "input-network_name"`)
	p.wait(`document.querySelector(":target").checkVisibility() && document.querySelector(":target").getBoundingClientRect().top < innerHeight`)
	without := s.account(t, browser.View{NoScripts: true})
	without.open(path)
	if evaluate[bool](without, `document.querySelector(".filter").checkVisibility()`) {
		t.Error("the field is there without scripts")
	}
	if got := evaluate[int](without, rows); got != all {
		t.Errorf("%d inputs without scripts, want %d", got, all)
	}
}

// The row of a link to an input is marked, and below the bar that stays at the
// top.
func (s *site) testTarget(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{})
	for _, width := range []int{390, 1280} {
		p.must(p.page.Resize(p.ctx, width, 600))
		p.open(vpc)
		p.open(vpc + "#input-enable_flow_logs")
		for name, is := range map[string]string{
			"below the bar": `box(row).top >= box(document.querySelector(".sections")).bottom`,
			"in the window": `box(row).top < innerHeight - 24`,
			"marked":        `colors(row) !== colors(row.nextElementSibling)`,
		} {
			if !evaluate[bool](p, `(() => {
				const row = document.querySelector(":target");
				const box = (e) => e.getBoundingClientRect();
				const colors = (e) => getComputedStyle(e).backgroundColor + getComputedStyle(e.cells[0]).backgroundColor;
				return row !== null && `+is+`;
			})()`) {
				t.Errorf("at %d: the row is not %s", width, name)
			}
		}
	}
}

// In forced colors, whatever otherwise has only a background has a border.
func (s *site) testForcedColors(t *testing.T) {
	t.Parallel()
	p := s.account(t, browser.View{ForcedColors: true})
	for _, path := range []string{
		vpc + "/4.1.0", "/search?q=flow+log&kind=module", vpc + "/compare?from=3.19.0&to=4.2.0",
	} {
		p.opens(path, http.StatusOK)
		if !evaluate[bool](p, `matchMedia("(forced-colors: active)").matches`) {
			t.Fatal("the browser does not force colors")
		}
		for _, found := range evaluate[[]string](p, `[...document.querySelectorAll(".badge, .banner, .button, input")]
			.filter((e) => e.getClientRects().length > 0)
			.filter((e) => {
				const style = getComputedStyle(e);
				return style.borderTopStyle === "none" || parseFloat(style.borderTopWidth) === 0 ||
					style.borderTopColor === style.backgroundColor;
			}).map((e) => e.outerHTML)`) {
			t.Errorf("%s: without a border: %s", path, found)
		}
		p.checkFocus(1280)
	}
}
