package calls_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// drawn matches the name of a phase, and a hop of a function to the table, the
// object store or an origin.
var drawn = regexp.MustCompile(`(?m)^  (?:Note over C,O: (.+)|[FP]->>([TSO]): (\w+).*)$`)

// TestPullDiagram compares the hops of the diagram of a pull, in
// docs/request-paths.md, with the calls of a provider's operations in functions.
// The diagram has their names.
func TestPullDiagram(t *testing.T) {
	page, err := os.ReadFile("../../docs/request-paths.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## A pull\n")
	_, diagram, _ := strings.Cut(section, "```mermaid\n")
	diagram, _, _ = strings.Cut(diagram, "```\n")
	got, phase := make(map[string]count), ""
	for _, m := range drawn.FindAllStringSubmatch(diagram, -1) {
		if m[1] != "" {
			phase = "pull in functions, " + m[1]
			continue
		}
		c := got[phase]
		switch m[2] + " " + m[3] {
		case "T GetItem":
			c.Get.Calls++
		case "T Snapshot":
			c.Snapshot.Calls++
		case "T Query":
			c.Query.Calls++
		case "T Write":
			c.Write.Calls++
		case "S HEAD", "S GET":
			c.ObjectReads++
		case "S PUT":
			c.ObjectWrites++
		case "O GET":
			c.Origin++
		default:
			t.Errorf("unknown hop: %s", m[0])
		}
		got[phase] = c
	}
	want := make(map[string]count)
	for _, r := range pulls(t, openSQLite, true) {
		if strings.Contains(r.name, "warm") || strings.Contains(r.name, "module") {
			continue
		}
		for _, m := range []*method{&r.Get, &r.Snapshot, &r.Query, &r.Write} {
			m.Items = 0 // a hop has many
		}
		want[r.name] = r.count
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hops of the diagram (-calls +diagram):\n%s", diff)
	}
}
