//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

const certifiedHost = "registry.example.com"

// writeCertificate writes a certificate for certifiedHost and its key to two
// files.
func writeCertificate(t *testing.T, certFile, keyFile string, serial int64, notAfter time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		NotBefore:    time.Now().AddDate(0, 0, -90),
		NotAfter:     notAfter,
		DNSNames:     []string{certifiedHost},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		keyFile:  {Type: "PRIVATE KEY", Bytes: keyDER},
		certFile: {Type: "CERTIFICATE", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// servedSerial returns the serial number of the certificate that a server
// presents.
func servedSerial(t *testing.T, s *server) int64 {
	t.Helper()
	config := &tls.Config{ServerName: certifiedHost, InsecureSkipVerify: true}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", s.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// A server reloads its certificate on SIGHUP. If the new certificate is
// invalid, it continues with the old one.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificate(t, cert, key, 1, time.Now().AddDate(0, 0, 3))
	s := serve(t, t.TempDir(), "--host", certifiedHost, "--cert", cert, "--key", key)
	if serial := servedSerial(t, s); serial != 1 {
		t.Fatalf("at first: certificate %d", serial)
	}
	s.log.waitFor(t, "the certificate expires soon")
	hangUp := func(logged string) {
		t.Helper()
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		s.log.waitFor(t, logged)
	}
	writeCertificate(t, cert, key, 2, time.Now().AddDate(0, 0, 60))
	hangUp("level=INFO msg=\"using a new certificate\"")
	if serial := servedSerial(t, s); serial != 2 {
		t.Errorf("renewed: certificate %d", serial)
	}
	if err := os.WriteFile(cert, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	hangUp("failed to find any PEM data")
	if serial := servedSerial(t, s); serial != 2 {
		t.Errorf("damaged: certificate %d", serial)
	}
	if err := errors.Join(os.Remove(cert), os.Remove(key)); err != nil {
		t.Fatal(err)
	}
	hangUp("cannot read " + cert)
	if serial := servedSerial(t, s); serial != 2 {
		t.Errorf("missing: certificate %d", serial)
	}
}

// SIGHUP does not stop a server with its own authority.
func TestHangUp(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	before := servedSerial(t, s)
	for range 3 {
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if after := servedSerial(t, s); before != after {
		t.Errorf("certificate %d, then %d", before, after)
	}
	s.stop(t)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A server does not start with an expired certificate.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificate(t, cert, key, 1, time.Now().AddDate(0, 0, -1))
	cmd := exec.CommandContext(
		t.Context(),
		"larder",
		"serve",
		"--store",
		t.TempDir(),
		"--listen",
		"127.0.0.1:0",
		"--host",
		certifiedHost,
		"--cert",
		cert,
		"--key",
		key,
	)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	if code != failure.ExitInvalid {
		t.Errorf("exit code %d, want %d", code, failure.ExitInvalid)
	}
	golden.New(t).Text(t, errorText(string(out)), cert, "CERT", key, "KEY")
}
