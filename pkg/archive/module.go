package archive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/safehcl"
)

// Module is what ReadModule found.
type Module struct {
	// SHA256 of the archive, in lower-case hexadecimal.
	SHA256 string
	// ContentSHA256 of the uncompressed tar. It tells whether two archives hold the same, since gzip's bytes may differ
	// between releases of a compressor.
	ContentSHA256 string
	// Size of the archive in bytes.
	Size  int64
	Files []File
}

// Folders returns the folders that hold configuration and so can be a source of a
// module block: "." for the root, and those below modules/.
func (m Module) Folders() []string { return Folders(m.Files) }

// Folders is [Module.Folders] for the files of a module.
func Folders(files []File) (folders []string) {
	for _, f := range files {
		if isConfig(f.Path) {
			folders = append(folders, path.Dir(f.Path))
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// The bounds of configuration: of one file and of all in bytes, and of their number.
const (
	maxConfig      = 1 << 20
	maxConfigs     = 16 << 20
	maxConfigFiles = 10_000
)

// ReadModule reads a packed module to its end and verifies it: that it unpacks
// within its own folder, that there is configuration at its root or below modules/,
// and that all of it parses. Errors that lie in the archive are registry.ErrInvalid
// and name the file, and the line where there is one. It ends with the error of ctx
// within about a second after ctx does.
func ReadModule(ctx context.Context, archive io.Reader) (Module, error) {
	packed := digest{ctx: ctx, r: archive, hash: sha256.New()}
	m, err := readModule(ctx, &packed)
	if err != nil {
		return Module{}, err
	}
	m.SHA256, m.Size = packed.sum(), packed.n
	return m, nil
}

// digest counts and hashes what is read through it, until its context ends.
type digest struct {
	ctx  context.Context //nolint:containedctx // io.Reader has none, and it is that of the one who reads
	r    io.Reader
	hash hash.Hash
	n    int64
}

func (d *digest) Read(p []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := d.r.Read(p)
	d.hash.Write(p[:n])
	d.n += int64(n)
	return n, err
}

func (d *digest) sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }

func readModule(ctx context.Context, packed io.Reader) (Module, error) {
	unzipped, err := gzip.NewReader(packed)
	if ctx.Err() != nil {
		return Module{}, ctx.Err()
	}
	if err != nil {
		return Module{}, fmt.Errorf("%w module archive: %w", registry.ErrInvalid, err)
	}
	// One byte beyond the bound tells that it was passed. Headers and padding have room beside the files.
	most := maxSize + maxFiles*2048
	content := digest{ctx: ctx, r: io.LimitReader(unzipped, most+1), hash: sha256.New()}
	m, configs, err := readTar(&content)
	if err == nil {
		_, err = io.Copy(io.Discard, &content) // what follows the tar's end is content too
	}
	if content.n > most {
		return Module{}, fmt.Errorf("%w module archive: it unpacks to more than %s", registry.ErrInvalid, shownSize(maxSize))
	}
	if err != nil {
		if !errors.Is(err, registry.ErrInvalid) && ctx.Err() == nil {
			err = fmt.Errorf("%w module archive: %w", registry.ErrInvalid, err)
		}
		return Module{}, err
	}
	m.ContentSHA256 = content.sum()
	return m, checkConfigs(ctx, m.Files, configs)
}

// readTar returns the files of a tar, and what those that may be configuration hold.
func readTar(r io.Reader) (Module, map[string][]byte, error) {
	var m Module
	configs := make(map[string][]byte)
	var total, config int64
	var paths []string
	var named int // bytes of paths
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return m, configs, checkModulePaths(paths)
		}
		if err != nil {
			return Module{}, nil, err
		}
		entry, err := checkHeader(header)
		if err != nil {
			return Module{}, nil, err
		}
		paths, named = append(paths, entry), named+len(entry)
		if len(paths) > 2*maxFiles || named > maxPaths {
			return Module{}, nil, fmt.Errorf("%w module archive: it has more than %d files and folders, or %s of paths",
				registry.ErrInvalid, 2*maxFiles, shownSize(maxPaths))
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if header.Typeflag != tar.TypeReg {
			return Module{}, nil, fmt.Errorf("%w module archive: %s is not a plain file", registry.ErrInvalid, header.Name)
		}
		f := File{Path: header.Name, Size: header.Size, Executable: header.Mode&0o111 != 0}
		m.Files = append(m.Files, f)
		if total += f.Size; len(m.Files) > maxFiles || total > maxSize {
			return Module{}, nil, fmt.Errorf("%w module archive: it has more than %d files or %s",
				registry.ErrInvalid, maxFiles, shownSize(maxSize))
		}
		if isConfig(f.Path) {
			if config += f.Size; f.Size > maxConfig {
				return Module{}, nil, fmt.Errorf("%w module: %s has more than %d MiB: move long texts to files that file() or templatefile() reads", registry.ErrInvalid, f.Path, maxConfig>>20)
			}
			if config > maxConfigs {
				return Module{}, nil, fmt.Errorf("%w module: its configuration has more than %d MiB: split the module", registry.ErrInvalid, maxConfigs>>20)
			}
			if configs[f.Path], err = io.ReadAll(in); err != nil {
				return Module{}, nil, err
			}
		}
	}
}

// isConfig says whether a file is configuration that an installed module may consist of: in a module's own folder, and
// by its name what the clients read.
func isConfig(p string) bool {
	dir, name := path.Dir(p), path.Base(p)
	if dir != "." && !strings.HasPrefix(dir, "modules/") {
		return false
	}
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#") {
		return false
	}
	return hasExtension(name)
}

// hasExtension says whether a file's name ends as configuration's does.
func hasExtension(name string) bool {
	return slices.ContainsFunc([]string{".tf", ".tf.json", ".tofu", ".tofu.json"}, func(e string) bool { return strings.HasSuffix(name, e) })
}

// checkConfigs checks that there is configuration, and that it parses. It returns
// the first problem of each file.
//
// Many modules have it only below modules/. Every depth there counts, because
// clients install //modules/a/b as they install //modules/a.
func checkConfigs(ctx context.Context, files []File, configs map[string][]byte) error {
	names := slices.Sorted(maps.Keys(configs))
	if len(names) == 0 {
		return errNoConfig(files)
	}
	if len(configs) > maxConfigFiles {
		return fmt.Errorf("%w module: it has more than %d files of configuration", registry.ErrInvalid, maxConfigFiles)
	}
	var parser safehcl.Parser
	var problems registry.Problems
	for _, name := range names {
		// OpenTofu reads a .tofu file in place of the .tf file of the same name.
		if _, hidden := configs[tofuTwin(name)]; hidden {
			continue
		}
		err := checkConfig(ctx, &parser, name, configs[name])
		if err := problems.Add(err); err != nil {
			return err
		}
		if problem, ok := errors.AsType[*safehcl.Error](err); ok && problem.Line == 0 {
			break // the bounds of all files would refuse the others too
		}
	}
	return problems.Err("")
}

// tofuTwin returns the name of the file that OpenTofu reads in place of a .tf or .tf.json file.
func tofuTwin(p string) string {
	if base, ok := strings.CutSuffix(p, ".tf"); ok {
		return base + ".tofu"
	}
	if base, ok := strings.CutSuffix(p, ".tf.json"); ok {
		return base + ".tofu.json"
	}
	return ""
}

// errNoConfig says what to do about files without configuration where it must be.
func errNoConfig(files []File) error {
	err := fmt.Errorf("%w module: there is no .tf or .tofu file at its root or below modules/", registry.ErrInvalid)
	for _, f := range files {
		// Examples and tests use a module that is elsewhere.
		top, _, below := strings.Cut(f.Path, "/")
		if below && hasExtension(f.Path) && !slices.Contains([]string{"example", "examples", "test", "tests"}, top) {
			return fmt.Errorf("%w: publish the folder that holds them, such as %s", err, path.Dir(f.Path))
		}
	}
	if slices.ContainsFunc(files, func(f File) bool { return f.Path == ".terraformignore" }) {
		return fmt.Errorf("%w: .terraformignore may leave them out", err)
	}
	return fmt.Errorf("%w: publish the folder that holds them", err)
}
