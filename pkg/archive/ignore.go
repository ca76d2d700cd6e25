package archive

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/larder-registry/larder/pkg/registry"
)

// rule is one line of .terraformignore, or one that is built in. The last rule that matches a path decides.
type rule struct {
	line    string // as it was written
	pattern string // of doublestar, matched against whole paths
	dirOnly bool   // it ended in a slash: it matches what is below such a folder
	include bool   // it began with an exclamation mark
	secret  bool   // what it leaves out may hold secrets
	own     bool   // it is of the module's .terraformignore
}

// templates are the ends of names of environment files that hold no secrets, such
// as .env.example. Modules read them with templatefile.
var templates = []string{".example", ".sample", ".template", ".tpl", ".tftpl", ".tmpl", ".dist"}

// isTemplate reports whether a path is that of a template of an environment file.
func isTemplate(p string) bool {
	name := path.Base(p)
	return strings.HasPrefix(name, ".env.") &&
		slices.ContainsFunc(templates, func(end string) bool { return strings.HasSuffix(name, end) })
}

// always comes after .terraformignore, so that a careless !pattern there cannot take these in; --include can.
var always = func() []rule {
	var rules []rule
	for _, line := range []struct {
		secret   bool
		patterns string
	}{
		{false, ".git .hg/ .svn/ .bzr/ .terraform/ .terragrunt-cache/ larder-data/ .DS_Store"},
		{true, "*.tfstate *.tfstate.*backup *.tfstate.lock.info terraform.tfstate.d/ tfplan *.tfplan tfplan.json *.tfplan.json *.tfvars *.tfvars.json"},
		{true, ".terraformrc .tofurc terraform.rc tofu.rc *.tfrc *.tfrc.json .netrc _netrc .aws/ .env .env.* crash.log crash.*.log id_rsa id_dsa id_ecdsa id_ed25519"},
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

// parseRule reads a pattern of .terraformignore: relative to the module where it begins with a slash, anywhere below it
// otherwise; for folders where it ends in one; with * and ? for anything but a slash, ** for any number of folders.
func parseRule(line string) (rule, error) {
	r := rule{line: line}
	p, include := strings.CutPrefix(line, "!")
	r.include = include
	p, r.dirOnly = strings.CutSuffix(p, "/")
	p, anchored := strings.CutPrefix(p, "/")
	if p == "" {
		return rule{}, fmt.Errorf("%w pattern %q: it names nothing", registry.ErrInvalid, line)
	}
	p = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(p) // braces mean themselves
	if !anchored {
		p = "**/" + p
	}
	if !doublestar.ValidatePattern(p) {
		return rule{}, fmt.Errorf("%w pattern %q", registry.ErrInvalid, line)
	}
	r.pattern = p
	return r, nil
}

// parseIgnore reads a .terraformignore file.
func parseIgnore(in io.Reader) ([]rule, error) {
	var rules []rule
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parseRule(line)
		if err != nil {
			return nil, fmt.Errorf(".terraformignore:%d: %w", n, err)
		}
		r.own = true
		rules = append(rules, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w .terraformignore: %w", registry.ErrInvalid, err)
	}
	return rules, nil
}

// matches says whether the rule matches a path itself or a folder that it is in.
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

// ignore is a set of rules in their order.
type ignore []rule

// excludes returns the rule that leaves a path out, if one does.
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

// prunes says whether all below a folder that is left out is left out too, because no later rule takes anything in.
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
