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
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

// Options are the options of [Pack].
type Options struct {
	// Include has patterns in the syntax of .terraformignore. Pack includes
	// matching files that it would exclude otherwise.
	Include []string
	// AllowSecrets are the paths of files and folders that may have secrets. Pack
	// includes a file with one of these paths even if its content is a secret.
	AllowSecrets []string
	// Skip is a folder to exclude if it is within the module, such as the
	// registry's data folder.
	Skip string
	// Existing reports whether the module exists elsewhere. Pack then excludes files
	// that cannot be packed, unless they are configuration.
	Existing bool
	// IgnoreProblem receives what is wrong with .terraformignore, whose patterns may
	// then exclude too little. If nil, Pack returns it.
	IgnoreProblem func(error)
	// Progress receives the progress of packing. If nil, progress is not
	// reported.
	Progress progress.Reporter
}

// Excluded is a file that was not packed because it may hold a secret or
// because .terraformignore excludes it.
type Excluded struct {
	// Path of a file, or of a folder with a trailing slash.
	Path   string `json:"path"`
	Reason string `json:"reason"`
	// Pattern that matches the file. It is empty if the file was excluded for its
	// content.
	Pattern string `json:"pattern,omitempty"`
	// Ignored reports whether .terraformignore excludes the file.
	Ignored bool `json:"ignored,omitempty"`
	// NamedBy is the file and the line of configuration that name the file, if
	// any.
	NamedBy string `json:"named_by,omitempty"`
}

// String returns PATH, which REASON.
func (e Excluded) String() string { return e.Path + ", which " + e.Reason }

// Pack writes the module in dir to w as a gzip-compressed tar with the module
// at its root. Files are sorted by path and have fixed times, owners and modes.
// Folders have no entries. Symbolic links are replaced by their targets.
//
// Pack applies .terraformignore in dir. It returns the files that it excluded
// because of that file or because they may contain secrets. If the module is
// invalid, the error is registry.ErrInvalid and names the file.
func Pack(ctx context.Context, dir string, options Options, w io.Writer) ([]Excluded, error) {
	shown := filepath.Clean(dir)
	reporter := progress.Or(options.Progress)
	reporter.Step("reading " + shown)
	invalidFolder := func(err error) error {
		return fmt.Errorf("%w module folder %s: %w", registry.ErrInvalid, shown, withReason(err))
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, invalidFolder(err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, invalidFolder(err)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, invalidFolder(errors.New("it is a file"))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, invalidFolder(err)
	}
	defer root.Close()
	p := packer{root: root, dir: dir, existing: options.Existing}
	if err := p.load(options); err != nil {
		return nil, err
	}
	if err := p.collect(ctx, ".", ".", nil); err != nil {
		return nil, err
	}
	slices.SortFunc(p.files, func(a, b packedFile) int { return cmp.Compare(a.Path, b.Path) })
	if err := options.ignoreProblem(p.checkSeparators()); err != nil {
		return nil, err
	}
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

// withReason replaces the text of a file error by its [regularfile.Reason].
func withReason(err error) error {
	return registry.Errorf(err, "%s", regularfile.Reason(err))
}

// checkPaths checks the paths of the source files first, because those are the
// names that the user can change. Then it checks the paths in the archive,
// which differ below links.
func (p *packer) checkPaths() error {
	for {
		var own, packed []string
		for _, f := range p.files {
			own, packed = append(own, f.from), append(packed, f.Path)
		}
		slices.Sort(own)
		first, second, err := findConflict(slices.Compact(own))
		if err == nil {
			first, second, err = findConflict(packed)
		}
		if err == nil {
			return nil
		}
		if isConfig(second) {
			second = first
		}
		if err := p.leave(second, registry.WithHint(invalidModule("%w", err), renameOneInModule)); err != nil {
			return err
		}
		p.files = slices.DeleteFunc(p.files, func(f packedFile) bool { return f.from == second || f.Path == second })
	}
}

// maxLeft is the maximum number of files that Pack excludes because they cannot be
// packed.
const maxLeft = 100

// leave excludes a file or folder that cannot be packed because of err, if
// [Options.Existing] allows that. Otherwise it returns err.
func (p *packer) leave(name string, err error) error {
	if !p.existing || !errors.Is(err, registry.ErrInvalid) || isConfig(name) {
		return err
	}
	if p.left++; p.left > maxLeft || p.total > maxSize || len(p.files) > maxFiles {
		return err
	}
	reason := strings.TrimPrefix(err.Error(), registry.ErrInvalid.Error()+" ")
	p.excluded = append(p.excluded, Excluded{Path: name, Reason: "cannot be packed (" + reason + ")"})
	return nil
}

type packer struct {
	root     *os.Root
	dir      string
	rules    ignore
	included []rule   // of Options.Include
	allowed  []string // Options.AllowSecrets
	skip     string   // of Options.Skip, relative to dir
	files    []packedFile
	total    int64 // bytes of files
	excluded []Excluded
	existing bool // Options.Existing
	left     int  // files that could not be packed
}

// packedFile is a file of the archive with the path of its source file.
type packedFile struct {
	File
	from string
}

func (p *packer) load(options Options) error {
	own, err := p.readIgnore()
	if err := options.ignoreProblem(err); err != nil {
		return err
	}
	p.rules = append(own, always...)
	for _, pattern := range options.Include {
		r, err := parseRule(pattern)
		if err != nil {
			return err
		}
		if r.include {
			return fmt.Errorf("%w pattern %q: a pattern to include has no exclamation mark", registry.ErrInvalid, pattern)
		}
		r.include = true
		p.included = append(p.included, r)
	}
	p.rules = append(p.rules, p.included...)
	p.allowed = options.AllowSecrets
	if options.Skip != "" {
		p.skip = within(p.dir, options.Skip)
	}
	return nil
}

// ignoreProblem returns err, or passes it on.
func (o Options) ignoreProblem(err error) error {
	if err != nil && o.IgnoreProblem != nil {
		o.IgnoreProblem(err)
		return nil
	}
	return err
}

// readIgnore returns the rules of .terraformignore, if there is one.
func (p *packer) readIgnore() ([]rule, error) {
	const maxIgnore = 1 << 20 // bytes
	f, err := p.root.Open(ignoreFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, maxIgnore+1))
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", registry.ErrInvalid, ignoreFile, withReason(err))
	}
	if len(text) > maxIgnore {
		return nil, fmt.Errorf("%w %s: it has more than %s", registry.ErrInvalid, ignoreFile, shownSize(maxIgnore))
	}
	return parseIgnore(text)
}

// Unmatched returns the patterns of [Options.Include] that match neither a
// packed file nor a folder that contains one.
func Unmatched(include []string, files []File) (unmatched []string) {
	for _, pattern := range include {
		r, err := parseRule(pattern)
		if err == nil && !slices.ContainsFunc(files, func(f File) bool { return r.matches(f.Path, false) }) {
			unmatched = append(unmatched, pattern)
		}
	}
	return unmatched
}

// within returns the slash-separated path of folder relative to dir. It is
// empty if folder is not below dir.
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

// collect finds the files of a folder. dir is the path in the archive. real is
// the path of the source folder, which differs below links. within has the
// folders above, so that collect detects links that lead back into one of them.
func (p *packer) collect(ctx context.Context, dir, real string, within []fs.FileInfo) error {
	info, err := p.root.Stat(real)
	if err != nil {
		return invalidModule("%w", regularfile.Unreadable(real, err))
	}
	if slices.ContainsFunc(within, func(above fs.FileInfo) bool { return os.SameFile(above, info) }) {
		return invalidModule("the symbolic link %s leads to a folder that contains it", dir)
	}
	within = append(within[:len(within):len(within)], info)
	entries, err := fs.ReadDir(p.root.FS(), real)
	if err != nil {
		return invalidModule("%w", regularfile.Unreadable(real, err))
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
			p.exclude(r, name)
		} else {
			err = p.leave(name, p.followLink(ctx, name, target, within))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// followLink packs the target of a link under a name. Errors name the link by
// its own path, because the name may lead through another link.
func (p *packer) followLink(ctx context.Context, name, link string, within []fs.FileInfo) error {
	invalidLink := func(format string, args ...any) error {
		return invalidModule("the symbolic link %s %w", link, fmt.Errorf(format, args...))
	}
	// The root rejects absolute paths and paths that lead out of it.
	info, err := p.root.Stat(link)
	if err != nil {
		if to, err := p.root.Readlink(link); err == nil && filepath.IsAbs(to) {
			return registry.WithHint(invalidLink("leads to an absolute path"),
				"Make it relative, or exclude the link in .terraformignore.")
		}
		return registry.WithHint(invalidLink("does not lead to a file or folder within the module"),
			"Copy its target into the module, or exclude the link in .terraformignore.")
	}
	target, err := filepath.EvalSymlinks(filepath.Join(p.dir, link))
	if err == nil {
		target, err = filepath.Rel(p.dir, target)
	}
	if err != nil {
		return invalidLink("cannot be resolved: %w", withReason(err))
	}
	target = filepath.ToSlash(target)
	if _, excluded := p.rules.excludes(target, info.IsDir()); excluded {
		return registry.WithHint(invalidLink("leads to %s, which is excluded", target), "Exclude the link too.")
	}
	return p.visit(ctx, name, target, info.IsDir(), within)
}

// visit packs a folder or a file at real under a name, unless a rule excludes
// it.
func (p *packer) visit(ctx context.Context, name, real string, isDir bool, within []fs.FileInfo) error {
	if isDir {
		if real == p.skip {
			return nil
		}
		for _, folder := range []string{name, real} {
			if p.rules.prunes(folder) {
				r, _ := p.rules.excludes(folder, true)
				p.exclude(r, name+"/")
				return nil
			}
		}
		return p.collect(ctx, name, real, within)
	}
	for _, file := range []string{name, real} {
		if r, excluded := p.rules.excludes(file, false); excluded {
			p.exclude(r, name)
			return nil
		}
	}
	f, err := p.describe(name, real)
	if err != nil {
		return p.leave(name, err)
	}
	isIncluded := slices.ContainsFunc(p.included, func(r rule) bool { return r.matches(name, false) })
	if !isIncluded && !slices.Contains(p.allowed, name) {
		secret, err := p.findSecret(real)
		if err != nil {
			return err
		}
		if secret != "" {
			p.excluded = append(p.excluded, Excluded{Path: name, Reason: secret})
			return nil
		}
	}
	p.files = append(p.files, packedFile{f, real})
	if p.total += f.Size; p.total > maxSize || len(p.files) > maxFiles {
		return registry.WithHint(
			invalidModule("it has more than %d files or more than %s", maxFiles, shownSize(maxSize)),
			"Exclude files that the module does not need in .terraformignore.")
	}
	return nil
}

// exclude records a file that a rule excludes. It does not record files that
// tools create, such as .git.
func (p *packer) exclude(r rule, name string) {
	switch {
	case r.own:
		p.excluded = append(p.excluded, Excluded{
			Path: name, Reason: "is named by .terraformignore", Pattern: r.line, Ignored: true,
		})
	case r.secret:
		p.excluded = append(p.excluded, Excluded{Path: name, Reason: "may contain secrets", Pattern: r.line})
	}
}

func (p *packer) describe(name, real string) (File, error) {
	for _, path := range []string{real, name} {
		if err := checkPath(path); err != nil {
			err := fmt.Errorf("%w path %s in the module: %w", registry.ErrInvalid, quotePath(path), err)
			return File{}, registry.WithHint(err, renameInModule)
		}
	}
	info, err := p.root.Stat(real)
	if err != nil {
		return File{}, invalidModule("%w", regularfile.Unreadable(real, err))
	}
	if !info.Mode().IsRegular() {
		return File{}, registry.WithHint(invalidModule("%s is not a regular file or a link", real),
			"Exclude it in .terraformignore.")
	}
	return File{Path: name, Size: info.Size(), Executable: info.Mode()&0o111 != 0}, nil
}

// isRegistry reports whether a folder has the data of a local registry. It does
// not depend on the folder's name. The data includes secret keys.
func isRegistry(entries []fs.DirEntry) bool {
	found := 0
	for _, e := range entries {
		if e.Name() == "larder.db" || e.Name() == "url.key" || e.Name() == "registry.id" {
			found++
		}
	}
	return found >= 2 // one of them may be missing
}

// findSecret reads the beginning of a file and returns why the file must be
// excluded, or an empty string. It detects saved plans and private keys in PEM
// under any name. A saved plan is a zip with tfplan as its first file.
func (p *packer) findSecret(name string) (string, error) {
	f, err := p.root.Open(name)
	if err != nil {
		return "", invalidModule("%w", regularfile.Unreadable(name, err))
	}
	defer f.Close()
	head := make([]byte, 128)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", invalidModule("%w", regularfile.Unreadable(name, err))
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

// epoch is the modification time of all entries.
var epoch = time.Unix(0, 0)

// write packs the files. It calls moved with the number of bytes that it has
// read.
func (p *packer) write(ctx context.Context, w io.Writer, moved func(int64)) error {
	compressed := gzip.NewWriter(w)
	out := tar.NewWriter(compressed)
	for _, f := range p.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.add(out, f, moved); err != nil {
			return fmt.Errorf("cannot pack %s: %w", f.Path, withReason(err))
		}
	}
	if err := errors.Join(out.Close(), compressed.Close()); err != nil {
		return fmt.Errorf("cannot write the archive: %w", err)
	}
	return nil
}

func (p *packer) add(out *tar.Writer, f packedFile, moved func(int64)) error {
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
		return errChanged()
	}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(out, progress.Reader(in, moved))
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != f.Size {
		return errChanged()
	}
	return err
}

func errChanged() error {
	return registry.WithHint(invalidModule("the file changed while it was packed"), "Try again.")
}
