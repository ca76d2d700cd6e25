package archive

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/larder-registry/larder/pkg/content/configuration"
	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/content/secrets"
	"github.com/larder-registry/larder/pkg/registry"
)

// Module is the result of [ReadModule] and [ScanModule].
type Module struct {
	// SHA256 of the archive, in lower-case hexadecimal.
	SHA256 string
	// ContentSHA256 of the uncompressed tar, in lower-case hexadecimal. Compare
	// it to find out whether two archives have the same content, because the
	// output of gzip differs between releases of a compressor.
	ContentSHA256 string
	// Size of the archive in bytes.
	Size  int64
	Files []File
	// Sources are the files that document the module, by path. They are
	// configuration and READMEs in the root, and in the folders directly below
	// modules/ and examples/. The value is nil if a file exceeds a limit.
	Sources map[string][]byte
	// Contents are the files that people may want to read. They share the bytes
	// of Sources.
	Contents Contents
	// Calls are the module blocks whose source is a path, by the folder of their
	// configuration.
	Calls map[string][]Call
	// Problems are why no client can load a folder. Its configuration does not parse, no
	// client accepts it, or it calls a folder that is missing. Each is
	// registry.ErrInvalid with the file and the line. They do not make the module
	// invalid. Notes describe what only one client or a later release can load.
	Problems []error
	Notes    []string
	// Secrets are the secrets that [ScanModule] found. They do not make the module
	// invalid.
	Secrets []secrets.Finding
}

// Folders returns the folders with configuration that a module block can use as
// a source: "." for the root, and folders below modules/.
func (m Module) Folders() []string { return Folders(m.Files) }

// Folders is like [Module.Folders] for a list of files.
func Folders(files []File) (folders []string) {
	for _, f := range files {
		if isConfig(f.Path) {
			folders = append(folders, path.Dir(f.Path))
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// ReadModule reads a packed module to its end and verifies it. The module must
// unpack within its own folder, and have configuration at its root or below
// modules/.
//
// An invalid archive is registry.ErrInvalid with the name of the file and, if
// known, the line. ReadModule returns the error of ctx within about a second
// after ctx ends.
func ReadModule(ctx context.Context, archive io.Reader) (Module, error) {
	return ScanModule(ctx, archive, nil)
}

// ScanModule is like [ReadModule], and also finds the secrets of the module with
// a scanner. If the archive is invalid, the result has the problems and the
// secrets that it found.
func ScanModule(ctx context.Context, archive io.Reader, scanner *secrets.Scanner) (Module, error) {
	packed := digest{ctx: ctx, r: archive, hash: sha256.New()}
	m, err := readModule(ctx, &packed, scanner)
	if scanner != nil {
		m.Secrets = scanner.Found()
	}
	if err != nil {
		return Module{Problems: m.Problems, Secrets: m.Secrets}, err
	}
	m.SHA256, m.Size = packed.sum(), packed.n
	return m, nil
}

// digest counts and hashes the bytes read through it. It fails when its context
// ends.
type digest struct {
	ctx  context.Context //nolint:containedctx // io.Reader has no parameter for it; it is the caller's
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

func readModule(ctx context.Context, packed io.Reader, scanner *secrets.Scanner) (Module, error) {
	unzipped, err := gzip.NewReader(packed)
	if ctx.Err() != nil {
		return Module{}, ctx.Err()
	}
	if err != nil {
		return Module{}, invalidArchive("%w", err)
	}
	// Reading one byte more than the limit shows that it was exceeded. The limit
	// includes headers and padding.
	most := maxSize + maxFiles*2048
	content := digest{ctx: ctx, r: io.LimitReader(unzipped, most+1), hash: sha256.New()}
	m, s, err := readTar(&content, scanner)
	if err == nil {
		_, err = io.Copy(io.Discard, &content) // bytes after the tar's end are part of the content sum
	}
	if content.n > most {
		return Module{}, invalidArchive("it unpacks to more than %s", shownSize(maxSize))
	}
	if err != nil {
		if !errors.Is(err, registry.ErrInvalid) && ctx.Err() == nil {
			err = invalidArchive("%w", err)
		}
		return Module{}, err
	}
	m.ContentSHA256 = content.sum()
	m.Sources, m.Contents = s.documented(), s.contents.Contents
	return m, m.checkConfigs(ctx, s.configs)
}

func readTar(r io.Reader, scanner *secrets.Scanner) (Module, *sources, error) {
	var m Module
	s := newSources()
	var total int64
	var paths []string
	var named int // bytes of paths
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return m, s, checkModulePaths(paths)
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
			return Module{}, nil, invalidArchive("it has more than %d files and folders, or more than %s of paths",
				2*maxFiles, shownSize(maxPaths))
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if header.Typeflag != tar.TypeReg {
			return Module{}, nil, invalidArchive("%s is not a regular file", header.Name)
		}
		f := File{Path: header.Name, Size: header.Size, Executable: header.Mode&0o111 != 0}
		m.Files = append(m.Files, f)
		if total += f.Size; len(m.Files) > maxFiles || total > maxSize {
			return Module{}, nil, invalidArchive("it has more than %d files or more than %s", maxFiles, shownSize(maxSize))
		}
		if err := readFile(f, in, s, scanner); err != nil {
			return Module{}, nil, err
		}
	}
}

// readFile reads a file if it is a source or part of [Contents], or scans it
// for secrets, or both.
func readFile(f File, in io.Reader, s *sources, scanner *secrets.Scanner) error {
	if scanner != nil {
		scanner.Begin(f.Path)
		in = io.TeeReader(in, scanner)
	}
	s.in.Reset(in)
	content := sync.OnceValues(func() ([]byte, error) { return io.ReadAll(s.in) })
	err := cmp.Or(s.contents.read(f, s.in, content), s.read(f, content))
	if scanner != nil {
		if err == nil {
			_, err = io.Copy(io.Discard, s.in) // what is neither
		}
		scanner.End()
	}
	return err
}

// isConfig reports whether a file can be configuration of an installed module.
// It must have a name that clients read, and be at the root or below modules/.
func isConfig(p string) bool {
	dir, name := path.Dir(p), path.Base(p)
	return (dir == "." || strings.HasPrefix(dir, "modules/")) && isConfigName(name)
}

// isConfigName reports whether clients read a file with this name.
func isConfigName(name string) bool {
	return configuration.IsName(name) || isSymbols(name) && !strings.HasPrefix(name, ".")
}

// isSymbols reports whether a file is part of a symbol library. This experiment of
// OpenTofu 1.13 installs a library in the way of a module. The blocks in it are
// not those of modules, and may still change.
func isSymbols(name string) bool { return strings.HasSuffix(name, ".sym.hcl") }

// checkConfigs checks that there is configuration and whether it parses. It sets
// the calls by their folders, the problems and the notes. It returns an error for
// configuration that exceeds a limit.
//
// Configuration at any depth below modules/ counts, because clients install
// //modules/a/b in the same way as //modules/a.
func (m *Module) checkConfigs(ctx context.Context, configs map[string][]byte) error {
	names := slices.Sorted(maps.Keys(configs))
	if len(names) == 0 {
		return errNoConfig(m.Files)
	}
	if len(configs) > maxConfigFiles {
		return invalidModule("it has more than %d files of configuration", maxConfigFiles)
	}
	m.Calls = make(map[string][]Call)
	read := make(map[string][]configuration.File)
	var parser, hiddenParser safehcl.Parser
	for _, name := range names {
		folder := path.Dir(name)
		// OpenTofu reads a .tofu file instead of the .tf file of the same name.
		if _, hidden := configs[configuration.Twin(name)]; hidden {
			found, _, err := readConfig(ctx, &hiddenParser, name, configs[name])
			if err != nil {
				problem, ok := errors.AsType[*safehcl.Error](err)
				if !ok {
					return err
				}
				found = configuration.Unparsed(name, problem)
			}
			read[folder] = append(read[folder], found)
			continue
		}
		found, local, err := readConfig(ctx, &parser, name, configs[name])
		if problem, ok := errors.AsType[*safehcl.Error](err); ok {
			if errors.Is(problem, safehcl.ErrLimit) {
				return invalidConfig(problem)
			}
			m.Problems = append(m.Problems, invalidConfig(problem))
			found = configuration.Unparsed(name, nil)
		} else if err != nil {
			return err
		}
		if !isSymbols(name) {
			read[folder] = append(read[folder], found)
		}
		if len(local) > 0 {
			m.Calls[folder] = append(m.Calls[folder], local...)
		}
	}
	for _, folder := range m.installable() {
		found, notes := configuration.Check(read[folder])
		for _, problem := range found {
			m.Problems = append(m.Problems, invalidConfig(problem))
		}
		m.Notes = append(m.Notes, notes...)
	}
	m.checkCalls()
	return nil
}

// errNoConfig returns the error for a module without configuration, with a hint
// that depends on its files.
func errNoConfig(files []File) error {
	err := invalidModule("there is no .tf or .tofu file at its root or below modules/")
	for _, f := range files {
		// Examples and tests call a module in another folder.
		top, _, below := strings.Cut(f.Path, "/")
		if below && isConfigName(path.Base(f.Path)) && !slices.Contains([]string{"example", "examples", "test", "tests"}, top) {
			return registry.WithHint(err, "Publish the folder that contains them, such as %s.", path.Dir(f.Path))
		}
	}
	if slices.ContainsFunc(files, func(f File) bool { return f.Path == ".terraformignore" }) {
		return registry.WithHint(err, "Check whether .terraformignore excludes them.")
	}
	return registry.WithHint(err, "Publish the folder that contains them.")
}
