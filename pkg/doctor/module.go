package doctor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// archiveTypes are the ends of a path, and values of archive=, by which clients know an archive.
var archiveTypes = []string{"zip", "tar.gz", "tgz", "tar.bz2", "tar.tbz2", "tar.xz", "txz", "bz2", "gz", "xz"}

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
	if location, ok := e.moduleLocation(ctx, at, scope); ok {
		e.moduleArchive(ctx, at, location)
	}
}

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
	for _, listed := range body.Modules[0].Versions {
		// Clients of modules take a leading v.
		if v, err := registry.ParseVersion(strings.TrimPrefix(listed.Version, "v")); err == nil {
			versions = append(versions, v)
		} else {
			e.warn(name, a.tried, quote(listed.Version)+" is no version, and clients leave it out", "publish it under another version")
		}
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

// moduleLocation returns where the archive is.
func (e *examination) moduleLocation(ctx context.Context, u *url.URL, scope string) (string, bool) {
	const name = "module download"
	a := e.asked(ctx, name, u, scope, http.StatusNoContent)
	if a == nil {
		return "", false
	}
	location := a.header.Get("X-Terraform-Get")
	if location == "" {
		e.wrong(name, a.tried, status(a.status)+" without X-Terraform-Get, by which every client finds the archive", "answer with 204 and that header")
		return "", false
	}
	if a.status == http.StatusOK && len(a.body) == 0 {
		e.wrong(name, a.tried, "200 without a body, which OpenTofu refuses", "answer with 204")
		return "", false
	}
	e.ok(name, a.tried, status(a.status)+" with X-Terraform-Get")
	return location, true
}

// moduleArchive reads the archive as go-getter does, by which clients read it.
func (e *examination) moduleArchive(ctx context.Context, at *url.URL, location string) {
	const name = "module archive"
	u, err := url.Parse(location)
	if err != nil {
		e.wrong(name, "", "its location is no URL", "publish the version again")
		return
	}
	if u.Scheme == "" && u.Host == "" {
		if !strings.HasPrefix(location, "/") && !strings.HasPrefix(location, "./") && !strings.HasPrefix(location, "../") {
			e.wrong(name, "", "its location is neither a URL nor begins with / or ./, so that clients take it for something else", "answer with a whole URL")
			return
		}
		u = at.ResolveReference(u)
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		e.skip(name, "it is not an archive behind https: clients use another program to get it")
		return
	}
	// What follows // is a folder in the archive.
	if before, _, found := strings.Cut(u.Path, "//"); found {
		u.Path, u.RawPath = before, ""
	}
	query := u.Query()
	kind, sum := query.Get("archive"), query.Get("checksum")
	query.Del("archive")
	query.Del("checksum")
	u.RawQuery = query.Encode()
	if kind == "" {
		kind = archiveType(u.Path)
	}
	if !slices.Contains(archiveTypes, kind) {
		e.wrong(name, "GET "+shown(u), "nothing says that it is an archive, so that clients ask with another query, and a presigned URL does not hold", "name the file .tar.gz, or add archive=tar.gz behind the signature")
		return
	}
	kept, err := os.CreateTemp("", "larder-doctor-*")
	if err != nil {
		e.wrong(name, "", "there is no place to keep it: "+err.Error(), "name a folder in TMPDIR")
		return
	}
	defer func() { _ = os.Remove(kept.Name()) }()
	defer kept.Close()
	got := e.download(ctx, name, u, kept)
	if got == nil {
		return
	}
	algorithm, want, found := strings.Cut(sum, ":")
	switch {
	case found && algorithm != "sha256" || !found && sum != "" && len(sum) != 64:
		e.warn(name, got.tried, fmt.Sprintf("%d bytes; its checksum is not a SHA-256, and was not compared", got.size), "let the location have checksum=sha256:…")
		return
	case !found:
		want = sum
	}
	if want != "" && !strings.EqualFold(want, got.sha256) {
		e.wrong(name, got.tried, fmt.Sprintf("wrong checksum: the archive's SHA-256 is %s, and its location says checksum=sha256:%s", got.sha256, quote(want)), "the archive was changed after it was published: see who writes to the store, and restore it")
		return
	}
	if kind == "tar.gz" || kind == "tgz" {
		if _, err := kept.Seek(0, io.SeekStart); err == nil {
			_, err = archive.ReadModule(kept)
			if err != nil {
				e.warn(name, got.tried, "it was not made as Larder makes them: "+quote(err.Error()), "publish the next version with `larder publish module`")
				return
			}
		}
	}
	seen := fmt.Sprintf("%d bytes, to the last one", got.size)
	if want == "" {
		e.warn(name, got.tried, seen+"; its location has no checksum, so that clients do not notice a changed archive", "let the location have checksum=sha256:…")
		return
	}
	e.held(name, u, got, seen+", with the checksum that its location has")
}

// held ends a download that was as it should be, but perhaps for how long its URL holds.
func (e *examination) held(name string, u *url.URL, got *file, seen string) {
	if left, ok := lifetime(u, date(got.header, e.Now())); ok && left < shortLife {
		e.warn(name, got.tried, fmt.Sprintf("%s; its URL holds for another %s alone, and one init may take longer", seen, left.Round(time.Second)), "let URLs live for 60 minutes, and set the clock of the machine that signs them")
		return
	}
	e.ok(name, got.tried, seen)
}

// archiveType returns the longest end of a path that clients know an archive by.
func archiveType(p string) (kind string) {
	for _, t := range archiveTypes {
		if strings.HasSuffix(path.Base(p), "."+t) && len(t) > len(kind) {
			kind = t
		}
	}
	return kind
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
