package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/registry"
)

// little has small amounts that are enough to run all code.
var little = amounts{starts: 1, rounds: 1, requests: 2, inits: 1, modules: 3, providers: 2, versions: 12, reads: 2,
	clients: 3, cold: 6, processes: 2, slow: 50 * time.Millisecond, load: 500 * time.Millisecond, hour: time.Second,
	hourly: 180, releases: 4, reload: true, few: 3, many: 50, attacks: 2,
	attackTime: 20 * time.Second}

// functions builds some of the functions, in the fastest way.
func functions(t *testing.T) map[string]string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("LEFT OUT: functions are built for Linux")
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./functions/modules",
		"./functions/metadata", "./functions/publish", "./functions/mirror", "./functions/pull", "./functions/testdata/bare")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	return map[string]string{
		bare: filepath.Join(dir, "bare"), "modules": filepath.Join(dir, "modules"),
		"metadata": filepath.Join(dir, "metadata"), "publish": filepath.Join(dir, "publish"),
		"mirror": filepath.Join(dir, "mirror"), "pull": filepath.Join(dir, "pull"),
	}
}

// commandLine builds larder.
func commandLine(t *testing.T) string {
	t.Helper()
	larder := filepath.Join(t.TempDir(), "larder")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", larder, "./scripts/larder")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	return larder
}

// cells returns the figures of tables by row and column, such as module
// download/GetItem.
func cells(tables ...table) map[string]*figure {
	found := make(map[string]*figure)
	for _, t := range tables {
		for _, r := range t.rows {
			for i, f := range r.figures {
				found[r.name+"/"+t.columns[i].name] = f
			}
		}
	}
	return found
}

// Cold clients of a mirror that fetches get what they need, and the origin is
// spared.
func testPull(t *testing.T, binaries map[string]string) {
	cases := []pullCase{
		{"open", registry.PullOpen, 3, nil, 0}, {"closed", registry.PullClosed, 1, platforms[:1], little.slow},
	}
	found, err := measurePull(t.Context(), binaries, t.TempDir(), cases, little)
	if errors.Is(err, s3test.ErrNotBuilt) && os.Getenv("LARDER_REQUIRE_CLIENTS") == "" {
		t.Skip("LEFT OUT:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := cells(found.tables...)
	for cell, want := range map[string]float64{
		"open/no archives yet": 0, "open/no index yet": 0, "open/uploads of a package, most": 1,
		"open/downloads of a package by the mirror, most": 1, "closed/from the mirror": float64(little.cold),
		"closed/from the origin": 0, "closed/uploads of a package, most": 1,
	} {
		if f := all[cell]; f == nil || f.value != want {
			t.Errorf("%s: %s, want %v", cell, f, want)
		}
	}
	if got := all["open/from the origin"].value + all["open/from the mirror"].value; got != float64(3*little.cold) {
		t.Errorf("%v providers were installed in open mode, want %d", got, 3*little.cold)
	}
	for cell, f := range all {
		if f != nil && f.verdict() == "above" {
			t.Errorf("%s: %s: %q", cell, f, found.lines)
		}
	}
}

// checkLoad checks that clients and publishers worked without a fault.
func checkLoad(t *testing.T, found result) {
	t.Helper()
	all := cells(found.tables...)
	for _, cell := range []string{"all of them/per second", "zip/median", "inits/count",
		"versions of modules published/count", "memory, median, MiB/last third", "open files, least/last third",
		"with the previous one/connections", "with the renewed one/connections"} {
		if f := all[cell]; f == nil || f.value <= 0 {
			t.Errorf("%s: %s", cell, f)
		}
	}
	for _, cell := range []string{"requests and downloads/count", "versions missing in a listing/count",
		"incomplete versions/count", "errors in the server's log/count", "with the previous one, too late/connections"} {
		if f := all[cell]; f == nil || f.verdict() != "ok" {
			t.Errorf("%s: %s: %q", cell, f, found.lines)
		}
	}
}

// Each section measures something. Most figures depend on the machine, so only
// counts are compared. Allocations cannot be counted beside other tests.
func TestSections(t *testing.T) {
	binaries, larder := functions(t), commandLine(t)
	t.Run("cold", func(t *testing.T) {
		starts, err := measureStarts(t.Context(), binaries, little)
		if err != nil {
			t.Fatal(err)
		}
		for _, cell := range []string{"bare/first poll, least", "modules/first poll, median",
			"modules/first answer, median", "modules/memory"} {
			if f := cells(starts)[cell]; f == nil || f.value <= 0 {
				t.Errorf("%s: %s", cell, f)
			}
		}
	})
	t.Run("warm", func(t *testing.T) {
		tables, err := measureRequests(t.Context(), binaries, little)
		if err != nil {
			t.Fatal(err)
		}
		found := cells(tables...)
		for cell, want := range map[string]float64{
			"module versions, of 1/GetItem": 1, "module versions, of 5,000/GetItem": 1, "module versions, of 5,000/Query": 0,
			"module versions, of 5,000/read units": 13,
			"module versions, of 100/read units":   1, "module download/GetItem": 1, "module download/the first also GetItem": 1,
			"module download/S3": 0,
		} {
			if f := found[cell]; f == nil || f.value != want {
				t.Errorf("%s: %s, want %v", cell, f, want)
			}
		}
		for _, cell := range []string{"module download/processor, median",
			"module download/allocations without the SDK", "module download/answer"} {
			if f := found[cell]; f == nil || f.value <= 0 {
				t.Errorf("%s: %s", cell, f)
			}
		}
	})
	t.Run("scale", func(t *testing.T) {
		found, err := scale(t.Context(), little)
		if err != nil {
			t.Fatal(err)
		}
		if f := cells(found.tables...)["provider download/in this one, median"]; f == nil || f.value <= 0 {
			t.Error(f)
		}
	})
	t.Run("search", func(t *testing.T) {
		tables, err := measureSearches(t.Context(), binaries, t.TempDir(), little)
		if err != nil {
			t.Fatal(err)
		}
		found := make(map[string]*figure)
		for _, table := range tables {
			for cell, f := range cells(table) {
				found[table.title+"/"+cell] = f
			}
		}
		for cell, want := range map[string]float64{
			"50 modules in 40 namespaces, SQLite/search/reads, first":      41,
			"50 modules in 40 namespaces, DynamoDB/search/reads, first":    41,
			"50 modules in 40 namespaces, DynamoDB/search/reads, next":     0,
			"50 modules in one namespace, DynamoDB/list/reads, first":      2,
			"50 modules in one namespace, DynamoDB/version/reads, next":    2,
			"50 modules in one namespace, DynamoDB/version/objects read":   1,
			"50 modules in one namespace, DynamoDB/list/read units, next":  0,
			"50 modules in one namespace, DynamoDB/list/read units, first": 17,
		} {
			if f := found[cell]; f == nil || f.value != want {
				t.Errorf("%s: %s, want %v", cell, f, want)
			}
		}
		for _, cell := range []string{"the function/3 modules in 40 namespaces/memory",
			"the function/50 modules in one namespace/next, processor", "3 modules in 40 namespaces, SQLite/list/answer"} {
			if f := found[cell]; f == nil || f.value <= 0 {
				t.Errorf("%s: %s", cell, f)
			}
		}
	})
	t.Run("pages", func(t *testing.T) {
		found, err := pages(t.Context(), little)
		if err != nil {
			t.Fatal(err)
		}
		all := cells(found.tables...)
		for cell, want := range map[string]float64{
			"home/reads": 0, "home/objects read": 0, "search/reads": 0, "difference/objects read": 2,
		} {
			if f := all[cell]; f == nil || f.value != want {
				t.Errorf("%s: %s, want %v", cell, f, want)
			}
		}
		for _, page := range append(slices.Clone(libraryPages), showcasePages...) {
			for _, column := range []string{"/reads", "/objects read", "/compressed"} {
				if f := all[page.name+column]; f == nil || f.verdict() != "ok" {
					t.Errorf("%s%s: %s", page.name, column, f)
				}
			}
			if f := all[page.name+"/processor"]; f == nil || f.value <= 0 {
				t.Errorf("%s/processor: %s", page.name, f)
			}
		}
	})
	t.Run("pull", func(t *testing.T) { testPull(t, binaries) })
	t.Run("load", func(t *testing.T) {
		found, err := measureLoad(t.Context(), larder, t.TempDir(), little)
		if err != nil {
			t.Fatal(err)
		}
		checkLoad(t, found)
	})
	t.Run("hour", func(t *testing.T) {
		found, err := measureHour(t.Context(), larder, t.TempDir(), little)
		if err != nil && !errors.Is(err, errRate) {
			t.Fatal(err)
		}
		checkLoad(t, found)
	})
	t.Run("hostile", func(t *testing.T) {
		found, err := measureAttacks(t.Context(), larder, binaries, t.TempDir(), little)
		if errors.Is(err, s3test.ErrNotBuilt) && os.Getenv("LARDER_REQUIRE_CLIENTS") == "" {
			t.Skip("LEFT OUT:", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]*figure)
		for _, table := range found.tables {
			for cell, f := range cells(table) {
				all[table.title+"/"+cell] = f
			}
		}
		for _, cell := range []string{
			"raw requests, larder serve/distinct requests/4xx", "events, functions/publish/4xx",
			"bad credentials/larder serve/401", "bad credentials/the function of modules/401",
			"archives, larder serve/modules/sent", "archives, larder serve/provider releases/sent",
			"configuration, larder serve/nesting/refused", "configuration, the function that publishes/nesting/refused",
			"configuration, larder mirror lock/nesting/refused",
			"an honest publisher beside four slow ones/larder serve/slowest",
			"logs/larder serve/secrets used", "logs/functions/lines",
		} {
			if f := all[cell]; f == nil || f.value <= 0 {
				t.Errorf("%s: %s: %q", cell, f, found.lines)
			}
		}
		for _, cell := range []string{
			"raw requests, larder serve/distinct requests/5xx", "events, functions/publish/5xx",
			"bad credentials/larder serve/good one refused",
		} {
			if f := all[cell]; f == nil || f.verdict() != "ok" {
				t.Errorf("%s: %s: %q", cell, f, found.lines)
			}
		}
	})
	t.Run("init", func(t *testing.T) {
		if found, missing := clients.Find(); len(found) == 0 {
			t.Skip("LEFT OUT:", missing)
		}
		init, err := measureInit(t.Context(), t.TempDir(), "", little)
		if err != nil {
			t.Fatal(err)
		}
		for _, side := range []string{"the registry", "a static file server"} {
			if f := cells(init)[side+"/median"]; f == nil || f.value <= 0 {
				t.Errorf("%s: %s", side, f)
			}
		}
	})
}

// A figure above its bound fails its part, in both output formats.
func TestReport(t *testing.T) {
	t.Parallel()
	p := part{Section: "warm", About: "what it is", Tables: []table{{
		title: "reads", columns: []column{{"GetItem", ""}, {"processor", "µs"}, {"Query", ""}},
		rows: []row{{"download", []*figure{atMost(2, 1), is(123.456), nil}},
			{"versions", []*figure{atMost(1, 1), is(9.876), is(0)}}},
	}}}
	if p.ok() {
		t.Error("a part with a figure above its bound is ok")
	}
	var text bytes.Buffer
	p.print(&text)
	want := `
warm: what it is

  reads      GetItem       processor, µs   Query
  download   2 > 1 ABOVE   123             -
  versions   1 ≤ 1 ok      9.88            0
`
	if text.String() != want {
		t.Errorf("%s", &text)
	}
	data, err := json.Marshal(p)
	if err != nil || !strings.Contains(string(data),
		`"figures":{"GetItem":{"value":2,"bound":1,"verdict":"above"},"processor":{"value":123.456,"unit":"µs"}}`) {
		t.Errorf("%s, %v", data, err)
	}
	if fine := (part{}); !fine.ok() {
		t.Error("an empty part is not ok")
	}
	if failed := (part{Failed: "why"}); failed.ok() {
		t.Error("a failed part is ok")
	}
}

// Each section that is named on the command line must exist.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		code int
	}{{[]string{"warmth"}, 2}, {[]string{"cold", "warmth"}, 2}, {[]string{"--yaml"}, 2}, {[]string{"--help"}, 0}} {
		var out, progress bytes.Buffer
		if code := run(t.Context(), test.args, &out, &progress); code != test.code || out.Len() > 0 ||
			!strings.Contains(progress.String(), "usage: scripts/bench") {
			t.Errorf("%q: %d, %s%s", test.args, code, &out, &progress)
		}
	}
}

// A client detects incomplete versions, missing versions and failed requests.
func TestLoadFindsFaults(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/.well-known/terraform.json":         `{"modules.v1":"/m/"}`,
		"/m/acme/module-0/aws/versions":       `{"modules":[{"versions":[{"version":"1.0.1"},{"version":"1.0.0"}]}]}`,
		"/m/acme/module-0/aws/1.0.1/download": "",
	}
	var whole atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if r.URL.Path == "/archive" {
			answer, ok = "half", true
			if whole.Load() {
				answer = "whole"
			}
		}
		if !ok {
			w.WriteHeader(http.StatusInternalServerError)
		}
		w.Header().Set("X-Terraform-Get",
			"https://"+r.Host+"/archive?archive=tar.gz&checksum=sha256:"+fmt.Sprintf("%x",
				sha256.Sum256([]byte("whole"))))
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	l := &ledger{versions: make(map[string][]string), has: make(map[string]bool)}
	c := &loadClient{server: &loaded{url: server.URL}, ledger: l, http: server.Client(),
		took: make(map[string]times)}
	m := loadedModule(0)
	if err := c.module(t.Context(), m, ""); !errors.Is(err, errHalf) {
		t.Errorf("other bytes: %v", err)
	}
	if got := l.of(m.Path()); len(got) != 2 {
		t.Errorf("the ledger has %q", got)
	}
	whole.Store(true)
	if err := c.module(t.Context(), m, ""); err != nil {
		t.Error(err)
	}
	l.add(m.Path(), "1.0.2")
	if err := c.module(t.Context(), m, ""); !errors.Is(err, errMissing) {
		t.Errorf("a version that is not listed: %v", err)
	}
	if err := c.module(t.Context(), loadedModule(1), ""); !errors.Is(err, errRequest) {
		t.Errorf("500: %v", err)
	}
}

// Memory that grows is above its bound. Open files are if the lowest number of
// them grows.
func TestOverTime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		memory, files []float64
		want          [2]string // verdicts on memory and files
	}{
		"flat":          {[]float64{1, 10, 10, 10, 11, 9, 10}, []float64{9, 5, 7, 6, 8, 5, 9}, [2]string{"ok", "ok"}},
		"memory grows":  {[]float64{1, 10, 10, 9, 13, 13}, []float64{9, 5, 7, 8, 5, 9}, [2]string{"above", "ok"}},
		"a file leaked": {[]float64{1, 1, 10, 10, 10, 10}, []float64{9, 9, 5, 7, 8, 6}, [2]string{"ok", "above"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got [2]string
			for i, r := range overTime("", test.memory, test.files, flatMemory, flatFiles).rows {
				got[i] = r.figures[4].verdict()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Connections are counted by certificate. Those with the previous one are a
// fault only if the server had time to read the new files.
func TestRenewalCounts(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own authority %t", own), func(t *testing.T) {
			t.Parallel()
			r, _, err := prepareRenewal(t.TempDir(), own, false)
			if err != nil {
				t.Fatal(err)
			}
			before, after := r.pairs[0].certificate, r.pairs[1].certificate
			r.add(before, time.Now())
			if err := r.check(); err == nil {
				t.Error("a certificate that no connection got is renewed")
			}
			if err := r.begin(nil); err != nil {
				t.Fatal(err)
			}
			r.add(before, r.begun.Add(renewedWithin))
			r.add(after, r.begun.Add(renewedWithin+time.Second))
			r.add(before, r.begun.Add(renewedWithin+time.Second))
			if err := r.check(); err != nil {
				t.Error(err)
			}
			got := make(map[string]float64)
			for cell, f := range cells(r.table("")) {
				if f != nil {
					got[cell] = f.value
				}
			}
			want := map[string]float64{
				"with the previous one/connections": 3, "with the renewed one/connections": 1,
				"with the renewed one/first, after":           16,
				"with the previous one, too late/connections": 1, "with the previous one, too late/first, after": 15,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			installed, err := os.ReadFile(r.cert)
			if err != nil || !bytes.Equal(installed, r.pairs[1].cert) {
				t.Errorf("the file has another certificate than the new one, or %v", err)
			}
		})
	}
}

// A rate that was not reached is not a fault of the server.
func TestRate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		started int
		want    error
	}{"all": {1000, nil}, "one of 100 late": {990, nil}, "more of them late": {989, errRate}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := reached("", test.started, 1000, time.Minute); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
