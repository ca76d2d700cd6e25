package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/larder-registry/larder/scripts/larder/cli"
)

const packaging = "../../packaging"

// packaged returns the files of the package with an ending, such as .service.
func packaged(t *testing.T, ending string, atLeast int) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(packaging, "*"+ending))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < atLeast {
		t.Fatalf("the package has %d files %s, want %d", len(paths), ending, atLeast)
	}
	return paths
}

// unitLines returns the values of a setting in a systemd unit.
func unitLines(t *testing.T, path, setting string) (values []string) {
	t.Helper()
	for line := range strings.Lines(readText(t, path)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), setting+"="); found {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no %s", path, setting)
	}
	return values
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The units and the examples for the options use commands and flags that exist.
func TestServiceFlags(t *testing.T) {
	t.Parallel()
	root := newRoot((&cli.Program{}))
	for _, path := range packaged(t, ".service", 3) {
		words := strings.Fields(unitLines(t, path, "ExecStart")[0])
		if words[0] != "/usr/bin/larder" {
			t.Errorf("%s runs %s, want /usr/bin/larder", path, words[0])
		}
		if words[1] == "serve" {
			words = append(words, strings.Fields(readText(t, filepath.Join(packaging, "larder.env")))...)
		}
		command, checked := subcommand(root, words[1]), 0
		for _, word := range words {
			_, name, isFlag := strings.Cut(strings.Trim(word, "\"`"), "--")
			if !isFlag || name == "help" {
				continue
			}
			checked++
			if command.Flags().Lookup(name) == nil && root.PersistentFlags().Lookup(name) == nil {
				t.Errorf("%s: larder %s has no flag --%s", path, words[1], name)
			}
		}
		if checked < 2 {
			t.Errorf("%s: checked %d flags, want at least 2", path, checked)
		}
	}
}

// The units of the timers are confined as the server is, and have no network.
func TestServicesAreConfined(t *testing.T) {
	t.Parallel()
	server := readText(t, filepath.Join(packaging, "larder.service"))
	_, settings, found := strings.Cut(server, "UMask=0077\n")
	settings, _, _ = strings.Cut(settings, "[Install]")
	if !found || strings.Count(settings, "\n") < 20 {
		t.Fatalf("the settings of larder.service are not found:\n%s", settings)
	}
	for _, name := range []string{"larder-backup.service", "larder-verify.service"} {
		unit := readText(t, filepath.Join(packaging, name))
		for line := range strings.Lines(settings) {
			if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "RestrictAddressFamilies=") {
				continue
			}
			if !strings.Contains(unit, "\n"+line) {
				t.Errorf("%s lacks %s", name, line)
			}
		}
		for _, line := range []string{
			"PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX", "UMask=0077",
		} {
			if !strings.Contains(unit, "\n"+line+"\n") {
				t.Errorf("%s lacks %s", name, line)
			}
		}
	}
}

// A page that starts the timers runs both services too. Otherwise an alert about
// the check would fire until the first Sunday.
func TestTimersBeginWithRun(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text := readText(t, page)
		if !strings.Contains(text, "systemctl enable --now larder-backup.timer larder-verify.timer") {
			continue
		}
		found++
		if want := "systemctl start larder-backup larder-verify"; !strings.Contains(text, want) {
			t.Errorf("%s lacks %q", page, want)
		}
	}
	if found < 2 {
		t.Errorf("%d pages start the timers, want at least 2", found)
	}
}

// systemd stores the listener for the next process, and does not remove a socket
// at a restart.
func TestServiceHandsOver(t *testing.T) {
	t.Parallel()
	unit := filepath.Join(packaging, "larder.service")
	for setting, want := range map[string]string{
		"FileDescriptorStoreMax": "1", "NotifyAccess": "main", "RuntimeDirectoryPreserve": "restart",
	} {
		if got := unitLines(t, unit, setting); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %s", setting, got, want)
		}
	}
}

// The server may listen on port 443, and has no other capability. The units of
// the timers can start a program with that capability in its file, because the
// hint for port 443 has setcap.
func TestServiceCapability(t *testing.T) {
	t.Parallel()
	check := func(name, setting string) {
		got, want := unitLines(t, filepath.Join(packaging, name), setting), []string{"CAP_NET_BIND_SERVICE"}
		if !slices.Equal(got, want) {
			t.Errorf("%s of %s is %q, want %q", setting, name, got, want)
		}
	}
	check("larder.service", "AmbientCapabilities")
	for _, path := range packaged(t, ".service", 3) {
		check(filepath.Base(path), "CapabilityBoundingSet")
	}
}

// Without the package, docs/install.md installs each of its files to the same
// place.
func TestServiceFiles(t *testing.T) {
	t.Parallel()
	type installed struct{ from, to string }
	var commands []installed
	for line := range strings.Lines(readText(t, "../../docs/install.md")) {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "sudo install ") {
			continue
		}
		for _, from := range words[2 : len(words)-1] {
			commands = append(commands, installed{from, words[len(words)-1]})
		}
	}
	files := regexp.MustCompile(`src: (packaging/\S+), dst: ([^\s,]+)`).FindAllStringSubmatch(
		readText(t, "../../.goreleaser.yaml"), -1)
	if len(files) < 9 {
		t.Fatalf("the package has %d files, want at least 9", len(files))
	}
	for _, file := range files {
		if !slices.ContainsFunc(commands, func(c installed) bool {
			matches, err := path.Match(c.from, file[1])
			return err == nil && matches && (c.to == file[2] || c.to == path.Dir(file[2]))
		}) {
			t.Errorf("docs/install.md does not install %s to %s", file[1], file[2])
		}
	}
}

// systemd accepts the units, and considers the services well confined.
func TestServiceUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("LEFT OUT: systemd-analyze is not on PATH")
	}
	program, err := exec.LookPath("larder")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	analyze := func(path string, args ...string) {
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", append(args, filepath.Join(dir, filepath.Base(path)))...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("systemd-analyze %s of %s: %v\n%s", args[0], path, err, out)
		}
		if args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze verify of %s prints:\n%s", path, out)
		}
	}
	services, timers := packaged(t, ".service", 3), packaged(t, ".timer", 2)
	for _, path := range append(slices.Clone(services), timers...) {
		text := strings.Replace(readText(t, path), "/usr/bin/larder", program, 1)
		writeFiles(t, dir, map[string]string{filepath.Base(path): text})
	}
	for _, path := range services {
		analyze(path, "verify")
		analyze(path, "security", "--offline=true", "--threshold=20")
	}
	for _, path := range timers {
		analyze(path, "verify")
	}
}

// The alerts use metrics that the server has. The runbook names them, and has the
// sections to which they lead.
func TestAlerts(t *testing.T) {
	t.Parallel()
	rules := readText(t, filepath.Join(packaging, "larder.rules.yml"))
	metrics := readText(t, "../../pkg/local/monitoring/testdata/metrics.txt")
	names := regexp.MustCompile(`\blarder_\w+`).FindAllString(rules, -1)
	if len(names) < 6 {
		t.Fatalf("the rules have only the metrics %q", names)
	}
	for _, name := range names {
		if !strings.Contains(metrics, "\n"+name) {
			t.Errorf("there is no metric %s", name)
		}
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Labels      struct{ Severity string }
				Annotations struct {
					Summary string
					Runbook string `yaml:"runbook_url"`
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(rules), &file); err != nil {
		t.Fatal(err)
	}
	runbook := readText(t, "../../docs/runbook-one-machine.md")
	slugs := strings.ReplaceAll(strings.ToLower(runbook), " ", "-")
	for _, rule := range file.Groups[0].Rules {
		if !strings.Contains(runbook, "`"+rule.Alert+"`") {
			t.Errorf("the runbook lacks %s", rule.Alert)
		}
		if !slices.Contains([]string{"critical", "warning"}, rule.Labels.Severity) {
			t.Errorf("%s has the severity %q", rule.Alert, rule.Labels.Severity)
		}
		if rule.Annotations.Summary == "" {
			t.Errorf("%s has no summary", rule.Alert)
		}
		slug, ok := strings.CutPrefix(rule.Annotations.Runbook,
			"https://github.com/larder-registry/larder/blob/main/docs/runbook-one-machine.md#")
		if !ok || !strings.Contains(slugs, "\n##-"+slug+"\n") {
			t.Errorf("%s leads to %q, which is no section of the runbook", rule.Alert, rule.Annotations.Runbook)
		}
	}
}
