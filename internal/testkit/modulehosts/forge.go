package modulehosts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Forge is a kind of host of repositories.
type Forge int

// The kinds of forges. Codeberg is a Forgejo.
const (
	GitHub Forge = iota
	GitLab
	Bitbucket
	Codeberg
)

// forges are the differences between the kinds. archive is the path of the archive
// of a commit below its repository, and folder is the one around its files.
var forges = map[Forge]struct{ host, archive, folder string }{
	GitHub:    {"github.com", "/archive/COMMIT.tar.gz", "NAME-COMMIT"},
	GitLab:    {"gitlab.com", "/-/archive/COMMIT/NAME-COMMIT.tar.gz", "NAME-COMMIT"},
	Bitbucket: {"bitbucket.org", "/get/COMMIT.tar.gz", "OWNER-NAME-SHORT"},
	Codeberg:  {"codeberg.org", "/archive/COMMIT.tar.gz", "LOWER"},
}

// repository is a repository of a forge. It never loses a commit.
type repository struct {
	path    string
	forge   Forge
	tags    map[string]*tag
	commits []*commit
	head    *commit
}

// tag is a tag with the ID of its object, which for other than annotated tags is the
// commit's.
type tag struct {
	object string
	commit *commit
}

// commit is a commit with its archive.
type commit struct {
	id           string
	files, links map[string]string
	compression  int     // how often the forge has compressed it again
	folder       *string // instead of the forge's
	archive      []byte  // instead of one with the files
}

// repository returns a repository, which it makes if it is missing. The caller has
// locked h.
func (h *Hosts) repository(path string, forge Forge) *repository {
	if h.repositories[path] == nil {
		h.repositories[path] = &repository{path: path, forge: forge, tags: make(map[string]*tag)}
	}
	return h.repositories[path]
}

// objectID returns an ID that depends only on a text, so that golden files can have it.
func objectID(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:40]
}

// tag makes a commit of a module's files, and moves its tag there.
func (r *repository) tag(m Module) {
	id := objectID(fmt.Sprint("commit ", r.path, " ", m.Tag, " ", len(r.commits)))
	r.head = &commit{id: id, files: m.Files, links: m.Links}
	r.commits = append(r.commits, r.head)
	if m.Annotated {
		id = objectID("tag " + id)
	}
	r.tags[m.Tag] = &tag{id, r.head}
}

// expand replaces the words of a path in forges.
func (r *repository) expand(text string, c *commit) string {
	name := path.Base(r.path)
	return strings.NewReplacer(
		"OWNER", path.Dir(r.path), "NAME", name, "LOWER", strings.ToLower(name), "COMMIT", c.id, "SHORT", c.id[:12],
	).Replace(text)
}

func (r *repository) archivePath(c *commit) string {
	return "/" + r.path + r.expand(forges[r.forge].archive, c)
}

// wrapped returns the folder around the files of a commit's archive.
func (c *commit) wrapped(r *repository) string {
	if c.folder != nil {
		return *c.folder
	}
	return r.expand(forges[r.forge].folder, c)
}

// answerForge returns what answers a request to a forge, or nil. The caller has
// locked h.
func (h *Hosts) answerForge(req *http.Request) http.HandlerFunc {
	at, atCodeload := strings.CutPrefix(req.URL.Path, "/codeload")
	atCodeload = atCodeload || strings.HasPrefix(req.Host, "codeload.")
	var repo *repository
	var rest string
	for name, r := range h.repositories {
		after, found := strings.CutPrefix(at, "/"+name)
		found = found && strings.HasPrefix(strings.TrimPrefix(after, ".git"), "/")
		if found && (repo == nil || len(name) > len(repo.path)) { // the innermost, since groups of GitLab nest
			repo, rest = r, after
		}
	}
	if repo == nil {
		return nil
	}
	service, dotGit := strings.CutPrefix(rest, ".git")
	switch {
	case atCodeload:
		for _, c := range repo.commits {
			if rest == "/tar.gz/"+c.id && repo.forge == GitHub {
				return h.send(repo, c, req)
			}
		}
		return nil
	case service == "/info/refs" && req.URL.Query().Get("service") == "git-upload-pack":
		if repo.forge == GitLab && !dotGit {
			to := "/" + repo.path + ".git" + service + "?" + req.URL.RawQuery
			return http.RedirectHandler(to, http.StatusMovedPermanently).ServeHTTP
		}
		return repo.advertise(req.Header.Get("Git-Protocol") == "version=2")
	case service == "/git-upload-pack" && req.Method == http.MethodPost:
		return repo.uploadPack()
	}
	for _, c := range repo.commits {
		if rest != repo.expand(forges[repo.forge].archive, c) {
			continue
		}
		if repo.forge != GitHub {
			return h.send(repo, c, req)
		}
		to := "/codeload/" + repo.path + "/tar.gz/" + c.id
		if req.Host == forges[GitHub].host {
			to = "https://codeload." + req.Host + strings.TrimPrefix(to, "/codeload")
		}
		return http.RedirectHandler(to, http.StatusFound).ServeHTTP
	}
	return nil
}

// send counts and answers the archive of a commit. The caller has locked h.
func (h *Hosts) send(repo *repository, c *commit, req *http.Request) http.HandlerFunc {
	if req.Method == http.MethodGet {
		h.archives[req.URL.Path]++
	}
	archive, err := c.archive, error(nil)
	if archive == nil {
		archive, err = c.pack(c.wrapped(repo))
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/x-gzip")
		w.Header().Set("Content-Disposition", "attachment; filename="+path.Base(repo.path)+"-"+c.id+".tar.gz")
		if repo.forge == GitHub {
			_ = http.NewResponseController(w).Flush() // GitHub does not send the length
		} else {
			w.Header().Set("Content-Length", strconv.Itoa(len(archive)))
		}
		_, _ = w.Write(archive)
	}
}

// pack returns an archive of a commit as git makes it, with its files in a folder.
func (c *commit) pack(folder string) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, 1+(5+c.compression)%9)
	if err != nil {
		return nil, err
	}
	z.ModTime = time.Unix(1e9+int64(c.compression), 0) // small files may compress the same at another level
	w := tar.NewWriter(z)
	add := func(header tar.Header, text string) {
		if header.Typeflag != tar.TypeXGlobalHeader {
			header.ModTime, header.Size = time.Unix(1e9, 0), int64(len(text))
		}
		if err == nil {
			err = w.WriteHeader(&header)
		}
		if err == nil {
			_, err = io.WriteString(w, text)
		}
	}
	add(tar.Header{
		Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": c.id},
	}, "")
	names := slices.Concat(slices.Collect(maps.Keys(c.files)), slices.Collect(maps.Keys(c.links)))
	slices.Sort(names)
	folders := make(map[string]bool)
	for _, name := range names {
		whole := path.Join(folder, name)
		if strings.HasSuffix(name, "/") {
			whole += "/"
		}
		for i, char := range whole {
			if dir := whole[:i+1]; char == '/' && !folders[dir] {
				folders[dir] = true
				add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o775}, "")
			}
		}
		text := c.files[name]
		switch target, isLink := c.links[name]; {
		case isLink:
			add(tar.Header{Typeflag: tar.TypeSymlink, Name: whole, Linkname: target, Mode: 0o777}, "")
		case folders[whole]:
		case strings.HasPrefix(text, "#!"):
			add(tar.Header{Typeflag: tar.TypeReg, Name: whole, Mode: 0o775}, text)
		default:
			add(tar.Header{Typeflag: tar.TypeReg, Name: whole, Mode: 0o664}, text)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = z.Close()
	}
	return out.Bytes(), err
}
