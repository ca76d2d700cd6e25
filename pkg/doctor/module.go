package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// shortLife is too short for a URL: one init uses it as long as it takes.
const shortLife = 15 * time.Minute

// module follows a module from its versions to the last byte of the newest one's archive.
func (e *examination) module(ctx context.Context) {
	base := e.discovered.services[modulesService]
	if base == nil {
		e.wrong("module", "", "discovery names no "+modulesService, "add it, such as \"modules.v1\": \"/v1/modules/\"")
		return
	}
	if name, _, _ := strings.Cut(e.Host, ":"); !strings.Contains(name, ".") {
		e.wrong("module", "", "clients take no module from a host without a dot in its name", "call the registry by a name with a dot; this machine's own is 127.0.0.1")
		return
	}
	scope := e.Module.Path()
	version, ok := e.moduleVersion(ctx, base.JoinPath(e.Module.String(), "versions"), scope)
	if !ok {
		return
	}
	at := base.JoinPath(e.Module.String(), version.String(), "download")
	for _, l := range e.moduleLocations(ctx, at, scope) {
		e.moduleArchive(ctx, at, l)
	}
}

// otherVersion is what clients of modules take besides: fewer or more than three numbers.
var otherVersion = regexp.MustCompile(`^v?[0-9]+(\.[0-9]+)*(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func (e *examination) moduleVersion(ctx context.Context, u *url.URL, scope string) (registry.Version, bool) {
	const name = "module versions"
	a := e.asked(ctx, name, u, scope)
	var body struct {
		Modules []struct {
			Versions []struct {
				Version string `json:"version"`
			} `json:"versions"`
		} `json:"modules"`
	}
	if a == nil || !e.decode(name, a, &body) {
		return registry.Version{}, false
	}
	if len(body.Modules) == 0 {
		e.wrong(name, a.tried, "there is no module in the answer", "publish the module again")
		return registry.Version{}, false
	}
	var versions []registry.Version
	var none, other []string
	for _, listed := range body.Modules[0].Versions {
		// Clients of modules take a leading v.
		if v, err := registry.ParseVersion(strings.TrimPrefix(listed.Version, "v")); err == nil {
			versions = append(versions, v)
		} else if otherVersion.MatchString(listed.Version) {
			other = append(other, listed.Version)
		} else {
			none = append(none, listed.Version)
		}
	}
	if none != nil {
		e.warn(name, a.tried, "what is listed as "+e.several(none)+" is no version, and clients leave it out", "publish it under another version")
	}
	if versions == nil && other != nil {
		e.skip("module download", "clients take the version "+e.several(other)+", which is not of three numbers and not followed here")
		return registry.Version{}, false
	}
	return e.newest(name, a, versions)
}

// newest returns the version that a client takes which is free to choose, or the newest pre-release where there is no other.
func (e *examination) newest(name string, a *answer, versions []registry.Version) (registry.Version, bool) {
	if len(versions) == 0 {
		e.wrong(name, a.tried, "there are no versions", "publish one")
		return registry.Version{}, false
	}
	newest := slices.MaxFunc(versions, func(a, b registry.Version) int {
		if released := a.Prerelease == ""; released != (b.Prerelease == "") {
			if released {
				return 1
			}
			return -1
		}
		return registry.CompareVersions(a, b)
	})
	e.ok(name, a.tried, fmt.Sprintf("the newest of %d is %s", len(versions), newest))
	return newest, true
}

// located is where some clients look for an archive.
type located struct {
	reference string
	by        string // whose clients; empty: all
	// direct says that OpenTofu fetches it by itself, as a plain URL and perhaps with a credential.
	direct     bool
	credential credential
	// sends says that OpenTofu sends the registry's credential there, and
	// withheld that the doctor does not.
	sends, withheld bool
}

// moduleLocations returns where clients look for the archive: all by a header, or OpenTofu by the body.
func (e *examination) moduleLocations(ctx context.Context, u *url.URL, scope string) []located {
	const name = "module download"
	a := e.asked(ctx, name, u, scope, http.StatusNoContent)
	if a == nil {
		return nil
	}
	header := located{reference: a.header.Get("X-Terraform-Get")}
	var body struct {
		Location string `json:"location"`
		Direct   *bool  `json:"use_registry_credentials"`
	}
	if a.status == http.StatusOK && json.Unmarshal(a.body, &body) != nil {
		e.wrong(name, a.tried, "200 with a body that is not the JSON which OpenTofu reads, and refuses", "answer with 204, without a body")
		return nil
	}
	if header.reference == "" {
		e.wrong(name, a.tried, status(a.status)+" without X-Terraform-Get, by which Terraform finds the archive, and OpenTofu too unless 200 comes with a location in JSON", "answer with 204 and that header")
		return nil
	}
	if body.Direct == nil && (body.Location == "" || body.Location == header.reference) {
		e.ok(name, a.tried, status(a.status)+" with X-Terraform-Get")
		return []located{header}
	}
	header.by = " of Terraform"
	own := located{reference: body.Location, by: " of OpenTofu", direct: body.Direct != nil}
	if own.direct && *body.Direct {
		own.credential, own.sends = e.credential, true
	}
	e.ok(name, a.tried, status(a.status)+" with X-Terraform-Get for Terraform, and a location in JSON for OpenTofu")
	return []located{header, own}
}

// elsewhere begins what clients take for something else than a URL: what another program gets, or a short form of that.
var elsewhere = regexp.MustCompile(`^([a-z0-9]+::|git@|(github\.com|gitlab\.com|bitbucket\.org|www\.googleapis\.com|([0-9a-z.-]+\.)?amazonaws\.com)/)`)

// pack is an archive and what clients read of it.
type pack struct {
	url               *url.URL
	kind, sum, folder string
}

// resolve reads a location as clients do: as go-getter, or as a plain URL.
func (e *examination) resolve(name string, at *url.URL, l located) *pack {
	if elsewhere.MatchString(l.reference) {
		e.skip(name, "it is not an archive behind https: clients use another program to get it")
		return nil
	}
	u, err := url.Parse(l.reference)
	if err != nil {
		e.wrong(name, "", "its location is no URL", "publish the version again")
		return nil
	}
	if u.Scheme == "" && u.Host == "" {
		if !l.direct && !strings.HasPrefix(l.reference, "/") && !strings.HasPrefix(l.reference, "./") && !strings.HasPrefix(l.reference, "../") {
			e.wrong(name, "", "its location is neither a URL nor begins with / or ./, so that clients take it for something else", "answer with a whole URL")
			return nil
		}
		u = at.ResolveReference(u)
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		e.skip(name, "it is not an archive behind https: clients use another program to get it")
		return nil
	}
	p := &pack{url: u}
	if l.direct {
		return p
	}
	// What follows // is a folder in the archive.
	if before, folder, found := strings.Cut(u.Path, "//"); found {
		u.Path, u.RawPath, p.folder = before, "", folder
	}
	query := u.Query()
	p.kind, p.sum = query.Get("archive"), query.Get("checksum")
	query.Del("archive")
	query.Del("checksum")
	u.RawQuery = query.Encode()
	if p.kind == "" {
		p.kind = archiveType(u.Path)
	}
	switch {
	case strings.ContainsAny(p.folder, "*?["):
		e.wrong(name, "", "its location has the folder //"+e.quote(p.folder)+", in which clients do not expand a pattern here", "name the folder itself, or pack the module at the root")
		return nil
	case !slices.Contains(archiveTypes, p.kind):
		e.wrong(name, "GET "+e.shown(u), "nothing says that it is an archive, so that clients ask with another query, and a presigned URL does not hold", "name the file .tar.gz, or add archive=tar.gz behind the signature")
		return nil
	}
	return p
}

// moduleArchive reads the archive as clients do.
func (e *examination) moduleArchive(ctx context.Context, at *url.URL, l located) {
	name := "module archive" + l.by
	p := e.resolve(name, at, l)
	if p == nil {
		return
	}
	l = e.withhold(name, at, p.url, l)
	kept, err := os.CreateTemp("", "larder-doctor-*")
	if err != nil {
		e.wrong(name, "", "there is no place to keep it: "+err.Error(), "name a folder in TMPDIR")
		return
	}
	defer func() { _ = os.Remove(kept.Name()) }()
	defer kept.Close()
	got := e.download(ctx, name, p.url, l, kept)
	if got == nil {
		return
	}
	algorithm, want, found := strings.Cut(p.sum, ":")
	compared := !found && (p.sum == "" || len(p.sum) == 64) || algorithm == "sha256"
	if !found {
		want = p.sum
	}
	if compared && want != "" && !strings.EqualFold(want, got.sha256) {
		if !e.encoded(name, got) {
			e.wrong(name, got.tried, fmt.Sprintf("wrong checksum: the archive's SHA-256 is %s, and its location says checksum=sha256:%s", got.sha256, e.quote(want)), "the archive was changed after it was published: see who writes to the store, and restore it")
		}
		return
	}
	if l.direct {
		p.kind = sniffed(kept)
	}
	if !e.unpacks(ctx, name, got, kept, p) {
		return
	}
	seen := humanize.IBytes(uint64(got.size)) + ", complete"
	switch {
	case !compared:
		e.warn(name, got.tried, seen+"; its checksum is not a SHA-256, and was not compared", "let the location have checksum=sha256:…")
	case l.direct:
		e.held(name, p.url, got, seen)
	case want == "":
		e.warn(name, got.tried, seen+"; its location has no checksum, so that clients do not notice a changed archive", "let the location have checksum=sha256:…")
	default:
		e.held(name, p.url, got, seen+", with the checksum of its location")
	}
}

// withhold takes the credential from a location at a host that is neither the
// registry's nor that of its service, at another URL. OpenTofu sends it to any
// host that the registry names.
func (e *examination) withhold(name string, service, at *url.URL, l located) located {
	host := strings.TrimSuffix(at.Host, ":443")
	if !l.sends || strings.EqualFold(host, e.Host) || strings.EqualFold(host, strings.TrimSuffix(service.Host, ":443")) {
		return l
	}
	l.credential, l.withheld = credential{}, true
	e.warn(name, "",
		"the registry answers with use_registry_credentials, by which OpenTofu sends the token for "+e.Host+
			" to another host, "+e.quote(at.Host)+"; the doctor does not send it",
		"let the registry serve the archive itself, or answer without use_registry_credentials; if you do not know "+
			e.quote(at.Host)+", revoke the token that OpenTofu has sent")
	return l
}

// unpacks tells of an archive that clients cannot unpack, that lacks the folder, or that is unlike Larder's.
func (e *examination) unpacks(ctx context.Context, name string, got *file, kept *os.File, p *pack) bool {
	in, err := unpack(p.kind, kept, got.size, p.folder)
	switch {
	case err != nil || p.kind == "":
		if e.encoded(name, got) {
			return false
		}
		why := ": it is no archive that clients know"
		if err != nil {
			why = " as " + p.kind + ": " + e.quote(err.Error())
		}
		e.wrong(name, got.tried, "what comes, as "+e.contentType(got.header)+", does not unpack"+why, "see what stands before the store; if nothing does, publish the next version")
		return false
	case in.unknown:
		e.warn(name, got.tried, fmt.Sprintf("%d bytes; it is %s, which is not unpacked here", got.size, p.kind), "see that it unpacks")
		return false
	case !in.found:
		e.wrong(name, got.tried, "its location leads to the folder //"+e.quote(p.folder)+", which is not in the archive", "let the location name a folder that is there, or none")
		return false
	}
	if p.kind != "tar.gz" && p.kind != "tgz" {
		return true
	}
	if _, err = kept.Seek(0, io.SeekStart); err == nil {
		_, err = archive.ReadModule(ctx, kept)
	}
	if err != nil {
		e.warn(name, got.tried, "it unpacks, and was not made as Larder makes them: "+e.quote(err.Error()), "publish the next version with `larder publish module`")
	}
	return err == nil
}

// held ends a download that was as it should be, but perhaps for how long its URL holds.
func (e *examination) held(name string, u *url.URL, got *file, seen string) {
	if left, ok := lifetime(u, date(got.header, e.Now())); ok && left < shortLife {
		e.warn(name, got.tried, fmt.Sprintf("%s; its URL holds for another %s alone, and one init may take longer", seen, left.Round(time.Second)), "let URLs live for 60 minutes, and set the clock of the machine that signs them")
		return
	}
	e.ok(name, got.tried, seen)
}

// lifetime returns how long a presigned URL still holds: one of S3, or of a local registry.
func lifetime(u *url.URL, now time.Time) (time.Duration, bool) {
	query := u.Query()
	if end, err := strconv.ParseInt(query.Get("expires"), 10, 64); err == nil {
		return time.Unix(end, 0).Sub(now), true
	}
	signed, err := time.Parse("20060102T150405Z", query.Get("X-Amz-Date"))
	seconds, bad := strconv.Atoi(query.Get("X-Amz-Expires"))
	if err != nil || bad != nil {
		return 0, false
	}
	return signed.Add(time.Duration(seconds) * time.Second).Sub(now), true
}
