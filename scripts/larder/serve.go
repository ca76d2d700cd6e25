package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
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

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/admission"
	"github.com/larder-registry/larder/pkg/contexts"
	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/pull"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/terminal"
	"github.com/larder-registry/larder/pkg/usage/daily"
)

const (
	defaultAddress = "127.0.0.1:8443"
	// pullLease is how long a server that was killed prevents the next one from
	// continuing its copies.
	pullLease = 5 * time.Second
	// policyTime is how long the mirror policy is cached. It is short, because the
	// database is on this machine.
	policyTime = time.Second
)

func (c *cli) serveCommand() *cobra.Command {
	var data, rules string
	var options local.Options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a registry on this machine",
		Long: `Run a registry on this machine, over HTTPS, with a certificate from its own
certificate authority. If the folder has no registry, the command creates one.

The first start creates the authority and stores it in the folder. It can issue
certificates only for loopback addresses. You can publish to the folder while
the registry runs. A browser shows its pages at the same address. Ctrl-C stops
it.

On a loopback address, anyone who can reach the registry can read everything,
unless you use --require-token, --access or --host. On other addresses, clients
always need a credential, and you must give a host and a certificate for it.
Publishing through the registry, with --registry, always needs a credential.

If the mirror policy has rules with pull, the registry fetches providers when
clients request them. It continues unfinished copies after a restart. Each night
at 3:00 it checks for new versions of them. See larder help mirror policy set.

The server counts downloads. See larder usage.

The server reloads --cert and --key when the files change, and on SIGHUP. It
renews a certificate of its own authority while it runs. It logs a warning 14
days before a certificate expires.`,
		Example: `  larder serve
  larder serve --store ./larder-data --listen 127.0.0.1:8443 --require-token
  larder serve --listen 0.0.0.0:8443 --host registry.example.com:8443 \
    --cert tls.crt --key tls.key --access access.json`,
		RunE: c.run(func(ctx context.Context, _ []string) (view, error) {
			folder, err := c.folderToServe(data)
			if err != nil {
				return nil, err
			}
			if err := options.CheckFlags(); err != nil {
				return nil, usageError{err}
			}
			return nil, c.serve(ctx, folder, rules, options)
		}),
	}
	c.storeFlags(cmd)
	cmd.Flag("store").Usage = "the registry's `FOLDER` (default " + defaultData + ")"
	cmd.Flags().StringVar(&data, "data", "", "")
	_ = cmd.Flags().MarkHidden("data") // the former name of --store
	cmd.Flags().StringVar(&options.Address, "listen", defaultAddress,
		"`ADDRESS` and port to listen on; port 0 selects a free port")
	cmd.Flags().BoolVar(&options.RequireToken, "require-token", false, "require a credential also on a loopback address")
	cmd.Flags().StringVar(&rules, "access", "",
		"`FILE` with access settings for callers without a larder token; see larder help access")
	cmd.Flags().StringVar(&options.Host, "host", "", "`HOST` that clients use for the registry, if it is not the address")
	cmd.Flags().StringVar(&options.CertificateFile, "cert", "",
		"`FILE` with the certificate for the host and its intermediate certificates, as PEM")
	cmd.Flags().StringVar(&options.KeyFile, "key", "", "`FILE` with the certificate's private key, as PEM")
	return cmd
}

// folderToServe returns the folder from the flags, the environment or a
// context. data is the value of --data.
func (c *cli) folderToServe(data string) (string, error) {
	if data != "" {
		if c.flags.Changed("store") {
			return "", registry.WithHint(usagef("--store and --data both name a folder"), "Use only one of them.")
		}
		if err := c.flags.Set("store", "dir:"+strings.TrimPrefix(data, "dir:")); err != nil {
			return "", err
		}
	}
	p, err := c.place()
	if err != nil || p.dir != "" {
		return p.dir, err
	}
	c.about = place{}
	return "", registry.WithHint(usagef("cannot serve %s: it is not a folder of this machine", p),
		"A deployed registry needs no server. Name a folder, for example `larder serve --store %s`.", defaultData)
}

// serve runs the registry in a folder until it is interrupted.
func (c *cli) serve(ctx context.Context, folder, rules string, options local.Options) (err error) {
	if rules != "" {
		read, err := readAccess(rules)
		if err != nil {
			return err
		}
		for _, warning := range read.Warnings() {
			fmt.Fprintf(c.stderr, "warning: %s: %s\n", rules, warning)
		}
		options.Access = &read
	}
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP) // by default it would end the process
	defer signal.Stop(hangUps)
	log := slog.New(slog.NewTextHandler(c.stderr, nil))
	data, created, err := openToServe(ctx, folder, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	if created {
		log.LogAttrs(ctx, slog.LevelInfo, "created a registry in an empty folder", slog.String("data", data.Dir))
	}
	data.Inspector = inspection.Process{Log: log}
	ctx, stop := context.WithCancel(ctx)
	counter := daily.NewCounter(data.Dir, log)
	defer counter.Close()
	data.Observers = append(data.Observers, counter.Observe)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	worker := pullThrough(ctx, data, log)
	server, err := data.Listen(ctx, options, log)
	if err != nil {
		return err
	}
	c.warnOfOthers(server)
	announcement, err := c.announcement(server, folder, created)
	if err != nil {
		return err
	}
	if err := c.show(announcement, nil); err != nil {
		return err
	}
	running.Go(func() { worker.Run(ctx) })
	running.Go(func() { counter.Run(ctx) })
	go func() {
		for {
			select {
			case <-hangUps:
				server.ReloadCertificate()
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := server.Serve(ctx); err != nil {
		return err
	}
	if !c.json && !c.quiet {
		endLine(terminal.New(c.stdout))
		c.page().printf("Stopped.\n")
	}
	return nil
}

// pullThrough lets clients make the mirror in a folder fetch what it lacks. The
// returned worker must run until ctx ends.
func pullThrough(ctx context.Context, data *local.Data, log *slog.Logger) *pull.Local {
	policies := admission.NewPoliciesWithLifetime(policyTime, data.Catalog, nil)
	worker := pull.NewLocal(ctx, pull.New(pull.Options{
		Catalog: data.Catalog, Objects: data.Objects, Client: pull.NewClient("larder/" + version()), Policies: policies,
		Log: log, MaxBytes: settings.PullBytes, Lease: pullLease,
	}))
	data.Pulling = &mirror.Pulling{Pulled: data.Catalog.Mirror, Worker: worker, Policies: policies}
	return worker
}

// warnOfOthers prints a warning for each server that already serves the folder.
func (c *cli) warnOfOthers(server *local.Server) {
	out := terminal.New(c.stderr)
	for _, other := range server.Others {
		text := fmt.Sprintf("warning: process %[2]d already serves this folder at https://%[1]s", other.Host, other.Process)
		if server.Open && !other.Open {
			text += fmt.Sprintf("; reading needs a credential there, but not at https://%s", server.Host)
		}
		fmt.Fprintln(out, out.Wrap(text))
	}
}

// readAccess reads an access settings file.
func readAccess(path string) (access.Settings, error) {
	text, err := os.ReadFile(path)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("cannot read %s: %w", path, failed.Err)
	}
	if err != nil {
		return access.Settings{}, registry.Errorf(registry.ErrInvalid, "%w", err)
	}
	read, err := access.ParseSettingsFile(path, text)
	if err != nil && registry.Hint(err) == "" {
		err = registry.WithHint(err, "Run `larder help access` for a description of the file.")
	}
	return read, err
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
	// Address is the address and port on which the server listens.
	Address string `json:"address"`
	// CAFile is the file with the certificate authority that clients must
	// trust. It is missing if --cert gives the certificate.
	CAFile string `json:"ca_file,omitempty"`
	// Store is the folder as an absolute value for --store.
	Store string `json:"store"`
	// Created is true if the command created the registry.
	Created bool `json:"created"`
	// Open is true if reading needs no credential.
	Open bool `json:"open"`
	// Process is the id of the server's process.
	Process int `json:"process"`

	dir string
	// context is the name of a context for the registry. isNew reports whether
	// the context does not exist yet.
	context string
	isNew   bool
}

// announcement returns the view of a server for the registry in a folder.
func (c *cli) announcement(server *local.Server, data string, created bool) (servedView, error) {
	v := servedView{
		URL: "https://" + server.Host, Host: server.Host, Address: server.Address, CAFile: server.CAFile,
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
	v.Store = folder(v.dir).name
	v.context, v.isNew = c.contextOf(v.Store)
	return v, nil
}

// contextOf returns the name of a context for a store. If there is none, it
// returns an unused name and true.
func (c *cli) contextOf(store string) (name string, isNew bool) {
	file, _ := c.readContexts() // the command has already read it without error
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

func (v servedView) text(p page) {
	larder := invocation()
	if v.Created {
		p.println("Created a registry in %s", v.dir)
	}
	p.println("Larder serves %s at %s (process %d). Press Ctrl-C to stop it.", v.dir, v.URL, v.Process)
	if v.CAFile != "" {
		p.command("To make clients on Linux trust it:", trustCommand(v.CAFile))
	}
	if v.isNew {
		p.command("To use it from other shells and folders:", larder+" context add "+v.context+" "+quoted(v.Store))
	}
	if !v.Open {
		p.command("Reading needs a token. To create one:",
			larder+" token create --name NAME --scope 'read:**' --context "+v.context)
	}
	p.command("To publish a module from another shell:",
		larder+" publish module DIR acme/vpc/aws 1.0.0 --context "+v.context)
	p.use(moduleBlock("vpc", v.Host+"/acme/vpc/aws", "1.0.0"), addressing{host: v.Host})
	p.printf("\n")
}

func (v servedView) quiet(p page) { p.printf("%s\n", v.URL) }

// command prints a command to paste below its purpose.
func (p page) command(what, command string) { p.printf("\n%s\n\n  %s\n", p.Wrap(what), command) }

// invocation returns the command that started this program.
func invocation() string {
	if strings.Contains(filepath.ToSlash(os.Args[0]), "/exe/") && strings.Contains(os.Args[0], "go-build") {
		return "go run ./scripts/larder"
	}
	return "larder"
}
