package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/local"
)

const (
	defaultData  = "./larder-data"
	storeFromEnv = "LARDER_STORE"
)

// storeFlag gives a command the flag that says where the registry's data is.
func (c *cli) storeFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.store, "store", cmp.Or(os.Getenv(storeFromEnv), "dir:"+defaultData),
		"where the registry keeps its data: dir:FOLDER; the environment's "+storeFromEnv+" does the same")
}

// dataDir returns the folder that a store names.
func dataDir(store string) (string, error) {
	kind, where, _ := strings.Cut(store, ":")
	if kind != "dir" || where == "" {
		return "", usageError{fmt.Errorf("store %q: it is dir:FOLDER, such as dir:%s", store, defaultData)}
	}
	return where, nil
}

// openData opens the store for writing, and makes it where there is none.
func (c *cli) openData(ctx context.Context) (*local.Data, error) {
	dir, err := dataDir(c.store)
	if err != nil {
		return nil, err
	}
	return local.Open(ctx, dir)
}

// openExistingData opens the store for reading.
func (c *cli) openExistingData(ctx context.Context) (*local.Data, error) {
	dir, err := dataDir(c.store)
	if err != nil {
		return nil, err
	}
	return local.OpenExisting(ctx, dir)
}
