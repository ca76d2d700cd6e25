package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// usualMirror is where a Larder has its mirror.
const usualMirror = "/v1/mirror/"

// named is the URL of a mirror, and what names it.
type named struct{ url, by string }

// mirrorURLs returns where the mirror is: where it was said to be, or where the CLIs' configuration has one, or where a Larder
// has it. It tells of what clients make of one without a slash at its end, and mends that.
func (e *examination) mirrorURLs() (bases []*url.URL) {
	const name = "mirror URL"
	all := []named{{e.MirrorURL, "that was given"}}
	if e.MirrorURL == "" {
		all = e.configuredMirrors()
	}
	here := len(all) == 0
	for _, mirror := range all {
		u, err := url.Parse(mirror.url)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			e.wrong(name, "", "the URL "+mirror.by+" is none with https, and clients leave out such a mirror", "write it as https://"+e.Host+usualMirror)
			here = true
			continue
		}
		u.RawQuery, u.Fragment = "", "" // as clients do
		here = here || strings.EqualFold(u.Host, e.Host)
		if !strings.HasSuffix(u.Path, "/") {
			lost := u.Path[strings.LastIndex(u.Path, "/")+1:]
			e.wrong(name, "", fmt.Sprintf("the URL %s, %s, has no trailing slash, so that clients leave out its last part, \"%s\"", mirror.by, e.shown(u), e.quote(lost)), "write it as "+e.shown(u)+"/")
			u.Path += "/"
		}
		bases = append(bases, u)
	}
	if e.Mirror != nil && !here && e.MirrorURL == "" {
		e.warn(name, "", "the URL "+all[0].by+" leads to "+e.quote(bases[0].Host)+", and not to "+e.Host, "see that this is meant; --mirror-url names another to look at")
	}
	if len(bases) == 0 {
		bases = append(bases, &url.URL{Scheme: "https", Host: e.Host, Path: usualMirror})
	}
	return bases
}

// configuredMirrors returns the network mirrors of the CLIs' configuration, and tells where the one that is looked for is
// not installed from them.
func (e *examination) configuredMirrors() (all []named) {
	const name = "mirror URL"
	for _, i := range e.Config.Installations() {
		var mirrors, selected []named
		otherwise := ""
		for _, m := range i.Methods {
			selects := e.Mirror == nil || m.Selects(*e.Mirror)
			switch {
			case m.Kind == client.NetworkMirror:
				mirror := named{m.URL, "of the network_mirror in " + i.File}
				mirrors = append(mirrors, mirror)
				if selects {
					selected = append(selected, mirror)
				}
			case selects:
				otherwise = m.Kind
			}
		}
		switch {
		case selected != nil:
			mirrors = selected
		case mirrors == nil:
		case otherwise == "":
			e.wrong(name, "", "no method of provider_installation in "+i.File+" takes in "+e.Mirror.String()+", so that clients find it nowhere", fmt.Sprintf("add %q to the include of the network_mirror", e.Mirror.String()))
		default:
			e.warn(name, "", "the network_mirror in "+i.File+" does not take in "+e.Mirror.String()+", which clients install by "+otherwise, fmt.Sprintf("add %q to its include, and to the exclude of %s", e.Mirror.String(), otherwise))
		}
		for _, m := range mirrors {
			at := slices.IndexFunc(all, func(other named) bool { return other.url == m.url })
			if at < 0 {
				all = append(all, m)
			} else if !strings.Contains(all[at].by, i.File) {
				all[at].by += " and in " + i.File
			}
		}
	}
	return all
}

// mirror follows a mirrored provider from the list of its versions to the newest one's package.
func (e *examination) mirror(ctx context.Context, base *url.URL) {
	at := base.JoinPath(e.Mirror.String())
	scope := e.Mirror.Path()
	const name = "mirror versions"
	a := e.mirrorDocument(ctx, name, at.JoinPath("index.json"), scope, http.StatusNotFound)
	var index protocol.MirrorIndex
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
		if usual := e.mirrorElsewhere(ctx, base); usual != nil {
			e.wrong(name, a.tried, "there is no mirror at "+e.shown(base)+", and one with "+e.Mirror.String()+" at "+e.shown(usual), "write its URL as "+e.shown(usual))
			e.mirrors = append(e.mirrors, usual)
			return
		}
		e.wrong(name, a.tried, "the mirror has no version of "+e.Mirror.String()+", and clients go on to another place", "mirror one, by `larder mirror add "+e.Mirror.String()+" --platform "+e.Platform.String()+"`, or see that its URL is right")
		return
	}
	if v, ok := e.newest(name, a, versions); ok && e.mirrorVersion(ctx, at.JoinPath(v.String()+".json"), scope) && !e.isConfigured(base) {
		e.mirrors = append(e.mirrors, base)
	}
}

// mirrorElsewhere returns where a Larder has its mirror, if that has what another place has not.
func (e *examination) mirrorElsewhere(ctx context.Context, base *url.URL) *url.URL {
	usual := &url.URL{Scheme: "https", Host: base.Host, Path: usualMirror}
	c, err := e.credentialOfMirror(ctx, base)
	if err != nil || base.Path == usualMirror {
		return nil
	}
	a, err := e.ask(ctx, usual.JoinPath(e.Mirror.String(), "index.json"), c)
	var index protocol.MirrorIndex
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &index) != nil || len(index.Versions) == 0 {
		return nil
	}
	return usual
}

// isConfigured says whether clients install what is looked for from there.
func (e *examination) isConfigured(base *url.URL) bool {
	return slices.ContainsFunc(e.Config.Installations(), func(i client.Installation) bool {
		return slices.ContainsFunc(i.Methods, func(m client.Method) bool { return m.URL == base.String() && m.Selects(*e.Mirror) })
	})
}

// credentialOfMirror returns what clients send: they have credentials by the host of the mirror.
func (e *examination) credentialOfMirror(ctx context.Context, base *url.URL) (credential, error) {
	if strings.EqualFold(base.Host, e.Host) {
		return e.credential, e.unknown
	}
	c, err := e.credentialOf(ctx, base.Host)
	e.secrets = append(e.secrets, c.Token)
	return c, err
}

func (e *examination) mirrorVersion(ctx context.Context, u *url.URL, scope string) bool {
	const name = "mirror version"
	a := e.mirrorDocument(ctx, name, u, scope)
	var body protocol.MirrorPackages
	if a == nil || !e.decode(name, a, &body) {
		return false
	}
	var offered []registry.Platform
	for _, text := range slices.Sorted(maps.Keys(body.Archives)) {
		if p, err := registry.ParsePlatform(text); err == nil {
			offered = append(offered, p)
		}
	}
	if len(offered) == 0 {
		e.wrong(name, a.tried, "it has no packages", "mirror the version again")
		return false
	}
	platform := e.platform(name, a, offered)
	found := body.Archives[platform.String()]
	for _, hash := range found.Hashes {
		if !strings.Contains(hash, ":") {
			e.wrong(name, a.tried, e.quote(hash)+" is no hash with a scheme, such as h1:…, and clients refuse the package for it", "mirror the version again")
			return false
		}
	}
	if !slices.ContainsFunc(found.Hashes, func(hash string) bool {
		return strings.HasPrefix(hash, "h1:") || strings.HasPrefix(hash, "zh:")
	}) {
		e.wrong(name, a.tried, "there is no hash for "+platform.String()+", so that clients verify nothing", "let the document have h1: and zh: hashes, as `larder mirror add` writes them")
		return false
	}
	at, err := a.url.Parse(found.URL)
	if err != nil || found.URL == "" || at.Scheme != "https" && at.Scheme != "http" {
		e.wrong(name, a.tried, "the URL for "+platform.String()+" is none that clients take", "mirror the version again")
		return false
	}
	e.ok(name, a.tried, fmt.Sprintf("there is a package for %s, with hashes", platform))
	return e.zip(ctx, "mirror package", at, e.Mirror.Type, "", found.Hashes, 0)
}

// mirrorDocument asks for a document, of which clients mind the content type.
func (e *examination) mirrorDocument(ctx context.Context, name string, u *url.URL, scope string, want ...int) *answer {
	c, err := e.credentialOfMirror(ctx, u)
	if err != nil {
		e.wrong(name, "", e.quote(err.Error()), "mend it: clients have no credential for "+e.quote(u.Host)+" before")
		return nil
	}
	a := e.askedAs(ctx, name, u, c, scope, want...)
	if a != nil && a.status == http.StatusOK && !a.isJSON() {
		e.wrong(name, a.tried, "its content type is "+e.contentType(a.header)+", and clients read application/json alone", "let the server send Content-Type: application/json for it; a static one takes files without a type for something else")
		return nil
	}
	return a
}
