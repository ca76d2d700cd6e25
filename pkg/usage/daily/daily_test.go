package daily_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/pkg/usage/daily"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// entry returns the log entry of a request: CALLER KIND ADDRESS VERSION, with -
// for nothing.
func entry(request string) *requestlog.Entry {
	fields := strings.Fields(request)
	for i := range fields {
		fields[i] = strings.TrimPrefix(fields[i], "-")
	}
	return &requestlog.Entry{
		Caller: fields[0], Download: requestlog.Download(fields[1]), Address: fields[2], Version: fields[3],
	}
}

// counted returns the downloads of a report as text.
func counted(report usage.Report) []string {
	var all []string
	for _, d := range report.Downloads {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", d.Count, d.Address.Path(), d.Version, d.Caller)))
	}
	return all
}

// count returns the report of a query, which must succeed.
func count(t *testing.T, dir string, q usage.Query) usage.Report {
	t.Helper()
	report, err := daily.Open(dir).Count(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func address(t *testing.T, text string) registry.Address {
	t.Helper()
	a, err := registry.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := noon
	counter := daily.NewTestCounter(dir, slog.Default(), 100, func() time.Time { return now })
	for _, day := range []struct {
		before   int
		requests []string
	}{
		{40, []string{"ci module acme/vpc/aws 1.0.0"}},
		{1, []string{"ci module acme/vpc/aws 1.2.0", "ada module acme/vpc/aws 1.2", "- provider acme/inventory 1.0.0"}},
		{0, []string{
			"ci module acme/vpc/aws 1.2", "ci module acme/vpc/aws 1.3.0",
			"ci mirror registry.example.com/acme/inventory 2.0.0", "ci mirror registry.example.com/acme/vpc/aws 5.0.0",
			// None of these is a download.
			"ci - acme/vpc/aws 1.2.0", "ci other acme/vpc/aws 1.2.0", "ci module acme 1.2.0", "ci module acme/vpc/aws x",
		}},
	} {
		now = noon.AddDate(0, 0, -day.before)
		for _, request := range day.requests {
			counter.Observe(entry(request))
		}
		counter.Flush(t.Context())
	}
	version := registry.Version{Major: 1, Minor: 2}
	for _, test := range []struct {
		name  string
		query usage.Query
		days  int
		want  []string
	}{
		{"all", usage.Query{}, 60, []string{
			"3 modules/acme/vpc/aws 1.2.0", "1 mirror-modules/registry.example.com/acme/vpc/aws 5.0.0",
			"1 mirror/registry.example.com/acme/inventory 2.0.0",
			"1 modules/acme/vpc/aws 1.3.0", "1 modules/acme/vpc/aws 1.0.0", "1 providers/acme/inventory 1.0.0",
		}},
		{"module", usage.Query{Address: address(t, "acme/vpc/aws")}, 30, []string{
			"2 modules/acme/vpc/aws 1.2.0 ci", "1 modules/acme/vpc/aws 1.3.0 ci", "1 modules/acme/vpc/aws 1.2.0 ada",
		}},
		{"version", usage.Query{Address: address(t, "acme/vpc/aws"), Version: &version}, 30, []string{
			"2 modules/acme/vpc/aws 1.2.0 ci", "1 modules/acme/vpc/aws 1.2.0 ada",
		}},
		{"provider", usage.Query{Address: address(t, "acme/inventory")}, 30, []string{"1 providers/acme/inventory 1.0.0"}},
		{"today", usage.Query{Address: address(t, "acme/vpc/aws")}, 0, []string{
			"1 modules/acme/vpc/aws 1.3.0 ci", "1 modules/acme/vpc/aws 1.2.0 ci",
		}},
		{"nothing", usage.Query{Address: address(t, "acme/dns/aws")}, 30, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.query.From, test.query.To = noon.AddDate(0, 0, -test.days), noon
			if diff := cmp.Diff(test.want, counted(count(t, dir, test.query))); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

// A report covers whole days, since the first server and within 90 days.
func TestPeriod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := noon.AddDate(0, 0, -5)
	daily.NewTestCounter(dir, slog.Default(), 1, func() time.Time { return now }).Flush(t.Context())
	midnight := noon.Add(-12 * time.Hour)
	for _, test := range []struct {
		name           string
		from, to, want time.Time
	}{
		{"a whole day", noon.Add(-time.Hour), noon, midnight},
		{"since the first server", noon.AddDate(0, 0, -7), noon, now},
		{"retention", noon.AddDate(-1, 0, 0), noon.AddDate(1, 0, 0), midnight.AddDate(1, 0, -90)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report := count(t, dir, usage.Query{From: test.from, To: test.to})
			if !report.From.Equal(test.want) {
				t.Errorf("the report begins at %s, want %s", report.From.UTC(), test.want)
			}
		})
	}
}

// Counts older than 90 days are removed.
func TestRetention(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := noon
	counter := daily.NewTestCounter(dir, slog.Default(), 10, func() time.Time { return now })
	for _, step := range []struct {
		days    int
		request string
	}{{0, "ci module acme/old/aws 1.0.0"}, {1, "ci module acme/new/aws 1.0.0"}, {91, "ci module acme/now/aws 1.0.0"}} {
		now = noon.AddDate(0, 0, step.days)
		counter.Observe(entry(step.request))
		counter.Flush(t.Context())
	}
	// This period does not depend on the time, so it has what is in the file.
	got := counted(count(t, dir, usage.Query{From: noon, To: noon.AddDate(0, 0, 1)}))
	want := []string{"1 modules/acme/new/aws 1.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// Several servers add to the same counts.
func TestCountAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const servers, rounds, each = 4, 5, 50
	var running sync.WaitGroup
	for range servers {
		counter := daily.NewTestCounter(dir, slog.Default(), 10, func() time.Time { return noon })
		running.Go(func() {
			for range rounds {
				var clients sync.WaitGroup
				for range each {
					clients.Go(func() { counter.Observe(entry("ci module acme/vpc/aws 1.0.0")) })
				}
				counter.Flush(context.WithoutCancel(t.Context()))
				clients.Wait()
			}
			counter.Close()
		})
	}
	running.Wait()
	got := counted(count(t, dir, usage.Query{From: noon, To: noon}))
	want := []string{fmt.Sprintf("%d modules/acme/vpc/aws 1.0.0", servers*rounds*each)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// A counter has a bounded number of rows in memory, and logs once that it
// drops downloads.
func TestBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer
	counter := daily.NewTestCounter(dir, slog.New(slog.NewTextHandler(&log, nil)), 2, func() time.Time { return noon })
	for range 3 {
		for i := range 5 {
			counter.Observe(entry(fmt.Sprintf("ci module acme/vpc/aws 1.%d.0", i)))
		}
		counter.Flush(t.Context())
	}
	got := counted(count(t, dir, usage.Query{From: noon, To: noon}))
	want := []string{"3 modules/acme/vpc/aws 1.1.0", "3 modules/acme/vpc/aws 1.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if n := strings.Count(log.String(), "dropped=3"); n != 1 {
		t.Errorf("the log reports %d times that downloads were dropped, want once:\n%s", n, &log)
	}
}

// A file that cannot be used is reported once. When it is usable again, the
// counts since then are written.
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"other content": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 8192), 0o600) },
		"folder":        func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, daily.Name)
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			counter := daily.NewTestCounter(dir, slog.New(slog.NewTextHandler(&log, nil)), 10, func() time.Time { return noon })
			for range 3 {
				counter.Observe(entry("ci module acme/vpc/aws 1.0.0"))
				counter.Flush(t.Context())
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
				t.Errorf("the log has %d errors, want 1:\n%s", n, &log)
			}
			_, err := daily.Open(dir).Count(t.Context(), usage.Query{From: noon, To: noon})
			if err == nil || !strings.Contains(registry.Hint(err), daily.Name) {
				t.Errorf("Count returns %v with the hint %q, which does not name the file", err, registry.Hint(err))
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			counter.Close()
			got := counted(count(t, dir, usage.Query{From: noon, To: noon}))
			if diff := cmp.Diff([]string{"3 modules/acme/vpc/aws 1.0.0"}, got); diff != "" {
				t.Errorf("counts after the repair (-want +got):\n%s", diff)
			}
			if !strings.Contains(log.String(), "stored again") {
				t.Errorf("the log does not report the end of the failure:\n%s", &log)
			}
		})
	}
}

func TestNeverCounted(t *testing.T) {
	t.Parallel()
	_, err := daily.Open(t.TempDir()).Count(t.Context(), usage.Query{From: noon, To: noon})
	if !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("got %v, want %v", err, registry.ErrNotFound)
	}
}

// A write that was interrupted is repeated by Close.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer
	counter := daily.NewTestCounter(dir, slog.New(slog.NewTextHandler(&log, nil)), 10, func() time.Time { return noon })
	counter.Observe(entry("ci module acme/vpc/aws 1.0.0"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	counter.Run(ctx)
	counter.Close()
	got := counted(count(t, dir, usage.Query{From: noon, To: noon}))
	if diff := cmp.Diff([]string{"1 modules/acme/vpc/aws 1.0.0"}, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if log.Len() > 0 {
		t.Errorf("the log has:\n%s", &log)
	}
}

// Only the owner can read the names of callers.
func TestPermissions(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	dir := t.TempDir()
	daily.NewTestCounter(dir, slog.Default(), 1, time.Now).Flush(t.Context())
	info, err := os.Stat(filepath.Join(dir, daily.Name))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("the file has the permissions %o, want 600", got)
	}
}

// The total of an address has all its versions and callers. A module can have
// the same name as a mirrored provider.
func TestTotalDownloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := address(t, "acme/vpc/aws")
	if total, err := daily.Open(dir).TotalDownloads(t.Context(), a); err != nil || total.Count != 0 {
		t.Errorf("without a file: %+v, %v", total, err)
	}
	counter := daily.NewTestCounter(dir, slog.Default(), 100, func() time.Time { return noon })
	for _, request := range []string{
		"ada module acme/vpc/aws 1.0.0", "- module acme/vpc/aws 1.1.0", "- mirror acme.example.com/vpc/aws 1.0.0",
		"- provider acme/vpc 1.0.0",
	} {
		counter.Observe(entry(request))
	}
	counter.Flush(t.Context())
	total, err := daily.Open(dir).TotalDownloads(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(registry.Downloads{Count: 2, Last: noon}, total); diff != "" {
		t.Errorf("total (-want +got):\n%s", diff)
	}
	mirrored, err := daily.Open(dir).TotalDownloads(t.Context(), address(t, "acme.example.com/vpc/aws"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(registry.Downloads{Count: 1, Last: noon}, mirrored); diff != "" {
		t.Errorf("of the mirror (-want +got):\n%s", diff)
	}
	all, err := daily.Open(dir).AllTotals(t.Context(), "mod")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]registry.Downloads{"modules/acme/vpc/aws": {Count: 2, Last: noon}}, all); diff != "" {
		t.Errorf("all modules (-want +got):\n%s", diff)
	}
}
