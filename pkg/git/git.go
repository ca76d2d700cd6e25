// Package git runs the program git.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
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

// Run runs git in a folder, and returns its standard output. env is added to
// the environment of this process. git never prompts.
//
// If git fails, the error is registry.ErrInvalid and contains the reason from
// standard error. Never pass a secret in args, which other users can list.
func Run(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	return run(ctx, dir, append(os.Environ(), env...), args...)
}

// RunAlone is like [Run], but ignores the variables that name a repository. Git
// sets them for hooks.
func RunAlone(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	own := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(local, name)
	})
	return run(ctx, dir, append(own, env...), args...)
}

// local are the variables of `git rev-parse --local-env-vars`, without those of
// settings.
var local = []string{
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
	"GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY",
	"GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
}

func run(ctx context.Context, dir string, environ []string, args ...string) ([]byte, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, registry.WithHint(registry.Errorf(ErrMissing, "cannot run git: %w", registry.ErrNotFound),
			"Install git.")
	}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // callers separate options from other arguments
	cmd.Dir = dir
	cmd.Env = append(environ, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
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
			registry.ErrInvalid, subcommand(args), maxOutput)
	case err != nil:
		return nil, fmt.Errorf("%w repository: git %s failed: %s", registry.ErrInvalid, subcommand(args),
			reason(messages, err))
	}
	return out.Bytes(), nil
}

// subcommand returns the first argument that is not an option of git itself.
func subcommand(args []string) string {
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") && (i == 0 || args[i-1] != "-c") {
			return arg
		}
	}
	return ""
}

// reason returns why git failed by what it printed, or else the error. That is
// the line with "fatal:" after the one before it, which can be of ssh, or else the
// last line.
func reason(messages *bounded, err error) string {
	lines := strings.FieldsFunc(strings.TrimSpace(messages.String()), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return err.Error()
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
