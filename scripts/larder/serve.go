package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client/contexts"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/local/monitoring"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/pkg/usage/daily"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

const (
	// pullLease is how long a server that was killed prevents the next one from
	// continuing its copies. On a busy machine a renewal can take many seconds.
	pullLease = 20 * time.Second
	// policyTime is how long the mirror policy is cached. It is short, because the
	// database is on this machine.
	policyTime = time.Second
)

func serveCommand(c *cli.Program) *cobra.Command {
	var o serveOptions
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "serve",
		Short: "Run a registry on this machine",
		Long: `Run a registry on this machine, over HTTPS, with a certificate from its own
certificate authority. If the folder has no registry, the command creates one.

The first start creates the authority and stores it in the folder. It can issue
certificates only for loopback addresses. You can publish to the folder while
the registry runs. A browser shows its pages at the same address. Ctrl-C stops
it.

On a loopback address, anyone who can reach the registry can read everything,
unless you use --require-token, --access or --host. With --host, clients use
that name, whatever the address is. The address can be IPv4, IPv6 such as
[::]:443, or a name of this machine. On other than IPv4 loopback addresses,
you must give a host and a certificate for it. Clients then always need a
credential. Publishing through the registry, with --registry, always needs a
credential.

Clients write a host with non-ASCII letters in Unicode, so Larder prints it like
that in addresses. In URLs and in certificates it is in Punycode.

If the mirror policy has rules with pull, the registry fetches providers when
clients request them. It continues unfinished copies after a restart. Each night
at 3:00 it checks for new versions of them. See larder help mirror policy set.

The server counts downloads. See larder usage. It answers health checks at
/healthz and /readyz without a credential. With --metrics, Prometheus can read
metrics at /metrics of another address, over plain HTTP and without a
credential. It must name an IP address, localhost, the --host, or a host of
--metrics-host.

Behind a proxy that ends TLS, use --host, and --listen-plain instead of
--listen. The server then speaks HTTP, and needs no certificate. Clients still
see https and --host. On other than loopback addresses and Unix sockets, only
the --trusted-proxies and clients on loopback addresses can connect.

Without --trusted-proxies, a proxy counts as the client of its requests. With
it, the client is the last address in X-Forwarded-For that is not one of a
trusted proxy, in the log and for --max-connections-per-client. With
--proxy-protocol, the connections of these proxies must begin with a header of
the PROXY protocol, version 1 or 2. Both also apply to --listen.

--max-connections-per-client counts an IPv6 network of 64 bits as one client. It
does not apply to clients on this machine, and not to trusted proxies. For each
of their clients, it limits the running requests too.

The server reloads --cert, --key and --access when the files change, and on
SIGHUP. If it cannot use a changed file, it logs why and continues with what it
has. It renews a certificate of its own authority while it runs. It logs a
warning 14 days before a certificate expires.`,
		Example: `  larder serve
  larder serve --store ./larder-data --listen 127.0.0.1:8443 --require-token
  larder serve --listen :443 --host registry.example.com \
    --cert tls.crt --key tls.key --access access.json
  larder serve --listen-plain 127.0.0.1:8080 --host registry.example.com \
    --trusted-proxies 127.0.0.1`,
		RunE: c.Run(func(ctx context.Context, _ []string) (output.View, error) {
			folder, err := folderToServe(c)
			if err != nil {
				return nil, err
			}
			if o.PlainAddress != "" && cmd.Flags().Changed("listen") {
				return nil, registry.WithHint(arguments.Errorf("cannot use --listen and --listen-plain together"),
					"Give `--listen-plain` if a proxy ends TLS, and `--listen` otherwise.")
			}
			if err := o.check(); err != nil {
				return nil, arguments.Wrong(err)
			}
			return nil, runServer(ctx, c, folder, o)
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flag("store").Usage = "the registry's `FOLDER` (default " + place.DefaultFolder + ")"
	cmd.Flags().StringVar(&o.Address, "listen", place.DefaultAddress,
		"`ADDRESS` and port to listen on; port 0 selects a free port, and :PORT listens on all addresses")
	cmd.Flags().StringVar(&o.PlainAddress, "listen-plain", "",
		"`ADDRESS` and port, or unix:PATH, for a proxy that ends TLS; replaces --listen")
	cmd.Flags().StringSliceVar(&o.TrustedProxies, "trusted-proxies", nil,
		"`PROXIES` that may name the addresses of clients: addresses, networks as CIDR, or unix")
	cmd.Flags().BoolVar(&o.ProxyProtocol, "proxy-protocol", false,
		"require a header of the PROXY protocol on connections of the trusted proxies")
	cmd.Flags().BoolVar(&o.RequireToken, "require-token", false, "require a credential also on a loopback address")
	cmd.Flags().StringVar(&o.AccessFile, "access", "",
		"`FILE` with access settings for callers without a larder token; see larder help access")
	cmd.Flags().StringVar(&o.Host, "host", "", "`HOST` that clients use for the registry, if it is not the address")
	cmd.Flags().StringVar(&o.CertificateFile, "cert", "",
		"`FILE` with the certificate for the host and its intermediate certificates, as PEM")
	cmd.Flags().StringVar(&o.KeyFile, "key", "", "`FILE` with the certificate's private key, as PEM")
	cmd.Flags().StringVar(&o.metrics, "metrics", "",
		"`ADDRESS` and port for Prometheus; a port without an address is one of 127.0.0.1 (default: no metrics)")
	cmd.Flags().StringSliceVar(&o.metricsHosts, "metrics-host", nil,
		"`HOST` by which Prometheus may request metrics; can be repeated")
	cmd.Flags().StringVar(&o.logFormat, "log-format", textFormat, "`FORMAT` of the log: text or json")
	cmd.Flags().IntVar(&o.MaxConnections, "max-connections", local.DefaultMaxConnections,
		"maximum number `N` of open connections")
	cmd.Flags().IntVar(&o.MaxClientConnections, "max-connections-per-client", 0,
		"maximum number `N` of open connections of one client (default three quarters of --max-connections)")
	return cmd
}

// serveOptions are the options of the command.
type serveOptions struct {
	local.Options
	// metrics is the address for Prometheus. If empty, there are no metrics.
	metrics string
	// metricsHosts are further names of that address.
	metricsHosts []string
	// logFormat is textFormat or jsonFormat.
	logFormat string
}

const textFormat, jsonFormat = "text", "json"

// check returns the errors of options that are never valid.
func (o serveOptions) check() error {
	if o.logFormat != textFormat && o.logFormat != jsonFormat {
		return registry.WithHint(fmt.Errorf("%w log format %.100q", registry.ErrInvalid, o.logFormat),
			"Give `--log-format` the value text or json.")
	}
	if o.MaxConnections == 0 { // which stands for the default in a program
		return registry.WithHint(fmt.Errorf("%w maximum of 0 connections", registry.ErrInvalid),
			"Leave out `--max-connections` for the default.")
	}
	if o.metrics != "" {
		if _, err := monitoring.ParseAddress(o.metrics); err != nil {
			return err
		}
	}
	for _, host := range o.metricsHosts {
		if err := monitoring.CheckHost(host); err != nil {
			return err
		}
	}
	return o.CheckFlags()
}

func (o serveOptions) logTo(w io.Writer) *slog.Logger {
	if o.logFormat == jsonFormat {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// folderToServe returns the folder from the flags, the environment or a
// context.
func folderToServe(c *cli.Program) (string, error) {
	p, err := c.Find()
	if err != nil || p.Dir != "" {
		return p.Dir, err
	}
	c.About = place.Place{}
	return "", registry.WithHint(arguments.Errorf("cannot serve %s: it is not a folder of this machine", p),
		"A deployed registry needs no server. Name a folder, for example `larder serve --store %s`.", place.DefaultFolder)
}

// runServer runs the registry in a folder until it is interrupted.
func runServer(ctx context.Context, c *cli.Program, folder string, o serveOptions) (err error) {
	o.Handover = local.NewHandover()
	var isServing bool
	defer func() {
		if !isServing {
			o.Handover.End()
		}
	}()
	log := o.logTo(c.Stderr)
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP) // by default it would end the process
	defer signal.Stop(hangUps)
	metrics, metricsListener, err := listenForPrometheus(ctx, o)
	if err != nil {
		return err
	}
	if metrics != nil {
		defer func() { _ = metricsListener.Close() }()
	}
	data, created, err := openToServe(ctx, folder, o.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	if created {
		log.LogAttrs(ctx, slog.LevelInfo, "created a registry in an empty folder", slog.String("data", data.Dir))
	}
	data.Inspector = inspection.Process{Log: log}
	ctx, stop := context.WithCancel(ctx)
	counter := daily.NewCounter(data.Dir, data.Catalog, log)
	defer counter.Close()
	data.Observers = append(data.Observers, counter.Observe)
	if metrics != nil {
		data.Observers = append(data.Observers, metrics.Observe)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	worker := pullThrough(ctx, data, log, metrics)
	server, err := data.Listen(ctx, o.Options, log)
	if err != nil {
		return err
	}
	for _, warning := range server.AccessWarnings {
		warnOnStart(c, log, o, o.AccessFile+": "+warning)
	}
	for _, warning := range warningsOfOthers(server) {
		warnOnStart(c, log, o, warning)
	}
	announcement, err := announcement(server, folder, created)
	if err != nil {
		return err
	}
	announcement.isPlain = o.PlainAddress != ""
	if metrics != nil {
		announcement.Metrics = "http://" + metricsListener.Addr().String() + "/metrics"
		metrics.Watch(server.Status, worker.Queued)
		running.Go(func() { metrics.Serve(ctx, metricsListener, log, append(o.metricsHosts, o.Host)...) })
	}
	if err := announce(c, announcement, log, o); err != nil {
		return err
	}
	running.Go(func() { worker.Run(ctx) })
	running.Go(func() { counter.Run(ctx) })
	go func() {
		for {
			select {
			case <-hangUps:
				server.Reload(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	isServing = true
	if err := server.Serve(ctx); err != nil {
		return err
	}
	if !c.JSON && !c.Quiet && o.logFormat != jsonFormat {
		output.EndLine(terminal.New(c.Stdout))
		c.Page().Printf("Stopped.\n")
	}
	return nil
}

// announce prints the URL of the registry, and on standard error how to use it. If the
// log is JSON, the log has the URL, so that each line of the output is JSON.
func announce(c *cli.Program, v servedView, log *slog.Logger, o serveOptions) error {
	switch {
	case c.JSON || c.Quiet:
		return c.Show(v, nil)
	case o.logFormat == jsonFormat:
		log.Info("serving", slog.String("url", v.URL), slog.String("data", v.dir), slog.Int("process", v.Process))
		return nil
	}
	err := c.Show(v, nil)
	if v.CAFile != "" { // a service with a certificate of its own has readers on other machines
		v.hints(output.Page{Output: terminal.New(c.Stderr)})
	}
	return err
}

// pullThrough lets clients make the mirror in a folder fetch what it lacks. The
// returned worker must run until ctx ends. metrics may be nil.
func pullThrough(ctx context.Context, data *local.Data, log *slog.Logger, metrics *monitoring.Metrics) *pull.Local {
	policies := admission.NewPoliciesWithLifetime(policyTime, data.Catalog, nil)
	var onBound func(string)
	if metrics != nil {
		onBound = metrics.MirrorBounds(pull.Bounds...)
	}
	worker := pull.NewLocal(ctx, pull.New(pull.Options{
		Catalog: data.Catalog, Objects: data.Objects, Client: pull.NewClient("larder/" + version()), Policies: policies,
		Inspector: inspection.Process{Log: log}, Log: log, MaxBytes: settings.PullBytes, Lease: pullLease, OnBound: onBound,
	}))
	data.Pulling = &mirror.Pulling{Pulled: data.Catalog.Mirror, Worker: worker, Policies: policies}
	return worker
}

// listenForPrometheus returns metrics and a listener for them, or nil if the
// options have no address.
func listenForPrometheus(ctx context.Context, o serveOptions) (*monitoring.Metrics, net.Listener, error) {
	if o.metrics == "" {
		return nil, nil, nil
	}
	address, err := monitoring.ParseAddress(o.metrics)
	if err != nil {
		return nil, nil, err
	}
	listener, err := monitoring.Listen(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	return monitoring.New(version()), listener, nil
}

// warnOnStart prints a warning. It logs it if the log is JSON, so that each
// line of standard error is.
func warnOnStart(c *cli.Program, log *slog.Logger, o serveOptions, warning string) {
	if o.logFormat == jsonFormat {
		log.Warn(warning)
		return
	}
	out := terminal.New(c.Stderr)
	fmt.Fprintln(out, out.Wrap("warning: "+warning))
}

func warningsOfOthers(server *local.Server) (warnings []string) {
	for _, other := range server.Others {
		text := fmt.Sprintf("process %[2]d already serves this folder at https://%[1]s", other.Host, other.Process)
		if server.Open && !other.Open {
			text += fmt.Sprintf("; reading needs a credential there, but not at https://%s", server.Host)
		}
		warnings = append(warnings, text)
	}
	return warnings
}

// openToServe opens the registry in a folder. If there is none, it checks the
// options and creates one.
func openToServe(ctx context.Context, dir string, options local.Options) (data *local.Data, created bool, err error) {
	data, err = local.Open(ctx, dir)
	if _, none := errors.AsType[*local.NoRegistryError](err); !none {
		return data, false, err
	}
	if err := options.Check(ctx); err != nil {
		return nil, false, err
	}
	return local.Create(ctx, dir)
}

// servedView describes a registry that is being served, and how to use it.
type servedView struct {
	URL string `json:"url"`
	// Host is the host in addresses of modules and providers.
	Host string `json:"host"`
	// Address is the address and port on which the server listens, or unix: and
	// the path of a socket.
	Address string `json:"address"`
	// CAFile is the file with the certificate authority that clients must
	// trust. It is missing if --cert gives the certificate.
	CAFile string `json:"ca_file,omitempty"`
	// Store is the folder as an absolute value for --store.
	Store string `json:"store"`
	// Metrics is the URL of the metrics. It is missing without --metrics.
	Metrics string `json:"metrics,omitempty"`
	// Created is true if the command created the registry.
	Created bool `json:"created"`
	// Open is true if reading needs no credential.
	Open bool `json:"open"`
	// Process is the id of the server's process.
	Process int `json:"process"`

	dir     string
	isPlain bool
	// context is the name of a context for the registry. isNew reports whether
	// the context does not exist yet.
	context string
	isNew   bool
}

func announcement(server *local.Server, data string, created bool) (servedView, error) {
	v := servedView{
		URL: server.URL, Host: server.Host, Address: server.Address, CAFile: server.CAFile,
		Created: created, Open: server.Open, Process: os.Getpid(),
	}
	var err error
	if v.CAFile != "" {
		if v.CAFile, err = filepath.Abs(v.CAFile); err != nil {
			return v, err
		}
	}
	if v.dir, err = filepath.Abs(data); err != nil {
		return v, err
	}
	v.Store = place.Folder(v.dir).Name
	v.context, v.isNew = contextOf(v.Store)
	return v, nil
}

// contextOf returns the name of a context for a store. If there is none, it
// returns an unused name and true.
func contextOf(store string) (name string, isNew bool) {
	file, _ := place.ReadContexts() // the command has already read it without error
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		if file.Contexts[name].Store == store {
			return name, false
		}
	}
	name = "local"
	for i := 2; file.Contexts[name] != (contexts.Context{}); i++ {
		name = "local" + strconv.Itoa(i)
	}
	return name, true
}

func (v servedView) Text(p output.Page) {
	if v.Created {
		p.Println("Created a registry in %s", v.dir)
	}
	p.Println("Larder serves %s at %s (process %d). Press Ctrl-C to stop it.", v.dir, v.URL, v.Process)
	if v.isPlain {
		p.Println("It waits for a proxy that ends TLS, without TLS on %s.", v.Address)
	}
	if v.Metrics != "" {
		p.Println("Prometheus can read metrics from %s", v.Metrics)
	}
}

// hints prints how to use the registry.
func (v servedView) hints(p output.Page) {
	larder := invocation()
	printCommand(p, "To make clients on Linux trust it:", place.TrustCommand(v.CAFile))
	if v.isNew {
		printCommand(p, "To use it from other shells and folders:", larder+" context add "+v.context+" "+arguments.Quoted(v.Store))
	}
	if !v.Open {
		printCommand(p, "Reading needs a token. To create one:",
			larder+" token create --name NAME --scope 'read:**' --context "+v.context)
	}
	printCommand(p, "To publish a module from another shell:",
		larder+" publish module DIR acme/vpc/aws 1.0.0 --context "+v.context)
	place.PrintUse(p, place.ModuleBlock("vpc", v.Host+"/acme/vpc/aws", "1.0.0"), place.Addressing{Host: v.Host})
	p.Printf("\n")
}

func (v servedView) Quiet(p output.Page) { p.Printf("%s\n", v.URL) }

// printCommand prints a command to paste below its purpose.
func printCommand(p output.Page, what, command string) {
	p.Printf("\n%s\n\n  %s\n", p.Wrap(what), command)
}

// invocation returns the command that started this program.
func invocation() string {
	if strings.Contains(filepath.ToSlash(os.Args[0]), "/exe/") && strings.Contains(os.Args[0], "go-build") {
		return "go run ./scripts/larder"
	}
	return "larder"
}
