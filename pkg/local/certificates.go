package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
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
	current atomic.Pointer[served]

	mu     sync.Mutex // of an update
	failed string     // the last error, which is logged once
	warned time.Time
}

// served is a certificate in use.
type served struct {
	*tls.Certificate
	// expires is when it or one of those between it and its authority expires
	// first. What had expired before it came into use does not count: clients find
	// a way past that.
	expires time.Time
}

func serve(c *tls.Certificate, now time.Time) *served {
	s := &served{c, c.Leaf.NotAfter}
	for _, der := range c.Certificate[1:] {
		between, err := x509.ParseCertificate(der)
		if err == nil && between.NotAfter.After(now) && between.NotAfter.Before(s.expires) {
			s.expires = between.NotAfter
		}
	}
	s.expires = s.expires.UTC()
	return s
}

// newCertificates returns certificates with the first one of a source. It fails
// with registry.ErrInvalid if that cannot be used.
func newCertificates(source certificateSource, now func() time.Time, log *slog.Logger) (*certificates, error) {
	c := &certificates{source: source, log: log, now: now}
	first, err := source.next(nil, now())
	if err != nil {
		return nil, err
	}
	c.current.Store(serve(first, now()))
	c.warn()
	return c, nil
}

// get returns the current certificate. It is a tls.Config's GetCertificate.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load().Certificate, nil
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
	next, err := c.source.next(current.Certificate, c.now())
	switch {
	case err != nil:
		if err.Error() != c.failed {
			c.failed = err.Error()
			c.log.Error("the server cannot use the new certificate and goes on with the one it has", slog.Any("error", err), slog.Time("expires", current.expires))
		}
	case next != nil:
		using := serve(next, c.now())
		c.current.Store(using)
		c.warned = time.Time{}
		c.log.Info("the server uses a new certificate", slog.Time("expires", using.expires))
		fallthrough
	default:
		c.failed = ""
	}
	c.warn()
}

// warn logs once a day that the certificate expires soon, and at once that it has
// expired.
func (c *certificates) warn() {
	now, current := c.now(), c.current.Load()
	if current.expires.Sub(now) >= expiryWarning {
		return
	}
	expired := !now.Before(current.expires)
	last := !c.warned.Before(current.expires) // it had expired then
	if now.Sub(c.warned) < warningInterval && expired == last {
		return
	}
	c.warned = now
	level, message := slog.LevelWarn, "the certificate expires soon"
	if expired {
		level, message = slog.LevelError, "the certificate has expired"
	}
	c.log.LogAttrs(context.Background(), level, message, slog.Time("expires", current.expires), slog.String("hint", c.source.advice()))
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
	// Only the server's own: clients find a way past an expired one of its chain.
	switch from, until := pair.Leaf.NotBefore.UTC(), pair.Leaf.NotAfter.UTC(); {
	case now.Before(from):
		return nil, fmt.Errorf("%w certificate in %s: it is not valid before %s", registry.ErrInvalid, f.cert, from.Format(time.RFC3339))
	case !now.Before(until):
		return nil, fmt.Errorf("%w certificate in %s: it expired on %s", registry.ErrInvalid, f.cert, until.Format(time.DateOnly))
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
	log *slog.Logger
}

func (o ownCertificate) advice() string {
	return "The certificate authority in " + o.dir + " ends with it. Stop the server, remove that folder, start the server, and trust the new authority."
}

func (o ownCertificate) next(current *tls.Certificate, now time.Time) (*tls.Certificate, error) {
	if current != nil && current.Leaf.NotAfter.Sub(now) > ownRenewal {
		return nil, nil
	}
	_, missing := os.Stat(o.dir)
	create := current == nil && errors.Is(missing, fs.ErrNotExist)
	load := loadCA
	if create {
		load = makeCA // another server may do so meanwhile: the folder appears complete
	}
	ca, key, err := load(o.dir, now)
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w: remove the folder to have a new one made, and trust that", o.dir, err)
	}
	if create {
		o.log.Info("there is a new certificate authority, which clients must trust", slog.String("file", filepath.Join(o.dir, caCertificateFile)))
	}
	if current != nil && !ca.NotAfter.After(current.Leaf.NotAfter) {
		return nil, nil // a new one would expire with it
	}
	return issue(ca, key, o.ip, now)
}

// source returns where a server with options finds its certificates, and for a
// registry's own the file with the authority that clients must trust.
func (d *Data) source(o Options, ip net.IP, log *slog.Logger) (source certificateSource, caFile string, err error) {
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
		return nil, "", registry.WithHint(fmt.Errorf("%w options: a certificate, its key and the host that they are for "+
			"go together", registry.ErrInvalid), "Give `--cert`, `--key` and `--host`, or none of them.")
	case !ip.IsLoopback():
		return nil, "", registry.WithHint(&addressError{o.Address, "other machines need a name to reach it by " +
			"and a certificate that they trust", registry.ErrInvalid}, "Give `--host`, `--cert` and `--key`.")
	}
	dir := filepath.Join(d.Dir, "tls")
	return ownCertificate{dir, ip, log}, filepath.Join(dir, caCertificateFile), nil
}
