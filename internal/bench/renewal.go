package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// renewedWithin is how long new connections may get the previous certificate
	// after its files were replaced. The server reads them every 10 seconds.
	renewedWithin = 15 * time.Second
	// renewalTimeout is how long a download waits for the new certificate.
	renewalTimeout = 30 * time.Second
	// heldSize is the size of an archive that is too large for the buffers of a
	// connection, in bytes.
	heldSize = 8 << 20
	// loadedHost is the host of a certificate that is not of the server's own
	// authority.
	loadedHost = "registry.example.com"
)

// heldModule is downloaded during the renewal.
var heldModule = registry.Module{Namespace: "acme", Name: "held", System: "aws"}

// renewal replaces a server's certificate, and counts the connections with each
// one.
type renewal struct {
	// cert and key are files with the server's certificate, or those of its own
	// authority.
	cert, key string
	// pairs are the previous and the new content of the files.
	pairs [2]pair
	// reload is whether the server is requested to read the files immediately.
	reload bool

	mu    sync.Mutex
	begun time.Time // when the files were replaced, or zero
	first time.Time // when the first connection got the new certificate, or zero
	// previous and renewed are the connections with each certificate. Those in
	// outdated got the previous one after renewedWithin.
	previous, renewed, outdated int
}

type pair struct {
	certificate *x509.Certificate
	cert, key   []byte // PEM
}

// prepareRenewal writes a certificate that expires soon to a new folder. It
// returns the arguments of `larder serve` for it. An own authority with the same
// key is renewed, so clients do not need to trust a new one.
func prepareRenewal(dir string, own, reload bool) (_ *renewal, args []string, err error) {
	r := &renewal{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), reload: reload}
	args = []string{"--host", loadedHost, "--cert", r.cert, "--key", r.key}
	if own {
		dir = filepath.Join(dir, "data", "tls")
		r.cert, r.key, args = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"), nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	var key *ecdsa.PrivateKey
	for i, days := range []int{30, 365} {
		if key == nil || !own {
			if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
				return nil, nil, err
			}
		}
		if r.pairs[i], err = newPair(key, own, time.Now().AddDate(0, 0, days)); err != nil {
			return nil, nil, err
		}
	}
	return r, args, r.install(r.pairs[0])
}

func newPair(key *ecdsa.PrivateKey, authority bool, notAfter time.Time) (pair, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(notAfter.Unix()), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter}
	if authority {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		template.DNSNames = []string{loadedHost}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return pair{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	return pair{certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})}, err
}

// install writes new files and renames them, as ACME clients do.
func (r *renewal) install(p pair) error {
	return errors.Join(os.WriteFile(r.key+".new", p.key, 0o600), os.WriteFile(r.cert+".new", p.cert, 0o600),
		os.Rename(r.key+".new", r.key), os.Rename(r.cert+".new", r.cert))
}

// observe counts the connections of a server's clients, and has them trust both
// certificates.
func (r *renewal) observe(s *loaded) {
	for _, p := range r.pairs {
		s.roots.AddCert(p.certificate)
	}
	s.connected = func(state tls.ConnectionState) error {
		r.add(state.PeerCertificates[0], time.Now())
		return nil
	}
}

// add counts a connection. A certificate is new if it expires after the
// previous one, or after the previous authority.
func (r *renewal) add(got *x509.Certificate, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if got.NotAfter.After(r.pairs[0].certificate.NotAfter) {
		if r.first.IsZero() {
			r.first = now
		}
		r.renewed++
		return
	}
	r.previous++
	if !r.begun.IsZero() && now.Sub(r.begun) > renewedWithin {
		r.outdated++
	}
}

// begin replaces the files.
func (r *renewal) begin(s *loaded) error {
	r.mu.Lock()
	r.begun = time.Now()
	r.mu.Unlock()
	if err := r.install(r.pairs[1]); err != nil || !r.reload {
		return err
	}
	return s.cmd.Process.Signal(syscall.SIGHUP)
}

func (r *renewal) isSeen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewed > 0
}

// check returns an error if no connection got the new certificate.
func (r *renewal) check() error {
	if !r.isSeen() {
		return errors.New("cannot renew the certificate: no connection got the new one")
	}
	return nil
}

func (r *renewal) table(title string) table {
	r.mu.Lock()
	defer r.mu.Unlock()
	return table{title: title, columns: []column{{"connections", ""}, {"first, after", "s"}}, rows: []row{
		{"with the previous one", []*figure{is(float64(r.previous)), nil}},
		{"with the renewed one", []*figure{is(float64(r.renewed)), is(r.first.Sub(r.begun).Seconds())}},
		{"with the previous one, too late", []*figure{atMost(float64(r.outdated), 0), is(renewedWithin.Seconds())}},
	}}
}

// acrossRenewal downloads an archive. After the first bytes it renews the
// certificate. It continues when new connections get the new certificate.
func (c *loadClient) acrossRenewal(ctx context.Context, r *renewal) {
	if err := c.tryAcrossRenewal(ctx, r); err != nil {
		c.problems = append(c.problems, err)
	}
}

func (c *loadClient) tryAcrossRenewal(ctx context.Context, r *renewal) error {
	c.http = c.server.client()
	c.http.Timeout = 0 // the download waits for the server to read the new files
	defer c.http.CloseIdleConnections()
	from, sum, err := c.locate(ctx, heldModule, "")
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errRequest, err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", errRequest, err)
	}
	defer response.Body.Close()
	hash := sha256.New()
	if _, err := io.CopyN(hash, response.Body, archiveSize); err != nil {
		return fmt.Errorf("%w: before the renewal: %s: %w", errRequest, response.Status, err)
	}
	if err := r.begin(c.server); err != nil {
		return fmt.Errorf("%w: %w", errRequest, err)
	}
	for end := time.Now().Add(renewalTimeout); !r.isSeen() && time.Now().Before(end) && ctx.Err() == nil; {
		next := &loadClient{server: c.server, took: make(map[string]times), http: c.server.client()}
		_, _, err := next.services(ctx)
		next.http.CloseIdleConnections()
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	if _, err := io.Copy(hash, response.Body); err != nil {
		return fmt.Errorf("%w: after the renewal: %w", errRequest, err)
	}
	if got := fmt.Sprintf("%x", hash.Sum(nil)); got != sum {
		return fmt.Errorf("%w: a download across the renewal has sha256:%s, not sha256:%s", errHalf, got, sum)
	}
	return nil
}
