// Bench measures the performance and the cost of a registry. It measures how
// functions start, the cost of requests, and how an init compares with a static
// file server. It also measures whether these grow with the number of published
// versions. It prints figures and their bounds, and exits with status 1 if a
// figure exceeds its bound. scripts/bench builds and runs it.
//
// It also attacks a registry of its own on loopback, and counts the faults.
//
// The figures depend on the machine. Compared figures are measured in turns in
// the same run, so that other load on the machine affects all of them.
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

// section is a part of the benchmark that can be selected by name.
type section struct {
	name, about string
	// tools are the programs that scripts/tools must build first.
	tools   []string
	measure func(context.Context, amounts) (result, error)
}

// result is the result of a section: tables, or the output of another program,
// which checks its own bounds.
type result struct {
	tables []table
	lines  []string
}

var sections = []section{
	{"cold", "start times and sizes of the functions", nil, cold},
	{"warm", "work of a request in a function, the table and the bucket", nil, warm},
	{"init", "init from the registry, compared with a static file server", []string{"tofu"}, initialise},
	{"scale", "reads from a large registry, compared with a small one", nil, scale},
	{"search", "lists and searches of a large registry", nil, search},
	{"pages", "processor time, size and reads of the pages", nil, pages},
	{"pull", "many clients at once of a mirror that has nothing yet", []string{"versitygw"}, pull},
	{"load", "many concurrent clients, and an hour's requests in ten minutes", nil, load},
	{"hostile", "attacks on a local registry and on the functions", []string{"versitygw"}, attack},
	{"pack", "packing modules", nil, goTest("./pkg/archive", "-run", "^$", "-bench", "Pack", "-benchmem")},
	{"publish", "publishing large providers, compared with uploading and verifying the files",
		[]string{"versitygw"}, goTest("./scripts/larder", "-v", "-timeout", "30m", "-run",
			"TestGibibyte|TestPublishTime")},
	{"publish-api", "publishing through the registry, compared with AWS credentials", []string{"versitygw"},
		goTest("./functions", "-v", "-run", "TestPublishAPI")},
}

// amounts are the numbers of measurements.
type amounts struct {
	starts           int           // of each function
	rounds, requests int           // requests of each kind, in so many rounds
	inits            int           // on each side
	modules          int           // of a large registry
	providers        int           // of a large registry
	versions         int           // of each of its providers
	reads            int           // of each kind, in each round
	clients          int           // at once
	load             time.Duration // in which they send as many requests as they can
	hour             time.Duration // in which they send the requests of an hour
	hourly           int           // requests of an hour
	releases         int           // versions published in an hour
	reload           bool          // request that the server reloads a renewed certificate
	cold             int           // clients at once of an empty mirror
	processes        int           // of the function that serves the mirror
	slow             time.Duration // how long a slow origin takes for each response
	few, many        int           // modules of the registries that are searched
	cached           time.Duration // how long functions cache the catalog, and a little more
	attacks          int           // of each kind of attack, at most
	attackTime       time.Duration // for the configuration that is sent to one target
}

var full = amounts{starts: 31, rounds: 10, requests: 100, inits: 11, modules: 10_000, providers: 2_000, versions: 200,
	reads: 500, clients: 200, load: time.Minute, hour: 10 * time.Minute, hourly: 360_000, releases: 600, cold: 200,
	processes: 20, slow: 3 * time.Second, few: 1_000, many: 20_000,
	cached: 61 * time.Second, attacks: 1 << 20, attackTime: 15 * time.Minute}

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
		fmt.Fprintln(progress, "bench: a section failed, or a figure exceeds its bound")
		return 1
	}
	return 0
}

func (s section) run(ctx context.Context) (result, error) {
	if len(s.tools) > 0 {
		if out, err := exec.CommandContext(ctx, "scripts/tools", s.tools...).CombinedOutput(); err != nil {
			return result{}, fmt.Errorf("cannot run scripts/tools: %w\n%s", err, out)
		}
	}
	return s.measure(ctx, full)
}

// goTest returns a section that runs a test or a benchmark of another package,
// which is too slow for the usual tests.
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
