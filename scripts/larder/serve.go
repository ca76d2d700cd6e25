package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/local"
)

const defaultAddress = "127.0.0.1:8443"

func (c *cli) serveCommand() *cobra.Command {
	var data, address string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the whole registry on this machine",
		Long: `Run the whole registry on this machine, over HTTPS, with a certificate from its own authority.

The authority is made at the first start and kept with the data; it can vouch for loopback addresses alone. Publishing to
the same data works while the registry runs. Ctrl-C ends it.`,
		Example: `  larder serve
  larder serve --data ./larder-data --listen 127.0.0.1:8443`,
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
			registry, err := local.Open(cmd.Context(), data)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, registry.Close()) }()
			server, err := registry.Listen(cmd.Context(), address, slog.New(slog.NewTextHandler(c.stderr, nil)))
			if err != nil {
				return err
			}
			if err := c.announce(server, data); err != nil {
				return err
			}
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
	cmd.Flags().StringVar(&address, "listen", defaultAddress, "loopback address and port to listen on; port 0 picks a free one")
	return cmd
}

// announce says how to use the registry.
func (c *cli) announce(server *local.Server, data string) error {
	ca, err := filepath.Abs(server.CAFile)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(struct {
			URL    string `json:"url"`
			Host   string `json:"host"`
			CAFile string `json:"ca_file"`
			Data   string `json:"data"`
		}{"https://" + server.Host, server.Host, ca, data})
	}
	dir, err := filepath.Abs(data)
	if err != nil {
		return err
	}
	c.printf(`Larder serves %s at https://%s (process %d; Ctrl-C ends it)

Clients on Linux trust it once this is set for them:

  export SSL_CERT_FILE=%s

Publish a module from another shell, and use it:

  %s publish module DIR acme/hello/null 1.0.0 --store %s

  module "hello" {
    source  = "%s/acme/hello/null"
    version = "1.0.0"
  }

`, dir, server.Host, os.Getpid(), quoted(ca), invocation(), quoted("dir:"+dir), server.Host)
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
