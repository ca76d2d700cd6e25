package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// certificateInterval is how often a running server looks at its certificate.
	certificateInterval = 10 * time.Second
	// expiryWarning is how long before the end of a certificate the log warns.
	expiryWarning = 14 * 24 * time.Hour
	// warningInterval is how often it does.
	warningInterval = 24 * time.Hour
	// ownRenewal is how long before its end a certificate of the registry's own
	// authority is replaced.
	ownRenewal = 60 * 24 * time.Hour
	// maxPEM bounds a certificate or key file, in bytes.
	maxPEM = 1 << 20
)

// certificateSource makes or reads the certificates of a server.
type certificateSource interface {
	// next returns the certificate to use from now on, or nil if the current one
	// stays. current is nil at first.
	next(current *tls.Certificate, now time.Time) (*tls.Certificate, error)
	// advice says what to do about a certificate that expires soon.
	advice() string
}

// certificates holds the certificate of a server and replaces it while the server
// runs.
type certificates struct {
	source  certificateSource
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[tls.Certificate]

	mu     sync.Mutex // of an update
	failed string     // the last error, which is logged once
	warned time.Time
}

// newCertificates returns certificates with the first one of a source. It fails
// with registry.ErrInvalid if that cannot be used.
func newCertificates(source certificateSource, now func() time.Time, log *slog.Logger) (*certificates, error) {
	c := &certificates{source: source, log: log, now: now}
	first, err := source.next(nil, now())
	if err != nil {
		return nil, err
	}
	c.current.Store(first)
	c.warn()
	return c, nil
}

// get returns the current certificate. It is a tls.Config's GetCertificate.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// watch updates the certificate until the context ends.
func (c *certificates) watch(ctx context.Context) {
	ticker := time.NewTicker(certificateInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.update()
		}
	}
}

// update replaces the certificate if its source has another one. If that cannot be
// used, the current one stays, and the log has the reason once.
func (c *certificates) update() {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.current.Load()
	next, err := c.source.next(current, c.now())
	switch {
	case err != nil:
		if err.Error() != c.failed {
			c.failed = err.Error()
			c.log.Error("the server cannot use the new certificate and goes on with the one it has", slog.Any("error", err), slog.Time("expires", expiry(current)))
		}
	case next != nil:
		c.current.Store(next)
		c.warned = time.Time{}
		c.log.Info("the server uses a new certificate", slog.Time("expires", expiry(next)))
		fallthrough
	default:
		c.failed = ""
	}
	c.warn()
}

// warn logs once a day that the certificate expires soon, or has expired.
func (c *certificates) warn() {
	now, expires := c.now(), expiry(c.current.Load())
	if expires.Sub(now) >= expiryWarning || now.Sub(c.warned) < warningInterval {
		return
	}
	c.warned = now
	message := "the certificate expires soon"
	if !now.Before(expires) {
		message = "the certificate has expired: clients refuse to connect"
	}
	c.log.Warn(message, slog.Time("expires", expires), slog.String("hint", c.source.advice()))
}

// expiry returns when a certificate or one of those between it and its authority
// expires first.
func expiry(c *tls.Certificate) time.Time {
	expires := c.Leaf.NotAfter
	for _, der := range c.Certificate[1:] {
		if between, err := x509.ParseCertificate(der); err == nil && between.NotAfter.Before(expires) {
			expires = between.NotAfter
		}
	}
	return expires.UTC()
}

// certificateFiles reads the certificate of a host from two PEM files.
type certificateFiles struct {
	cert, key string
	host      string // without a port
	// read is what the files held when they were last used.
	read [2][]byte
}

func (f *certificateFiles) advice() string {
	return "Renew it and write it to " + f.cert + " and " + f.key + ": the running server reads them again."
}

func (f *certificateFiles) next(_ *tls.Certificate, now time.Time) (*tls.Certificate, error) {
	var read [2][]byte
	for i, path := range []string{f.cert, f.key} {
		text, err := readPEM(path)
		if err != nil {
			return nil, fmt.Errorf("%w certificate: %w", registry.ErrInvalid, err)
		}
		read[i] = text
	}
	if bytes.Equal(read[0], f.read[0]) && bytes.Equal(read[1], f.read[1]) {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(read[0], read[1])
	if err != nil {
		return nil, fmt.Errorf("%w certificate in %s with the key in %s: %w", registry.ErrInvalid, f.cert, f.key, err)
	}
	if err := pair.Leaf.VerifyHostname(f.host); err != nil {
		return nil, fmt.Errorf("%w certificate in %s: %w", registry.ErrInvalid, f.cert, err)
	}
	if expires := expiry(&pair); !now.Before(expires) {
		return nil, fmt.Errorf("%w certificate in %s: it expired on %s", registry.ErrInvalid, f.cert, expires.Format(time.DateOnly))
	}
	f.read = read
	return &pair, nil
}

// readPEM reads a small file.
func readPEM(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPEM {
		return nil, fmt.Errorf("%s is not a file of at most %d MiB", path, maxPEM>>20)
	}
	return os.ReadFile(path)
}

// ownCertificate makes certificates for a loopback address by the authority in a
// folder.
type ownCertificate struct {
	dir string
	ip  net.IP
}

func (o ownCertificate) advice() string {
	return "The certificate authority in " + o.dir + " ends with it. Stop the server, remove that folder, start the server, and trust the new authority."
}

func (o ownCertificate) next(current *tls.Certificate, now time.Time) (*tls.Certificate, error) {
	if current != nil && current.Leaf.NotAfter.Sub(now) > ownRenewal {
		return nil, nil
	}
	next, err := issue(o.dir, o.ip, now)
	if err != nil || current == nil {
		return next, err
	}
	if !next.Leaf.NotAfter.After(current.Leaf.NotAfter) {
		return nil, nil // the authority itself expires then
	}
	return next, nil
}

// source returns where a server with options finds its certificates, and for a
// registry's own the file with the authority that clients must trust.
func (d *Data) source(o Options, ip net.IP) (source certificateSource, caFile string, err error) {
	switch {
	case o.CertificateFile != "" && o.KeyFile != "" && o.Host != "":
		name, _, err := net.SplitHostPort(o.Host)
		if err != nil {
			name = o.Host
		}
		if !strings.Contains(name, ".") || strings.Contains(o.Host, "/") {
			return nil, "", fmt.Errorf("%w host %q: it is a name with a dot, as clients demand, and perhaps a port, such as registry.example.com:8443", registry.ErrInvalid, o.Host)
		}
		return &certificateFiles{cert: o.CertificateFile, key: o.KeyFile, host: name}, "", nil
	case o.CertificateFile+o.KeyFile+o.Host != "":
		return nil, "", fmt.Errorf("%w options: --cert, --key and the --host that they are for go together", registry.ErrInvalid)
	case !ip.IsLoopback():
		return nil, "", fmt.Errorf("%w address %s: other machines need a name to reach it by and a certificate that they trust: give --host, --cert and --key", registry.ErrInvalid, o.Address)
	}
	dir := filepath.Join(d.Dir, "tls")
	return ownCertificate{dir, ip}, filepath.Join(dir, caCertificateFile), nil
}
