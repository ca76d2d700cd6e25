// Package local runs a whole registry on one machine. One HTTPS server has the
// handlers of all functions, and stores its data in SQLite and a folder. Behind a
// proxy that ends TLS, it is an HTTP server.
//
// You can publish to the same data while it runs. Go's server itself rejects
// some malformed requests, such as one with headers of more than 64 KiB. It
// answers those with plain text instead of JSON.
//
// On a loopback address everyone may read everything, unless the options
// require a token. Other addresses always require a credential, and so does
// publishing.
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
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/usage/daily"
	"github.com/larder-registry/larder/pkg/web"
	"github.com/larder-registry/larder/pkg/web/session"
)

// Data is a registry's data in a folder.
type Data struct {
	Dir     string
	Catalog *catalog.Catalog
	Objects *disk.Store
	// Host is the host in module addresses. It is that of the running server, or
	// of the last one. It is empty if the registry was never served.
	Host string
	// Inspector reads uploaded archives. If nil, this process reads them, and an
	// archive that crashes the reader stops the registry.
	Inspector publishapi.Inspector
	// Pulling lets clients make the mirror fetch what it lacks. If nil, only
	// operators fill the mirror.
	Pulling *mirror.Pulling
	// Observers are called with the log entry of each request.
	Observers []func(*requestlog.Entry)
	// Now is the clock of the pages. If nil, it is the time of the system.
	Now func() time.Time
	// Adopted is the error that [Open] would have returned for the folder, if
	// [Adopt] has given it a marker. It is nil otherwise.
	Adopted *MismatchError

	table *sqlite.Table
	// released is the size of the reserve that was removed for this process.
	released int64
}

// Remove removes all objects below a prefix, as described for
// [disk.Store.Remove]. It then empties the log of the database, which can have
// content of a version that was withdrawn before.
func (d *Data) Remove(ctx context.Context, prefix string) (removed int, err error) {
	removed, err = d.Objects.Remove(ctx, prefix)
	if err == nil {
		err = d.table.TruncateLog(ctx)
	}
	return removed, err
}

// RemoveExpired removes records that expired more than an hour ago, such as
// sessions, and returns their number. A running server does this every day.
func (d *Data) RemoveExpired(ctx context.Context) (removed int, err error) {
	return d.table.RemoveExpired(ctx)
}

// removeExpired removes expired records now and at each tick, until ctx ends.
func (d *Data) removeExpired(ctx context.Context, ticks <-chan time.Time, log *slog.Logger) {
	for {
		if _, err := d.RemoveExpired(ctx); err != nil && ctx.Err() == nil {
			log.LogAttrs(ctx, slog.LevelWarn, "cannot remove expired records, and will try again within a day",
				slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// removeExpiredEvery is the time between removals of expired records.
const removeExpiredEvery = 24 * time.Hour

// Close closes the data. If records were changed, or the reserve was removed, it
// makes the reserve again.
func (d *Data) Close() error {
	err := errors.Join(d.table.Close(), d.Objects.Close())
	if d.released > 0 || d.table.Wrote() {
		fillReserve(d.Dir, d.released)
	}
	return err
}

// Handler serves the registry under a base URL such as https://127.0.0.1:8443,
// which is part of the URLs of archives. If open is set, everyone may read.
// Otherwise reading requires a credential that rules or the registry's tokens
// allow. Publishing always requires a credential.
func (d *Data) Handler(baseURL string, open bool, rules access.Settings, log *slog.Logger) http.Handler {
	h, _ := d.handler(baseURL, web.Local{Open: open}, rules, access.New(rules, d.Catalog), log)
	return h
}

// handler returns the handler of the registry, and a function that makes it use
// another login. Pages show what shown has of the registry, in the folder of d.
func (d *Data) handler(
	baseURL string, shown web.Local, rules access.Settings, control *access.Control, log *slog.Logger,
) (h http.Handler, setLogin func(*openid.Login)) {
	store := *d.Objects
	store.BaseURL = baseURL
	inspector := d.Inspector
	if inspector == nil {
		inspector = inspection.InThisProcess{}
	}
	protect, identify := control.RequireRead, control.Identify
	if shown.Open {
		protect, identify = func(h http.Handler) http.Handler { return h }, access.Everyone
	}
	limits := settings.DefaultPublishLimits
	limits.AllInspections = 0 // a process bounds its own without the table
	publishing := publishapi.New(d.Catalog, &store, publishapi.AllObjects, inspector, limits)
	shown.Dir = d.Dir
	var discovered, pages replaceable
	setLogin = func(login *openid.Login) {
		discovered.replace(discovery.New(discovery.Larder(), login.Service()))
		pages.replace(web.New(web.Options{
			Catalog: d.Catalog, Objects: &store, Archives: &store, Downloads: daily.Open(d.Dir),
			Host: strings.TrimPrefix(baseURL, "https://"),
			Accounts: session.New(session.Options{
				Control: control, Store: d.Catalog, Login: login, Secret: session.FileSecret(login),
				BaseURL: baseURL, Open: shown.Open,
			}),
			ClientLogin: login != nil, Now: d.Now,
			Local: &shown,
		}))
	}
	setLogin(rules.Login)
	return httpapi.Wrap(log, httpapi.Join(
		httpapi.Service{Routes: discovery.Routes(), Handler: &discovered},
		httpapi.Service{Routes: modules.Routes(), Handler: protect(modules.New(d.Catalog.Modules, &store))},
		httpapi.Service{Routes: providers.Routes(), Handler: protect(providers.New(d.Catalog.Providers, d.Catalog, &store))},
		httpapi.Service{Routes: mirror.Routes(), Handler: protect(mirror.New(d.Catalog.Mirror, &store, d.Pulling))},
		httpapi.Service{
			Tree:    protocol.PublishPath,
			Handler: httpapi.Protect(publishapi.Routes(), control.RequirePublish, publishing),
		},
		httpapi.Service{Tree: metadata.Tree, Handler: metadata.New(d.Catalog, &store, daily.Open(d.Dir), identify)},
		httpapi.Service{Tree: web.Tree, Handler: &pages},
		httpapi.Service{Routes: disk.Routes(), Handler: d.requireDatabase(store.Handler())},
	), d.Observers...), setLogin
}

// replaceable is a handler that can be replaced while it serves.
type replaceable struct{ current atomic.Pointer[http.Handler] }

func (r *replaceable) replace(h http.Handler) { r.current.Store(&h) }

// ServeHTTP implements [http.Handler].
func (r *replaceable) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	(*r.current.Load()).ServeHTTP(w, q)
}

// Server is a registry that listens for requests.
type Server struct {
	// Address is the address and port that it listens on, or unix: and a path.
	Address string
	// Host is the host in module addresses: Address, or the name in the options,
	// in the form for people. URL is the URL of the registry, https://HOST.
	Host, URL string
	// CAFile is the certificate of the authority that clients must trust. It is
	// empty if the options have a certificate.
	CAFile string
	// Open reports whether everyone may read everything.
	Open bool
	// Others are the servers that already served the folder.
	Others []Running
	// AccessWarnings are those of [access.Settings.Warnings] at the start.
	AccessWarnings []string

	dir          string
	listener     net.Listener
	connections  *boundedListener
	server       *http.Server
	certificates *certificates
	access       *accessFile
	watch        func(context.Context)
	clean        func(context.Context)
	control      *access.Control
	health       *health
	log          *slog.Logger
}

// logIssuers logs the issuers whose tokens cannot be verified.
func (s *Server) logIssuers(ctx context.Context) {
	for _, p := range s.control.CheckIssuers(ctx) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "cannot verify the tokens of an issuer", slog.String("issuer", p.Issuer),
			slog.Any("error", p.Err), slog.String("hint", registry.Hint(p.Err)))
	}
}

// Options are the options of [Data.Listen].
type Options struct {
	// Address is an address and a port to listen on, such as 127.0.0.1:8443. Port
	// 0 selects a free port. With Host, it can be any address of this machine:
	// IPv4, IPv6 in brackets, or a name, of which the first address is used. If
	// the address is empty or *, the server listens on all of them. Without Host,
	// it is an IPv4 loopback address.
	Address string
	// Host is the host in module addresses, with an optional port, as
	// [registry.ParseHost] reads it. If empty, it is the address.
	Host string
	// CertificateFile and KeyFile are the certificate for Host and its key, in
	// PEM. The server reads them again when they change. If empty, the registry's
	// own authority issues a certificate for a loopback address.
	CertificateFile, KeyFile string
	// AccessFile has the settings that define who may read and publish in addition
	// to the holders of tokens. The server reads it again when it changes. If
	// empty, everyone may read everything on a loopback address.
	AccessFile string
	// RequireToken requires a credential on a loopback address too.
	RequireToken bool
	// PlainAddress is the address of a listener without TLS, for a proxy that ends
	// TLS. It replaces Address, and needs Host and no certificate. It is an address
	// and a port, or unix: and the path of a Unix socket. On other than loopback
	// addresses, only TrustedProxies and loopback addresses may connect.
	PlainAddress string
	// TrustedProxies are the addresses of the proxies that may name their clients.
	// They can be networks in CIDR notation, or unix for all that connect to a Unix
	// socket. The log and the limits then use the last address in X-Forwarded-For
	// that is not one of a trusted proxy.
	TrustedProxies []string
	// ProxyProtocol reports whether each connection of a trusted proxy begins with a
	// header of the PROXY protocol, version 1 or 2. Its address then is that of the
	// client, or of a further trusted proxy with X-Forwarded-For.
	ProxyProtocol bool
	// MaxConnections is the maximum number of open connections. If 0, it is
	// DefaultMaxConnections.
	MaxConnections int
	// MaxClientConnections is the maximum number of open connections of one
	// client: an IPv4 address, or an IPv6 network of 64 bits. If 0, it is three
	// quarters of MaxConnections. It does not apply to clients on this machine, and
	// to trusted proxies. For each of their clients it is also the maximum number of
	// running requests.
	MaxClientConnections int
	// Handover has the listener of the last process of a service. If nil, the
	// server opens a new one.
	Handover *Handover
}

// CheckFlags returns [registry.ErrInvalid] for options that are never valid,
// such as a malformed address. It reads no files.
func (o Options) CheckFlags() error {
	address, _, err := o.address()
	if err == nil {
		_, _, err = new(Data).source(o, address, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		_, err = o.limits()
	}
	return err
}

// Check returns the errors of [Data.Listen] that do not depend on data, such as
// an address that is in use.
func (o Options) Check(ctx context.Context) error {
	address, port, err := o.address()
	if err != nil {
		return err
	}
	if _, err := o.limits(); err != nil {
		return err
	}
	source, _, err := new(Data).source(o, address, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if o.CertificateFile != "" { // otherwise Listen creates a certificate
		if _, err := source.next(nil, time.Now()); err != nil {
			return err
		}
	}
	if _, err := openAccess(ctx, o.AccessFile, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	listener, err := o.listen(ctx, address, port)
	if err != nil {
		return err
	}
	return listener.Close()
}

// Listen starts to listen. If it returns an error, it has created nothing.
func (d *Data) Listen(ctx context.Context, o Options, log *slog.Logger) (_ *Server, err error) {
	address, port, err := o.address()
	if err != nil {
		return nil, err
	}
	s := &Server{
		health: newHealth(d.checkReady, func() bool { return isNearlyFull(d.Dir) }, log), log: log,
		watch: func(ctx context.Context) { d.watch(ctx, time.Tick(watchEvery), log) },
		clean: func(ctx context.Context) { d.removeExpired(ctx, time.Tick(removeExpiredEvery), log) },
	}
	lim, err := o.limits()
	if err != nil {
		return nil, err
	}
	source, caFile, err := d.source(o, address, log)
	if err != nil {
		return nil, err
	}
	if s.access, err = openAccess(ctx, o.AccessFile, log); err != nil {
		return nil, err
	}
	rules := s.access.settings
	s.AccessWarnings = rules.Warnings()
	if s.listener, err = o.listen(ctx, address, port); err != nil {
		return nil, err
	}
	if err := o.Handover.store(o.listensAt(), s.listener); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "cannot pass the listener to systemd, so a restart will refuse connections",
			slog.Any("error", err))
	}
	defer func() {
		if err != nil {
			_ = s.listener.Close()
		}
	}()
	var certificateExpires func() time.Time
	if source != nil {
		if s.certificates, err = newCertificates(source, time.Now, log); err != nil {
			return nil, err
		}
		certificateExpires = s.certificateExpires
	}
	s.CAFile = caFile
	// Without a host name, the address is a loopback address. A host name is meant
	// for other machines, possibly through a proxy. Access settings require
	// credentials.
	s.Open = o.Host == "" && !o.RequireToken && o.AccessFile == ""
	s.Address = listensOn(s.listener)
	host, err := registry.ParseHost(cmp.Or(o.Host, s.Address))
	if err != nil {
		return nil, err
	}
	s.Host, s.URL = host.Display(), host.URL()
	s.dir = d.Dir
	if s.Others, err = s.register(ctx, d.Dir, o.Host != ""); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "cannot store the host, which other commands print", slog.Any("error", err))
	}
	s.control = access.New(rules, d.Catalog)
	handler, setLogin := d.handler(s.URL, web.Local{
		CAFile: s.CAFile, Open: s.Open, CertificateExpires: certificateExpires,
	}, rules, s.control, log)
	s.access.apply = func(ctx context.Context, next access.Settings) {
		s.control.Apply(next)
		if !reflect.DeepEqual(next.Login, s.access.settings.Login) {
			setLogin(next.Login)
		}
		go s.logIssuers(ctx)
	}
	s.server = &http.Server{
		Handler:                      s.health.handler(logClients(handler)),
		DisableGeneralOptionsHandler: true, // OPTIONS * is a request like others
		ReadHeaderTimeout:            10 * time.Second,
		ReadTimeout:                  time.Minute,
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               64 << 10,
		// Failed handshakes of clients that do not trust the authority are logged
		// here.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelInfo),
	}
	if s.certificates != nil {
		s.server.TLSConfig = &tls.Config{GetCertificate: s.certificates.get, MinVersion: tls.VersionTLS12}
	}
	s.connections = lim.apply(s.server, s.listener)
	s.listener = s.connections
	if err := d.warnOfLostObjects(ctx, log); err != nil {
		log.LogAttrs(ctx, slog.LevelError, "cannot check whether objects exist", slog.Any("error", err))
	}
	return s, nil
}

// Ready returns why the server is not ready to serve requests, or nil. It
// returns within 2 seconds.
func (s *Server) Ready(ctx context.Context) error {
	_, err := s.health.state(ctx)
	return err
}

// Reload reads the files of the options immediately, and not after at most a
// second. If they cannot be used, the server logs the reason, even if it already
// has, and continues with what it has.
func (s *Server) Reload(ctx context.Context) {
	for _, part := range s.reloaded() {
		part.logAgain() // an operator waits for the result
		part.update(ctx)
	}
}

// reloaded returns the parts of the server that depend on files.
func (s *Server) reloaded() []reloaded {
	if s.certificates == nil {
		return []reloaded{s.access}
	}
	return []reloaded{s.certificates, s.access}
}

// serve answers requests, with TLS if the server has a certificate.
func (s *Server) serve() error {
	if s.certificates == nil {
		return s.server.Serve(s.listener)
	}
	return s.server.ServeTLS(s.listener, "", "")
}

// Serve answers requests until ctx ends. Then it is not ready any more, and
// waits up to 5 seconds for running requests, and for the first requests of new
// connections.
func (s *Server) Serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var cleaning sync.WaitGroup
	defer cleaning.Wait() // afterwards, the caller can close the database
	defer stop()
	defer s.forget(s.dir)
	go watchFiles(ctx, s.reloaded()...)
	go s.watch(ctx)
	cleaning.Go(func() { s.clean(ctx) })
	go s.logIssuers(ctx)
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	select {
	case err := <-served:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	s.health.stop()
	timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.listener.Close()
	if ended := <-served; !errors.Is(ended, net.ErrClosed) {
		err = errors.Join(err, ended)
	}
	// Shutdown drops the first request of a connection if it has not read it yet.
	if closed := s.connections.awaitRequests(2 * time.Second); closed > 0 {
		s.log.LogAttrs(ctx, slog.LevelInfo, "closed connections that had sent no request", slog.Int("connections", closed))
	}
	err = errors.Join(err, s.server.Shutdown(timeout))
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "closed connections that were still in use 5 seconds after the stop of the server")
		err = s.server.Close()
	}
	return err
}
