package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/changelog"
	"github.com/larder-registry/larder/pkg/docs/compare"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// network is the documentation of a module with everything that a page can
// show.
var network = docs.Documentation{
	Schema: docs.Schema,
	Root: docs.Folder{
		Name:   "vpc",
		Readme: "# Network\r\n\r\nA network with\tsubnets.\x1b[2J\n",
		Inputs: []docs.Input{
			{
				Name: "cidr", Type: "string", TypeConstraint: json.RawMessage(`"string"`), Required: true,
				Description: "The range of addresses of the network, such as 10.0.0.0/16. It must have room for all subnets.",
				Validations: []string{"The range must be between /16 and /24."}, NotNull: true,
			},
			{Name: "name", Type: "string", Required: true},
			{
				Name: "subnets", Required: true, Description: "The subnets by name.",
				Type: "map(object({\n    cidr = string\n    public = optional(bool, false) # with a gateway\n  }))",
			},
			{
				Name: "create_database_subnet_group_for_all_zones", Type: "bool", Default: "true",
				Description: "Whether to create a group.",
			},
			{Name: "enable_flow_logs", Type: "bool", Default: "false", Deprecated: "Use flow_logs."},
			{Name: "password", Type: "string", Sensitive: true, Ephemeral: true, Description: "First line.\n\n  Second line.\n"},
			{Name: "tags", Type: "map(string)", Default: `{"team":"` + strings.Repeat("long ", 60) + `"}`},
		},
		Outputs: []docs.Output{
			{Name: "arn", Description: "The name of the network."},
			{Name: "key", Sensitive: true, Deprecated: "Use arn."},
			{Name: "vpc_id"},
		},
		Dependencies: []docs.Dependency{{Name: "flow_logs", Source: "registry.example.com/acme/logs/aws", Version: "~> 2.1"}},
		ProviderDependencies: []docs.ProviderDependency{
			{Name: "aws", Namespace: "hashicorp", Source: "hashicorp/aws", Version: ">= 5.0", Aliases: []string{"aws.east"}},
		},
		Resources: []docs.Resource{
			{Type: "aws_subnet", Name: "private"}, {Type: "aws_subnet", Name: "public"}, {Type: "aws_vpc", Name: "main"},
		},
		DataResources:   []docs.Resource{{Type: "aws_region", Name: "current"}},
		RequiredVersion: ">= 1.6",
	},
	Submodules: []docs.Folder{{
		Path: "modules/endpoints", Name: "endpoints", Inputs: []docs.Input{{Name: "vpc_id", Type: "string", Required: true}},
	}},
	Examples: []docs.Folder{{
		Path: "examples/complete", Name: "complete", Outputs: []docs.Output{{Name: "id"}, {Name: "arn"}},
	}},
	Notes: []string{"The folder modules/broken cannot be parsed."},
}

// shownNetwork is the latest version of the module network.
func shownNetwork(t *testing.T) shownModuleView {
	t.Helper()
	var versions []registry.Version
	for minor := range uint64(9) {
		versions = append(versions, registry.Version{Major: 1, Minor: minor})
	}
	return shownModuleView{
		ModuleDetail: protocol.ModuleDetail{
			ModuleSummary: protocol.ModuleSummary{
				ID: "acme/vpc/aws/1.8.0", Namespace: "acme", Name: "vpc", Provider: "aws", Version: versions[8],
				Description: "A network with public and private subnets in each of the zones of a region, and nothing else.",
				Source:      publisherCI.SourceURL(), PublishedAt: outputDay,
			},
			Documentation: network, Providers: []string{"aws"}, Versions: versions, Documented: true, PublishedBy: publisherCI,
			SHA256: strings.Repeat("0123456789abcdef", 4), ContentSHA256: strings.Repeat("fedcba9876543210", 4), Size: 12345,
		},
		address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}, folder: network.Root,
		host: place.Addressing{Host: "registry.example.com"}, readme: true,
	}
}

// The pages about contents fit a terminal. A pipe gets them in full.
func TestContents(t *testing.T) {
	t.Parallel()
	shown := shownNetwork(t)
	undocumented := shown
	undocumented.Documentation, undocumented.folder, undocumented.Documented = docs.Documentation{}, docs.Folder{}, false
	undocumented.rebuildHint = "Run `larder docs rebuild acme/vpc/aws 1.8.0` to extract it from the archive."
	undocumented.Deprecation = &protocol.DeprecationNote{Reason: "use 2.0.0"}
	undocumented.PublishedBy = publisherUser
	undocumented.Claimed = &registry.ClaimedSource{
		Remote: "ssh://git@github.com/acme/vpc.git", Commit: publisherCI.Commit, Tag: "v1.8.0", Dirty: true,
	}
	submodule := shown
	submodule.folder = network.Submodules[0]
	before := network
	before.Root.Inputs = []docs.Input{
		{
			Name: "cidr", Type: "list(string)", TypeConstraint: json.RawMessage(`["list","string"]`), Required: true,
			NotNull: true,
		},
		{Name: "enable_flow_logs", Type: "bool", Default: "true"},
		{Name: "zones", Type: "number"},
		{Name: "vpc_name", Type: "string", Required: true},
		{Name: "subnets", Type: "map(object({\n    cidr = string\n  }))", Required: true},
	}
	before.Root.RequiredVersion = ">= 1.5"
	before.Submodules = []docs.Folder{{Path: "modules/endpoints"}, {Path: "modules/old"}}
	before.Root.Resources = []docs.Resource{{Type: "aws_vpc", Name: "this"}}
	before.Root.Dependencies = []docs.Dependency{{
		Name: "flow_logs", Source: "registry.example.com/acme/logs/aws", Version: "~> 2.0",
	}}
	different := diffView{
		Address: "acme/vpc/aws", From: shown.Versions[0], To: shown.Version, Difference: compare.Modules(before, network),
		Changelog: changelog.Part{File: "CHANGELOG.md", Line: 3, Text: "## [1.8.0](https://example.com/v1.8.0)\n\n* **Breaking:** cidr is one range of addresses " +
			"and no longer a list, because each of the subnets belongs to one of them.\n\n\t    code" + strings.Repeat("\n* more", 45)},
		flags: " --context work",
	}
	same := diffView{Address: "acme/vpc/aws", Path: "modules/endpoints", From: shown.Version, To: shown.Version,
		Difference: compare.Folders(network.Root, network.Root)}
	deprecated := shown.ModuleSummary
	deprecated.Name, deprecated.Deprecation = "network", &protocol.DeprecationNote{Reason: "use vpc"}
	deprecated.Matches = []string{"enable_flow_logs", "flow_logs", "flow_logs_bucket_name_prefix"}
	found := searchView{
		Query: "flow logs", Modules: []protocol.ModuleSummary{shown.ModuleSummary, deprecated}, ModulesTotal: 14,
		Providers: []protocol.ProviderSummary{{
			Namespace: "acme", Name: "inventory", Version: shown.Version, Description: "Hosts\x1b[2J",
		}}, ProvidersTotal: 1,
	}
	provider := shownProviderView{ProviderDetail: protocol.ProviderDetail{
		ProviderSummary: found.Providers[0], Versions: shown.Versions[:2], Protocols: []string{"5.0", "6.0"},
		SigningKey: "0123456789ABCDEF", PublishedBy: publisherAWS,
		Packages: []protocol.ProviderFile{{
			Platform: registry.Platform{OS: "linux", Arch: "amd64"}, SHA256: shown.SHA256, Size: 1 << 20,
		}},
	}, address: registry.Provider{Namespace: "acme", Type: "inventory"}, host: shown.host}
	provider.PublishedAt = outputDay.Add(time.Hour)
	for name, v := range map[string]output.View{
		"show-module": shown, "show-undocumented": undocumented, "show-submodule": submodule, "show-provider": provider,
		"diff": different, "diff-same": same, "search": found, "search-nothing": searchView{Query: "flowlog"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive := &txtar.Archive{}
			for _, columns := range []int{80, 120, 0} {
				var out bytes.Buffer
				p := output.Page{Output: terminal.New(&out)}
				p.Width = columns
				v.Text(p)
				for line := range strings.Lines(out.String()) {
					if wide := text.StringWidth(strings.TrimSuffix(line, "\n")); columns > 0 && wide > columns {
						t.Errorf("this line has %d columns on a terminal of %d:\n%s", wide, columns, line)
					}
					if strings.TrimRight(line, "\n") != strings.TrimRight(line, " \n") {
						t.Errorf("this line ends in a space: %q", line)
					}
				}
				archive.Files = append(archive.Files, txtar.File{Name: fmt.Sprintf("%d columns", columns), Data: out.Bytes()})
			}
			golden.Equal(t, filepath.Join("testdata", "output", name+".txtar"), txtar.Format(archive))
		})
	}
}

// diff fails if it cannot read the changelog, which it does not with --quiet.
func TestDiffUnreadable(t *testing.T) {
	t.Parallel()
	data := newData(t)
	for _, v := range []string{"1.0.0", "1.1.0"} {
		publishModule(t, data, "acme/vpc/aws", v, map[string]string{"main.tf": "", "CHANGELOG.md": "## " + v + "\n"})
	}
	files, err := filepath.Glob(filepath.Join(data, "objects", "modules", "acme", "vpc", "aws", "1.1.0", "*", registry.FilesName))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q: %v", files, err)
	}
	if err := errors.Join(os.Remove(files[0]), os.Symlink(files[0], files[0])); err != nil {
		t.Fatal(err)
	}
	args := []string{"diff", "acme/vpc/aws", "1.0.0", "1.1.0", "--store", "dir:" + data}
	for _, more := range []string{"--wide", "--json"} {
		if out := fails(t, failure.ExitFailed, append(args, more)...); !strings.Contains(out, "unavailable") {
			t.Errorf("%s: %s", more, out)
		}
	}
	larder(t, append(args, "--quiet")...)
}

// show and diff explain a version that clients do not find, or why it is gone.
func TestShowUnlisted(t *testing.T) {
	t.Parallel()
	data := newData(t)
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		publishModule(t, data, "acme/vpc/aws", v, map[string]string{"main.tf": ""})
	}
	store := []string{"--store", "dir:" + data}
	larder(t, append([]string{"deprecate", "acme/vpc/aws", "1.1.0", "--message", "opens port 22", "--hide"}, store...)...)
	larder(t, append([]string{"withdraw", "acme/vpc/aws", "1.2.0", "--reason", "it has a key", "--yes"}, store...)...)
	if out := larder(t, append([]string{"show", "acme/vpc/aws", "1.1.0"}, store...)...); !strings.Contains(out, "Hidden: opens port 22") {
		t.Errorf("show does not name the state:\n%s", out)
	}
	larder(t, append([]string{"diff", "acme/vpc/aws", "1.0.0", "1.1.0"}, store...)...)
	for version, want := range map[string]string{"1.2.0": "it has a key", "9.0.0": "not found"} {
		for _, args := range [][]string{{"show", "acme/vpc/aws", version}, {"diff", "acme/vpc/aws", "1.0.0", version}} {
			if out := fails(t, failure.ExitNotFound, append(args, store...)...); !strings.Contains(out, want) {
				t.Errorf("%s: want %q:\n%s", strings.Join(args, " "), want, out)
			}
		}
	}
}
