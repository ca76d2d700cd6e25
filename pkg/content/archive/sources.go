package archive

import (
	"bufio"
	"path"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// The limits of configuration: bytes of one file, bytes of all files, and
// number of files.
const (
	maxConfig      = 1 << 20
	maxConfigs     = 16 << 20
	maxConfigFiles = 10_000
)

// The limits of READMEs: bytes of one file and bytes of all files.
const (
	maxReadme  = 256 << 10
	maxReadmes = 4 << 20
)

// sources are the files of a module whose content is read.
type sources struct {
	// configs has the configuration that an installed module can have. All of
	// it must be valid.
	configs    map[string][]byte
	configSize int64
	// examples has the configuration of the folders directly below examples/.
	// It uses what configs leaves of maxConfigs.
	examples     map[string][]byte
	exampleNames []string // those with content, in the order of the tar
	exampleSize  int64
	// readmes has the best README of each folder.
	readmes    map[string]readme
	readmeSize int64
	// contents also has other files.
	contents contents
	in       *bufio.Reader // of the current file
}

type readme struct {
	path    string
	content []byte
}

func newSources() *sources {
	return &sources{
		configs:  make(map[string][]byte),
		examples: make(map[string][]byte),
		readmes:  make(map[string]readme),
		contents: contents{Contents: Contents{Files: make(map[string][]byte)}},
		in:       bufio.NewReaderSize(nil, 4<<10),
	}
}

// read reads a file if it is a source. content returns its bytes. An error
// means that the archive is invalid or cannot be read.
func (s *sources) read(f File, content func() ([]byte, error)) (err error) {
	dir, name := path.Split(f.Path)
	dir = path.Clean(dir)
	switch {
	case isConfig(f.Path):
		if s.configSize += f.Size; f.Size > maxConfig {
			return registry.WithHint(invalidModule("%s has more than %s", f.Path, shownSize(maxConfig)),
				"Move long texts to files that file() or templatefile() reads.")
		}
		if s.configSize > maxConfigs {
			return registry.WithHint(invalidModule("its configuration has more than %s", shownSize(maxConfigs)),
				"Split the module.")
		}
		s.configs[f.Path], err = content()
		s.dropExamples()
	case isExample(dir) && isConfigName(name):
		s.examples[f.Path] = nil
		if f.Size > maxConfig || s.configSize+s.exampleSize+f.Size > maxConfigs || len(s.exampleNames) == maxConfigFiles {
			return nil
		}
		s.exampleSize += f.Size
		s.exampleNames = append(s.exampleNames, f.Path)
		s.examples[f.Path], err = content()
	case isDocumented(dir) && readmeRank(name) > 0:
		return s.readReadme(dir, f, content)
	}
	return err
}

// dropExamples drops the content of the last examples if all configuration
// together exceeds the limit.
func (s *sources) dropExamples() {
	for s.configSize+s.exampleSize > maxConfigs && len(s.exampleNames) > 0 {
		last := len(s.exampleNames) - 1
		name := s.exampleNames[last]
		s.exampleSize -= int64(len(s.examples[name]))
		s.examples[name], s.exampleNames = nil, s.exampleNames[:last]
	}
}

func (s *sources) readReadme(dir string, f File, content func() ([]byte, error)) (err error) {
	before, found := s.readmes[dir]
	if found && readmeRank(path.Base(before.path)) <= readmeRank(path.Base(f.Path)) {
		return nil
	}
	s.readmeSize -= int64(len(before.content))
	found = f.Size <= maxReadme && s.readmeSize+f.Size <= maxReadmes
	chosen := readme{path: f.Path}
	if found {
		s.readmeSize += f.Size
		chosen.content, err = content()
	}
	s.readmes[dir] = chosen
	return err
}

func (s *sources) documented() map[string][]byte {
	documented := make(map[string][]byte)
	for name, content := range s.configs {
		if isDocumented(path.Dir(name)) {
			documented[name] = content
		}
	}
	for name, content := range s.examples {
		documented[name] = content
	}
	for _, chosen := range s.readmes {
		documented[chosen.path] = chosen.content
	}
	return documented
}

// isDocumented reports whether documentation describes a folder.
func isDocumented(dir string) bool {
	return dir == "." || path.Dir(dir) == "modules" || isExample(dir)
}

func isExample(dir string) bool { return path.Dir(dir) == "examples" }

// readmeExtensions are the extensions of READMEs, the best one first.
var readmeExtensions = []string{".md", ".markdown", ".txt", ""}

// readmeRank returns 0 if a file name is not that of a README. Otherwise lower
// ranks are better. The names in a folder differ in more than letter case, so
// their ranks differ.
func readmeRank(name string) int {
	extension, isReadme := strings.CutPrefix(strings.ToLower(name), "readme")
	if !isReadme {
		return 0
	}
	return 1 + slices.Index(readmeExtensions, extension)
}
