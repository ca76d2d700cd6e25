package pagetest

import (
	"fmt"
	"net/http"
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
