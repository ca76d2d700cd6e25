package archive

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

// Options of Pack.
type Options struct {
	// Include has patterns, as .terraformignore has them, of files to pack although they are left out otherwise.
	Include []string
	// Skip is a folder to leave out if it is within the module, such as where the registry keeps its data.
	Skip string
	// Progress receives how much of the folder is packed. If nil, that is dropped.
	Progress progress.Reporter
}

// Excluded is a file that was not packed because it may hold a secret, or because
// .terraformignore names it.
type Excluded struct {
	// Path of a file, or of a folder with a slash at its end.
	Path   string `json:"path"`
	Reason string `json:"reason"`
	// Pattern that it matches; empty if it was left out for its content.
	Pattern string `json:"pattern,omitempty"`
	// Ignored reports that .terraformignore names it.
	Ignored bool `json:"ignored,omitempty"`
	// NamedBy is the file and the line of configuration that name it, if there
	// is one.
	NamedBy string `json:"named_by,omitempty"`
}

// String returns PATH, which REASON.
func (l Excluded) String() string { return l.Path + ", which " + l.Reason }

// Pack writes the module in dir to w as a gzip-compressed tar with the module at its root: files in the order of their
// paths, with fixed times, owners and modes. Folders have no entries of their own, and links become what they lead to.
//
// It honours .terraformignore in dir. It returns what it left out because of that
// file, and because it may hold secrets. Errors that lie in the module are
// registry.ErrInvalid and name the file.
func Pack(ctx context.Context, dir string, options Options, w io.Writer) ([]Excluded, error) {
	shown := filepath.Clean(dir)
	reporter := progress.Or(options.Progress)
	reporter.Step("reading " + shown)
	refused := func(err error) error {
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			err = failed.Err // the rest is a system call, and the path again
		}
		return fmt.Errorf("%w module folder %s: %w", registry.ErrInvalid, shown, err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, refused(err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, refused(err)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, refused(errors.New("it is a file"))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, refused(err)
	}
	defer root.Close()
	p := packer{root: root, dir: dir}
	if err := p.load(options); err != nil {
		return nil, err
	}
	if err := p.collect(ctx, ".", ".", nil); err != nil {
		return nil, err
	}
	slices.SortFunc(p.files, func(a, b packed) int { return cmp.Compare(a.Path, b.Path) })
	if err := p.checkPaths(); err != nil {
		return nil, err
	}
	if err := p.findNamed(ctx); err != nil {
		return nil, err
	}
	moved, end := reporter.Transfer("packing "+shown, p.total)
	defer end()
	return p.excluded, p.write(ctx, w, moved)
}

// checkPaths checks the files' own paths first, because these are what to rename,
// and then the paths in the archive. Links make the two differ.
func (p *packer) checkPaths() error {
	var own, packed []string
	for _, f := range p.files {
		own, packed = append(own, f.from), append(packed, f.Path)
	}
	slices.Sort(own)
	for _, paths := range [][]string{slices.Compact(own), packed} {
		if err := checkPaths(paths); err != nil {
			return fmt.Errorf("%w module: %w: %s", registry.ErrInvalid, err, renameOneInModule)
		}
	}
	return nil
}

type packer struct {
	root     *os.Root
	dir      string
	rules    ignore
	asked    []rule // of Options.Include
	skip     string // of Options.Skip, relative to dir
	files    []packed
	total    int64 // bytes of files
	excluded []Excluded
}

// packed is a file of the archive, and the path of the file it is made from.
type packed struct {
	File
	from string
}

func (p *packer) load(options Options) error {
	f, err := p.root.Open(".terraformignore")
	switch {
	case err == nil:
		defer f.Close()
		own, err := parseIgnore(io.LimitReader(f, 1<<20))
		if err != nil {
			return err
		}
		p.rules = own
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w .terraformignore: %w", registry.ErrInvalid, err)
	}
	p.rules = append(p.rules, always...)
	for _, pattern := range options.Include {
		r, err := parseRule(pattern)
		if err != nil {
			return err
		}
		if r.include {
			return fmt.Errorf("%w pattern %q: what is to be included has no exclamation mark", registry.ErrInvalid, pattern)
		}
		r.include = true
		p.asked = append(p.asked, r)
	}
	p.rules = append(p.rules, p.asked...)
	if options.Skip != "" {
		p.skip = within(p.dir, options.Skip)
	}
	return nil
}

// Unmatched returns the patterns of [Options.Include] that match none of the packed
// files, nor a folder that these are in.
func Unmatched(include []string, files []File) (unmatched []string) {
	for _, pattern := range include {
		r, err := parseRule(pattern)
		if err == nil && !slices.ContainsFunc(files, func(f File) bool { return r.matches(f.Path, false) }) {
			unmatched = append(unmatched, pattern)
		}
	}
	return unmatched
}

// within returns the slash-separated path of a folder below dir, or an empty one.
func within(dir, folder string) string {
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "" // it does not exist
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return ""
	}
	relative, err := filepath.Rel(dir, folder)
	if err != nil || !filepath.IsLocal(relative) {
		return ""
	}
	return filepath.ToSlash(relative)
}

// collect finds what is to be packed in a folder. Where a link led there, real is the folder's own path; within holds
// the folders above, by which a link that leads back into one of them is found.
func (p *packer) collect(ctx context.Context, dir, real string, within []fs.FileInfo) error {
	info, err := p.root.Stat(real)
	if err != nil {
		return fmt.Errorf("%w module: %w", registry.ErrInvalid, err)
	}
	if slices.ContainsFunc(within, func(above fs.FileInfo) bool { return os.SameFile(above, info) }) {
		return fmt.Errorf("%w module: the symbolic link %s leads to a folder that it is in", registry.ErrInvalid, dir)
	}
	within = append(within[:len(within):len(within)], info)
	entries, err := fs.ReadDir(p.root.FS(), real)
	if err != nil {
		return fmt.Errorf("%w module: %w", registry.ErrInvalid, err)
	}
	if dir != "." && isRegistry(entries) {
		p.excluded = append(p.excluded, Excluded{Path: dir + "/", Reason: "is a registry's data"})
		return nil
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		name, target := path.Join(dir, e.Name()), path.Join(real, e.Name())
		if e.Type() != fs.ModeSymlink {
			err = p.visit(ctx, name, target, e.IsDir(), within)
		} else if r, excluded := p.rules.excludes(name, false); excluded {
			p.leave(r, name)
		} else {
			err = p.followLink(ctx, name, target, within)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// followLink packs what a link leads to under a name. Errors name the link by its
// own path, because the name may lead through another link.
func (p *packer) followLink(ctx context.Context, name, link string, within []fs.FileInfo) error {
	refuse := func(format string, args ...any) error {
		why := fmt.Errorf(format, args...)
		return fmt.Errorf("%w module: the symbolic link %s %w", registry.ErrInvalid, link, why)
	}
	// The root refuses what leads out of it, and what is absolute.
	info, err := p.root.Stat(link)
	if err != nil {
		if to, err := p.root.Readlink(link); err == nil && filepath.IsAbs(to) {
			return refuse("leads to an absolute path: make it relative, or leave out the link in .terraformignore")
		}
		return refuse("does not lead to something within the module: copy that in, " +
			"or leave out the link in .terraformignore")
	}
	target, err := filepath.EvalSymlinks(filepath.Join(p.dir, link))
	if err == nil {
		target, err = filepath.Rel(p.dir, target)
	}
	if err != nil {
		return refuse("cannot be followed: %w", err)
	}
	target = filepath.ToSlash(target)
	if _, excluded := p.rules.excludes(target, info.IsDir()); excluded {
		return refuse("leads to %s, which is left out: leave out the link too", target)
	}
	return p.visit(ctx, name, target, info.IsDir(), within)
}

// visit packs a folder or a file that lies at real under a name, unless a rule leaves it out.
func (p *packer) visit(ctx context.Context, name, real string, isDir bool, within []fs.FileInfo) error {
	if isDir {
		if real == p.skip {
			return nil
		}
		for _, folder := range []string{name, real} {
			if p.rules.prunes(folder) {
				r, _ := p.rules.excludes(folder, true)
				p.leave(r, name+"/")
				return nil
			}
		}
		return p.collect(ctx, name, real, within)
	}
	for _, file := range []string{name, real} {
		if r, excluded := p.rules.excludes(file, false); excluded {
			p.leave(r, name)
			return nil
		}
	}
	f, err := p.describe(name, real)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(p.asked, func(r rule) bool { return r.matches(name, false) }) {
		secret, err := p.holdsSecret(real)
		if err != nil {
			return err
		}
		if secret != "" {
			p.excluded = append(p.excluded, Excluded{Path: name, Reason: secret})
			return nil
		}
	}
	p.files = append(p.files, packed{f, real})
	if p.total += f.Size; p.total > maxSize || len(p.files) > maxFiles {
		return fmt.Errorf("%w module: it has more than %d files or %s: leave out in .terraformignore what the module "+
			"does not need", registry.ErrInvalid, maxFiles, shownSize(maxSize))
	}
	return nil
}

// leave records what a rule leaves out, unless that is what tools make, such as
// .git.
func (p *packer) leave(r rule, name string) {
	switch {
	case r.own:
		p.excluded = append(p.excluded, Excluded{
			Path: name, Reason: "is named by .terraformignore", Pattern: r.line, Ignored: true,
		})
	case r.secret:
		p.excluded = append(p.excluded, Excluded{Path: name, Reason: "may hold secrets", Pattern: r.line})
	}
}

func (p *packer) describe(name, real string) (File, error) {
	for _, path := range []string{real, name} {
		if err := checkPath(path); err != nil {
			return File{}, fmt.Errorf("%w path %s in the module: %w: %s",
				registry.ErrInvalid, quotePath(path), err, renameInModule)
		}
	}
	info, err := p.root.Stat(real)
	if err != nil {
		return File{}, fmt.Errorf("%w module: %w", registry.ErrInvalid, err)
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%w module: %s is neither a file nor a link: leave it out in .terraformignore",
			registry.ErrInvalid, real)
	}
	return File{Path: name, Size: info.Size(), Executable: info.Mode()&0o111 != 0}, nil
}

// isRegistry recognises the data of a local registry, whatever its folder is called; its keys are secret.
func isRegistry(entries []fs.DirEntry) bool {
	found := 0
	for _, e := range entries {
		if e.Name() == "larder.db" || e.Name() == "url.key" || e.Name() == "registry.id" {
			found++
		}
	}
	return found >= 2 // one of them may be lost
}

// holdsSecret recognises, by what they are, files that may have any name: a saved plan, which is a zip whose first file is
// tfplan, and a private key in PEM. It returns a reason to leave the file out, or nothing.
func (p *packer) holdsSecret(name string) (string, error) {
	f, err := p.root.Open(name)
	if err != nil {
		return "", fmt.Errorf("%w module: %w", registry.ErrInvalid, err)
	}
	defer f.Close()
	head := make([]byte, 128)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("%w module: %w", registry.ErrInvalid, err)
	}
	head = head[:n]
	if bytes.HasPrefix(head, []byte("PK\x03\x04")) && len(head) > 36 && string(head[30:36]) == "tfplan" {
		return "is a saved plan", nil
	}
	first, _, _ := bytes.Cut(bytes.TrimSpace(head), []byte("\n"))
	if bytes.HasPrefix(first, []byte("-----BEGIN ")) && bytes.Contains(first, []byte("PRIVATE KEY")) {
		return "is a private key", nil
	}
	return "", nil
}

// epoch is the time of everything in an archive.
var epoch = time.Unix(0, 0)

// write packs the files, and calls moved with how much it has read of them.
func (p *packer) write(ctx context.Context, w io.Writer, moved func(int64)) error {
	compressed := gzip.NewWriter(w)
	out := tar.NewWriter(compressed)
	for _, f := range p.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.add(out, f, moved); err != nil {
			return fmt.Errorf("packing %s: %w", f.Path, err)
		}
	}
	if err := errors.Join(out.Close(), compressed.Close()); err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	return nil
}

func (p *packer) add(out *tar.Writer, f packed, moved func(int64)) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: f.Size, Mode: 0o644, ModTime: epoch}
	if f.Executable {
		header.Mode = 0o755
	}
	in, err := p.root.Open(f.from)
	if err != nil {
		return err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
		return fmt.Errorf("%w module: the file changed while it was packed: try again", registry.ErrInvalid)
	}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(out, progress.Reader(in, moved))
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != f.Size {
		return fmt.Errorf("%w module: the file changed while it was packed: try again", registry.ErrInvalid)
	}
	return err
}
