package pkg_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A tag of an action can be moved to other code, and jobs that use an action
// can write releases. So workflows, examples and docs must pin each action to a
// commit, followed by its version.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"../.github/workflows/*.y*ml", "../examples/*.y*ml", "../action.yml", "../README.md",
		"../docs/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	uses := regexp.MustCompile(`(?m)^[ \t]*(?:- )?uses:[ \t]*(.*)$`)
	pinned := regexp.MustCompile(`^[\w.-]+(?:/[\w.-]+)+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$`)
	local := regexp.MustCompile(`^\./`)
	versions := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range uses.FindAllStringSubmatch(string(text), -1) {
			action := match[1]
			switch name, _, _ := strings.Cut(action, "@"); {
			case local.MatchString(action):
			case !pinned.MatchString(action):
				t.Errorf("%s uses %s: name its full commit, followed by # vX.Y.Z", file, action)
			case versions[name] != "" && versions[name] != action:
				t.Errorf("%s uses %s, and another file uses %s", file, action, versions[name])
			default:
				versions[name] = action
			}
		}
	}
	if len(versions) == 0 && !t.Failed() {
		t.Error("there are no actions")
	}
}
