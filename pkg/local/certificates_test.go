package local

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
)

const day = 24 * time.Hour

// certified is a certificate and its key, as PEM.
type certified struct{ cert, key []byte }

// certify creates a certificate with a serial number. It is followed by
// intermediate certificates that expire at the given times.
func certify(t *testing.T, serial int64, host string, notAfter time.Time, chain ...time.Time) certified {
	return certifyFrom(t, serial, host, time.Now().Add(-365*day), notAfter, chain...)
}

// certifyFrom is like certify. The certificates are valid from notBefore.
func certifyFrom(t *testing.T, serial int64, host string, notBefore, notAfter time.Time, chain ...time.Time) certified {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := certified{key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})}
	for _, expires := range append([]time.Time{notAfter}, chain...) {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial),
			NotBefore:    notBefore,
			NotAfter:     expires,
			DNSNames:     []string{host},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		c.cert = append(c.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return c
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newLogger returns a logger that omits the time.
func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// A running server uses new files within seconds. If they are not a certificate
// for its host, it continues with the current one.
func TestCertificateFiles(t *testing.T) {
	t.Parallel()
	const host = "registry.example.com"
	texts := golden.New(t)
	const info, failure = "level=INFO ", "level=ERROR "
	in90Days := func(t *testing.T) certified { return certify(t, 2, host, time.Now().Add(90*day)) }
	both := func(make func(*testing.T) certified) func(*testing.T, *certificateFiles) {
		return func(t *testing.T, f *certificateFiles) {
			c := make(t)
			writeFile(t, f.cert, c.cert)
			writeFile(t, f.key, c.key)
		}
	}
	for name, test := range map[string]struct {
		change func(t *testing.T, f *certificateFiles)
		serial int64
		// logged is the level of the log's only line. If it is empty, nothing is
		// logged.
		logged string
	}{
		"unchanged": {func(*testing.T, *certificateFiles) {}, 1, ""},
		"renewed":   {both(in90Days), 2, info},
		"saved as UTF-16": {func(t *testing.T, f *certificateFiles) {
			c := in90Days(t)
			for path, text := range map[string][]byte{f.cert: c.cert, f.key: c.key} {
				writeFile(t, path, []byte("\xFF\xFE"+strings.Join(strings.Split(string(text), ""), "\x00")+"\x00"))
			}
		}, 2, info},
		"renamed into place": {func(t *testing.T, f *certificateFiles) {
			c := in90Days(t)
			for path, text := range map[string][]byte{f.cert: c.cert, f.key: c.key} {
				writeFile(t, path+".new", text)
				if err := os.Rename(path+".new", path); err != nil {
					t.Fatal(err)
				}
			}
		}, 2, info},
		"written in two steps": {func(t *testing.T, f *certificateFiles) {
			c := in90Days(t)
			writeFile(t, f.cert, c.cert)
			time.Sleep(reloadInterval * 3 / 2)
			writeFile(t, f.key, c.key)
		}, 2, info},
		"written before its key": {
			func(t *testing.T, f *certificateFiles) { writeFile(t, f.cert, in90Days(t).cert) }, 1, failure,
		},
		"for another host": {both(func(t *testing.T) certified {
			return certify(t, 2, "other.example.com", time.Now().Add(90*day))
		}), 1, failure},
		"expired": {both(func(t *testing.T) certified { return certify(t, 2, host, time.Now().Add(-day)) }), 1, failure},
		"not valid yet": {both(func(t *testing.T) certified {
			return certifyFrom(t, 2, host, time.Now().Add(day), time.Now().Add(90*day))
		}), 1, failure},
		"followed by an expired root": {both(func(t *testing.T) certified {
			return certify(t, 2, host, time.Now().Add(90*day), time.Now().Add(-2*day))
		}), 2, info},
		"removed": {func(t *testing.T, f *certificateFiles) {
			if err := os.Remove(f.key); err != nil {
				t.Fatal(err)
			}
		}, 1, failure},
		"not PEM":   {func(t *testing.T, f *certificateFiles) { writeFile(t, f.cert, []byte("x")) }, 1, failure},
		"too large": {func(t *testing.T, f *certificateFiles) { writeFile(t, f.cert, make([]byte, maxFile+1)) }, 1, failure},
		"a folder": {func(t *testing.T, f *certificateFiles) {
			if err := errors.Join(os.Remove(f.cert), os.Mkdir(f.cert, 0o700)); err != nil {
				t.Fatal(err)
			}
		}, 1, failure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				f := &certificateFiles{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), host: host}
				first := certify(t, 1, host, time.Now().Add(60*day))
				writeFile(t, f.cert, first.cert)
				writeFile(t, f.key, first.key)
				var log bytes.Buffer
				c, err := newCertificates(f, time.Now, newLogger(&log))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go watchFiles(ctx, c)
				test.change(t, f)
				time.Sleep(3 * reloadInterval)
				cancel()
				synctest.Wait()
				if serial := c.current.Load().Leaf.SerialNumber.Int64(); serial != test.serial {
					t.Errorf("certificate %d, want %d", serial, test.serial)
				}
				counts := map[string]int64{info: c.renewals.Load(), failure: c.failures.Load()}
				for level, count := range counts {
					want := int64(0)
					if level == test.logged {
						want = 1
					}
					if count != want {
						t.Errorf("counted %d for %q, want %d", count, level, want)
					}
				}
				lines := strings.Count(log.String(), "\n")
				if test.logged == "" {
					if lines != 0 {
						t.Errorf("logged %s, want nothing", &log)
					}
					return
				}
				if lines != 1 {
					t.Errorf("logged %d lines, want 1: %s", lines, &log)
				}
				if !strings.HasPrefix(log.String(), test.logged) {
					t.Errorf("logged %s, want %s", &log, test.logged)
				}
				texts.Text(t, log.String(), dir, "DIR")
			})
		})
	}
}

// The log warns once a day in the last 14 days of a certificate, and immediately
// after it has expired.
func TestCertificateWarnings(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, chain := range map[string][]time.Duration{
		"server":       {60*day + 12*time.Hour},
		"intermediate": {90 * day, 60*day + 12*time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				f := &certificateFiles{
					cert: filepath.Join(dir, "tls.crt"),
					key:  filepath.Join(dir, "tls.key"),
					host: "a.example.com",
				}
				var between []time.Time
				for _, expires := range chain[1:] {
					between = append(between, time.Now().Add(expires))
				}
				made := certify(t, 1, f.host, time.Now().Add(chain[0]), between...)
				writeFile(t, f.cert, made.cert)
				writeFile(t, f.key, made.key)
				var log bytes.Buffer
				c, err := newCertificates(f, time.Now, newLogger(&log))
				if err != nil {
					t.Fatal(err)
				}
				sleep := func(d time.Duration) (soon, ended int) {
					log.Reset()
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Hour) {
						c.update(t.Context())
					}
					return strings.Count(log.String(), "level=WARN "), strings.Count(log.String(), "level=ERROR ")
				}
				if soon, ended := sleep(45 * day); soon+ended != 0 {
					t.Errorf("in 45 days: %d and %d", soon, ended)
				}
				if soon, ended := sleep(15 * day); soon != 14 || ended != 0 {
					t.Errorf("in the last 15 days: %d and %d, want 14 and 0", soon, ended)
				}
				line, _, _ := strings.Cut(log.String(), "\n")
				texts.Text(t, line+"\n", dir, "DIR")
				// The last warning was 23 hours ago.
				if soon, ended := sleep(13 * time.Hour); soon != 0 || ended != 1 {
					t.Errorf("when it expires: %d and %d, want 0 and 1", soon, ended)
				}
				texts.Text(t, log.String(), dir, "DIR")
				if soon, ended := sleep(2 * day); soon != 0 || ended != 2 {
					t.Errorf("in the two days after: %d and %d, want 0 and 2", soon, ended)
				}
			})
		})
	}
}

// A certificate of the registry's own authority is renewed before it expires. It
// does not outlive its authority. The log warns when the authority expires soon.
func TestOwnCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	texts := golden.New(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := newLogger(&log)
		c, err := newCertificates(ownCertificate{dir, net.IPv4(127, 0, 0, 1), logger}, time.Now, logger)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("logged %d lines, want 1: %s", lines, &log)
		}
		texts.Text(t, log.String(), dir, "DIR")
		authority, err := os.ReadFile(filepath.Join(dir, caCertificateFile))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		var renewed []int // after so many days
		begun, serial := time.Now(), c.current.Load().Leaf.SerialNumber
		for time.Since(begun) < 3630*day {
			time.Sleep(day)
			c.update(t.Context())
			leaf := c.current.Load().Leaf
			if _, err := leaf.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: "127.0.0.1", CurrentTime: time.Now(),
			}); err != nil {
				t.Fatalf("after %d days: %v", int(time.Since(begun)/day), err)
			}
			if leaf.SerialNumber.Cmp(serial) != 0 {
				serial = leaf.SerialNumber
				renewed = append(renewed, int(time.Since(begun)/day))
			}
		}
		// Ten years have 3,653 days here, a year 365 or 366.
		if want := []int{306, 611, 916, 1221, 1527, 1832, 2137, 2442, 2747, 3053, 3358}; !slices.Equal(renewed, want) {
			t.Errorf("renewed after %v days, want %v", renewed, want)
		}
		if strings.Contains(log.String(), "level=WARN ") {
			t.Errorf("the log has warnings: %s", &log)
		}
		time.Sleep(15 * day)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		c.update(t.Context())
		if !strings.Contains(log.String(), "level=WARN ") {
			t.Errorf("the log has no warning: %s", &log)
		}
		texts.Text(t, log.String(), dir, "DIR")
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the server has created a new authority, which no client trusts: %v", err)
		}
	})
}

// The errors for an unusable authority name its files.
func TestOwnAuthorityErrors(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		damage func(dir string) error
		file   string // named by the error, if any
	}{
		"no certificate": {func(dir string) error { return os.Remove(filepath.Join(dir, caCertificateFile)) },
			caCertificateFile},
		"no key":  {func(dir string) error { return os.Remove(filepath.Join(dir, caKeyFile)) }, caKeyFile},
		"not PEM": {func(dir string) error { return os.WriteFile(filepath.Join(dir, caKeyFile), []byte("x"), 0o600) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "tls")
			source := ownCertificate{dir, net.IPv4(127, 0, 0, 1), slog.New(slog.DiscardHandler)}
			if _, err := source.next(nil, time.Now()); err != nil {
				t.Fatal(err)
			}
			if err := test.damage(dir); err != nil {
				t.Fatal(err)
			}
			_, err := source.next(nil, time.Now())
			texts.Error(t, err, dir, "DIR")
			if err != nil && !strings.Contains(err.Error(), test.file) {
				t.Errorf("%v, want an error with %s", err, test.file)
			}
		})
	}
}

// The page of the status shows a certificate that expires soon, and not one
// that does not.
func TestStatusOfCertificate(t *testing.T) {
	t.Parallel()
	const host = "registry.example.com"
	for name, test := range map[string]struct {
		valid time.Duration
		want  bool
	}{"soon": {10 * day, true}, "later": {60 * day, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			o := Options{
				Address: "127.0.0.1:0", Host: host, AccessFile: filepath.Join(dir, "access.json"),
				CertificateFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
			}
			pair := certify(t, 1, host, time.Now().Add(test.valid))
			writeFile(t, o.AccessFile, []byte(`{"public": ["**"]}`))
			writeFile(t, o.CertificateFile, pair.cert)
			writeFile(t, o.KeyFile, pair.key)
			data, _, err := Create(t.Context(), filepath.Join(dir, "data"))
			if err != nil {
				t.Fatal(err)
			}
			defer data.Close()
			s, err := data.Listen(t.Context(), o, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer s.listener.Close()
			w := httptest.NewRecorder()
			s.server.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status", nil))
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if got := strings.Contains(w.Body.String(), "Certificate of "+host); got != test.want {
				t.Errorf("the page shows the certificate: %t, want %t", got, test.want)
			}
		})
	}
}
