// Package git runs the program git. It obeys nothing that a repository of a
// stranger says: no program that its configuration names, and no repository
// that lies among its files.
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

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

// ErrMissing means that this machine has no program git. It comes with
// registry.ErrNotFound.
var ErrMissing = errors.New("git is not installed")

// maxOutput bounds the output of git, in bytes.
const maxOutput = 64 << 20

// Setting is a setting of git and its value.
type Setting struct{ Key, Value string }

// safe are settings for all commands. They override those of the user and of a
// repository. Without them, the configuration of a repository could name
// programs that git runs.
var safe = []Setting{
	{"safe.bareRepository", "explicit"},
	{"core.fsmonitor", "false"}, {"core.sparseCheckout", "false"}, {"core.hooksPath", os.DevNull}, {"diff.external", ""},
	{"core.protectNTFS", "true"}, {"core.protectHFS", "true"},
	{"submodule.recurse", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"},
}

// call is how git is run.
type call struct {
	dir      string
	passed   []string // the beginnings of variables of git that are passed on
	environ  []string
	settings []Setting // in addition to the safe ones
}

// run returns the standard output. If git fails, the error is a *failure.
func (c call) run(ctx context.Context, args ...string) ([]byte, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, registry.WithHint(registry.Errorf(ErrMissing, "cannot run git: %w", registry.ErrNotFound),
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
		return nil, &failure{args[0], messages.String(), err}
	}
	return out.Bytes(), nil
}

// env returns the environment of git. Git sets variables for hooks that name a
// repository, and others name programs. So almost none of them is passed on.
func (c call) env() []string {
	environ := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		variable = strings.ToUpper(variable) // as Windows compares names
		return strings.HasPrefix(variable, "GIT_") &&
			!slices.ContainsFunc(c.passed, func(start string) bool { return strings.HasPrefix(variable, start) })
	})
	environ = append(environ, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "GIT_EDITOR=false",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0",
		// A configuration can make git fetch missing objects, with any program.
		"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1")
	first := 0
	if slices.Contains(c.passed, settingsCount) {
		first, _ = strconv.Atoi(os.Getenv("GIT_CONFIG_COUNT"))
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

var (
	// usersOwn are variables with settings of the user, for example of a CI service.
	usersOwn = []string{
		"GIT_CONFIG_GLOBAL=", "GIT_CONFIG_SYSTEM=", "GIT_CONFIG_NOSYSTEM=", settingsCount, "GIT_CONFIG_KEY_",
		"GIT_CONFIG_VALUE_",
	}
	// forServers are those with which git connects to servers, in addition.
	forServers = append(slices.Clone(usersOwn), "GIT_ASKPASS=", "GIT_SSH=", "GIT_SSH_", "GIT_SSL_", "GIT_HTTP_",
		"GIT_PROXY_")
)

// failure is an error of git. It is registry.ErrInvalid.
type failure struct {
	subcommand, messages string
	err                  error
}

func (f *failure) Error() string {
	return fmt.Sprintf("%v repository: git %s failed: %s", registry.ErrInvalid, f.subcommand, f.reason())
}

func (f *failure) Unwrap() error { return registry.ErrInvalid }

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
	bytes.Buffer
	limit int
	drop  bool // drop further bytes, and do not fail
	full  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) <= b.limit {
		return b.Buffer.Write(p)
	}
	if b.full = true; b.drop {
		return len(p), nil
	}
	return 0, errors.New("too long")
}
