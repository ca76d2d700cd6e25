package archive

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"

	"github.com/larder-registry/larder/pkg/registry"
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

// The bounds of configuration, of one file and of all, in bytes.
const (
	maxConfig  = 4 << 20
	maxConfigs = 64 << 20
)

// ReadModule reads a packed module to its end and verifies it: that it unpacks within its own folder, that a module is
// at its root, and that this and the modules below modules/ parse. Errors that lie in the archive are
// registry.ErrInvalid and name the file, and the line where there is one.
func ReadModule(archive io.Reader) (Module, error) {
	packed := digest{r: archive, hash: sha256.New()}
	m, err := readModule(&packed)
	if err != nil {
		return Module{}, err
	}
	m.SHA256, m.Size = packed.sum(), packed.n
	return m, nil
}

// digest counts and hashes what is read through it.
type digest struct {
	r    io.Reader
	hash hash.Hash
	n    int64
}

func (d *digest) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	d.hash.Write(p[:n])
	d.n += int64(n)
	return n, err
}

func (d *digest) sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }

func readModule(packed io.Reader) (Module, error) {
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		return Module{}, fmt.Errorf("%w module archive: %w", registry.ErrInvalid, err)
	}
	// One byte beyond the bound tells that it was passed. Headers and padding have room beside the files.
	const most = maxSize + maxFiles*2048
	content := digest{r: io.LimitReader(unzipped, most+1), hash: sha256.New()}
	m, configs, err := readTar(&content)
	if err == nil {
		_, err = io.Copy(io.Discard, &content) // what follows the tar's end is content too
	}
	if content.n > most {
		return Module{}, fmt.Errorf("%w module archive: it unpacks to more than %d bytes", registry.ErrInvalid, maxSize)
	}
	if err != nil {
		if !errors.Is(err, registry.ErrInvalid) {
			err = fmt.Errorf("%w module archive: %w", registry.ErrInvalid, err)
		}
		return Module{}, err
	}
	m.ContentSHA256 = content.sum()
	if err := checkTree(m.Files); err != nil {
		return Module{}, err
	}
	return m, checkConfigs(m.Files, configs)
}

// readTar returns the files of a tar, and what those that may be configuration hold.
func readTar(r io.Reader) (Module, map[string][]byte, error) {
	var m Module
	configs := make(map[string][]byte)
	var total, config int64
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return m, configs, nil
		}
		if err != nil {
			return Module{}, nil, err
		}
		if header.Typeflag == tar.TypeDir {
			if err := checkPath(strings.TrimSuffix(header.Name, "/")); err != nil {
				return Module{}, nil, err
			}
			continue
		}
		if err := checkPath(header.Name); err != nil {
			return Module{}, nil, err
		}
		if header.Typeflag != tar.TypeReg {
			return Module{}, nil, fmt.Errorf("%w module archive: %s is not a plain file", registry.ErrInvalid, header.Name)
		}
		f := File{Path: header.Name, Size: header.Size, Executable: header.Mode&0o111 != 0}
		m.Files = append(m.Files, f)
		if total += f.Size; len(m.Files) > maxFiles || total > maxSize {
			return Module{}, nil, fmt.Errorf("%w module archive: it has more than %d files or %d bytes", registry.ErrInvalid, maxFiles, maxSize)
		}
		if isConfig(f.Path) {
			if config += f.Size; f.Size > maxConfig || config > maxConfigs {
				return Module{}, nil, fmt.Errorf("%w module: %s has more than %d bytes, or all configuration more than %d", registry.ErrInvalid, f.Path, maxConfig, maxConfigs)
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
	return slices.ContainsFunc(extensions, func(e string) bool { return strings.HasSuffix(name, e) })
}

var extensions = []string{".tf", ".tf.json", ".tofu", ".tofu.json"}

// checkConfigs says whether there is a module at the root and all modules parse.
func checkConfigs(files []File, configs map[string][]byte) error {
	modules := make(map[string][]string) // folder to its configuration files
	for _, f := range files {
		if isConfig(f.Path) {
			dir := path.Dir(f.Path)
			modules[dir] = append(modules[dir], f.Path)
		}
	}
	if len(modules["."]) == 0 {
		return fmt.Errorf("%w module: there is no .tf or .tofu file in its folder; publish the folder that holds them%s", registry.ErrInvalid, hint(files))
	}
	dirs := make([]string, 0, len(modules))
	for dir := range modules {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		parsed := tfconfig.NewModule(dir)
		for _, p := range inUse(modules[dir]) {
			if err := checkConfig(parsed, p, configs[p]); err != nil {
				return err
			}
		}
	}
	return nil
}

// hint names a folder further down that does hold a module.
func hint(files []File) string {
	for _, f := range files {
		if dir := path.Dir(f.Path); dir != "." && slices.ContainsFunc(extensions, func(e string) bool { return strings.HasSuffix(f.Path, e) }) {
			return ", such as " + dir
		}
	}
	return ""
}

// inUse leaves out what OpenTofu leaves out of one folder: a .tf file beside a .tofu file of the same name. Overrides
// come last.
func inUse(paths []string) []string {
	var primary, override []string
	for _, p := range paths {
		switch {
		case slices.Contains(paths, tofuTwin(p)):
		case isOverride(path.Base(p)):
			override = append(override, p)
		default:
			primary = append(primary, p)
		}
	}
	return append(primary, override...)
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

func isOverride(name string) bool {
	for _, e := range extensions {
		if base, ok := strings.CutSuffix(name, e); ok {
			return base == "override" || strings.HasSuffix(base, "_override")
		}
	}
	return false
}

// checkConfig parses one file into a module. What depends on values, such as a module source that is a variable, is for
// the client to judge; it knows more than this reader.
func checkConfig(into *tfconfig.Module, name string, source []byte) error {
	var (
		file  *hcl.File
		diags hcl.Diagnostics
	)
	if tooDeep(source) {
		return fmt.Errorf("%w module: %s is nested too deeply", registry.ErrInvalid, name)
	}
	if strings.HasSuffix(name, ".json") {
		file, diags = hcljson.Parse(source, name)
	} else {
		file, diags = hclsyntax.ParseConfig(source, name, hcl.InitialPos)
	}
	if file != nil && !diags.HasErrors() {
		diags = tfconfig.LoadModuleFromFile(file, into)
	}
	for _, d := range diags {
		if d.Severity == hcl.DiagError && d.Expression == nil {
			return invalidConfig(name, d)
		}
	}
	return nil
}

// tooDeep says whether a configuration file is nested so deeply that parsing it, which is recursive, might exhaust the
// stack, from which no program recovers. It counts brackets, chains of conditionals and of signs, wherever they stand;
// what people write is far from the bounds.
func tooDeep(source []byte) bool {
	const brackets, conditionals, signs = 1000, 20_000, 1000
	depth, questions, run := 0, 0, 0
	for _, c := range source {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0)
		case '?':
			questions++
		}
		switch c {
		case '!', '-':
			run++
		case ' ', '\t', '\r', '\n':
		default:
			run = 0
		}
		if depth > brackets || questions > conditionals || run > signs {
			return true
		}
	}
	return false
}

func invalidConfig(name string, d *hcl.Diagnostic) error {
	where := name
	if d.Subject != nil {
		where = fmt.Sprintf("%s:%d", name, d.Subject.Start.Line)
	}
	return fmt.Errorf("%w module: %s: %s: %s", registry.ErrInvalid, where, d.Summary, d.Detail)
}
