package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// completeInBash completes a command line in bash. If the package
// bash-completion is missing, it defines the function that the completion
// script calls.
const completeInBash = `
for file in /usr/share/bash-completion/bash_completion /opt/homebrew/etc/profile.d/bash_completion.sh; do
	[ -r "$file" ] && . "$file"
done
declare -F _get_comp_words_by_ref >/dev/null || _get_comp_words_by_ref() {
	words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
}
compopt() { :; } # the builtin works only during completion
source <(larder completion bash) || exit 1
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_larder
printf '%s\n' "${COMPREPLY[@]}"
`

func TestBashCompletion(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("LEFT OUT:", err)
	}
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1"))
	publishModule(t, data, "acme/dns/aws", "1.0.0", withOutput("1"))
	script := filepath.Join(t.TempDir(), "complete.sh")
	if err := os.WriteFile(script, []byte(completeInBash), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
		"larder vers":             {"version"},
		"larder deprecate acme/v": {"acme/vpc/aws"},
		"larder list acme/":       {"acme/dns/aws", "acme/vpc/aws"},
		"larder list --stor":      {"--store"},
		"larder list --qq":        {""},
	} {
		cmd := exec.CommandContext(t.Context(), bash, append([]string{script}, strings.Fields(line)...)...)
		cmd.Env = append(os.Environ(), "LARDER_STORE="+data)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		got := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
		for i := range got { // several completions have descriptions
			got[i], _, _ = strings.Cut(got[i], "  ")
			got[i] = strings.TrimSpace(got[i])
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}
