package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
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

func (v versionView) text(p page) {
	p.printf("larder %s\n", v.Version)
	if v.Commit != "" {
		p.printf("commit %s\n", v.Commit)
	}
	p.printf("%s, %s\n", v.Go, v.Platform)
}

func (v versionView) quiet(p page) { p.printf("%s\n", v.Version) }

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of larder",
		Example: `  larder version --json`,
		RunE: c.run(func(context.Context, []string) (view, error) {
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
