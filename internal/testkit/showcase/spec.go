package showcase

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// spec describes a module whose files are generated. It is an entry of
// testdata/modules.txt.
type spec struct {
	address, description, deprecated string
	versions                         []version
	files                            map[string]*strings.Builder
	readme                           string
}

// version is a version to publish.
type version struct {
	number    string
	at        time.Time
	publisher string // ci, token, aws or user
}

// parseSpecs parses testdata/modules.txt, which documents the format.
func parseSpecs(text string) ([]*spec, error) {
	var all []*spec
	lines := bufio.NewScanner(strings.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, " ")
		if key == "module" {
			all = append(all, newSpec(value))
			continue
		}
		err := fmt.Errorf("there is no module")
		if len(all) > 0 {
			err = all[len(all)-1].add(key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return all, lines.Err()
}

func newSpec(address string) *spec {
	s := &spec{address: address, files: make(map[string]*strings.Builder)}
	for _, name := range []string{"main.tf", "variables.tf", "outputs.tf"} {
		s.files[name] = new(strings.Builder)
	}
	return s
}

func (s *spec) add(key, value string) error {
	fields := strings.Split(value, " | ")
	count := map[string]int{"in": 4, "out": 2, "call": 3}
	if want := max(count[key], 1); len(fields) != want {
		return fmt.Errorf("%s has %d fields and not %d", key, len(fields), want)
	}
	main := s.files["main.tf"]
	switch key {
	case "text":
		s.description = value
	case "deprecated":
		s.deprecated = value
	case "version":
		return s.addVersion(strings.Fields(value))
	case "in":
		out := s.files["variables.tf"]
		fmt.Fprintf(out, "variable %q {\n  type = %s\n", fields[0], fields[1])
		if fields[2] != "-" {
			fmt.Fprintf(out, "  default = %s\n", fields[2])
		}
		fmt.Fprintf(out, "  description = %q\n}\n\n", fields[3])
	case "out":
		fmt.Fprintf(s.files["outputs.tf"], "output %q {\n  value = null\n  description = %q\n}\n\n", fields[0], fields[1])
	case "resource", "data":
		kind, name, _ := strings.Cut(value, ".")
		fmt.Fprintf(main, "%s %q %q {}\n\n", key, kind, name)
	case "call":
		fmt.Fprintf(main, "module %q {\n  source = %q\n  version = %q\n}\n\n", fields[0], fields[1], fields[2])
	default:
		return fmt.Errorf("%q is not a key", key)
	}
	return nil
}

func (s *spec) addVersion(fields []string) error {
	if len(fields) != 3 {
		return fmt.Errorf("a version has %d fields and not 3", len(fields))
	}
	at, err := time.Parse(time.RFC3339, fields[1])
	s.versions = append(s.versions, version{fields[0], at, fields[2]})
	return err
}

// write writes the files of the module to a new folder.
func (s *spec) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range s.files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			return err
		}
	}
	readme := s.readme
	if readme == "" {
		readme = fmt.Sprintf("# %s\n\n%s\n\nQuestions go to the team that owns the namespace.\n", s.address, s.description)
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(readme), 0o600)
}
