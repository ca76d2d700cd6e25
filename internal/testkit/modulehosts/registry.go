package modulehosts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// Module is a version of a public module, in a repository of a forge.
type Module struct {
	// Address is NAMESPACE/NAME/SYSTEM.
	Address string
	// Version is without the v, by default 1.0.0.
	Version string
	// Files are those of the repository. A name that ends in / is an empty
	// folder, as archives have for a submodule. Texts that begin with #! are
	// executable.
	Files map[string]string
	// Links are the targets of symbolic links.
	Links map[string]string
	// Folder is the folder with the module, by default the root.
	Folder string
	// Forge and Repository are where the repository is, by default at GitHub as
	// NAMESPACE/terraform-SYSTEM-NAME.
	Forge      Forge
	Repository string
	// Tag is the version's tag, by default v and the version. Annotated tags
	// have an object of their own.
	Tag       string
	Annotated bool
	// ByCommit makes the registry answer the commit, as registry.terraform.io
	// does. By default it answers the tag, as registry.opentofu.org does.
	ByCommit bool
	// Archive makes the registry answer an archive over https instead of git.
	Archive bool
	// Published is when the version was published. If zero, the registry does
	// not have the time.
	Published time.Time
}

// release is a version that the registry has.
type release struct {
	Module
	location string // instead of the usual one, if not empty
	removed  bool
}

// Add adds versions of modules. It returns their addresses, each once.
func (h *Hosts) Add(modules ...Module) (addresses []string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range modules {
		parts := strings.Split(m.Address, "/")
		if len(parts) != 3 {
			h.t.Fatalf("%q is not NAMESPACE/NAME/SYSTEM", m.Address)
		}
		m.Version = cmp.Or(m.Version, "1.0.0")
		m.Tag = cmp.Or(m.Tag, "v"+m.Version)
		m.Repository = cmp.Or(m.Repository, parts[0]+"/terraform-"+parts[2]+"-"+parts[1])
		repo := h.repository(m.Repository, m.Forge)
		if repo.tags[m.Tag] != nil {
			h.t.Fatalf("%s has the tag %s already", m.Repository, m.Tag)
		}
		repo.tag(m)
		h.releases = append(h.releases, &release{Module: m})
		if !slices.Contains(addresses, m.Address) {
			addresses = append(addresses, m.Address)
		}
	}
	return addresses
}

// change changes a version and its commit.
func (h *Hosts) change(address, version string, change func(*release, *repository, *commit)) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.find(address, version)
	if r == nil {
		h.t.Fatalf("there is no %s %s", address, version)
	}
	repo := h.repositories[r.Repository]
	change(r, repo, repo.tags[r.Tag].commit)
}

// find returns a version, or nil. Like the public registries, it ignores the case of
// the address. The caller has locked h.
func (h *Hosts) find(address, version string) *release {
	for _, r := range h.releases {
		if strings.EqualFold(r.Address, address) && r.Version == version && !r.removed {
			return r
		}
	}
	return nil
}

// MoveTag moves the tag of a version to another commit with other files. The archive
// of the commit before stays.
func (h *Hosts) MoveTag(address, version string, files map[string]string) {
	h.t.Helper()
	h.change(address, version, func(r *release, repo *repository, _ *commit) {
		r.Files = files
		repo.tag(r.Module)
	})
}

// ChangeFiles makes the archive of the same commit have other files.
func (h *Hosts) ChangeFiles(address, version string, files map[string]string) {
	h.t.Helper()
	h.change(address, version, func(r *release, _ *repository, c *commit) { r.Files, c.files = files, files })
}

// Recompress makes the archive of a version have other bytes with the same files.
func (h *Hosts) Recompress(address, version string) {
	h.t.Helper()
	h.change(address, version, func(_ *release, _ *repository, c *commit) { c.compression++ })
}

// Wrap puts the files of a version's archive into a folder such as a/b. The forge's
// own folder is replaced, and "" means no folder. The location of a module with
// Archive follows.
func (h *Hosts) Wrap(address, version, folder string) {
	h.t.Helper()
	h.change(address, version, func(_ *release, _ *repository, c *commit) { c.folder = &folder })
}

// ServeArchive replaces the archive of a version's commit.
func (h *Hosts) ServeArchive(address, version string, archive []byte) {
	h.t.Helper()
	h.change(address, version, func(_ *release, _ *repository, c *commit) { c.archive = archive })
}

// MoveRepository moves a version to another repository of the same forge, which has
// the same commit. The repository before stays.
func (h *Hosts) MoveRepository(address, version, to string) {
	h.t.Helper()
	h.change(address, version, func(r *release, from *repository, c *commit) {
		repo := h.repository(to, from.forge)
		repo.tags[r.Tag], repo.head = from.tags[r.Tag], c
		repo.commits = append(repo.commits, c)
		r.Repository = to
	})
}

// Remove removes a version from the registry. Its repository stays.
func (h *Hosts) Remove(address, version string) {
	h.t.Helper()
	h.change(address, version, func(r *release, _ *repository, _ *commit) { r.removed = true })
}

// Locate makes the registry answer any text as a version's location.
func (h *Hosts) Locate(address, version, location string) {
	h.t.Helper()
	h.change(address, version, func(r *release, _ *repository, _ *commit) { r.location = location })
}

// Commit returns the commit of a version's tag.
func (h *Hosts) Commit(address, version string) (id string) {
	h.t.Helper()
	h.change(address, version, func(_ *release, _ *repository, c *commit) { id = c.id })
	return id
}

// Location returns where the registry answers that a version is.
func (h *Hosts) Location(address, version string) (location string) {
	h.t.Helper()
	h.change(address, version, func(r *release, _ *repository, _ *commit) { location = h.locate(r) })
	return location
}

// locate returns the location of a version. The caller has locked h.
func (h *Hosts) locate(r *release) string {
	if r.location != "" {
		return r.location
	}
	repo := h.repositories[r.Repository]
	c := repo.tags[r.Tag].commit
	base := "https://" + h.Host
	if h.PublicNames {
		base = "https://" + forges[repo.forge].host
	}
	if r.Archive {
		return base + repo.archivePath(c) + subfolder(path.Join(c.wrapped(repo), r.Folder)) + "?archive=tar.gz"
	}
	ref := r.Tag
	if r.ByCommit {
		ref = c.id
	}
	return "git::" + base + "/" + r.Repository + subfolder(r.Folder) + "?ref=" + ref
}

func subfolder(folder string) string {
	if folder == "" {
		return ""
	}
	return "//" + folder
}

// answerRegistry returns what answers a request to the registry, or nil. The caller
// has locked h.
func (h *Hosts) answerRegistry(r *http.Request) http.HandlerFunc {
	if r.URL.Path == "/.well-known/terraform.json" {
		return document(map[string]any{"modules.v1": "/v1/modules/"})
	}
	if address, found := strings.CutPrefix(r.URL.Path, "/registry/docs/modules/"); found {
		return h.times(strings.TrimSuffix(address, "/index.json"))
	}
	rest, found := strings.CutPrefix(r.URL.Path, "/v1/modules/")
	parts := strings.Split(rest, "/")
	if !found || len(parts) < 4 {
		return nil
	}
	address := strings.Join(parts[:3], "/")
	switch is := h.find(address, parts[3]); {
	case len(parts) == 4 && parts[3] == "versions":
		return h.versions(address)
	case is == nil:
		return nil
	case len(parts) == 4 && !is.Published.IsZero():
		return document(map[string]any{
			"id": rest, "namespace": parts[0], "name": parts[1], "provider": parts[2], "version": is.Version,
			"tag": is.Tag, "source": "https://" + forges[is.Forge].host + "/" + is.Repository, "published_at": is.Published,
		})
	case len(parts) == 5 && parts[4] == "download":
		location := h.locate(is)
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Terraform-Get", location)
			w.WriteHeader(http.StatusNoContent)
		}
	}
	return nil
}

// versions answers the versions of a module, or is nil.
func (h *Hosts) versions(address string) http.HandlerFunc {
	var versions []any
	for _, r := range h.releases {
		if strings.EqualFold(r.Address, address) && !r.removed {
			versions = append(versions, map[string]any{"version": r.Version})
		}
	}
	if versions == nil {
		return nil
	}
	return document(map[string]any{"modules": []any{map[string]any{"source": address, "versions": versions}}})
}

// times answers the publication times of a module as api.opentofu.org does, or is
// nil.
func (h *Hosts) times(address string) http.HandlerFunc {
	var versions []any
	for _, r := range h.releases {
		if strings.EqualFold(r.Address, address) && !r.removed && !r.Published.IsZero() {
			versions = append(versions, map[string]any{"id": r.Tag, "published": r.Published})
		}
	}
	if versions == nil {
		return nil
	}
	return document(map[string]any{"versions": versions})
}

func document(body map[string]any) http.HandlerFunc {
	text, err := json.Marshal(body)
	return func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}
}

// Application returns a configuration that calls modules by short sources. It calls
// each module, and each folder in its folder modules, that has a main.tf.
func Application(modules ...Module) string {
	var text strings.Builder
	for i, m := range modules {
		root := cmp.Or(m.Folder, ".")
		for _, name := range slices.Sorted(maps.Keys(m.Files)) {
			label, source := fmt.Sprintf("m%d", i), m.Address
			switch dir := path.Dir(name); {
			case path.Base(name) != "main.tf":
				continue
			case dir == root:
			case path.Dir(dir) == path.Join(root, "modules"):
				label, source = label+"_"+path.Base(dir), source+"//modules/"+path.Base(dir)
			default:
				continue
			}
			fmt.Fprintf(&text, "module %q {\n  source  = %q\n  version = %q\n}\n", label, source, cmp.Or(m.Version, "1.0.0"))
		}
	}
	return text.String()
}
