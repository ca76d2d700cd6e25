// Bench measures what a registry costs its clients and its owner: how functions start, what a request takes, how an init
// compares with a file server, and whether any of it grows with what is published. It prints figures, beside the bounds
// that some have, and exits with 1 where one is exceeded. scripts/bench builds and runs it.
//
// It also attacks a registry of its own on loopback, and counts what an attack breaks.
//
// Figures are of the machine on which it runs. What is compared is measured in the same run, in turns, so that what else
// the machine does meets all of it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// section is a part that can be asked for by name.
type section struct {
	name, about string
	// tools are what scripts/tools must have built.
	tools   []string
	measure func(context.Context, amounts) (result, error)
}

// result is what a section has found out: tables, or the lines of another program, which has judged them itself.
type result struct {
	tables []table
	lines  []string
}

var sections = []section{
	{"cold", "how functions start, and how large they are", nil, cold},
	{"warm", "what a request takes of a function, of the table and of the bucket", nil, warm},
	{"init", "init of the registry, beside the same files from a static file server", []string{"tofu"}, initialise},
	{"calls", "calls of the table and of the object store that each operation takes", nil, calls},
	{"scale", "reads of a large registry on this machine, beside those of a small one", nil, scale},
	{"load", "many clients of the registry on this machine at once, while versions are published", nil, load},
	{"hostile", "attacks on the registry of this machine and on the functions", []string{"versitygw"}, attack},
	{"pack", "packing modules", nil, goTest("./pkg/archive", "-run", "^$", "-bench", "Pack", "-benchmem")},
	{"publish", "publishing large providers, beside an uploader and a verifier of the same files", []string{"versitygw"}, goTest("./scripts/larder", "-v", "-timeout", "30m", "-run", "TestGibibyte|TestPublishTime")},
	{"publish-api", "publishing through the registry, beside publishing with AWS credentials", []string{"versitygw"}, goTest("./functions", "-v", "-run", "TestPublishAPI")},
}

// amounts say how much is measured.
type amounts struct {
	starts           int // of each function
	rounds, requests int // requests of each kind, in so many rounds
	inits            int // on each side
	modules          int // of a large registry
	providers        int // of a large registry
	versions         int // of each of its providers
	reads            int // of each kind, in each round
	clients          int // at once
	load             time.Duration
	mirrored         int           // versions that are mirrored at once
	together         int           // rounds of two publishes at once
	attacks          int           // of each kind of attack, at most
	attackTime       time.Duration // for the configuration that is sent to one target
}

var full = amounts{starts: 31, rounds: 10, requests: 100, inits: 11, modules: 10_000, providers: 2_000, versions: 200, reads: 500, clients: 200, load: time.Minute, mirrored: 200, together: 20, attacks: 1 << 20, attackTime: 15 * time.Minute}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: scripts/bench [--json] [SECTION...]\n\nWithout a section, all of them:")
	for _, s := range sections {
		fmt.Fprintf(w, "  %-12s%s\n", s.name, s.about)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) (code int) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.Usage = func() { usage(progress) }
	asJSON := flags.Bool("json", false, "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	var wanted []section
	for _, s := range sections {
		if flags.NArg() == 0 || slices.Contains(flags.Args(), s.name) {
			wanted = append(wanted, s)
		}
	}
	if flags.NArg() > 0 && len(wanted) != flags.NArg() {
		usage(progress)
		return 2
	}
	r := report{Machine: thisMachine(), OK: true}
	if !*asJSON {
		r.Machine.print(out)
	}
	for _, s := range wanted {
		fmt.Fprintln(progress, "measuring", s.name, "...")
		found, err := s.run(ctx)
		if ctx.Err() != nil {
			fmt.Fprintln(progress, "bench: interrupted")
			return 1
		}
		p := part{Section: s.name, About: s.about, Tables: found.tables, Lines: found.lines}
		if err != nil {
			p.Failed = err.Error()
		}
		r.Sections = append(r.Sections, p)
		r.OK = r.OK && p.ok()
		if !*asJSON {
			p.print(out)
		}
	}
	if *asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			fmt.Fprintln(progress, "bench:", err)
			return 1
		}
	}
	if !r.OK {
		fmt.Fprintln(progress, "bench: something failed, or is above its bound")
		return 1
	}
	return 0
}

func (s section) run(ctx context.Context) (result, error) {
	if len(s.tools) > 0 {
		if out, err := exec.CommandContext(ctx, "scripts/tools", s.tools...).CombinedOutput(); err != nil {
			return result{}, fmt.Errorf("scripts/tools: %w\n%s", err, out)
		}
	}
	return s.measure(ctx, full)
}

// goTest is a section that is a test or a benchmark of another package, which would take too long in each run of the tests.
func goTest(args ...string) func(context.Context, amounts) (result, error) {
	return func(ctx context.Context, _ amounts) (result, error) {
		cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-timeout=60m"}, args...)...)
		cmd.Env = append(os.Environ(), "LARDER_BENCH=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("go test %s: %w", strings.Join(args, " "), err)
		}
		return result{lines: strings.Split(strings.TrimRight(string(out), "\n"), "\n")}, err
	}
}
