package configuration

import (
	"path"
	"strings"
)

// IsName reports whether clients read a file with this name as configuration.
// They ignore leftovers of editors.
func IsName(name string) bool {
	isAutosave := strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
	return stem(name) != name && !strings.HasPrefix(name, ".") && !isAutosave
}

// stem returns a file name without its extension of configuration.
func stem(name string) string {
	for _, extension := range []string{".tf", ".tofu", ".tf.json", ".tofu.json"} {
		if before, found := strings.CutSuffix(name, extension); found {
			return before
		}
	}
	return name
}

// IsOverride reports whether the blocks of a file override those of others.
func IsOverride(name string) bool {
	name = stem(path.Base(name))
	return name == "override" || strings.HasSuffix(name, "_override")
}

// Twin returns the path of the file that OpenTofu reads instead of a .tf or
// .tf.json file, or an empty string.
func Twin(name string) string {
	if base, ok := strings.CutSuffix(name, ".tf"); ok {
		return base + ".tofu"
	}
	if base, ok := strings.CutSuffix(name, ".tf.json"); ok {
		return base + ".tofu.json"
	}
	return ""
}

// isForOpenTofu reports whether only OpenTofu reads a file.
func isForOpenTofu(name string) bool { return Twin(name) == "" }
