package local_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/local"
)

const (
	shortWrite = 300 * time.Millisecond
	large      = 32 << 20 // more than sockets and windows of HTTP/2 buffer
)

// limited serves /large, /small, /late, which writes after the write timeout,
// and /block, which ends with the test, over TLS.
func limited(t *testing.T, connections int) *httptest.Server {
	t.Helper()
	block := make(chan struct{})
	chunk := make([]byte, 32<<10)
	mux := http.NewServeMux()
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(large))
		for range large / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "small") })
	mux.HandleFunc("/late", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(3 * shortWrite)
		_, _ = io.WriteString(w, "late")
	})
	mux.HandleFunc("/block", func(http.ResponseWriter, *http.Request) { <-block })
	s := httptest.NewUnstartedServer(mux)
	s.Config.ReadHeaderTimeout = 10 * time.Second
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.EnableHTTP2 = true
	s.Listener = local.Limit(s.Config, s.Listener, connections, shortWrite)
	s.StartTLS()
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(block) })
	return s
}

// dial connects with a small buffer for what the server writes, and HTTP/1.1.
func dial(t *testing.T, s *httptest.Server) *tls.Conn {
	t.Helper()
	raw, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	if err := raw.(*net.TCPConn).SetReadBuffer(32 << 10); err != nil {
		t.Fatal(err)
	}
	return tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // it is this test's server
}

// ask sends a request and does not read the answer.
func ask(t *testing.T, conn net.Conn, path string) {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
}

// answer reads the answer to a request.
func answer(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Connections on which requests are pipelined and nothing is read are closed.
func TestClientsThatNeverRead(t *testing.T) {
	t.Parallel()
	s := limited(t, 100)
	conns := make([]*tls.Conn, 10)
	for i := range conns {
		conns[i] = dial(t, s)
		for range 50 {
			ask(t, conns[i], "/large")
		}
	}
	time.Sleep(5 * shortWrite)
	for i, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		// What was on the way still arrives.
		if n, err := io.Copy(io.Discard, io.LimitReader(conn, large)); n == large {
			t.Errorf("connection %d is still served after %v: %d bytes, %v", i, 5*shortWrite, n, err)
		}
	}
}

// A stream of HTTP/2 that nobody reads is reset.
func TestStreamsThatNobodyReads(t *testing.T) {
	t.Parallel()
	s := limited(t, 100)
	response, err := s.Client().Get(s.URL + "/large") //nolint:noctx // the server's own client
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 {
		t.Fatalf("the protocol is %s", response.Proto)
	}
	time.Sleep(5 * shortWrite)
	if n, err := io.Copy(io.Discard, response.Body); err == nil {
		t.Errorf("the stream is still served after %v: %d bytes", 5*shortWrite, n)
	}
}

// A download takes as long as its client needs, if this reads at all.
func TestSlowDownload(t *testing.T) {
	t.Parallel()
	s := limited(t, 100)
	slowly := func(t *testing.T, body io.Reader, begin time.Time) {
		t.Helper()
		part := make([]byte, large/64)
		for i := range 64 {
			time.Sleep(shortWrite / 6)
			if _, err := io.ReadFull(body, part); err != nil {
				t.Fatalf("part %d, after %v: %v", i, time.Since(begin), err)
			}
		}
		if took := time.Since(begin); took < 5*shortWrite {
			t.Errorf("it took %v, which shows nothing", took)
		}
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		conn := dial(t, s)
		ask(t, conn, "/large")
		begin := time.Now()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		slowly(t, response.Body, begin)
	})
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		begin := time.Now()
		response, err := s.Client().Get(s.URL + "/large") //nolint:noctx // the server's own client
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		slowly(t, response.Body, begin)
	})
}

// A handler may take longer than a write before it answers.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	s := limited(t, 100)
	conn := dial(t, s)
	ask(t, conn, "/late")
	if body := answer(t, conn); body != "late" {
		t.Errorf("HTTP/1.1: %q", body)
	}
	response, err := s.Client().Get(s.URL + "/late") //nolint:noctx // the server's own client
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "late" {
		t.Errorf("HTTP/2: %q, %v", body, err)
	}
}

// Connections that wait for a request, or have not begun one, keep nobody out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 8
	for name, take := range map[string]func(t *testing.T, conn *tls.Conn){
		"idle": func(t *testing.T, conn *tls.Conn) {
			t.Helper()
			ask(t, conn, "/small")
			if body := answer(t, conn); body != "small" {
				t.Errorf("answered %q", body)
			}
		},
		"silent": func(*testing.T, *tls.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := limited(t, most)
			conns := make([]*tls.Conn, 3*most)
			for i := range conns {
				conns[i] = dial(t, s)
				take(t, conns[i])
			}
			begin := time.Now()
			conn := dial(t, s)
			ask(t, conn, "/small")
			if body := answer(t, conn); body != "small" || time.Since(begin) > 5*time.Second {
				t.Errorf("answered %q after %v", body, time.Since(begin))
			}
			closed := 0
			for _, conn := range conns {
				_ = conn.NetConn().SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				if _, err := io.Copy(io.Discard, conn.NetConn()); !errors.Is(err, os.ErrDeadlineExceeded) {
					closed++
				}
			}
			if want := len(conns) + 1 - most; closed != want {
				t.Errorf("%d of %d connections are closed, not %d", closed, len(conns), want)
			}
		})
	}
}

// Connections with a request under way are not closed: new ones wait for them.
func TestBusyConnectionsStay(t *testing.T) {
	t.Parallel()
	const most = 4
	s := limited(t, most)
	for range most - 1 {
		ask(t, dial(t, s), "/block")
	}
	late := dial(t, s)
	ask(t, late, "/late")
	time.Sleep(shortWrite) // the requests have begun
	next := dial(t, s)
	begin := time.Now()
	ask(t, next, "/small") // its handshake waits for room
	if body := answer(t, next); body != "small" || time.Since(begin) < shortWrite {
		t.Errorf("answered %q after %v, while all connections were busy", body, time.Since(begin))
	}
	if body := answer(t, late); body != "late" {
		t.Errorf("a busy connection: %q", body)
	}
}

func TestServerIsLimited(t *testing.T) {
	t.Parallel()
	if connections, write := local.LimitsOf(start(t).Server); connections != 1024 || write != time.Minute {
		t.Errorf("%d connections, %v for a write", connections, write)
	}
}
