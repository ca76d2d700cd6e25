package monitoring_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/pipes"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/local/monitoring"
	"github.com/larder-registry/larder/pkg/registry"
)

// scrape returns what Prometheus reads.
func scrape(t *testing.T, m *monitoring.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9100/metrics", nil)
	m.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("GET /metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// watched returns metrics of a server that has a state.
func watched() *monitoring.Metrics {
	m := monitoring.New("v1.2.3")
	m.Watch(func(context.Context) local.Status {
		return local.Status{
			Ready: true, Connections: 3, MaxConnections: 1024, RejectedConnections: 4,
			CertificateExpires: time.Unix(1_800_000_000, 0), CertificateRenewals: 5, CertificateFailures: 6,
			AccessFileValid: true,
			DatabaseBytes:   7, DiskFree: map[string]uint64{"database": 8, "objects": 9},
			DiskSize:   map[string]uint64{"database": 80, "objects": 90},
			LastBackup: time.Unix(1_790_000_000, 0),
		}
	}, func() int { return 10 })
	return m
}

// The names, types, labels and values of the metrics are what the docs list.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := watched()
	m.MirrorBounds("lookups", "queue")("queue")
	const route = "/v1/modules/{namespace}/{name}/{system}/{version}/download"
	for _, e := range []*requestlog.Entry{
		{Method: "GET", Route: route, Status: 204, Download: requestlog.ModuleDownload, Duration: 20 * time.Millisecond},
		{Method: "GET", Route: route, Status: 401, Duration: time.Millisecond},
		{Method: "FOO", Status: 499, Duration: time.Hour},
	} {
		m.Observe(e)
	}
	var lines strings.Builder
	for line := range strings.Lines(scrape(t, m)) {
		if strings.Contains(line, "larder_") {
			lines.WriteString(line)
		}
	}
	golden.Equal(t, "testdata/metrics.txt", []byte(lines.String()))
}

// Prometheus also reads the metrics of the process.
func TestProcessMetrics(t *testing.T) {
	t.Parallel()
	out := scrape(t, monitoring.New("v1.2.3"))
	for _, name := range []string{"go_goroutines ", "process_start_time_seconds "} {
		if !strings.Contains(out, "\n"+name) {
			t.Errorf("%sis missing:\n%s", name, out)
		}
	}
}

var value = regexp.MustCompile(`(?m) \S+$`)

// series returns the names and labels of larder's own series.
func series(t *testing.T, m *monitoring.Metrics) []string {
	t.Helper()
	lines := strings.Split(value.ReplaceAllString(scrape(t, m), ""), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "larder_") })
}

// Requests with values of a client's choice add no series, and the metrics do
// not contain these values.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	const secret = "sesame"
	data, _, err := local.Create(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = data.Close() })
	m := watched()
	data.Observers = append(data.Observers, func(e *requestlog.Entry) {
		e.Caller = "token " + secret
		m.Observe(e)
	})
	h := data.Handler("https://127.0.0.1:1", true, access.Settings{}, slog.New(slog.DiscardHandler))
	request := func(n int) {
		name := fmt.Sprintf("%s%d", secret, n)
		for _, target := range []string{
			"/v1/modules/" + name + "/vpc/aws/versions", "/v1/providers/" + name + "/x/versions", "/" + name,
			"/v1/mirror/" + name + ".example/a/b/index.json", "/modules/" + name, "/a//" + name,
			"/v1/modules/" + strings.Repeat(name, 200),
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
			r.Method = []string{http.MethodGet, "FOO" + name, http.MethodDelete}[n%3]
			r.Header.Set("Authorization", "Bearer "+name)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	for n := range 6 {
		request(n)
	}
	first := series(t, m)
	for n := range 1_500 {
		request(n)
	}
	if diff := cmp.Diff(first, series(t, m)); diff != "" {
		t.Errorf("10,000 paths change the series (-before +after):\n%s", diff)
	}
	if out := scrape(t, m); strings.Contains(out, secret) {
		t.Errorf("the metrics contain values of a client:\n%s", out)
	}
}

// The listener serves the metrics only.
func TestNothingElse(t *testing.T) {
	t.Parallel()
	h := monitoring.New("v1.2.3").Handler()
	for target, want := range map[string]int{
		"GET /metrics": 200, "HEAD /metrics": 200, "POST /metrics": 405, "GET /": 404, "GET /metrics/": 404,
		"GET /readyz": 404, "GET /debug/pprof/": 404,
	} {
		method, path, _ := strings.Cut(target, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
}

// A port without an address is one of 127.0.0.1.
func TestParseAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"9100": "127.0.0.1:9100", ":9100": "127.0.0.1:9100", "0": "127.0.0.1:0", "0.0.0.0:9100": "0.0.0.0:9100",
		"[::1]:9100": "[::1]:9100", "127.0.0.1:1": "127.0.0.1:1",
	} {
		got, err := monitoring.ParseAddress(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got.String() != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", ":", "70000", "example.com:9100", "127.0.0.1", "127.0.0.1:x", "::9100", "-1"} {
		_, err := monitoring.ParseAddress(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
		} else if registry.Hint(err) == "" {
			t.Errorf("%q: %v has no hint", text, err)
		}
	}
}

// A host that no request can name is an error.
func TestCheckHost(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"larder", "larder_1:9100", "registry.example.com.", "10.1.2.3", "[::1]:9100", "müller.example:9100"} {
		if err := monitoring.CheckHost(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"", ":9100", "http://larder/", "larder/", "larder:", "larder:x", "a b", "*.example.com", "u@larder", "ü_b.example",
	} {
		err := monitoring.CheckHost(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
		} else if registry.Hint(err) == "" {
			t.Errorf("%q: %v has no hint", text, err)
		}
	}
}

// Serve ends with its context, and a second listener cannot use its address.
func TestServe(t *testing.T) {
	t.Parallel()
	address, err := monitoring.ParseAddress("0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := monitoring.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if address, err = monitoring.ParseAddress(listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	_, err = monitoring.Listen(t.Context(), address)
	if want := "cannot serve metrics on " + address.String() + ": "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("a second listener: %v, want %s…", err, want)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { monitoring.New("v1").Serve(ctx, listener, slog.New(slog.DiscardHandler)); close(ended) }()
	response, err := http.Get("http://" + listener.Addr().String() + "/metrics") //nolint:noctx // of this test
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("GET /metrics: %d", response.StatusCode)
	}
	stop()
	<-ended
}

// A name that a stranger chose, which leads to this address, reads nothing.
func TestHosts(t *testing.T) {
	t.Parallel()
	h := monitoring.New("v1.2.3").Handler("registry.example.com:8443", "Müller.example", "larder", "")
	for host, want := range map[string]int{
		"127.0.0.1:9100": 200, "127.0.0.1": 200, "[::1]:9100": 200, "10.1.2.3:9100": 200, "localhost:9100": 200,
		"[fe80::1%25eth0]:9100": 200, "[fe80::1]": 200,
		"LOCALHOST.": 200, "registry.example.com:9100": 200, "larder:9100": 200, "Larder": 200,
		"xn--mller-kva.example:9100": 200, "xn--mller-kva.example.": 200, "muller.example": 421,
		"evil.example": 421, "evil.example:9100": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:9100": 421,
		"registry.example.com.evil.example": 421, "": 421, ":9100": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
		if leaked := strings.Contains(w.Body.String(), "larder_build_info"); leaked != (want == 200) {
			t.Errorf("%q: the metrics are in the response: %v", host, leaked)
		}
	}
}

// Connections that clients keep open and do not use keep nobody out.
func TestIdleReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := pipes.Listen()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go monitoring.New("v1").Serve(ctx, listener, slog.New(slog.DiscardHandler))
		begin := time.Now()
		for range 40 {
			// Each has a connection of its own, which stays open.
			client := &http.Client{Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.Dial(ctx) },
			}}
			response, err := client.Get("http://" + listener.Addr().String() + "/metrics") //nolint:noctx // of this test
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("a connection waited for others: %v", took)
		}
	})
}
