package archive

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// ignoreFile is the name of the file with patterns of files to exclude.
const ignoreFile = ".terraformignore"

// backslash matches a backslash between two folders. At the beginning of a name,
// it makes the next character literal.
var backslash = regexp.MustCompile(`([^/\\!])\\`)

// rule is a line of .terraformignore or a built-in line. The last rule that
// matches a path applies.
type rule struct {
	line    string // as written
	pattern string // for doublestar, matched against whole paths
	dirOnly bool   // ends in a slash: it matches the content of a folder
	include bool   // begins with an exclamation mark
	secret  bool   // the files it excludes may contain secrets
	own     bool   // comes from the module's .terraformignore
}

// templates are the suffixes of environment files without secrets, such as
// .env.example. Modules read these files with templatefile.
var templates = []string{".example", ".sample", ".template", ".tpl", ".tftpl", ".tmpl", ".dist"}

// isTemplate reports whether a path names a template of an environment file.
func isTemplate(p string) bool {
	name := path.Base(p)
	return strings.HasPrefix(name, ".env.") &&
		slices.ContainsFunc(templates, func(end string) bool { return strings.HasSuffix(name, end) })
}

// always contains the built-in rules. They apply after .terraformignore, so a
// careless !pattern there cannot include these files. Only --include can.
var always = func() []rule {
	var rules []rule
	for _, line := range []struct {
		secret   bool
		patterns string
	}{
		{false, ".git .hg/ .svn/ .bzr/ .terraform/ .terragrunt-cache/ larder-data/ .DS_Store"},
		{true, "*.tfstate *.tfstate.*backup *.tfstate.lock.info terraform.tfstate.d/ " +
			"tfplan *.tfplan tfplan.json *.tfplan.json *.tfvars *.tfvars.json"},
		{true, ".terraformrc .tofurc terraform.rc tofu.rc *.tfrc *.tfrc.json .netrc _netrc .aws/ .env .env.* " +
			"crash.log crash.*.log id_rsa id_dsa id_ecdsa id_ed25519"},
	} {
		for pattern := range strings.FieldsSeq(line.patterns) {
			r, err := parseRule(pattern)
			if err != nil {
				panic(err)
			}
			r.secret = line.secret
			rules = append(rules, r)
		}
	}
	return rules
}()

// parseRule parses a pattern of .terraformignore. A leading slash anchors it to
// the module's folder. A trailing slash limits it to folders. An asterisk or a
// question mark matches anything but a slash, and ** matches any number of
// folders.
func parseRule(line string) (rule, error) {
	r := rule{line: line}
	p, include := strings.CutPrefix(line, "!")
	r.include = include
	p, r.dirOnly = strings.CutSuffix(p, "/")
	p, anchored := strings.CutPrefix(p, "/")
	if p == "" {
		return rule{}, fmt.Errorf("%w pattern %q: it is empty", registry.ErrInvalid, line)
	}
	p = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(p) // braces have no special meaning
	if !anchored {
		p = "**/" + p
	}
	if !doublestar.ValidatePattern(p) {
		return rule{}, fmt.Errorf("%w pattern %q", registry.ErrInvalid, line)
	}
	r.pattern = p
	return r, nil
}

// parseIgnore parses a .terraformignore file.
func parseIgnore(text []byte) ([]rule, error) {
	text, err := textfile.Decode(ignoreFile, text)
	if err != nil {
		return nil, err
	}
	var rules []rule
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parseRule(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", ignoreFile, n, err)
		}
		r.own = true
		rules = append(rules, r)
	}
	return rules, nil
}

// checkSeparators returns registry.ErrInvalid if a rule of .terraformignore has
// backslashes between folders, and would exclude a packed file with slashes. A
// backslash before a letter means only the letter.
func (p *packer) checkSeparators() error {
	for _, r := range p.rules {
		slashed := backslash.ReplaceAllString(r.line, "$1/")
		if !r.own || r.include || slashed == r.line {
			continue
		}
		meant, err := parseRule(slashed)
		if err != nil {
			continue
		}
		for _, f := range p.files {
			if meant.matches(f.Path, false) {
				return registry.WithHint(invalidModule("the pattern %s of %s does not exclude %s",
					printable.Escape(r.line), ignoreFile, printable.Escape(f.Path)),
					"Write / between folders: %s", printable.Escape(slashed))
			}
		}
	}
	return nil
}

// matches reports whether the rule matches a path or a folder that contains it.
func (r rule) matches(p string, isDir bool) bool {
	if r.match(p) && (isDir || !r.dirOnly) {
		return true
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if r.match(dir) {
			return true
		}
	}
	return false
}

func (r rule) match(p string) bool {
	if r.secret && isTemplate(p) {
		return false
	}
	ok, err := doublestar.Match(r.pattern, p)
	return ok && err == nil
}

// ignore is a list of rules in order of increasing precedence.
type ignore []rule

// excludes reports whether a path is excluded, and returns the rule that
// excludes it.
func (rules ignore) excludes(p string, isDir bool) (rule, bool) {
	var last rule
	excluded := false
	for _, r := range rules {
		if r.include == excluded && r.matches(p, isDir) {
			last, excluded = r, !r.include
		}
	}
	return last, excluded
}

// prunes reports whether an excluded folder can be skipped because no later
// rule includes anything in it.
func (rules ignore) prunes(dir string) bool {
	excluded := false
	for _, r := range rules {
		switch {
		case r.include:
			excluded = false
		case r.matches(dir, true):
			excluded = true
		}
	}
	return excluded
}
