package local_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/internal/testkit/pipes"
	"github.com/larder-registry/larder/pkg/local"
)

const (
	shortWrite = 300 * time.Millisecond
	large      = 32 << 20 // more than sockets and windows of HTTP/2 buffer
)

// limitedServer is a server with limits, in a synctest bubble. Only the test
// controls its clock.
type limitedServer struct {
	*httptest.Server
	listener *pipes.Listener
	bounded  net.Listener
	dialRaw  func(t *testing.T) net.Conn
}

// limited serves /large and /small over TLS. /late writes after the write timeout,
// and /body reads the body of a request. /pause also pauses before each of its
// first reads, and /block ends with the test.
func limited(t *testing.T, listener net.Listener, connections int) (s *httptest.Server, bounded net.Listener) {
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
	body := func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d bytes, late %v, %v", n, errors.Is(err, os.ErrDeadlineExceeded), err == nil)
	}
	mux.HandleFunc("/body", body)
	mux.HandleFunc("/pause", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(90 * time.Second) // longer than the server's ReadTimeout
		_, _ = r.Body.Read(make([]byte, 1))
		time.Sleep(30 * time.Second)
		body(w, r)
	})
	mux.HandleFunc("/block", func(http.ResponseWriter, *http.Request) { <-block })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	bounded = local.Limit(server, listener, connections, shortWrite)
	s = &httptest.Server{Listener: bounded, Config: server, EnableHTTP2: true}
	s.StartTLS()
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(block) })
	return s, bounded
}

// limitedWithin is limited for a bubble of synctest, in which no network is.
func limitedWithin(t *testing.T, connections int) limitedServer {
	t.Helper()
	listener := pipes.Listen()
	s, bounded := limited(t, listener, connections)
	transport, ok := s.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the server's client has another transport")
	}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.Dial(ctx) }
	return limitedServer{s, listener, bounded, func(t *testing.T) net.Conn {
		t.Helper()
		conn, err := listener.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}}
}

// dial connects with HTTP/1.1.
func (s limitedServer) dial(t *testing.T) *tls.Conn {
	t.Helper()
	raw := s.dialRaw(t)
	t.Cleanup(func() { _ = raw.Close() })
	return tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // it is this test's server
}

// sendRequest sends a request and does not read the response.
func sendRequest(t *testing.T, conn net.Conn, path string) {
	t.Helper()
	sendRequests(t, conn, path, 1)
}

// sendRequests is sendRequest for several requests at once.
func sendRequests(t *testing.T, conn net.Conn, path string, count int) {
	t.Helper()
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n", path)
	if _, err := io.WriteString(conn, strings.Repeat(request, count)); err != nil {
		t.Fatal(err)
	}
}

// answer reads the answer to a request.
func answer(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

// counting is a listener that reports closed connections.
type counting struct {
	net.Listener
	closed chan struct{}
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, closed: c.closed}, nil
}

type countedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.closed <- struct{}{} })
	return c.Conn.Close()
}

// Connections on which requests are pipelined and nothing is read are closed. This
// one has the sockets of the system, and their buffers.
func TestClientsThatNeverRead(t *testing.T) {
	t.Parallel()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*tls.Conn, 10)
	closed := make(chan struct{}, len(conns))
	limited(t, counting{inner, closed}, 100)
	for i := range conns {
		raw, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = raw.Close() })
		if err := raw.(*net.TCPConn).SetReadBuffer(32 << 10); err != nil {
			t.Fatal(err)
		}
		conns[i] = tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // it is this test's server
		sendRequests(t, conns[i], "/large", 50)
	}
	timeout := time.After(time.Minute)
	for i := range conns {
		select {
		case <-closed:
		case <-timeout:
			t.Fatalf("only %d of %d connections are closed", i, len(conns))
		}
	}
	for i, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		// Data that was already sent still arrives.
		if n, err := io.Copy(io.Discard, io.LimitReader(conn, large)); n == large {
			t.Errorf("connection %d was served all the same: %d bytes, %v", i, n, err)
		}
	}
}

// A stream of HTTP/2 that nobody reads is reset.
func TestStreamsThatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, streamsThatNobodyRead)
}

func streamsThatNobodyRead(t *testing.T) {
	s := limitedWithin(t, 100)
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
		synctest.Test(t, func(t *testing.T) {
			s := limitedWithin(t, 100)
			conn := s.dial(t)
			sendRequest(t, conn, "/large")
			begin := time.Now()
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			slowly(t, response.Body, begin)
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := limitedWithin(t, 100)
			begin := time.Now()
			response, err := s.Client().Get(s.URL + "/large") //nolint:noctx // the server's own client
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.ProtoMajor != 2 {
				t.Fatalf("the protocol is %s", response.Proto)
			}
			slowly(t, response.Body, begin)
		})
	})
}

// A handler may take longer than a write before it answers.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limitedWithin(t, 100)
		conn := s.dial(t)
		sendRequest(t, conn, "/late")
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
	})
}

// Connections that wait for a request, or have not begun one, keep nobody out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 8
	for name, take := range map[string]func(t *testing.T, conn *tls.Conn){
		"idle": func(t *testing.T, conn *tls.Conn) {
			t.Helper()
			sendRequest(t, conn, "/small")
			if body := answer(t, conn); body != "small" {
				t.Errorf("answered %q", body)
			}
		},
		"silent": func(*testing.T, *tls.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := limitedWithin(t, most)
				conns := make([]*tls.Conn, 3*most)
				for i := range conns {
					conns[i] = s.dial(t)
					take(t, conns[i])
				}
				begin := time.Now()
				conn := s.dial(t)
				sendRequest(t, conn, "/small")
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
		})
	}
}

// Only one connection is closed for a new one, also if another becomes idle while
// that one closes.
func TestOneConnectionMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		listener := pipes.Listen()
		server := &http.Server{ReadHeaderTimeout: time.Second}
		limited := local.Limit(server, listener, most, shortWrite)
		closing, release := make(chan struct{}, most), make(chan struct{})
		var conns []net.Conn
		accept := func() {
			go func() { listener.Accepted <- slowlyClosed{closing: closing, release: release} }()
			conn, err := limited.Accept()
			if err != nil {
				t.Error(err)
			}
			conns = append(conns, conn)
		}
		for range most {
			accept()
		}
		accepted := make(chan struct{})
		go func() { accept(); close(accepted) }()
		synctest.Wait()
		for _, conn := range conns {
			server.ConnState(conn, http.StateIdle)
			synctest.Wait()
		}
		if n := len(closing); n != 1 {
			t.Errorf("%d connections are closed for one", n)
		}
		close(release)
		<-accepted
		if n := len(closing); n != 1 {
			t.Errorf("%d connections are closed for one, in the end", n)
		}
	})
}

// slowlyClosed is a connection whose Close waits to be released.
type slowlyClosed struct {
	net.Conn
	closing chan<- struct{}
	release <-chan struct{}
}

func (c slowlyClosed) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (c slowlyClosed) Close() error {
	c.closing <- struct{}{}
	<-c.release
	return nil
}

// A connection of HTTP/2 stays idle if its client has reset the request before the
// handler begins.
func TestResetRequest(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]io.Reader{"no body": nil, "a body": strings.NewReader("x")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const most = 2
				listener := pipes.Listen()
				server := &http.Server{ReadHeaderTimeout: time.Second}
				server.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
				})
				limited := local.Limit(server, listener, most, shortWrite)
				defer limited.Close()
				for range most {
					go func() { _, _ = listener.Dial(t.Context()) }()
					conn, err := limited.Accept()
					if err != nil {
						t.Fatal(err)
					}
					server.ConnState(conn, http.StateActive)
					server.ConnState(conn, http.StateIdle)
					r := httptest.NewRequestWithContext(server.ConnContext(t.Context(), conn), http.MethodPost, "/", body)
					r.ProtoMajor = 2
					server.Handler.ServeHTTP(httptest.NewRecorder(), r)
				}
				accepted := false
				go func() {
					_, err := limited.Accept()
					accepted = err == nil
				}()
				_, _ = listener.Dial(t.Context())
				synctest.Wait()
				if !accepted {
					t.Error("the connections do not make room")
				}
			})
		})
	}
}

// Connections with a request under way are not closed: new ones wait for them.
func TestBusyConnectionsStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		s := limitedWithin(t, most)
		for range most - 1 {
			sendRequest(t, s.dial(t), "/block")
		}
		late := s.dial(t)
		sendRequest(t, late, "/late")
		time.Sleep(shortWrite) // the requests have begun
		answered := make(chan string, 1)
		go func() { answered <- answer(t, late) }()
		next := s.dial(t)
		begin := time.Now()
		sendRequest(t, next, "/small") // its handshake waits for room
		if body := answer(t, next); body != "small" || time.Since(begin) < shortWrite {
			t.Errorf("answered %q after %v, while all connections were busy", body, time.Since(begin))
		}
		if body := <-answered; body != "late" {
			t.Errorf("a busy connection: %q", body)
		}
	})
}

func TestServerIsLimited(t *testing.T) {
	t.Parallel()
	connections, client, write := local.LimitsOf(start(t).Server)
	if connections != 1024 {
		t.Errorf("%d connections, want 1024", connections)
	}
	if client != 768 {
		t.Errorf("%d connections for each client, want 768", client)
	}
	if write != time.Minute {
		t.Errorf("%v for a write, want 1m", write)
	}
}

func TestLimitOptions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		connections, client int
		want                string // the error, or empty
	}{
		"defaults":          {0, 0, ""},
		"least":             {16, 1, ""},
		"as many as others": {16, 16, ""},
		"too few":           {15, 0, "invalid maximum of 15 connections"},
		"negative":          {-1, 0, "invalid maximum of -1 connections"},
		"too many":          {1<<20 + 1, 0, "invalid maximum of 1048577 connections"},
		"more for a client": {16, 17, "invalid maximum of 17 connections for each client"},
		"fewer than one":    {16, -1, "invalid maximum of -1 connections for each client"},
	} {
		o := local.Options{
			Address: "127.0.0.1:0", MaxConnections: test.connections, MaxClientConnections: test.client,
		}
		got := ""
		if err := o.CheckFlags(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// dialFrom connects from an address.
func (s limitedServer) dialFrom(t *testing.T, address string) *tls.Conn {
	t.Helper()
	conn, err := s.listener.DialFrom(t.Context(), &net.TCPAddr{IP: net.ParseIP(address), Port: 4711})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // it is this test's server
}

// A client whose connections are all busy cannot take those of others. Clients
// on this machine have no limit of their own.
func TestGreedyClient(t *testing.T) {
	t.Parallel()
	const most = 8 // one client may have 7
	const rejected = 2 * most
	for name, address := range map[string]func(i int) string{
		"another machine":         func(int) string { return "192.0.2.1" },
		"another machine in IPv6": func(int) string { return "2001:db8::1" },
		"a network in IPv6":       func(i int) string { return fmt.Sprintf("2001:db8:0:1:%x::1", i) },
		"IPv4 in NAT64":           func(i int) string { return []string{"64:ff9b::192.0.2.1", "192.0.2.1"}[i%2] },
		"IPv4 in IPv6":            func(i int) string { return []string{"::ffff:192.0.2.1", "192.0.2.1"}[i%2] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := limitedWithin(t, most)
				for i := range most - 1 {
					sendRequest(t, s.dialFrom(t, address(i)), "/block")
				}
				synctest.Wait()
				for i := range rejected {
					conn := s.dialFrom(t, address(most+i))
					if err := conn.HandshakeContext(t.Context()); err == nil {
						t.Error("the client gets another connection")
					}
				}
				other := s.dialFrom(t, "192.0.2.2")
				sendRequest(t, other, "/small")
				if body := answer(t, other); body != "small" {
					t.Errorf("another client: %q", body)
				}
				if _, _, got := local.Counts(s.bounded); got != rejected {
					t.Errorf("%d connections are rejected, want %d", got, rejected)
				}
			})
		})
	}
	t.Run("this machine", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := limitedWithin(t, most)
			for range most - 1 {
				sendRequest(t, s.dialFrom(t, "127.0.0.1"), "/block")
			}
			synctest.Wait()
			last := s.dialFrom(t, "127.0.0.1")
			sendRequest(t, last, "/small")
			if body := answer(t, last); body != "small" {
				t.Errorf("answered %q", body)
			}
		})
	})
}

// A client with too many idle connections loses its own.
func TestIdleClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 8 // one client may have 7
		s := limitedWithin(t, most)
		other := s.dialFrom(t, "192.0.2.2")
		sendRequest(t, other, "/small")
		_ = answer(t, other)
		for range 3 * most {
			time.Sleep(time.Millisecond)
			conn := s.dialFrom(t, "192.0.2.1")
			sendRequest(t, conn, "/small")
			if body := answer(t, conn); body != "small" {
				t.Errorf("answered %q", body)
			}
		}
		sendRequest(t, other, "/small")
		if body := answer(t, other); body != "small" {
			t.Errorf("another client, whose connection is idle for longest: %q", body)
		}
		synctest.Wait()
		open, _, rejected := local.Counts(s.bounded)
		if open != most {
			t.Errorf("%d connections are open, want %d", open, most)
		}
		if rejected != 0 {
			t.Errorf("%d connections are rejected", rejected)
		}
	})
}

// Other networks of IPv6, and other IPv4 addresses behind NAT64, are other
// clients.
func TestNetworksAreClients(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"2001:db8:0:%x::1", "64:ff9b::192.0.2.%d"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const most = 8 // one client may have 7
				s := limitedWithin(t, most)
				for i := range most {
					sendRequest(t, s.dialFrom(t, fmt.Sprintf(format, i)), "/block")
				}
				synctest.Wait()
				if _, _, rejected := local.Counts(s.bounded); rejected != 0 {
					t.Errorf("%d connections are rejected", rejected)
				}
			})
		})
	}
}

// beginBody sends a request and the first byte of its body.
func beginBody(t *testing.T, conn net.Conn, path string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100\r\n\r\nx", path)
	if err != nil {
		t.Error(err)
	}
}

// Connections that hold a body keep nobody out, whether their handler reads the
// body or the server does.
func TestHeldBodiesMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 8
	for _, path := range []string{"/body", "/small", "/large"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := limitedWithin(t, most)
				begin := time.Now()
				for range 3 * most {
					beginBody(t, s.dial(t), path)
					synctest.Wait()
				}
				conn := s.dial(t)
				sendRequest(t, conn, "/small")
				if body := answer(t, conn); body != "small" || time.Since(begin) > time.Second {
					t.Errorf("answered %q after %v", body, time.Since(begin))
				}
			})
		})
	}
}

// A connection of HTTP/2 makes room only if all of its requests wait for their
// bodies.
func TestHeldStreams(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		busy bool
		want string
	}{
		"only a body":       {false, "closed"},
		"a running request": {true, "open"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const most = 2
				s := limitedWithin(t, most)
				got := make(chan string, 1)
				body, send := io.Pipe()
				go func() {
					response, err := s.Client().Post(s.URL+"/body", "", body) //nolint:noctx // the server's own client
					if err != nil {
						got <- "closed"
						return
					}
					_ = response.Body.Close()
					got <- "open"
				}()
				synctest.Wait()
				var running sync.WaitGroup
				if test.busy {
					running.Go(func() {
						response, err := s.Client().Get(s.URL + "/late") //nolint:noctx // the server's own client
						if err != nil {
							t.Error(err)
							return
						}
						_ = response.Body.Close()
					})
					synctest.Wait()
				}
				time.Sleep(time.Millisecond) // the connection with the body has waited for longest
				for range most {
					conn := s.dial(t)
					sendRequest(t, conn, "/small")
					if body := answer(t, conn); body != "small" {
						t.Errorf("answered %q", body)
					}
				}
				_ = send.Close()
				answered := <-got
				running.Wait()
				if answered != test.want {
					t.Errorf("the connection with the body is %s, want %s", answered, test.want)
				}
			})
		})
	}
}

// slowBody sends parts of a body, with a pause before each.
type slowBody struct {
	parts, size int
	pause       time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.parts == 0 {
		return 0, io.EOF
	}
	b.parts--
	time.Sleep(b.pause)
	return min(len(p), b.size), nil
}

// post sends a body with a protocol. It returns the body of the response, and
// after which time the response began.
func (s limitedServer) post(
	t *testing.T, protocol, path string, body io.Reader,
) (answer string, took time.Duration) {
	t.Helper()
	if protocol == "HTTP/1.1" {
		transport, _ := s.Client().Transport.(*http.Transport)
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
		transport.TLSClientConfig.NextProtos = nil
	}
	begin := time.Now()
	response, err := s.Client().Post(s.URL+path, "", body) //nolint:noctx // the server's own client
	took = time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.Proto != protocol {
		t.Errorf("the protocol is %s", response.Proto)
	}
	got, _ := io.ReadAll(response.Body)
	return string(got), took
}

// A body that arrives too slowly is ended, and one that arrives at all is not.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body slowBody
		want string
		took time.Duration
	}{
		"drips":            {slowBody{1000, 1, 1100 * time.Millisecond}, "18 bytes, late true, false", 20 * time.Second},
		"stops":            {slowBody{2, 20 << 10, time.Hour}, "0 bytes, late true, false", 20 * time.Second},
		"slow but arrives": {slowBody{100, 4 << 10, 2 * time.Second}, "409600 bytes, late false, true", 200 * time.Second},
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := limitedWithin(t, 100)
					body := test.body
					got, took := s.post(t, protocol, "/body", &body)
					if got != test.want {
						t.Errorf("answered %q, want %q", got, test.want)
					}
					if took != test.took {
						t.Errorf("it took %v, want %v", took, test.took)
					}
					time.Sleep(2 * time.Hour) // the client's body ends too
				})
			})
		}
	}
}

// The time in which the handler does not read does not count.
func TestPausedBody(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := limitedWithin(t, 100)
				body := bytes.NewReader(make([]byte, 4<<20)) // more than the server buffers
				got, _ := s.post(t, protocol, "/pause", body)
				if want := "4194303 bytes, late false, true"; got != want {
					t.Errorf("answered %q, want %q", got, want)
				}
			})
		})
	}
}
