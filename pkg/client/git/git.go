// Package git runs the program git. A repository cannot make git run another
// program, or read another repository.
//
// Only this package starts git.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// maxOutput bounds the output of git, in bytes.
const maxOutput = 64 << 20

// Setting is a setting of git and its value.
type Setting struct{ Key, Value string }

// safe are settings for all commands. They override those of the user and of the
// repository, which could name programs.
var safe = []Setting{
	{"safe.bareRepository", "explicit"},
	{"core.fsmonitor", "false"}, {"core.hooksPath", os.DevNull}, {"core.sparseCheckout", "false"},
	{"diff.external", ""}, {"log.showSignature", "false"},
	{"core.protectNTFS", "true"}, {"core.protectHFS", "true"},
	{"submodule.recurse", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"},
}

// call describes one run of git.
type call struct {
	dir      string
	passes   func(variable string) bool // reports whether git gets a variable GIT_…; nil: none
	environ  []string
	settings []Setting // in addition to the safe ones
}

// run returns the standard output. If git fails, the error is a *failure.
func (c call) run(ctx context.Context, args ...string) ([]byte, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, registry.WithHint(registry.Errorf(registry.ErrNotFound, "cannot run git: it is not installed"),
			"Install git.")
	}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // callers separate options from other arguments
	cmd.Dir, cmd.Env = c.dir, c.env()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that git removes its locks
	cmd.WaitDelay = 5 * time.Second
	out, messages := &bounded{limit: maxOutput}, &bounded{limit: 64 << 10, drop: true}
	cmd.Stdout, cmd.Stderr = out, messages
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case out.full:
		return nil, fmt.Errorf("%w repository: the output of git %s has more than %d bytes",
			registry.ErrInvalid, args[0], maxOutput)
	case err != nil:
		return nil, &failure{args[0], messages.buffer.String(), err}
	}
	return out.buffer.Bytes(), nil
}

// env returns the environment of git. Git sets variables for hooks that name a
// repository, and others name programs. So git gets only a few of them.
func (c call) env() []string {
	passes := func(variable string) bool { return c.passes != nil && c.passes(strings.ToUpper(variable)) } // as on Windows
	environ := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(strings.ToUpper(variable), "GIT_") && !passes(variable)
	})
	environ = append(environ, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "GIT_EDITOR=false",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0",
		// A configuration can make git fetch missing objects, with any program.
		"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1")
	first := 0
	if passes(settingsCount) {
		first, _ = strconv.Atoi(os.Getenv("GIT_CONFIG_COUNT"))
		first = max(first, 0)
	}
	settings := append(slices.Clone(safe), c.settings...)
	environ = append(environ, settingsCount+strconv.Itoa(first+len(settings)))
	for i, s := range settings {
		environ = append(environ, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", first+i, s.Key),
			fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", first+i, s.Value))
	}
	return append(environ, c.environ...)
}

const settingsCount = "GIT_CONFIG_COUNT="

// hasPrefix returns a function that reports whether a text begins with one of
// some prefixes.
func hasPrefix(prefixes ...string) func(string) bool {
	return func(text string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
	}
}

var (
	// isUsersOwn reports whether a variable has settings of the user, for example
	// of a CI service, or bounds the search for a repository.
	isUsersOwn = hasPrefix("GIT_CONFIG_GLOBAL=", "GIT_CONFIG_SYSTEM=", "GIT_CONFIG_NOSYSTEM=", settingsCount,
		"GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_CEILING_DIRECTORIES=", "GIT_DISCOVERY_ACROSS_FILESYSTEM=")
	// ofRepository reports whether a variable names a repository or a part of one.
	// These are those of `git rev-parse --local-env-vars`, and the template.
	ofRepository = hasPrefix("GIT_ALTERNATE_OBJECT_DIRECTORIES=", "GIT_COMMON_DIR=", "GIT_CONFIG=", "GIT_CONFIG_PARAMETERS=",
		"GIT_DIR=", "GIT_GRAFT_FILE=", "GIT_IMPLICIT_WORK_TREE=", "GIT_INDEX_FILE=", "GIT_INTERNAL_SUPER_PREFIX=",
		"GIT_NAMESPACE=", "GIT_NO_REPLACE_OBJECTS=", "GIT_OBJECT_DIRECTORY=", "GIT_PREFIX=", "GIT_REPLACE_REF_BASE=",
		"GIT_SHALLOW_FILE=", "GIT_WORK_TREE=", "GIT_TEMPLATE_DIR=")
)

// failure is an error of git. It is registry.ErrInvalid.
type failure struct {
	subcommand, messages string
	err                  error
}

func (f *failure) Error() string {
	return fmt.Sprintf("%v repository: git %s failed: %s", registry.ErrInvalid, f.subcommand, f.reason())
}

func (f *failure) Unwrap() []error { return []error{registry.ErrInvalid, f.err} }

// reason returns why git failed by what it printed, or else the error. That is
// the line with "fatal:" after the one before it, which can be of ssh, or else the
// last line.
func (f *failure) reason() string {
	lines := strings.FieldsFunc(strings.TrimSpace(f.messages), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return f.err.Error()
	}
	text := lines[len(lines)-1]
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "fatal:") })
	if at >= 0 {
		text = strings.Join(lines[max(0, at-1):at+1], ": ")
	}
	return printable.Mark(strings.TrimSpace(text), 300)
}

// bounded is a buffer with a limit.
type bounded struct {
	buffer bytes.Buffer // not embedded, because io.Copy would use its ReadFrom
	limit  int
	drop   bool // drop further bytes, and do not fail
	full   bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.buffer.Len()+len(p) <= b.limit {
		return b.buffer.Write(p)
	}
	if b.full = true; b.drop {
		return len(p), nil
	}
	return 0, errors.New("too long")
}
