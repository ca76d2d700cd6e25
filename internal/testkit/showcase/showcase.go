// Package showcase fills a registry with realistic content: for pictures of its
// pages, for tests of the pages in a browser, and for measurements.
//
// The content is the same in each run, and so are its times. The archives of
// modules are stored. Those of providers are not, so that their sizes can be
// realistic, and clients cannot install them.
package showcase

import (
	"context"
	"crypto/sha1" // a commit of Git has its length
	"embed"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// Host is the host of the registry in READMEs and in the sources of module
// calls.
const Host = "registry.example.com"

// Now is the time at which pages show the registry.
var Now = day(11, 20, 9, 0)

//go:embed testdata/modules.txt
var modules string

//go:embed testdata/vpc
var vpcFiles embed.FS

// Create creates the registry in a folder that is empty or does not exist. The
// caller closes it.
func Create(ctx context.Context, dir string) (_ *local.Data, err error) {
	data, _, err := local.Create(ctx, dir)
	if err != nil {
		return nil, err
	}
	data.Now = func() time.Time { return Now }
	defer func() {
		if err != nil {
			_ = data.Close()
			err = fmt.Errorf("cannot create the showcase: %w", err)
		}
	}()
	sources, err := os.MkdirTemp("", "larder-showcase-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(sources) }()
	f := &filler{data: data, sources: sources}
	for _, fill := range []func(context.Context) error{f.vpc, f.specs, f.providers, f.mirror, f.downloads} {
		if err := fill(ctx); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// filler fills a registry.
type filler struct {
	data *local.Data
	// sources is a temporary folder for the files of modules.
	sources string
}

// operator deprecates and withdraws versions.
const operator = "ada@example.com"

// specs publishes the generated modules.
func (f *filler) specs(ctx context.Context) error {
	all, err := parseSpecs(modules)
	if err != nil {
		return err
	}
	for _, s := range append(all, append(renamed(), large(), many(), rootless())...) {
		dir := filepath.Join(f.sources, filepath.FromSlash(s.address))
		if err := s.write(dir); err != nil {
			return err
		}
		a, err := registry.ParseModule(s.address)
		if err != nil {
			return err
		}
		for _, v := range s.versions {
			if err := f.module(ctx, dir, a, v, s.description); err != nil {
				return err
			}
		}
		if s.deprecated == "" {
			continue
		}
		d := catalog.Deprecation{Message: s.deprecated, By: operator}
		if _, err := f.data.Catalog.Modules.Deprecate(ctx, a, nil, d); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) module(ctx context.Context, dir string, a registry.Module, v version, description string) error {
	n, err := registry.ParseVersion(v.number)
	if err != nil {
		return err
	}
	p := publish.Publisher{
		Catalog: f.data.Catalog, Objects: f.data.Objects, Now: func() time.Time { return v.at },
		By: publisher(v.publisher, a.Namespace, "terraform-"+a.System+"-"+a.Name, n),
	}
	m := rules.Module{Dir: dir, Address: a, Version: n, Description: description}
	if v.publisher == "token" {
		repository := a.Namespace + "/terraform-" + a.System + "-" + a.Name
		m.Claimed = &registry.ClaimedSource{
			Remote: "https://github.com/" + repository, Commit: commitOf(repository, n), Tag: "v" + n.String(),
		}
	}
	result, err := p.Module(ctx, m)
	if err == nil && len(result.Notes) > 0 {
		err = fmt.Errorf("the documentation of %s %s has notes: %s", a, n, strings.Join(result.Notes, " "))
	}
	return err
}

// commitOf returns the commit of a version in a repository.
func commitOf(repository string, v registry.Version) string {
	commit := sha1.Sum([]byte(repository + v.String()))
	return hex.EncodeToString(commit[:])
}

func publisher(kind, namespace, name string, v registry.Version) registry.Publisher {
	switch kind {
	case "token":
		return registry.Publisher{Kind: registry.PublisherToken, Name: "build-server"}
	case "aws":
		const arn = "arn:aws:sts::111122223333:assumed-role/RegistryOperator/ada@example.com"
		return registry.Publisher{Kind: registry.PublisherAWS, Name: arn}
	case "user":
		return registry.Publisher{Kind: registry.PublisherUser, Name: "ada"}
	}
	repository := namespace + "/" + name
	ref := "refs/tags/v" + v.String()
	commit := commitOf(repository, v)
	run := crc32.ChecksumIEEE([]byte(commit))%9000 + 1000
	return registry.Publisher{
		Kind: registry.PublisherOIDC, Issuer: "https://token.actions.githubusercontent.com",
		Subject: "repo:" + repository + ":ref:" + ref, Repository: repository, Ref: ref,
		Commit: commit,
		RunURL: fmt.Sprintf("https://github.com/%s/actions/runs/%d", repository, run),
	}
}

// The module whose versions have all states.
var vpc = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}

// vpcVersions returns the versions of the module in the order of their
// publication.
func vpcVersions() []version {
	var all []version
	for i := range 120 { // small at first, since each publish takes time
		at := time.Date(2024, 1, 8, 8, 0, 0, 0, time.UTC).Add(time.Duration(i) * 102 * time.Hour)
		all = append(all, version{fmt.Sprintf("0.%d.%d", i/8, i%8), at, "token"})
	}
	first := time.Date(2025, 6, 5, 9, 30, 0, 0, time.UTC)
	for minor := range 19 {
		number := fmt.Sprintf("3.%d.0", minor)
		all = append(all, version{number, first.AddDate(0, 0, 24*minor), "token"})
	}
	at := func(number string, month time.Month, day, hour, minute int) {
		all = append(all, version{number, time.Date(2026, month, day, hour, minute, 0, 0, time.UTC), "ci"})
	}
	at("3.19.0", 9, 3, 8, 41)
	at("3.20.0", 9, 10, 13, 5)
	at("3.20.1", 9, 11, 7, 22)
	at("3.21.0", 9, 29, 10, 2)
	at("4.0.0-rc.1", 10, 2, 15, 48)
	at("4.0.0", 10, 7, 9, 17)
	at("4.0.1", 10, 8, 16, 30)
	at("4.0.2", 10, 19, 11, 53)
	at("4.0.3", 10, 20, 8, 9)
	at("4.1.0", 11, 2, 9, 12)
	at("4.2.0", 11, 14, 10, 26)
	at("5.0.0-rc.1", 11, 17, 14, 4)
	return all
}

// vpc publishes the module with all of its versions.
func (f *filler) vpc(ctx context.Context) error {
	const network = "The network of one product: subnets, NAT gateways and flow logs."
	const groups = "A VPC with public, private and isolated subnets, NAT gateways, flow logs and endpoints."
	folders, err := f.vpcFolders()
	if err != nil {
		return err
	}
	for _, v := range vpcVersions() {
		dir, description := folders[v.number], groups
		if dir == "" {
			dir = folders[v.number[:1]]
		}
		if v.number[0] < '4' {
			description = network
		}
		if err := f.module(ctx, dir, vpc, v, description); err != nil {
			return err
		}
	}
	for number, d := range map[string]catalog.Deprecation{
		"4.1.0": {Message: "Flow logs are not encrypted. Use 4.2.0."},
		"4.0.1": {Message: "It replaces all route tables. Use 4.0.3.", Hide: true},
	} {
		n, err := registry.ParseVersion(number)
		if err != nil {
			return err
		}
		d.By = operator
		if _, err := f.data.Catalog.Modules.Deprecate(ctx, vpc, &n, d); err != nil {
			return err
		}
	}
	return f.withdraw(ctx, vpc, "4.0.2", time.Date(2026, 10, 19, 13, 20, 0, 0, time.UTC),
		"It contains a key of the build account.")
}

func (f *filler) withdraw(ctx context.Context, a registry.Address, number string, at time.Time, reason string) error {
	n, err := registry.ParseVersion(number)
	if err != nil {
		return err
	}
	w := publish.Withdrawer{
		Catalog: f.data.Catalog, Objects: f.data, By: operator, Now: func() time.Time { return at },
	}
	_, err = w.Withdraw(ctx, a, n, reason)
	return err
}

// vpcFolders writes the files of the module. It returns the folders by version
// or major version.
func (f *filler) vpcFolders() (map[string]string, error) {
	folders := make(map[string]string)
	for version, edit := range map[string]struct{ from, file, old, text string }{
		"0":     {from: "0"},
		"3":     {from: "3"},
		"4":     {"4", "variables.tf", "default     = 365", "default     = 90"},
		"5":     {"4", "versions.tf", ">= 1.9", ">= 1.10"},
		"4.2.0": {from: "4"},
	} {
		dir := filepath.Join(f.sources, "vpc-"+version)
		files, err := fs.Sub(vpcFiles, "testdata/vpc/"+edit.from)
		if err == nil {
			err = os.CopyFS(dir, files)
		}
		if err != nil {
			return nil, err
		}
		folders[version] = dir
		if edit.file == "" {
			continue
		}
		path := filepath.Join(dir, edit.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		edited := strings.Replace(string(text), edit.old, edit.text, 1)
		if edited == string(text) {
			return nil, fmt.Errorf("%s has no %q", path, edit.old)
		}
		if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
			return nil, err
		}
	}
	return folders, nil
}
