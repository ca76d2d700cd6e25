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
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/contexts"
	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/terminal"
)

const defaultAddress = "127.0.0.1:8443"

func (c *cli) serveCommand() *cobra.Command {
	var data, rules string
	var options local.Options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the whole registry on this machine",
		Long: `Run the whole registry on this machine, over HTTPS, with a certificate from its
own authority. If there is no registry in the folder, one is made.

The authority is made at the first start and stored with the data. It can issue
certificates for loopback addresses only. You can publish to the same data while
the registry runs. Ctrl-C ends it.

On a loopback address anyone who reaches the registry may read everything,
unless you give --require-token, --access or --host. On any other address a
credential is always needed, and so are a certificate and the host that it is
for. Publishing through the registry, with --registry, always needs a
credential.

The server reads --cert and --key again when the files change, and on SIGHUP. It
renews a certificate of its own authority while it runs. Its log warns 14 days
before a certificate expires.`,
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
	cmd.Flag("store").Usage = "`FOLDER` where the registry keeps its data (default " + defaultData + ")"
	cmd.Flags().StringVar(&data, "data", "", "")
	_ = cmd.Flags().MarkHidden("data") // what --store was called
	cmd.Flags().StringVar(&options.Address, "listen", defaultAddress,
		"`ADDRESS` and port to listen on; port 0 picks a free one")
	cmd.Flags().BoolVar(&options.RequireToken, "require-token", false, "require a credential on a loopback address too")
	cmd.Flags().StringVar(&rules, "access", "",
		"`FILE` that says who may read and publish besides the holders of tokens; larder help access describes it")
	cmd.Flags().StringVar(&options.Host, "host", "", "`HOST` by which clients call the registry, if it is not the address")
	cmd.Flags().StringVar(&options.CertificateFile, "cert", "",
		"`FILE` with the certificate for the host, and those between it and its authority, as PEM")
	cmd.Flags().StringVar(&options.KeyFile, "key", "", "`FILE` with the certificate's private key, as PEM")
	return cmd
}

// folderToServe returns the folder that the flags, the environment or a context
// name. data is what --data names.
func (c *cli) folderToServe(data string) (string, error) {
	if data != "" {
		if c.flags.Changed("store") {
			return "", registry.WithHint(usagef("--store and --data both name a folder"), "Give one of them.")
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
		"A deployed registry serves itself. Name a folder, such as with `larder serve --store %s`.", defaultData)
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
	signal.Notify(hangUps, syscall.SIGHUP) // from here on it ends nothing
	defer signal.Stop(hangUps)
	log := slog.New(slog.NewTextHandler(c.stderr, nil))
	data, created, err := openToServe(ctx, folder, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	if created {
		log.LogAttrs(ctx, slog.LevelInfo, "made a new registry: there was none in the folder", slog.String("data", data.Dir))
	}
	data.Inspector = inspection.Process{Log: log}
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

// warnOfOthers warns of servers that serve the folder already.
func (c *cli) warnOfOthers(server *local.Server) {
	out := terminal.New(c.stderr)
	for _, other := range server.Others {
		text := fmt.Sprintf("warning: this folder is served already at https://%s by process %d", other.Host, other.Process)
		if server.Open && !other.Open {
			text += fmt.Sprintf("; reading there needs a credential, and reading at https://%s needs none", server.Host)
		}
		fmt.Fprintln(out, out.Wrap(text))
	}
}

// readAccess reads a file of access settings.
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
		err = registry.WithHint(err, "`larder help access` describes the file.")
	}
	return read, err
}

// openToServe opens the registry in a folder, and makes one if there is none and the
// options can be used.
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

// servedView is a registry that is being served, and how to use it.
type servedView struct {
	URL string `json:"url"`
	// Host is what addresses of modules and providers begin with.
	Host string `json:"host"`
	// Address is where the server listens.
	Address string `json:"address"`
	// CAFile has the certificate that clients must trust. It is empty if the server
	// has a certificate that was given.
	CAFile string `json:"ca_file,omitempty"`
	// Store is the folder as --store takes it anywhere.
	Store string `json:"store"`
	// Created says that there was no registry in the folder.
	Created bool `json:"created"`
	// Open says that reading needs no credential.
	Open bool `json:"open"`
	// Process is the id of the server's process.
	Process int `json:"process"`

	dir string
	// context names the registry, and isNew says that there is no such context yet.
	context string
	isNew   bool
}

// announcement returns how to use the registry in a folder.
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

// contextOf returns the name of a context for a store, or one that is free.
func (c *cli) contextOf(store string) (name string, isNew bool) {
	file, _ := c.readContexts() // an error has ended the command before
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
		p.println("Made a new registry in %s", v.dir)
	}
	p.println("Larder serves %s at %s (process %d). Ctrl-C ends it.", v.dir, v.URL, v.Process)
	if v.CAFile != "" {
		p.command("Clients on Linux trust it once this is set for them:", trustCommand(v.CAFile))
	}
	if v.isNew {
		p.command("Name it for other shells and folders:", larder+" context add "+v.context+" "+quoted(v.Store))
	}
	if !v.Open {
		p.command("Reading needs a token. Make one:",
			larder+" token create --name NAME --scope 'read:**' --context "+v.context)
	}
	p.command("Publish a module from another shell:",
		larder+" publish module DIR acme/vpc/aws 1.0.0 --context "+v.context)
	p.use(moduleBlock("vpc", v.Host+"/acme/vpc/aws", "1.0.0"), addressing{host: v.Host})
	p.printf("\n")
}

func (v servedView) quiet(p page) { p.printf("%s\n", v.URL) }

// command prints a command to paste, on a line of its own, and what it is for.
func (p page) command(what, command string) { p.printf("\n%s\n\n  %s\n", p.Wrap(what), command) }

// quoted returns a word as a shell takes it.
func quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-:", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// invocation returns how this command line was called.
func invocation() string {
	if strings.Contains(filepath.ToSlash(os.Args[0]), "/exe/") && strings.Contains(os.Args[0], "go-build") {
		return "go run ./scripts/larder"
	}
	return "larder"
}
