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

	"github.com/larder-registry/larder/pkg/client/location"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/registry"
)

// shortLife is how long a URL should be valid at least: one init uses it until
// it is done.
const shortLife = 15 * time.Minute

// module follows a module from the list of its versions to the last byte of the
// newest version's archive.
func (e *examination) module(ctx context.Context) {
	base := e.discovered.services[modulesService]
	if base == nil {
		e.wrong("module", "", "discovery does not name "+modulesService, "add it, such as \"modules.v1\": \"/v1/modules/\"")
		return
	}
	if name, _, _ := strings.Cut(e.Host, ":"); !strings.Contains(name, ".") {
		e.wrong("module", "", "clients install no modules from a host without a dot in its name",
			"use a host name with a dot for the registry, such as 127.0.0.1 for this machine")
		return
	}
	scope := e.Module.Path()
	version, ok := e.moduleVersion("module versions", e.get(ctx, "module versions", base.JoinPath(e.Module.String(), "versions"), scope))
	if !ok {
		return
	}
	at := base.JoinPath(e.Module.String(), version.String(), "download")
	for _, l := range e.moduleLocations(ctx, at, scope) {
		e.moduleArchive(ctx, at, l)
	}
}

// otherVersion matches the versions with fewer or more than three numbers,
// which module clients also accept.
var otherVersion = regexp.MustCompile(`^v?[0-9]+(\.[0-9]+)*(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// moduleVersion returns the newest version in a list, which is nil if the request has
// failed.
func (e *examination) moduleVersion(name string, a *answer) (registry.Version, bool) {
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
		e.wrong(name, a.request, "the answer contains no module", "publish the module again")
		return registry.Version{}, false
	}
	var versions []registry.Version
	var none, other []string
	for _, listed := range body.Modules[0].Versions {
		// Module clients accept a leading v.
		if v, err := registry.ParseVersion(strings.TrimPrefix(listed.Version, "v")); err == nil {
			versions = append(versions, v)
		} else if otherVersion.MatchString(listed.Version) {
			other = append(other, listed.Version)
		} else {
			none = append(none, listed.Version)
		}
	}
	if none != nil {
		e.warn(name, a.request, e.several(none)+": not a valid version, so clients ignore it",
			"publish it as a valid version")
	}
	if versions == nil && other != nil {
		e.skip("module download",
			"clients accept the version "+e.several(other)+", but the doctor only follows versions with three numbers")
		return registry.Version{}, false
	}
	return e.newest(name, a, versions)
}

// newest returns the version that a client without constraints chooses. If all
// are pre-releases, it returns the newest of them.
func (e *examination) newest(name string, a *answer, versions []registry.Version) (registry.Version, bool) {
	if len(versions) == 0 {
		e.wrong(name, a.request, "there are no versions", "publish a version")
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
	e.ok(name, a.request, fmt.Sprintf("the newest of %d is %s", len(versions), newest))
	return newest, true
}

// located is an archive's location for some clients.
type located struct {
	reference string
	// client is a suffix for the names of the steps. It is empty for all clients.
	client string
	// direct reports that OpenTofu requests it as a plain URL, possibly with a
	// credential.
	direct     bool
	credential credential
	// sends reports that OpenTofu sends the registry's credential there, and
	// withheld that the doctor does not.
	sends, withheld bool
}

// moduleLocations returns the locations of the archive. These are
// the one in the header, and the one in the body if OpenTofu uses it.
func (e *examination) moduleLocations(ctx context.Context, u *url.URL, scope string) []located {
	const name = "module download"
	a := e.get(ctx, name, u, scope, http.StatusNoContent)
	if a == nil {
		return nil
	}
	header := located{reference: a.header.Get("X-Terraform-Get")}
	var body struct {
		Location string `json:"location"`
		Direct   *bool  `json:"use_registry_credentials"`
	}
	if a.status == http.StatusOK && json.Unmarshal(a.body, &body) != nil {
		e.wrong(name, a.request,
			"200 with a body that is not the JSON that OpenTofu expects, so OpenTofu rejects it",
			"answer with 204 and no body")
		return nil
	}
	if header.reference == "" {
		e.wrong(name, a.request,
			status(a.status)+" without X-Terraform-Get, which Terraform needs to find the archive; OpenTofu needs it too "+
				"unless a 200 has a location in JSON",
			"answer with 204 and that header")
		return nil
	}
	if body.Direct == nil && (body.Location == "" || body.Location == header.reference) {
		e.ok(name, a.request, status(a.status)+" with X-Terraform-Get")
		return []located{header}
	}
	header.client = " of Terraform"
	own := located{reference: body.Location, client: " of OpenTofu", direct: body.Direct != nil}
	if own.direct && *body.Direct {
		own.credential, own.sends = e.credential, true
	}
	e.ok(name, a.request, status(a.status)+" with X-Terraform-Get for Terraform and a location in JSON for OpenTofu")
	return []located{header, own}
}

// elsewhere matches locations that clients do not treat as a URL, but pass to
// another program, and their short forms.
var elsewhere = regexp.MustCompile(
	`^([a-z0-9]+::|git@|(github\.com|gitlab\.com|bitbucket\.org|www\.googleapis\.com|([0-9a-z.-]+\.)?amazonaws\.com)/)`,
)

// pack is an archive's location as clients interpret it.
type pack struct {
	url               *url.URL
	kind, sum, folder string
}

// resolve interprets a location as clients do, with go-getter or as a plain
// URL. It returns nil after adding a step if the doctor cannot follow it.
func (e *examination) resolve(name string, at *url.URL, l located) *pack {
	if elsewhere.MatchString(l.reference) {
		e.skip(name, "it is not an archive at an https URL: clients use another program to get it")
		return nil
	}
	u, err := url.Parse(l.reference)
	if err != nil {
		e.wrong(name, "", "its location is not a URL", "publish the version again")
		return nil
	}
	if u.Scheme == "" && u.Host == "" {
		if !l.direct && !strings.HasPrefix(l.reference, "/") && !strings.HasPrefix(l.reference, "./") &&
			!strings.HasPrefix(l.reference, "../") {
			e.wrong(name, "", "its location is neither a URL nor begins with / or ./, so clients misinterpret it",
				"answer with an absolute URL")
			return nil
		}
		u = at.ResolveReference(u)
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		e.skip(name, "it is not an archive at an https URL: clients use another program to get it")
		return nil
	}
	p := &pack{url: u}
	if l.direct {
		return p
	}
	// A folder in the archive follows //.
	if before, folder, found := strings.Cut(u.Path, "//"); found {
		u.Path, u.RawPath, p.folder = before, "", folder
	}
	query := u.Query()
	p.kind, p.sum = query.Get("archive"), query.Get("checksum")
	query.Del("archive")
	query.Del("checksum")
	u.RawQuery = query.Encode()
	if p.kind == "" {
		p.kind = location.TypeOf(u.Path)
	}
	switch {
	case strings.ContainsAny(p.folder, "*?["):
		e.wrong(
			name,
			"",
			"its location has the folder //"+e.quote(p.folder)+", but clients expand no patterns there",
			"name the folder itself, or pack the module at the root",
		)
		return nil
	case !slices.Contains(location.Types, p.kind):
		e.wrong(name, "GET "+e.shown(u),
			"the location does not look like an archive, so clients add a query to it, which makes a presigned URL invalid",
			"give the file a name that ends with .tar.gz, or add archive=tar.gz after the signature")
		return nil
	}
	return p
}

// moduleArchive downloads and verifies the archive as clients do.
func (e *examination) moduleArchive(ctx context.Context, at *url.URL, l located) {
	name := "module archive" + l.client
	p := e.resolve(name, at, l)
	if p == nil {
		return
	}
	l = e.withhold(name, at, p.url, l)
	tmp, err := temporary.File("larder-doctor-*")
	if err != nil {
		e.wrong(name, "", err.Error(), "set TMPDIR to another folder")
		return
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	defer tmp.Close()
	got := e.download(ctx, name, p.url, l, tmp)
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
			e.wrong(name, got.request,
				fmt.Sprintf("wrong checksum: the archive's SHA-256 is %s, but its location has checksum=sha256:%s",
					got.sha256, e.quote(want)),
				"the archive was changed after it was published: find out who writes to the store, and restore it")
		}
		return
	}
	if l.direct {
		p.kind = sniff(tmp)
	}
	if !e.unpacks(ctx, name, got, tmp, p) {
		return
	}
	result := humanize.IBytes(uint64(got.size)) + ", complete"
	switch {
	case !compared:
		e.warn(name, got.request, result+"; its checksum is not a SHA-256 and was not verified",
			"add checksum=sha256:… to the location")
	case l.direct:
		e.checkLifetime(name, p.url, got, result)
	case want == "":
		e.warn(name, got.request,
			result+"; its location has no checksum, so clients do not notice a changed archive",
			"add checksum=sha256:… to the location")
	default:
		e.checkLifetime(name, p.url, got, result+", with the checksum of its location")
	}
}

// withhold removes the credential from a location at another host than the
// registry's and its service's, and adds a warning. OpenTofu sends the
// credential to any host that the registry names.
func (e *examination) withhold(name string, service, at *url.URL, l located) located {
	l.withheld = l.credential.given && !e.isOwn(at)
	if !l.sends || sameHost(at.Host, e.Host) || sameHost(at.Host, service.Host) {
		return l
	}
	l.credential, l.withheld = credential{}, true
	e.warn(name, "",
		"the registry answers with use_registry_credentials, so OpenTofu sends the token for "+e.Host+
			" to another host, "+e.quote(at.Host)+"; the doctor does not send it",
		"make the registry serve the archive itself, or make it answer without use_registry_credentials; if you do not "+
			"recognize "+
			e.quote(at.Host)+", revoke the token, because OpenTofu may have sent it there")
	return l
}

// unpacks adds a step if clients cannot unpack the archive, if it lacks the
// folder, or if Larder would not create it like that. It reports whether none
// of these is the case.
func (e *examination) unpacks(ctx context.Context, name string, got *file, tmp *os.File, p *pack) bool {
	in, err := unpack(p.kind, tmp, got.size, p.folder)
	switch {
	case err != nil || p.kind == "":
		if e.encoded(name, got) {
			return false
		}
		why := ", because it is not an archive that clients recognize"
		if err != nil {
			why = " as " + p.kind + ": " + e.quote(err.Error())
		}
		e.wrong(name, got.request,
			"the file, with the content type "+e.contentType(got.header)+", does not unpack"+why,
			"check what is in front of the store; if nothing is, publish a new version")
		return false
	case in.unknown:
		e.warn(name, got.request,
			fmt.Sprintf("%d bytes of type %s, which the doctor cannot unpack", got.size, p.kind),
			"check that it unpacks")
		return false
	case !in.found:
		e.wrong(
			name,
			got.request,
			"its location names the folder //"+e.quote(p.folder)+", which the archive does not contain",
			"name a folder that exists in the location, or none",
		)
		return false
	}
	if p.kind != "tar.gz" && p.kind != "tgz" {
		return true
	}
	if _, err = tmp.Seek(0, io.SeekStart); err == nil {
		var m archive.Module
		if m, err = archive.ReadModule(ctx, tmp); err == nil && len(m.Problems) > 0 {
			err = m.Problems[0]
		}
	}
	if err != nil {
		e.warn(name, got.request, "it unpacks, but Larder would not create such an archive: "+e.quote(err.Error()),
			"publish a new version with `larder publish module`")
	}
	return err == nil
}

// checkLifetime adds the step for a complete download. It is a warning if the
// URL expires soon.
func (e *examination) checkLifetime(name string, u *url.URL, got *file, result string) {
	if left, ok := lifetime(u, date(got.header, e.Now())); ok && left < shortLife {
		e.warn(name, got.request,
			fmt.Sprintf("%s; its URL expires in %s, but one init may take longer", result, left.Round(time.Second)),
			"use URLs that are valid for 60 minutes, and set the clock of the machine that signs them")
		return
	}
	e.ok(name, got.request, result)
}

// lifetime returns how long a presigned URL of S3, or of a local registry, is
// still valid.
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
