// Package local is the whole registry on one machine: the handlers of all functions in one HTTPS server, on the embedded
// default of SQLite and a folder.
//
// Publishing to the same data works while it runs. Requests so malformed that Go's server itself refuses them, such as
// one with headers of more than 64 KiB, get its plain text and not JSON.
//
// On a loopback address whoever reaches it may read everything, unless a token is asked for. On any other it always is, and
// so it is for publishing.
package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// Data is a registry's data in a folder.
type Data struct {
	Dir     string
	Catalog *catalog.Catalog
	Objects *disk.Store
	// Host is what module addresses begin with: the host of the server that runs, or
	// of the last one that did. It is empty if the registry was never served.
	Host string
	// Inspector reads what is published through the registry. If nil, this
	// process does, and an archive that ends its reader ends the registry.
	Inspector publishapi.Inspector
	// Adopted is why [Open] would have refused the folder that [Adopt] has given a
	// marker; nil for any other.
	Adopted *MismatchError

	table *sqlite.Table
}

// Close closes the data.
func (d *Data) Close() error { return errors.Join(d.table.Close(), d.Objects.Close()) }

// Handler serves the registry under a URL such as https://127.0.0.1:8443, which those of archives begin with: to whoever
// comes if it is open, and otherwise to those whom the settings and the registry's tokens let in. Publishing takes a
// credential in any case.
func (d *Data) Handler(baseURL string, open bool, rules access.Settings, log *slog.Logger) http.Handler {
	return d.handler(baseURL, open, rules, access.New(rules, d.Catalog), log)
}

func (d *Data) handler(
	baseURL string, open bool, rules access.Settings, control *access.Control, log *slog.Logger,
) http.Handler {
	store := *d.Objects
	store.BaseURL = baseURL
	inspector := d.Inspector
	if inspector == nil {
		inspector = inspection.InThisProcess{}
	}
	protect := control.RequireRead
	if open {
		protect = func(h http.Handler) http.Handler { return h }
	}
	publishing := publishapi.New(d.Catalog, &store, publishapi.AllObjects, inspector, settings.DefaultPublishLimits)
	return httpapi.Wrap(log, httpapi.Join(
		httpapi.Service{Routes: discovery.Routes(), Handler: discovery.New(discovery.Larder(), rules.Login.Service())},
		httpapi.Service{Routes: modules.Routes(), Handler: protect(modules.New(d.Catalog.Modules, &store))},
		httpapi.Service{Routes: providers.Routes(), Handler: protect(providers.New(d.Catalog.Providers, d.Catalog, &store))},
		httpapi.Service{Routes: mirror.Routes(), Handler: protect(mirror.New(d.Catalog.Mirror, &store))},
		httpapi.Service{Routes: publishapi.Routes(), Handler: control.RequirePublish(publishing)},
		httpapi.Service{Routes: disk.Routes(), Handler: d.requireDatabase(store.Handler())},
	))
}

// Server is a registry that listens.
type Server struct {
	// Address is where it listens.
	Address string
	// Host is what module addresses begin with: Address, or a name that was given.
	Host string
	// CAFile holds the certificate that clients must trust; empty if the registry has one that was given.
	CAFile string
	// Open says that whoever reaches it may read everything.
	Open bool
	// Others are the servers that served the folder already when this one began.
	Others []Running

	dir          string
	listener     net.Listener
	server       *http.Server
	certificates *certificates
	watch        func(context.Context)
	control      *access.Control
	log          *slog.Logger
}

// logIssuers logs why tokens of issuers cannot be verified.
func (s *Server) logIssuers(ctx context.Context) {
	for _, p := range s.control.CheckIssuers(ctx) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "cannot verify the tokens of an issuer", slog.String("issuer", p.Issuer),
			slog.Any("error", p.Err), slog.String("hint", registry.Hint(p.Err)))
	}
}

// Options say where and for whom a registry serves.
type Options struct {
	// Address is an IPv4 address and a port, such as 127.0.0.1:8443; port 0 picks a free one.
	Address string
	// Host is what module addresses begin with, where that is not the address: a name and perhaps a port.
	Host string
	// CertificateFile and KeyFile are the certificate for Host and its key, as PEM.
	// The server reads them again when they change. Without them the registry's own
	// authority vouches for a loopback address.
	CertificateFile, KeyFile string
	// Access says who may read besides the holders of tokens; nil lets whoever reaches a loopback address read everything.
	Access *access.Settings
	// RequireToken asks for a credential on a loopback address too.
	RequireToken bool
}

// CheckFlags returns registry.ErrInvalid for options that can be used nowhere, such
// as a malformed address. It reads no files.
func (o Options) CheckFlags() error {
	ip, _, err := o.address()
	if err == nil {
		_, _, err = new(Data).source(o, ip, slog.New(slog.DiscardHandler))
	}
	return err
}

// Check reports the errors of [Data.Listen] that are there without any data, such as
// an address that is in use.
func (o Options) Check(ctx context.Context) error {
	ip, port, err := o.address()
	if err != nil {
		return err
	}
	source, _, err := new(Data).source(o, ip, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if o.CertificateFile != "" { // otherwise it is made with the data
		if _, err := source.next(nil, time.Now()); err != nil {
			return err
		}
	}
	listener, err := listen(ctx, ip, port)
	if err != nil {
		return err
	}
	return listener.Close()
}

// Listen begins to listen. If it cannot, it makes nothing.
func (d *Data) Listen(ctx context.Context, o Options, log *slog.Logger) (_ *Server, err error) {
	ip, port, err := o.address()
	if err != nil {
		return nil, err
	}
	s := &Server{log: log, watch: func(ctx context.Context) { d.watch(ctx, time.Tick(watchEvery), log) }}
	source, caFile, err := d.source(o, ip, log)
	if err != nil {
		return nil, err
	}
	if s.listener, err = listen(ctx, ip, port); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.listener.Close()
		}
	}()
	if s.certificates, err = newCertificates(source, time.Now, log); err != nil {
		return nil, err
	}
	s.CAFile = caFile
	// A host of its own is for other machines, through a proxy perhaps; and who says who may read means it.
	s.Open = ip.IsLoopback() && !o.RequireToken && o.Host == "" && o.Access == nil
	rules := access.Settings{}
	if o.Access != nil {
		rules = *o.Access
	}
	s.Address = s.listener.Addr().String()
	s.Host = cmp.Or(o.Host, s.Address)
	s.dir = d.Dir
	if s.Others, err = s.remember(ctx, d.Dir, o.Host != ""); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "cannot store the host, which other commands print", slog.Any("error", err))
	}
	s.control = access.New(rules, d.Catalog)
	s.server = &http.Server{
		Handler:                      d.handler("https://"+s.Host, s.Open, rules, s.control, log),
		TLSConfig:                    &tls.Config{GetCertificate: s.certificates.get, MinVersion: tls.VersionTLS12},
		DisableGeneralOptionsHandler: true, // OPTIONS * is answered as everything else is
		ReadHeaderTimeout:            10 * time.Second,
		ReadTimeout:                  time.Minute,
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               64 << 10,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelInfo), // clients that do not trust the authority show up here
	}
	s.listener = defaultLimits.apply(s.server, s.listener)
	if err := d.warnOfLostObjects(ctx, log); err != nil {
		log.LogAttrs(ctx, slog.LevelError, "cannot check whether objects are there", slog.Any("error", err))
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

// ReloadCertificate reads the certificate's files again at once, which the server
// otherwise does every 10 seconds. If they cannot be used, the log has the reason,
// and the server goes on with the certificate it has.
func (s *Server) ReloadCertificate() { s.certificates.update() }

// Serve answers requests until its context ends, and then lets those under way finish for some seconds.
func (s *Server) Serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.forget(s.dir)
	go s.certificates.watch(ctx)
	go s.watch(ctx)
	go s.logIssuers(ctx)
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
