package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The command line as its users see it: each file in testdata/script is a session with it.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/.config") // contexts are the script's own
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
		},
	})
}

// exits runs a command that must fail with an exit code: exits CODE COMMAND ARGS…
func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS…")
	}
	// The shell tells the exit code, which Exec's error does not carry.
	err := ts.Exec("sh", append([]string{"-c", `"$@"; code=$?; [ "$code" = "$0" ] || { echo "exit code $code, want $0" >&2; exit 1; }`}, args...)...)
	if err != nil {
		ts.Fatalf("%v\n%s", err, ts.ReadFile("stderr"))
	}
}
