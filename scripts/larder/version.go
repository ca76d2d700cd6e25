package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// release is the version, which scripts/release sets. Other builds leave it
// empty.
var release string

func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// versionView describes the build of the program.
type versionView struct {
	Version string `json:"version"`
	// Commit is the revision of the source code. It is missing if the build has
	// none.
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (v versionView) Text(p output.Page) {
	p.Printf("larder %s\n", v.Version)
	if v.Commit != "" {
		p.Printf("commit %s\n", v.Commit)
	}
	p.Printf("%s, %s\n", v.Go, v.Platform)
}

func (v versionView) Quiet(p output.Page) { p.Printf("%s\n", v.Version) }

func versionCommand(c *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of larder",
		Example: `  larder version --json`,
		RunE: c.Run(func(context.Context, []string) (output.View, error) {
			v := versionView{version(), "", runtime.Version(), runtime.GOOS + "_" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			return v, nil
		}),
	}
}
