package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// usualMirror is where a Larder has its mirror.
const usualMirror = "/v1/mirror/"

// mirrorURLs returns where the mirror is: where it was said to be, or where the CLIs' configuration has one on this host, or
// where a Larder has it. It tells of what clients make of one without a slash at its end, and mends that.
func (e *examination) mirrorURLs() (bases []*url.URL) {
	const name = "mirror URL"
	type named struct{ url, by string }
	var all []named
	if e.MirrorURL != "" {
		all = append(all, named{e.MirrorURL, "that was given"})
	} else {
		for _, mirror := range e.Config.Mirrors() {
			if u, err := url.Parse(mirror); err == nil && strings.EqualFold(u.Host, e.Host) {
				all = append(all, named{mirror, "of a network_mirror in the CLIs' configuration"})
			}
		}
	}
	for _, mirror := range all {
		u, err := url.Parse(mirror.url)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			e.wrong(name, "", "the URL "+mirror.by+" is none with https, without a user and a query", "write it as https://"+e.Host+usualMirror)
			continue
		}
		if !strings.HasSuffix(u.Path, "/") {
			lost := u.Path[strings.LastIndex(u.Path, "/")+1:]
			e.wrong(name, "", fmt.Sprintf("the URL %s, %s, has no trailing slash, so that clients leave out its last part, %q", mirror.by, shown(u), quote(lost)), "write it as "+shown(u)+"/")
			u.Path += "/"
		}
		bases = append(bases, u)
	}
	if len(all) == 0 {
		bases = append(bases, &url.URL{Scheme: "https", Host: e.Host, Path: usualMirror})
	}
	return bases
}

// mirror follows a mirrored provider from the list of its versions to the newest one's package.
func (e *examination) mirror(ctx context.Context, base *url.URL) {
	at := base.JoinPath(e.Mirror.String())
	scope := e.Mirror.Path()
	const name = "mirror versions"
	a := e.mirrorDocument(ctx, name, at.JoinPath("index.json"), scope, http.StatusNotFound)
	var index struct {
		Versions map[string]struct{} `json:"versions"`
	}
	if a == nil || a.status == http.StatusOK && !e.decode(name, a, &index) {
		return
	}
	var versions []registry.Version
	for text := range index.Versions {
		if v, err := registry.ParseVersion(text); err == nil {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		e.wrong(name, a.tried, "the mirror has no version of "+e.Mirror.String()+", and clients go on to another place", "mirror one, by `larder mirror add "+e.Mirror.String()+"`")
		return
	}
	if v, ok := e.newest(name, a, versions); ok {
		e.mirrorVersion(ctx, at.JoinPath(v.String()+".json"), scope)
	}
}

func (e *examination) mirrorVersion(ctx context.Context, u *url.URL, scope string) {
	const name = "mirror version"
	a := e.mirrorDocument(ctx, name, u, scope)
	var body struct {
		Archives map[string]struct {
			URL    string   `json:"url"`
			Hashes []string `json:"hashes"`
		} `json:"archives"`
	}
	if a == nil || !e.decode(name, a, &body) {
		return
	}
	var offered []registry.Platform
	for _, text := range slices.Sorted(maps.Keys(body.Archives)) {
		if p, err := registry.ParsePlatform(text); err == nil {
			offered = append(offered, p)
		}
	}
	if len(offered) == 0 {
		e.wrong(name, a.tried, "it has no packages", "mirror the version again")
		return
	}
	platform := e.platform(name, a, offered)
	found := body.Archives[platform.String()]
	for _, hash := range found.Hashes {
		if !strings.Contains(hash, ":") {
			e.wrong(name, a.tried, quote(hash)+" is no hash with a scheme, such as h1:…, and clients refuse the package for it", "mirror the version again")
			return
		}
	}
	if !slices.ContainsFunc(found.Hashes, func(hash string) bool {
		return strings.HasPrefix(hash, "h1:") || strings.HasPrefix(hash, "zh:")
	}) {
		e.wrong(name, a.tried, "there is no hash for "+platform.String()+", so that clients verify nothing", "let the document have h1: and zh: hashes, as `larder mirror add` writes them")
		return
	}
	at, err := a.url.Parse(found.URL)
	if err != nil || found.URL == "" || at.Scheme != "https" && at.Scheme != "http" {
		e.wrong(name, a.tried, "the URL for "+platform.String()+" is none that clients take", "mirror the version again")
		return
	}
	e.ok(name, a.tried, fmt.Sprintf("there is a package for %s, with hashes", platform))
	const zip = "mirror package"
	if got, seen, ok := e.zip(ctx, zip, at, e.Mirror.Type, found.Hashes); ok {
		e.held(zip, at, got, seen)
	}
}

// mirrorDocument asks for a document, of which clients mind the content type.
func (e *examination) mirrorDocument(ctx context.Context, name string, u *url.URL, scope string, want ...int) *answer {
	// Clients have credentials by the host of the mirror, and this one is the registry's.
	token := e.credential.Token
	if !strings.EqualFold(u.Host, e.Host) {
		token = ""
	}
	a := e.answered(name, u, scope, func() (*answer, error) { return e.ask(ctx, u, token) }, want...)
	if a != nil && a.status == http.StatusOK && !a.isJSON() {
		e.wrong(name, a.tried, "its content type is "+a.contentType()+", and clients read application/json alone", "let the server send Content-Type: application/json for it; a static one takes files without a type for something else")
		return nil
	}
	return a
}
