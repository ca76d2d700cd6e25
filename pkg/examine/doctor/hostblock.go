package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// setUp prints a host block with its credentials block.
const setUp = "`larder mirror setup`"

// hostBlocks adds steps about the host blocks that lead from other registries to a
// mirror, and about tokens of Larder for these. It reports whether it added any.
func (e *examination) hostBlocks(ctx context.Context) bool {
	before := len(e.report.Steps)
	blocks := make(map[string]client.Block) // the last one counts
	others := map[string]bool{"registry.opentofu.org": true, "registry.terraform.io": true}
	if e.Mirror != nil {
		others[registry.Host(e.Mirror.Hostname).Display()] = true
	}
	for _, b := range e.Config.Blocks() {
		if b.Kind == client.HostBlock {
			blocks[b.Host], others[b.Host] = b, true
		}
	}
	delete(others, e.Host)
	configured := e.Config.Hosts()
	for _, host := range slices.Sorted(maps.Keys(others)) {
		b, found := blocks[host]
		if !found && !slices.Contains(configured, host) {
			continue
		}
		c, err := e.credentialOf(ctx, host)
		if err != nil {
			continue // clients have no credential either, and report the error
		}
		e.secrets = append(e.secrets, c.Token)
		isOwn := registry.IsToken(c.Token)
		switch {
		case found:
			e.hostBlock(b, c, isOwn)
		case isOwn:
			e.wrong("configuration", "", fmt.Sprintf(
				"the token %s is one of Larder, but there is no host block for %s: clients send the token to %[2]s", c.Place, host),
				"remove the token, or add the block with "+setUp+"; revoke the token if clients have already sent it")
		}
	}
	return len(e.report.Steps) > before
}

// hostBlock adds steps about one host block.
func (e *examination) hostBlock(b client.Block, c credential, isOwn bool) {
	const name = "configuration"
	block := "the host block for " + b.Host + " in " + e.quote(b.File)
	var here, elsewhere []string
	for _, id := range slices.Sorted(maps.Keys(b.Services)) {
		u, err := url.Parse(b.Services[id])
		switch {
		case err != nil || u.Host == "":
		case sameHost(u.Host, e.Host) || strings.HasPrefix(u.Path, hostblock.ProvidersPath):
			here = append(here, u.Host)
		default:
			elsewhere = append(elsewhere, id+" to "+u.Host)
		}
	}
	if len(elsewhere) > 0 && c.Token != "" && (isOwn || len(here) > 0) {
		e.wrong(name, "", block+" leads "+e.several(elsewhere)+", so clients send the token "+c.Place+" there",
			"remove that service from the block: "+setUp+" prints one that leads only to the registry")
	}
	if len(here) == 0 {
		return
	}
	switch {
	case c.Token != "" && !isOwn:
		e.warn(name, "", block+" sends the token "+c.Place+" to "+e.quote(here[0])+", and it is not a token of Larder",
			"if it is for "+b.Host+" itself, remove it, for example with `tofu logout "+b.Host+"`")
	case b.Reader != "" && strings.HasPrefix(c.Place, "in TF_TOKEN_"):
		e.warn(name, "", "only "+b.Reader+" reads "+block+": other clients send the token "+c.Place+" to "+b.Host,
			"use "+setUp+" instead: both clients read its file")
	}
	for _, service := range []struct{ id, noun, needed, fix string }{
		{modulesService, "modules", e.moduleOf(b.Host), "copy the module with `larder copy` and name the registry in its " +
			"source, or remove the block"},
		{providersService, "providers", e.providerOf(b.Host), "add the service: " + setUp + " prints it"},
	} {
		result := fmt.Sprintf("%s replaces all services of the host and has no %s, so clients find no %s of it", block,
			service.id, service.noun)
		switch {
		case b.Services[service.id] != "":
		case service.needed != "":
			e.wrong(name, "", result+"; this folder needs "+e.quote(service.needed), service.fix)
		default:
			e.ok(name, "", result)
		}
	}
}

// maxFolderFile bounds the files of the examined folder, in bytes.
const maxFolderFile = 4 << 20

// moduleOf returns a module of a host that the examined folder uses, or "".
func (e *examination) moduleOf(host string) string {
	var manifest struct{ Modules []struct{ Source string } }
	text, err := e.inFolder(".terraform/modules/modules.json")
	if err != nil || json.Unmarshal(text, &manifest) != nil {
		return ""
	}
	for _, m := range manifest.Modules {
		if strings.HasPrefix(m.Source, host+"/") {
			return m.Source
		}
	}
	return ""
}

// lockedProvider matches the address of a provider in a lock file.
var lockedProvider = regexp.MustCompile(`(?m)^provider "([^"]+)"`)

// providerOf returns a provider of a host that the examined folder locks and that
// clients install from the registry itself, or "".
func (e *examination) providerOf(host string) string {
	text, _ := e.inFolder(".terraform.lock.hcl")
	for _, found := range lockedProvider.FindAllSubmatch(text, -1) {
		address, err := registry.ParseMirrorProvider(string(found[1]))
		if err == nil && registry.Host(address.Hostname).Display() == host && !e.isInstalledOtherwise(address) {
			return address.Display()
		}
	}
	return ""
}

// isInstalledOtherwise reports whether clients do not need the registry of a
// provider.
func (e *examination) isInstalledOtherwise(address registry.MirrorProvider) bool {
	return slices.ContainsFunc(e.Config.Installations(), func(i client.Installation) bool {
		return slices.ContainsFunc(i.Methods, func(m client.Method) bool { return m.Kind != "direct" && m.Selects(address) })
	})
}

func (e *examination) inFolder(name string) ([]byte, error) {
	if e.Folder == "" {
		return nil, nil
	}
	return textfile.Read(filepath.Join(e.Folder, filepath.FromSlash(name)), maxFolderFile)
}

// leadsTo returns the URL of the provider registry protocol to which a host block
// leads for a provider, if that is one of a mirror. Otherwise it is nil.
func (e *examination) leadsTo(p registry.MirrorProvider) (u *url.URL) {
	for _, b := range e.Config.Blocks() { // the last one counts
		if b.Kind == client.HostBlock && b.Host == registry.Host(p.Hostname).Display() {
			u, _ = url.Parse(b.Services[providersService])
		}
	}
	if u == nil || u.Host == "" || !strings.HasPrefix(u.Path, hostblock.ProvidersPath) || e.isInstalledOtherwise(p) {
		return nil
	}
	return u
}

// without returns what clients do if the mirror lacks a provider.
func (e *examination) without() string {
	if e.leadsTo(*e.Mirror) != nil {
		return "so clients report that its registry lacks it"
	}
	return "so clients try the next installation method"
}

// byHost examines the mirrored provider as clients with a host block install it. The
// package was examined before.
func (e *examination) byHost(ctx context.Context, base *url.URL) {
	const name = "host block"
	c, scope := e.credential, e.Mirror.Path()
	if !e.credential.given {
		var err error
		if c, err = e.credentialOf(ctx, e.Mirror.Hostname); err != nil {
			e.wrong(name, "", e.quote(err.Error()), "fix this first: until then clients have no credential")
			return
		}
		e.secrets = append(e.secrets, c.Token)
	}
	base = base.JoinPath(e.Mirror.Provider.String())
	a := e.getAs(ctx, name, base.JoinPath("versions"), c, scope, http.StatusNotFound)
	var list protocol.ProviderListing
	if a == nil || a.status == http.StatusOK && !e.decode(name, a, &list) {
		return
	}
	if len(list.Versions) == 0 {
		e.wrong(name, a.request, "clients get no version, but only those with the SHA256SUMS of their origin and its keys",
			"run `larder mirror add "+e.Mirror.String()+" --platform "+e.Platform.String()+"`, which adds both to a version")
		return
	}
	newest, platform := list.Versions[0], e.Platform
	if len(newest.Platforms) > 0 && !slices.Contains(newest.Platforms, platform) {
		platform = newest.Platforms[0]
	}
	a = e.getAs(ctx, name, base.JoinPath(newest.Version.String(), "download", platform.OS, platform.Arch), c, scope)
	var found offer
	if a == nil || !e.decode(name, a, &found) {
		return
	}
	if problem := e.problem(found, platform); problem != "" {
		e.wrong(name, a.request, problem, "report it to the owner of "+e.Mirror.Hostname+", and withdraw the version")
		return
	}
	e.ok(name, a.request, fmt.Sprintf("clients get %s for %s, and verify the signature of its author", newest.Version, platform))
}
