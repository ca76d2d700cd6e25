package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	downloads "github.com/larder-registry/larder/pkg/usage"
)

const (
	defaultData  = "./larder-data"
	storeFromEnv = "LARDER_STORE"
)

// store is a registry's data, wherever it is.
type store struct {
	catalog *catalog.Catalog
	objects objects.Store
	remover publish.Remover
	// host is what addresses begin with, where the store knows that.
	host string
	// by returns the operator, as whom a change is recorded.
	by    func(context.Context) (registry.Publisher, error)
	close func() error
	// requests is where requests are logged, and nil where they are not, or that is not known, as noRequests says.
	requests   *downloads.Log
	noRequests string
	// withdrawPolicy is the ARN of the policy by which one may withdraw, where there is one.
	withdrawPolicy string
}

// localLog is why it is not known who downloads what from a registry on this machine.
const localLog = "a registry on this machine keeps no log of its requests, and writes them to larder serve's standard error"

// storeFlag gives a command the flag that says where the registry's data is.
func (c *cli) storeFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.store, "store", cmp.Or(os.Getenv(storeFromEnv), "dir:"+defaultData),
		"where the registry keeps its data: dir:FOLDER, or stack:NAME for a deployed one; the environment's "+storeFromEnv+" does the same")
}

// parseStore returns what a store names: a folder or a stack, the other being empty.
func parseStore(s string) (dir, stack string, err error) {
	kind, where, _ := strings.Cut(s, ":")
	switch {
	case where == "":
	case kind == "dir":
		dir, err := expandHome(where)
		return dir, "", err
	case kind == "stack":
		return "", where, nil
	}
	return "", "", usageError{fmt.Errorf("store %q: it is dir:FOLDER, such as dir:%s, or stack:NAME", s, defaultData)}
}

// expandHome replaces ~ at the beginning of a path, which shells leave as it is
// after dir:.
func expandHome(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usageError{fmt.Errorf("cannot use the folder %s: %w", path, err)}
	}
	return filepath.Join(home, rest), nil
}

// openStore opens the store. It makes nothing: a folder without a registry is
// [local.NoRegistryError], and a stack that is not there registry.ErrNotFound.
func (c *cli) openStore(ctx context.Context) (*store, error) {
	dir, stack, err := parseStore(c.store)
	if err != nil {
		return nil, err
	}
	if stack != "" {
		return openStack(ctx, stack)
	}
	data, err := local.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &store{catalog: data.Catalog, objects: data.Objects, remover: data.Objects, noRequests: localLog, by: whoami, close: data.Close}, nil
}

// whoami returns the user of this machine.
func whoami(context.Context) (registry.Publisher, error) {
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "unknown"}
	// A machine without a list of users is no reason not to publish.
	if u, err := user.Current(); err == nil {
		by.Name = u.Username
	}
	return by, nil
}
