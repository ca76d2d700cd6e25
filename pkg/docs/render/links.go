package render

import (
	"bytes"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/html"
)

// maxURL is the length of the longest link in bytes.
const maxURL = 2_000

// external has the attributes of links to other sites.
const external = ` rel="nofollow noopener noreferrer"`

// folder matches a link to a submodule or an example.
var folder = regexp.MustCompile(`^(?:\./)?((?:modules|examples)/[A-Za-z0-9_][A-Za-z0-9._-]{0,127})(?:/|/README\.md)?$`)

// link returns the attributes of the link to a destination, or an empty string
// if it is not linked.
func (b *builder) link(destination string) (attributes string) {
	destination = strings.TrimSpace(destination)
	if anchor, isLocal := strings.CutPrefix(destination, "#"); isLocal {
		return b.localLink(anchor)
	}
	if m := folder.FindStringSubmatch(destination); m != nil {
		return ` data-folder="` + m[1] + `"`
	}
	if target := externalURL(destination, "http", "https", "mailto"); target != "" {
		return ` href="` + html.EscapeString(target) + `"` + external
	}
	return ""
}

func (b *builder) localLink(anchor string) (attributes string) {
	b.hasLocalLinks = true
	if plain, err := url.PathUnescape(anchor); err == nil {
		anchor = plain
	}
	anchor = strings.ToLower(anchor)
	if !b.anchors[anchor] {
		return ""
	}
	return ` href="#readme-` + anchor + `"`
}

// externalURL returns the normal form of an absolute URL, or an empty string if
// it is not one or has another scheme. It rejects user names, which can look
// like the host.
func externalURL(destination string, schemes ...string) string {
	if len(destination) > maxURL {
		return ""
	}
	u, err := url.Parse(destination)
	if err != nil || u.User != nil || !slices.Contains(schemes, u.Scheme) {
		return ""
	}
	if isMail := u.Scheme == "mailto"; isMail != (u.Host == "") || isMail && u.Opaque == "" {
		return ""
	}
	return withoutControls(u.String())
}

// writeImage writes an image as a link with its alternative text, or with its
// file name.
func (b *builder) writeImage(text, source string) {
	if strings.TrimSpace(text) == "" {
		text = fileName(source)
	}
	b.separate()
	b.inImage = true
	defer func() { b.inImage = false }()
	target := externalURL(strings.TrimSpace(source), "http", "https")
	if target == "" || b.isIn("a") || len(b.open) >= maxOpen {
		b.writeText(text)
		return
	}
	b.element("a", ` href="`+html.EscapeString(target)+`"`+external, func() { b.writeText(text) })
}

// separate writes a space if an image follows a link without a space. Badges
// often do.
func (b *builder) separate() {
	at, last := len(b.out), len(b.open)-1
	inLink := last >= 0 && b.open[last].tag == "a" && b.open[last].body == at
	if inLink {
		at = b.open[last].start
	}
	if !bytes.HasSuffix(b.out[:at], []byte("</a>")) {
		return
	}
	b.out = slices.Insert(b.out, at, ' ')
	if inLink {
		b.open[last].start++
		b.open[last].body++
	}
}

// fileName returns the last element of a URL's path.
func fileName(source string) string {
	u, err := url.Parse(source)
	if len(source) > maxURL || err != nil || strings.Trim(u.Path, "/") == "" {
		return "image"
	}
	return path.Base(u.Path)
}

// slug returns the anchor of a heading by GitHub's rules. It has only letters,
// marks, digits, hyphens and low lines.
func slug(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(text))
}

// fillers are words of a title that add nothing to the name.
var fillers = []string{
	"a", "an", "aws", "azure", "azurerm", "for", "gcp", "google", "module", "on", "opentofu", "terraform", "the", "tofu",
}

// repeats reports whether a title has all words of a name and no others but
// fillers, such as "Terraform AWS VPC module" for vpc. The address of a module
// with the name, such as acme/vpc/aws, repeats it too.
func repeats(title, name string) bool {
	if parts := strings.Split(title, "/"); len(parts) == 3 && strings.EqualFold(parts[1], name) {
		return true
	}
	names, words := words(name), words(title)
	for _, word := range names {
		if !slices.Contains(words, word) {
			return false
		}
	}
	for _, word := range words {
		if !slices.Contains(names, word) && !slices.Contains(fillers, word) {
			return false
		}
	}
	return len(names) > 0
}

func words(text string) []string {
	isSeparator := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	return strings.FieldsFunc(strings.ToLower(text), isSeparator)
}
