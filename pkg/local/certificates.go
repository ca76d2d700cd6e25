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
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// expiryWarning is how long before the expiry of a certificate warnings begin.
	expiryWarning = 14 * 24 * time.Hour
	// warningInterval is the interval between warnings.
	warningInterval = 24 * time.Hour
	// ownRenewal is how long before its expiry a certificate by the registry's own
	// authority is replaced.
	ownRenewal = 60 * 24 * time.Hour
	// certificatePage continues hints about the files of a certificate.
	certificatePage = ": see docs/team-on-one-machine.md#3-get-a-certificate"
)

// certificateSource reads or creates the certificates of a server.
type certificateSource interface {
	// next returns a new certificate, or nil if current should stay in use.
	// current is nil at first.
	next(current *tls.Certificate, now time.Time) (*tls.Certificate, error)
	// advice returns the hint for a certificate that expires soon.
	advice() string
}

// certificates contains the certificate of a running server, and replaces it.
type certificates struct {
	source  certificateSource
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[served]
	// renewals counts the certificates that replaced another, and failures those
	// that could not.
	renewals, failures atomic.Int64

	failure
	warned time.Time
}

// served is a certificate in use.
type served struct {
	*tls.Certificate
	// expires is the earliest expiry of it and its intermediate certificates. It
	// ignores those that had already expired at the start, because clients find
	// another chain.
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

// newCertificates loads the first certificate of a source. It returns
// [registry.ErrInvalid] if the certificate is not usable.
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

// get returns the current certificate. It implements
// [tls.Config.GetCertificate].
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load().Certificate, nil
}

// update replaces the certificate if its source has a new one. If the new one
// is not usable, it logs the error and leaves the current one in use. It
// implements [reloaded].
func (c *certificates) update(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.current.Load()
	next, err := c.source.next(current.Certificate, c.now())
	switch {
	case err != nil:
		isNew, isDue := c.fail(err, c.now())
		if isNew {
			c.failures.Add(1)
		}
		if isDue {
			c.log.Error("cannot use the new certificate, continuing with the current one", slog.Any("error", err),
				slog.Time("expires", current.expires))
		}
	case next != nil:
		using := serve(next, c.now())
		c.current.Store(using)
		c.renewals.Add(1)
		c.warned = time.Time{}
		c.log.Info("using a new certificate", slog.Time("expires", using.expires))
		fallthrough
	default:
		c.end()
	}
	c.warn()
}

// warn logs once a day that the certificate expires soon, and immediately that
// it has expired.
func (c *certificates) warn() {
	now, current := c.now(), c.current.Load()
	if current.expires.Sub(now) >= expiryWarning {
		return
	}
	expired := !now.Before(current.expires)
	last := !c.warned.Before(current.expires) // the last warning was after the expiry
	if now.Sub(c.warned) < warningInterval && expired == last {
		return
	}
	c.warned = now
	level, message := slog.LevelWarn, "the certificate expires soon"
	if expired {
		level, message = slog.LevelError, "the certificate has expired"
	}
	c.log.LogAttrs(context.Background(), level, message, slog.Time("expires", current.expires),
		slog.String("hint", c.source.advice()))
}

// certificateFiles reads a host's certificate from two PEM files.
type certificateFiles struct {
	cert, key string
	host      string // without a port
	// read is the content of the files when they were last used.
	read [2][]byte
	// mismatched is the content of the files when the key was not that of the
	// certificate.
	mismatched [2][]byte
}

func (f *certificateFiles) advice() string {
	return "Renew it and write it to " + f.cert + " and " + f.key + ". The running server reads them again."
}

func (f *certificateFiles) next(current *tls.Certificate, now time.Time) (*tls.Certificate, error) {
	var read [2][]byte
	for i, path := range []string{f.cert, f.key} {
		text, err := readFile(path, certificatePage)
		if err != nil {
			return nil, registry.Errorf(registry.ErrInvalid, "%w", err)
		}
		if read[i] = text; textfile.HasMark(text) { // others can have comments in any encoding
			if read[i], err = textfile.Decode(path, text); err != nil {
				return nil, err
			}
		}
	}
	if bytes.Equal(read[0], f.read[0]) && bytes.Equal(read[1], f.read[1]) {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(read[0], read[1])
	if err != nil {
		isNew := !bytes.Equal(read[0], f.mismatched[0]) || !bytes.Equal(read[1], f.mismatched[1])
		if f.mismatched = read; isNew && current != nil {
			return nil, nil // only one of the files may be written yet
		}
		hint := "Both files must be PEM, which begins with -----BEGIN, and the key must not be encrypted."
		if strings.Contains(err.Error(), "does not match") {
			hint = "The server's certificate must be the first one in its file. Use the key for which it was issued."
		}
		return nil, registry.WithHint(
			fmt.Errorf("%w certificate in %s with the key in %s: %w", registry.ErrInvalid, f.cert, f.key, err), "%s", hint)
	}
	if err := pair.Leaf.VerifyHostname(f.host); err != nil {
		hint := "Give `--host` a name of the certificate, or get a certificate for %s."
		if len(pair.Leaf.DNSNames)+len(pair.Leaf.IPAddresses) == 0 {
			hint = "Get a certificate with the name %s as a subject alternative name."
		}
		return nil, registry.WithHint(fmt.Errorf("%w certificate in %s: %w", registry.ErrInvalid, f.cert, err), hint, f.host)
	}
	// Check only the server's certificate, because clients find another chain if
	// an intermediate one has expired.
	switch from, until := pair.Leaf.NotBefore.UTC(), pair.Leaf.NotAfter.UTC(); {
	case now.Before(from):
		return nil, registry.WithHint(fmt.Errorf("%w certificate in %s: it is not valid before %s", registry.ErrInvalid, f.cert,
			from.Format(time.RFC3339)), "Use another certificate until then, or set the clock of this machine.")
	case !now.Before(until):
		return nil, registry.WithHint(fmt.Errorf("%w certificate in %s: it expired on %s", registry.ErrInvalid, f.cert,
			until.Format(time.DateOnly)), "Renew it, and write it to the same file.")
	}
	f.read = read
	return &pair, nil
}

// ownCertificate issues certificates for a loopback address with the authority
// in a folder.
type ownCertificate struct {
	dir string
	ip  net.IP
	log *slog.Logger
}

func (o ownCertificate) advice() string {
	return "It cannot be renewed, because the certificate authority in " + o.dir + " expires too. Stop the server, " +
		"remove that folder, start the server, and trust the new authority."
}

func (o ownCertificate) next(current *tls.Certificate, now time.Time) (*tls.Certificate, error) {
	if current != nil && current.Leaf.NotAfter.Sub(now) > ownRenewal {
		return nil, nil
	}
	_, missing := os.Stat(o.dir)
	create := current == nil && errors.Is(missing, fs.ErrNotExist)
	load := loadCA
	if create {
		load = makeCA // another server may create it at the same time
	}
	ca, key, err := load(o.dir, now)
	if err != nil {
		return nil, registry.WithHint(fmt.Errorf("cannot use the certificate authority in %s: %w", o.dir, err),
			"Remove the folder. The server then creates a new authority, which clients must trust.")
	}
	if create {
		o.log.Info("created a certificate authority, which clients must trust",
			slog.String("file", filepath.Join(o.dir, caCertificateFile)))
	}
	if current != nil && !ca.NotAfter.After(current.Leaf.NotAfter) {
		return nil, nil // a new certificate would expire with the authority
	}
	return issue(ca, key, o.ip, now)
}

// source returns the source of the certificates of a server on an address, as
// [Options.address] returns it. It is nil for a plain listener. For the
// registry's own authority it also returns the file that clients must trust.
func (d *Data) source(o Options, address string, log *slog.Logger) (source certificateSource, caFile string, err error) {
	switch {
	case o.PlainAddress != "":
		return nil, "", nil
	case o.CertificateFile != "" && o.KeyFile != "" && o.Host != "":
		host, err := namedHost(o.Host)
		return &certificateFiles{cert: o.CertificateFile, key: o.KeyFile, host: host.Name()}, "", err
	case o.CertificateFile+o.KeyFile+o.Host != "":
		return nil, "", registry.WithHint(fmt.Errorf("%w options: a certificate, its key and its host "+
			"belong together", registry.ErrInvalid), "Give `--cert`, `--key` and `--host`, or none of them.")
	}
	dir := filepath.Join(d.Dir, "tls")
	return ownCertificate{dir, net.ParseIP(address), log}, filepath.Join(dir, caCertificateFile), nil
}
