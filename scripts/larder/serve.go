package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/local"
)

const defaultAddress = "127.0.0.1:8443"

func (c *cli) serveCommand() *cobra.Command {
	var data, rules string
	var options local.Options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the whole registry on this machine",
		Long: `Run the whole registry on this machine, over HTTPS, with a certificate from its own authority.

The authority is made at the first start and kept with the data; it can vouch for loopback addresses alone. Publishing to
the same data works while the registry runs. Ctrl-C ends it.

On a loopback address whoever reaches the registry may read everything, unless --require-token, --access or --host is given. On
any other a credential is always needed, and so are a certificate and the host that it is for. To publish through the registry,
by --registry, always takes a credential.

The server reads --cert and --key again when the files change, and on SIGHUP. It renews a certificate of its own authority
while it runs. Its log warns 14 days before a certificate expires.`,
		Example: `  larder serve
  larder serve --data ./larder-data --listen 127.0.0.1:8443 --require-token
  larder serve --listen 0.0.0.0:8443 --host registry.example.com:8443 --cert tls.crt --key tls.key --access access.json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			data = strings.TrimPrefix(data, "dir:")
			if data == "" {
				if data, _, err = parseStore(c.store); err != nil {
					return err
				}
				if data == "" {
					return usageError{errors.New("a deployed registry serves itself: give --data a folder of this machine")}
				}
			}
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
			registry, created, err := openToServe(cmd.Context(), data, options)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, registry.Close()) }()
			if created {
				log.LogAttrs(cmd.Context(), slog.LevelInfo, "made a new registry: there was none in the folder",
					slog.String("data", registry.Dir))
			}
			registry.Inspector = inspection.Process{Log: log}
			server, err := registry.Listen(cmd.Context(), options, log)
			if err != nil {
				return err
			}
			if err := c.announce(server, data, created); err != nil {
				return err
			}
			go func() {
				for {
					select {
					case <-hangUps:
						server.ReloadCertificate()
					case <-cmd.Context().Done():
						return
					}
				}
			}()
			if err := server.Serve(cmd.Context()); err != nil {
				return err
			}
			if !c.json {
				c.printf("Stopped.\n")
			}
			return nil
		},
	}
	c.storeFlag(cmd)
	_ = cmd.Flags().MarkHidden("store") // the environment's LARDER_STORE counts here too
	cmd.Flags().StringVar(&data, "data", "", "folder of the registry's data (default that of "+storeFromEnv+", or "+defaultData+")")
	cmd.Flags().StringVar(&options.Address, "listen", defaultAddress, "address and port to listen on; port 0 picks a free one")
	cmd.Flags().BoolVar(&options.RequireToken, "require-token", false, "ask for a credential on a loopback address too")
	cmd.Flags().StringVar(&rules, "access", "", "file that says who may read and publish besides the holders of tokens: public, issuers, login")
	cmd.Flags().StringVar(&options.Host, "host", "", "what module addresses begin with, where that is not the address")
	cmd.Flags().StringVar(&options.CertificateFile, "cert", "", "certificate for the host, with those between it and its authority, as PEM")
	cmd.Flags().StringVar(&options.KeyFile, "key", "", "the certificate's private key, as PEM")
	return cmd
}

// readAccess reads a file of access settings.
func readAccess(path string) (access.Settings, error) {
	text, err := os.ReadFile(path)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("cannot read %s: %w", path, failed.Err)
	}
	if err != nil {
		return access.Settings{}, usageError{err}
	}
	s, err := access.ParseSettings(text)
	if err != nil {
		return access.Settings{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
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

// announce says how to use the registry in a folder.
func (c *cli) announce(server *local.Server, data string, created bool) error {
	ca := server.CAFile
	if ca != "" {
		var err error
		if ca, err = filepath.Abs(ca); err != nil {
			return err
		}
	}
	if c.json {
		return c.printJSON(struct {
			URL     string `json:"url"`
			Host    string `json:"host"`
			Address string `json:"address"`
			CAFile  string `json:"ca_file,omitempty"`
			Data    string `json:"data"`
			Created bool   `json:"created"`
		}{"https://" + server.Host, server.Host, server.Address, ca, data, created})
	}
	dir, err := filepath.Abs(data)
	if err != nil {
		return err
	}
	if created {
		c.printf("Made a new registry in %s\n\n", dir)
	}
	store := quoted("dir:" + dir)
	c.printf("Larder serves %s at https://%s (process %d; Ctrl-C ends it)\n\n", dir, server.Host, os.Getpid())
	if ca != "" {
		c.printf("Clients on Linux trust it once this is set for them:\n\n  export SSL_CERT_FILE=%s\n\n", quoted(ca))
	}
	if !server.Open {
		c.printf("Reading takes a token, which this makes:\n\n  %s token create --name NAME --scope 'read:**' --store %s\n\n", invocation(), store)
	}
	c.printf(`Publish a module from another shell, and use it:

  %s publish module DIR acme/hello/null 1.0.0 --store %s

  module "hello" {
    source  = "%s/acme/hello/null"
    version = "1.0.0"
  }

`, invocation(), store, server.Host)
	return nil
}

// quoted returns a word as a shell takes it.
func quoted(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-:", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// invocation returns how this command line was called.
func invocation() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./scripts/larder"
	}
	return "larder"
}
