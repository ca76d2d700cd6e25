package main

import (
	"archive/zip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/access"
)

// Publishing a zip of 1 GiB needs at most 128 MiB of memory. scripts/bench runs
// this test.
func TestGibibyte(t *testing.T) {
	if os.Getenv("LARDER_BENCH") == "" {
		t.Skip("scripts/bench runs it")
	}
	const size, bound = 1 << 30, 128 << 20
	key := signingKey(t, "Ed25519")
	dir, data := t.TempDir(), newData(t)
	const name = "terraform-provider-note_1.0.0"
	f, err := os.Create(filepath.Join(dir, name+"_linux_amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	z := zip.NewWriter(io.MultiWriter(f, hash))
	header := &zip.FileHeader{Name: "terraform-provider-note_v1.0.0", Method: zip.Store}
	header.SetMode(0o755)
	w, err := z.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, rand.Reader, size); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{
		name + "_SHA256SUMS":    fmt.Sprintf("%s  %s_linux_amd64.zip\n", hex.EncodeToString(hash.Sum(nil)), name),
		name + "_manifest.json": `{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`,
	})
	if err := key.SignRelease(dir); err != nil {
		t.Fatal(err)
	}
	for store, env := range map[string]map[string]string{"dir:" + data: nil, "stack:larder": onStack(t)} {
		run := func(args ...string) *exec.Cmd {
			return withEnv(t, env, append(args, "--store", store)...)
		}
		if out, err := run("key", "add", "acme", keyFile(t, key)).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		cmd := run("publish", "provider", dir, "acme/note")
		begun := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		peak, ok := peakMemory(cmd.ProcessState)
		if !ok {
			t.Skip("LEFT OUT: this system does not report the peak memory")
		}
		t.Logf("%s: peak memory %d MiB, %.1f s", store, peak>>20, time.Since(begun).Seconds())
		if peak > bound {
			t.Errorf("%s: peak memory is %d MiB, more than %d", store, peak>>20, bound>>20)
		}
	}
}

// BenchmarkInit initialises a configuration with a module and a provider: from a
// registry, and from a server that only repeats the registry's responses. They
// take turns.
func BenchmarkInit(b *testing.B) {
	const most = 1.15 // times the time from the other server
	found := clients.Need(b)
	data, key := newData(b), signingKey(b, "Ed25519")
	publishModule(b, data, "acme/hello/null", "1.0.0", withOutput("x"))
	addKey(b, data, "acme", key)
	larder(b, "publish", "provider", releaseOf(b, key), "acme/note", "--store", "dir:"+data)
	registry := opened(b, data)
	var servers [2]*httptest.Server
	var took [2][]float64 // seconds
	for i := range servers {
		var handler http.Handler
		servers[i] = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(w, r)
		}))
		b.Cleanup(servers[i].Close)
		handler = registry.Handler(servers[i].URL, true, access.Settings{}, slog.New(slog.DiscardHandler))
		if i == 1 {
			handler = repeat(handler)
		}
	}
	initialise := func(i int) (seconds float64) {
		host := strings.TrimPrefix(servers[i].URL, "https://")
		dir := note(b, host+"/acme/note", "1.0.0", "it")
		writeFiles(b, dir, map[string]string{
			"module.tf": fmt.Sprintf("module \"hello\" {\n  source = \"%s/acme/hello/null\"\n}\n", host),
		})
		session := clients.Session{Client: found[0], Home: b.TempDir(), CAFile: authority(b, servers[i])}
		begun := time.Now()
		if out, err := session.Run(b.Context(), dir, "init"); err != nil {
			b.Fatal(err, out)
		}
		return time.Since(begun).Seconds()
	}
	initialise(1) // it has the responses from now on
	for n := 0; b.Loop(); n++ {
		for i := range servers {
			at := (i + n) % len(servers)
			took[at] = append(took[at], initialise(at))
		}
	}
	ratio := median(took[0]) / median(took[1])
	b.ReportMetric(ratio, "times/static")
	b.ReportMetric(median(took[0]), "s/init")
	if b.N >= 10 && ratio > most {
		b.Errorf("an init takes %.2f times as long as from a static server, more than %.2f", ratio, most)
	}
}

// repeat returns a handler that answers each request as next has answered the
// first one for its path.
func repeat(next http.Handler) http.Handler {
	var mu sync.Mutex
	answers := make(map[string]*httptest.ResponseRecorder)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		name := r.Method + " " + r.URL.Path
		answer := answers[name]
		if answer == nil {
			answer = httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			answers[name] = answer
		}
		mu.Unlock()
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the client detects a truncated response
	})
}
