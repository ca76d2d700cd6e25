package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fakeGo downloads a module and compiles a package with each command.
const fakeGo = `#!/bin/sh
echo 'go: downloading example.com/x v1.0.0' >&2
case "$1" in
install)
  echo example.com/x >&2
  [ -z "${WRONG-}" ] || { echo 'x.go:1:1: it is wrong' >&2; exit 1; }
  mkdir -p "$GOBIN" ;;
list) echo ./x ;;
vet) echo 'a note of vet' >&2 ;;
esac
`

// checkout returns a folder with the scripts of the checks, and the environment in
// which they run a fake of Go.
func checkout(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	fakes := map[string]string{"bin/go": fakeGo, "bin/gofmt": "#!/bin/sh\n"}
	for _, name := range []string{"scripts/test", "scripts/tools"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		fakes[name] = string(text)
	}
	for name, text := range fakes {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	return dir, append(env, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"PATH="+filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// changing are the versions and times in the output.
var changing = regexp.MustCompile(`\b(v)[0-9.]+\b|\b[0-9]+(s)\b`)

// Building a program shows how far it is, and its errors, but not each download.
func TestToolsShowProgress(t *testing.T) {
	t.Parallel()
	const begin = "building versitygw vN (once)\n"
	const end = "  versitygw: 1 modules downloaded, 1 packages compiled, Ns\n"
	for name, test := range map[string]struct {
		variable, want string
		failed         bool
	}{
		"built":  {"WRONG=", begin + end, false},
		"failed": {"WRONG=1", begin + "x.go:1:1: it is wrong\n" + end, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, env := checkout(t)
			cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "scripts/tools"), "versitygw")
			cmd.Env = append(env, test.variable)
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.failed {
				t.Errorf("it ends with %v", err)
			}
			if got := changing.ReplaceAllString(string(out), "${1}N${2}"); got != test.want {
				t.Errorf("the output is\n%s\nwant\n%s", got, test.want)
			}
			if built, _ := filepath.Glob(filepath.Join(dir, ".tools/versitygw-v*")); len(built) == 0 != test.failed {
				t.Errorf("the folders of the program: %v", built)
			}
		})
	}
}

// The checks list what they leave out before their first step.
func TestChecksListWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	dir, env := checkout(t)
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "scripts"},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message", "a"},
	} {
		git := exec.CommandContext(t.Context(), "git", args...)
		git.Dir, git.Env = dir, env
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "scripts/test"))
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	first, _, _ := strings.Cut(text, "\n== ")
	for _, want := range []string{"the stack's tests: ", "tests with OpenTofu", "rehearsals"} {
		if !strings.Contains(first, "LEFT OUT: ") || !strings.Contains(first, want) {
			t.Errorf("%q is not listed before the first step:\n%s", want, text)
		}
	}
	if strings.Contains(text, "go: downloading") {
		t.Errorf("the output has downloads:\n%s", text)
	}
	if !strings.Contains(text, "a note of vet") {
		t.Errorf("the output lacks errors:\n%s", text)
	}
}
