package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/larder-registry/larder/internal/testkit/golden"
)

// Each file in testdata/script is a session with the command line. The golden
// file has the errors of its commands.
func TestScripts(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/.config") // each script has its own contexts
			env.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(env.WorkDir))
			env.Vars = append(env.Vars, gitIdentity...)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				exits(ts, args)
				texts.Text(named{t, t.Name() + "/" + ts.Name()}, scriptError(ts, args))
			},
		},
	})
}

// named is a test with another name.
type named struct {
	testing.TB
	name string
}

func (n named) Name() string { return n.name }

// exits runs a command that must end with an exit code: exits CODE COMMAND
// ARGS…
func exits(ts *testscript.TestScript, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS…")
	}
	// The error of Exec does not contain the exit code, so a shell checks it.
	const check = `"$@"; code=$?; [ "$code" = "$0" ] || { echo "exit code $code, want $0" >&2; exit 1; }`
	err := ts.Exec("sh", append([]string{"-c", check}, args...)...)
	if err != nil {
		ts.Fatalf("%v\n%s", err, ts.ReadFile("stderr"))
	}
}

// unresolved matches the reason and the hint for a host that does not exist.
// They depend on the resolver of this machine.
var unresolved = regexp.MustCompile(`(\.invalid/\.well-known/terraform\.json: ).*\n.*\n`)

// scriptError returns the last command with its error.
func scriptError(ts *testscript.TestScript, args []string) string {
	replace := strings.NewReplacer(ts.Getenv("WORK"), "WORK", "\x1b", "␛")
	text := unresolved.ReplaceAllString(errorText(ts.ReadFile("stderr")), "${1}REASON\n")
	return replace.Replace("$ " + steady(quotedAll(args[1:])) + "\n" + text)
}
