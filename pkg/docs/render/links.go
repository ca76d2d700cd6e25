package render

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"

	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// maxURL is the length of the longest link in bytes.
const maxURL = 2_000

// external has the attributes of links to other sites.
const external = ` rel="nofollow noopener noreferrer"`

// The paths of folders with pages of their own, and of files to which READMEs
// link.
const (
	folderPattern = `\.|(?:modules|examples)/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`
	filePattern   = `[\pL\pM\pN ._/@+,=()-]{1,512}`
)

var (
	isFolder = regexp.MustCompile(`^(?:` + folderPattern + `)$`)
	isFile   = regexp.MustCompile(`^` + filePattern + `$`)
	// line matches the anchor of a line of a file.
	line = regexp.MustCompile(`^L[0-9]{1,6}`)
	// hosted matches the URL of a file of a repository, up to its path, and the name
	// of the repository.
	hosted = regexp.MustCompile(`^https://(?:github\.com/[^/]+/([^/]+)/(?:blob|raw)|` +
		`raw\.githubusercontent\.com/[^/]+/([^/]+))/(?:refs/(?:heads|tags)/)?[^/]+/`)
)

// resolve returns the path of a local destination in the module, and its anchor.
// The path is a dot for the root. It is empty if the destination is not in the
// module.
func (b *builder) resolve(destination string) (target, anchor string) {
	u, err := url.Parse(destination)
	if err != nil || len(destination) > maxURL || u.Scheme+u.Host != "" || u.Path == "" || strings.Contains(u.Path, `\`) {
		return "", ""
	}
	target = path.Join(b.folder.Path, u.Path)
	if strings.HasPrefix(u.Path, "/") {
		target = path.Join("./", u.Path[1:])
	}
	if target = cmp.Or(target, "."); strings.HasPrefix(target+"/", "../") {
		return "", ""
	}
	return target, u.Fragment
}

// link returns the attributes of the link to a destination, or an empty string
// if it is not linked.
func (b *builder) link(destination string) (attributes string) {
	destination = strings.TrimSpace(destination)
	if anchor, isLocal := strings.CutPrefix(destination, "#"); isLocal {
		return b.localLink(anchor)
	}
	if attributes = b.moduleLink(destination); attributes != "" {
		return attributes
	}
	if target := externalURL(destination, "http", "https", "mailto"); target != "" {
		return ` href="` + html.EscapeString(target) + `"` + external
	}
	return ""
}

// moduleLink returns the attribute of the link to a part of the module.
func (b *builder) moduleLink(destination string) (attributes string) {
	target, anchor := b.resolve(destination)
	folder := strings.TrimSuffix(target, "/README.md")
	if target == "README.md" {
		folder = "."
	}
	_, isThere := b.folder.Files[target]
	if _, isDir := b.folder.Files[target+"/"]; isDir {
		target, isThere = target+"/", true
	}
	isPage := isFolder.MatchString(folder) && (folder != target || !isThere || strings.HasSuffix(target, "/"))
	switch {
	case target == "":
	case isPage && anchor != "":
		return ` data-folder="` + folder + "#" + onPage(anchor) + `"`
	case isPage:
		return ` data-folder="` + folder + `"`
	case isThere && isFile.MatchString(target):
		if anchor = line.FindString(anchor); anchor != "" {
			anchor = "#" + anchor
		}
		return ` data-file="` + target + anchor + `"`
	}
	return ""
}

// onPage returns the anchor on the page of a folder for one of its README.
func onPage(anchor string) string {
	switch m := ofDocs.FindStringSubmatch(anchor); {
	case m != nil:
		return m[1] + "-" + slug(m[2])
	case anchor == "inputs" || anchor == "outputs":
		return anchor
	}
	return "readme-" + slug(anchor)
}

// ofDocs matches the anchors with which terraform-docs marks inputs and outputs.
var ofDocs = regexp.MustCompile(`^(input|output)_(.*)$`)

func (b *builder) localLink(anchor string) (attributes string) {
	b.hasLocalLinks = true
	if plain, err := url.PathUnescape(anchor); err == nil {
		anchor = plain
	}
	of := cmp.Or(map[string]string{"modules": "dependencies", "providers": "requirements"}[anchor], anchor)
	if m := ofDocs.FindStringSubmatch(anchor); m != nil {
		of = m[1] + "-" + m[2]
	}
	anchor = strings.ToLower(anchor)
	switch {
	case b.anchors[anchor]:
		return ` href="#readme-` + anchor + `"`
	case b.folder.Anchors[of]:
		return ` href="#` + html.EscapeString(of) + `"`
	}
	return ""
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
	return highlight.Visible(u.String())
}

// maxImages is the number of images of the module in one README.
const maxImages = 100

// writeImage writes an image of the module. One of another site is a link with
// its alternative text, or with its file name. A badge is nothing.
func (b *builder) writeImage(text, source, width string) {
	source = strings.TrimSpace(source)
	if b.isBadge(source) {
		return
	}
	if strings.TrimSpace(text) == "" {
		text = fileName(source)
	}
	b.separate()
	b.inImage = true
	defer func() { b.inImage = false }()
	if b.moduleImage(text, source, width) {
		return
	}
	target := externalURL(source, "http", "https")
	if target == "" || b.isIn("a") || len(b.open) >= maxOpen {
		b.writeText(text)
		return
	}
	b.element("a", ` href="`+html.EscapeString(target)+`"`+external, func() { b.writeText(text) })
}

// moduleImage writes an image of the module, and reports whether it is one. With
// its size, nothing moves when it arrives.
func (b *builder) moduleImage(text, source, width string) bool {
	name, f := b.image(source)
	if name == "" || b.images == maxImages {
		return false
	}
	b.images++
	size := ""
	if n, err := strconv.Atoi(strings.TrimSuffix(width, "px")); err == nil && n > 0 && n <= 10_000 {
		f.Width, f.Height = n, f.Height*n/max(f.Width, 1)
	}
	if f.Width > 0 {
		size = fmt.Sprintf(` width="%d"`, f.Width)
	}
	if f.Height > 0 && f.Height < 100_000 {
		size += fmt.Sprintf(` height="%d"`, f.Height)
	}
	text = highlight.Visible(text)
	b.write("img", ` data-image="`+name+`" alt="`+html.EscapeString(text)+`"`+size+` loading="lazy"`)
	b.writeHTML("", text)
	return true
}

// image returns the path of an image of the module, or an empty string.
func (b *builder) image(source string) (name string, f File) {
	name, _ = b.resolve(source)
	if m := hosted.FindStringSubmatch(source); m != nil && strings.HasSuffix(m[1]+m[2], "-"+b.folder.Module) {
		name, _, _ = strings.Cut(source[len(m[0]):], "?")
	}
	f = b.folder.Files[name]
	if !f.IsImage || !isFile.MatchString(name) {
		return "", f
	}
	return name, f
}

// The hosts of badges, and words in the paths of other ones.
var (
	badgeHosts = []string{
		"img.shields.io", "shields.io", "badgen.net", "badge.fury.io", "codecov.io", "coveralls.io", "goreportcard.com",
		"api.travis-ci.com", "api.travis-ci.org", "travis-ci.com", "travis-ci.org", "circleci.com", "readthedocs.org",
		"bestpractices.coreinfrastructure.org", "www.bestpractices.dev", "api.securityscorecards.dev",
		"api.scorecard.dev", "www.bridgecrew.cloud", "dev.azure.com", "badges.gitter.im",
	}
	badgePath = regexp.MustCompile(`(?i)badge[^/.]*(?:\.svg)?$|/badges?/[^.]*(?:\.svg)?$`)
)

// isBadge reports whether an image of another site shows a state in words, which
// is that of its repository today.
func (b *builder) isBadge(source string) bool {
	u, err := url.Parse(source)
	if err != nil || u.Host == "" || len(source) > maxURL {
		return false
	}
	name, _ := b.image(source)
	return name == "" && (slices.Contains(badgeHosts, strings.ToLower(u.Host)) || badgePath.MatchString(u.Path))
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
