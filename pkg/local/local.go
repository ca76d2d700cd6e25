// Package local is the whole registry on one machine: the handlers of all functions in one HTTPS server, on the embedded
// default of SQLite and a folder.
//
// Publishing to the same data works while it runs. Requests so malformed that Go's server itself refuses them, such as
// one with headers of more than 64 KiB, get its plain text and not JSON.
// It serves loopback addresses alone, since whoever reaches it may read
// everything.
package local

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/registry"
)

// Data is a registry's data in a folder.
type Data struct {
	Dir     string
	Catalog *catalog.Catalog
	Objects *disk.Store

	table *sqlite.Table
}

// database is the file that makes a folder a registry's.
const database = "larder.db"

// Open opens the data in a folder, and makes both where there is nothing.
func Open(ctx context.Context, dir string) (*Data, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the registry's data: %w", err)
	}
	store, err := disk.Open(dir)
	if err != nil {
		return nil, err
	}
	table, err := sqlite.Open(ctx, filepath.Join(dir, database))
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Data{Dir: dir, Catalog: catalog.New(table), Objects: store, table: table}, nil
}

// OpenExisting opens the data in a folder, and fails with registry.ErrNotFound where there is none.
func OpenExisting(ctx context.Context, dir string) (*Data, error) {
	if _, err := os.Stat(filepath.Join(dir, database)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("registry data in %s: %w", dir, registry.ErrNotFound)
	}
	return Open(ctx, dir)
}

// Close closes the data.
func (d *Data) Close() error { return errors.Join(d.table.Close(), d.Objects.Close()) }

// Handler serves the registry under a URL such as https://127.0.0.1:8443, which those of archives begin with.
func (d *Data) Handler(baseURL string, log *slog.Logger) http.Handler {
	store := *d.Objects
	store.BaseURL = baseURL
	return httpapi.Wrap(log, httpapi.Join(
		httpapi.Service{Routes: discovery.Routes(), Handler: discovery.New(discovery.Document{modules.Service: modules.Path})},
		httpapi.Service{Routes: modules.Routes(), Handler: modules.New(d.Catalog, &store)},
		httpapi.Service{Routes: disk.Routes(), Handler: store.Handler()},
	))
}

// Server is a registry that listens.
type Server struct {
	// Host is what module addresses begin with: an address and a port.
	Host string
	// CAFile holds the certificate that clients must trust.
	CAFile string

	listener net.Listener
	server   *http.Server
}

// Listen begins to listen on an address of this machine's loopback, such as 127.0.0.1:8443; port 0 picks a free one.
func (d *Data) Listen(ctx context.Context, address string, log *slog.Logger) (*Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w address %q: it is ADDRESS:PORT, such as 127.0.0.1:8443", registry.ErrInvalid, address)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	// Clients take a name for a registry's host only if it has a dot, which no IPv6 address has.
	ip := net.ParseIP(host)
	if ip.To4() == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%w address %q: the local registry has no access control and listens on IPv4 loopback addresses alone, such as 127.0.0.1:8443", registry.ErrInvalid, address)
	}
	certificate, caFile, err := certificate(filepath.Join(d.Dir, "tls"), ip)
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("%w: if another registry runs there, choose another port, such as 127.0.0.1:8444", err)
	}
	s := &Server{Host: listener.Addr().String(), CAFile: caFile, listener: listener}
	s.server = &http.Server{
		Handler:                      d.Handler("https://"+s.Host, log),
		TLSConfig:                    &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		DisableGeneralOptionsHandler: true, // OPTIONS * is answered as everything else is
		ReadHeaderTimeout:            10 * time.Second,
		ReadTimeout:                  time.Minute,
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               64 << 10,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelInfo), // clients that do not trust the authority show up here
	}
	return s, nil
}

// ended leaves out the error by which a server says that it was told to stop.
func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Serve answers requests until its context ends, and then lets those under way finish for some seconds.
func (s *Server) Serve(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.server.ServeTLS(s.listener, "", "") }()
	select {
	case err := <-served:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.server.Shutdown(patience)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.server.Close() // what is still under way is a download, which its client repeats
	}
	return errors.Join(err, ended(<-served))
}
