package pagetest_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// maxPage is the size of the largest page in bytes, before compression.
const maxPage = 5 << 19

// everywhere are the attributes that any element of a page may have.
var everywhere = []string{"class", "id", "dir", "lang", "role", "tabindex"}

// allowed are the elements of pages, with further attributes.
var allowed = elementsOf(map[string]string{
	"a": "href rel data-folder download", "button": "type", "details": "open", "form": "action method role",
	"html": "lang", "input": "autocapitalize autocomplete autofocus hidden maxlength checked name placeholder required spellcheck type value",
	"img": "alt height loading src width", "label": "for", "link": "href rel type", "meta": "charset content name property", "ol": "start", "option": "selected value",
	"script": "defer src", "select": "name", "td": "align colspan headers rowspan", "th": "align colspan rowspan scope",
	"time": "datetime", "col": "span", "colgroup": "span",
	"svg": "fill height stroke viewbox viewBox width", "path": "d", "circle": "cx cy r", "rect": "height rx width x y",
}, `abbr aside b bdi blockquote body br caption cite code dd del dfn div dl dt em footer h1 h2 h3 h4 h5 h6 head header hr
	i ins kbd li main mark nav p pre q s samp section small span strong sub summary sup table tbody tfoot thead title tr u ul
	var wbr`)

func elementsOf(attributes map[string]string, others string) map[string][]string {
	all := make(map[string][]string)
	for _, name := range append(strings.Fields(others), slices.Collect(maps.Keys(attributes))...) {
		all[name] = append(strings.Fields(attributes[name]), everywhere...)
	}
	return all
}

// forms are the forms of pages, as METHOD ACTION.
var forms = regexp.MustCompile(`^(get /search|post /login|post /logout|get /modules/[^?]*/compare)$`)

// fields are the names of the fields of forms.
var fields = []string{"", "after", "from", "kind", "next", "ns", "q", "system", "to", "token"}

// metas are the names of meta elements.
var metas = []string{"", "color-scheme", "description", "viewport", "robots"}

// properties are those of meta elements.
var properties = []string{"", "og:description", "og:site_name", "og:title"}

// assets are the URLs that a page loads.
var assets = regexp.MustCompile(`^/static/(copy\.[0-9a-f]{16}\.js|style\.[0-9a-f]{16}\.css|icon\.[0-9a-f]{16}\.svg)$`)

// paths are the paths that a page may link to. Those of files can be relative.
var paths = regexp.MustCompile(`^(/($|index\.md|search|modules|providers|mirror|setup|status|login|v1/|static/)|` +
	`([0-9a-z-]+/)?[0-9][0-9A-Za-z.+-]*/files[/?])`)

// images are the paths of images: files of a version of a module.
var images = regexp.MustCompile(`^/(modules|mirror-modules)/[^?]*/files(/[^?]*\?raw|\?path=[^&]*&raw)$`)

// document is a page that a browser or a parser has read.
type document struct {
	// problems are what no page has, each once.
	problems []string
	// links are the paths on the same host.
	links []string
	// canonical is the path of the page that is also at others. It can be
	// empty.
	canonical string
	// text is the text of the page.
	text string
}

func (d *document) problem(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(d.problems, text) && len(d.problems) < 20 {
		d.problems = append(d.problems, text)
	}
}

// read parses a page, and finds everything that a page of this project never
// has.
func read(page string) *document {
	d := &document{}
	if len(page) > maxPage {
		d.problem("it has %d bytes", len(page))
	}
	if !utf8.ValidString(page) {
		d.problem("it is not valid UTF-8")
	}
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		d.problem("it cannot be parsed: %v", err)
		return d
	}
	var text strings.Builder
	ids := make(map[string]bool)
	for n := range root.Descendants() {
		switch n.Type {
		case html.ElementNode:
			d.element(n)
			if id := attribute(n, "id"); id != "" && ids[id] {
				d.problem("two elements have the id %.100q", id)
			} else {
				ids[id] = true
			}
		case html.TextNode:
			d.checkText(n.Data)
			text.WriteString(n.Data)
		case html.CommentNode:
			d.problem("it has the comment %.100q", n.Data)
		}
	}
	d.text = text.String()
	return d
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// checkText finds characters that change how text is shown.
func (d *document) checkText(text string) {
	for _, r := range text {
		isBidi := r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
		if isBidi || unicode.IsControl(r) && r != '\n' && r != '\t' {
			d.problem("it has the character %U in %.100q", r, text)
		}
	}
}

// element checks an element and its attributes.
func (d *document) element(n *html.Node) {
	attributes, known := allowed[n.Data]
	if !known || n.Namespace != "" && n.Data != "svg" && n.Data != "path" && n.Data != "circle" && n.Data != "rect" {
		d.problem("it has the element %s %q", n.Namespace, n.Data)
		return
	}
	for _, a := range n.Attr {
		if !slices.Contains(attributes, a.Key) && !strings.HasPrefix(a.Key, "aria-") {
			d.problem("its element %s has the attribute %s=%.100q", n.Data, a.Key, a.Val)
		}
		d.checkText(a.Val)
	}
	switch n.Data {
	case "a":
		d.link(n)
	case "form":
		if form := strings.ToLower(cmp.Or(attribute(n, "method"), "get")) + " " + attribute(n, "action"); !forms.MatchString(form) {
			d.problem("it has the form %.200q", form)
		}
	case "input", "select":
		if name := attribute(n, "name"); !slices.Contains(fields, name) {
			d.problem("it has the field %q", name)
		}
	case "meta":
		if name := attribute(n, "name"); !slices.Contains(metas, name) {
			d.problem("it has the meta element %q", name)
		}
		if property := attribute(n, "property"); !slices.Contains(properties, property) {
			d.problem("it has the meta element %q", property)
		}
	case "script":
		if !assets.MatchString(attribute(n, "src")) || n.FirstChild != nil {
			d.problem("it has the script %.100q", attribute(n, "src"))
		}
	case "img":
		if src := attribute(n, "src"); src != "" && !images.MatchString(src) {
			d.problem("it has the image %.100q", src)
		}
	case "link":
		href := attribute(n, "href")
		if attribute(n, "rel") == "canonical" {
			u, err := url.Parse(href)
			if err != nil || u.Scheme != "https" || u.Host == "" {
				d.problem("its canonical link is %.200q", href)
				return
			}
			d.canonical = u.RequestURI()
		} else if !assets.MatchString(href) {
			d.problem("it loads %.100q", href)
		}
	}
}

// link checks the URL of a link.
func (d *document) link(n *html.Node) {
	href := attribute(n, "href")
	u, err := url.Parse(href)
	if err != nil {
		d.problem("it links to %.200q: %v", href, err)
		return
	}
	switch {
	case strings.HasPrefix(href, "#"), href == "":
	case u.Scheme == "https" || u.Scheme == "http" || u.Scheme == "mailto":
		if (u.Host == "") != (u.Scheme == "mailto") {
			d.problem("it links to %.200q", href)
		}
	case u.Scheme != "" || u.Host != "" || !paths.MatchString(href) || strings.ContainsAny(href, "\\\t\r\n"):
		d.problem("it links to %.200q", href)
	case slices.ContainsFunc(strings.Split(u.EscapedPath(), "/"), isDots):
		d.problem("it links to %.200q, which a browser shortens", href)
	default:
		d.links = append(d.links, href)
	}
}

// isDots reports whether a browser removes a segment of a path.
//
// Source: https://url.spec.whatwg.org/#single-dot-path-segment
func isDots(segment string) bool {
	dots := strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")
	return dots == "." || dots == ".."
}
