package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// setUp prints a host block with its credentials block.
const setUp = "`larder mirror setup`"

// loginFile is the name of the file that has the stored logins of both clients.
const loginFile = "credentials.tfrc.json"

// publicHosts are the hosts of sources that name none, by client.
var publicHosts = map[string]string{"registry.opentofu.org": client.CLIs[0], "registry.terraform.io": client.CLIs[1]}

// hostBlocks adds steps about the host blocks that lead from other registries to a
// mirror, and about tokens of Larder for these. It reports whether it added any.
func (e *examination) hostBlocks(ctx context.Context) bool {
	before := len(e.report.Steps)
	others := maps.Clone(publicHosts)
	if e.Mirror != nil {
		others[registry.Host(e.Mirror.Hostname).Display()] = ""
	}
	for _, b := range e.Config.Blocks() {
		if b.Kind == client.HostBlock {
			others[b.Host] = ""
		}
	}
	delete(others, e.Host)
	configured := e.Config.Hosts()
	for _, host := range slices.Sorted(maps.Keys(others)) {
		b, found := e.blockOf(host)
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
			e.hostBlock(ctx, b, c, isOwn)
		case isOwn:
			e.wrong("configuration", "", fmt.Sprintf(
				"the token %s is one of Larder, but there is no host block for %s: clients send the token to %[2]s", c.Place, host),
				"remove the token, or add the block with "+setUp+"; revoke the token if clients have already sent it")
		}
	}
	return len(e.report.Steps) > before
}

// blockOf returns the host block of a host. If there are several, the last one counts.
func (e *examination) blockOf(host string) (last client.Block, found bool) {
	for _, b := range e.Config.Blocks() {
		if b.Kind == client.HostBlock && b.Host == host {
			last, found = b, true
		}
	}
	return last, found
}

// hostBlock adds steps about one host block.
func (e *examination) hostBlock(ctx context.Context, b client.Block, c credential, isOwn bool) {
	const name = "configuration"
	block := "the host block for " + b.Host + " in " + e.quote(b.File)
	var here, elsewhere []string
	for _, id := range slices.Sorted(maps.Keys(b.Services)) {
		u, err := url.Parse(b.Services[id])
		switch {
		case err != nil || u.Host == "":
		case sameHost(u.Host, e.Host) || isMirror(u.Path):
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
	logout := fmt.Sprintf("run `tofu logout %[1]s` or `terraform logout %[1]s`", b.Host)
	inVariable, isLogin := strings.HasPrefix(c.Place, "in TF_TOKEN_"), strings.HasSuffix(c.Place, loginFile)
	// A JWT can be one of an issuer that the registry trusts.
	isForeign := c.Token != "" && !isOwn && strings.Count(c.Token, ".") != 2
	switch {
	case isForeign:
		e.foreign = append(e.foreign, b.Host)
		fix := "replace it there with a token of Larder: " + setUp + " prints both blocks"
		if isLogin {
			fix = logout
		} else if inVariable {
			fix = "unset the variable"
		}
		e.wrong(name, "", block+" sends the token "+c.Place+" to "+e.quote(here[0])+
			", which rejects it: it is not a token of Larder",
			"if it is for "+b.Host+" itself, "+fix)
	case inVariable:
		result := "clients that do not read " + block + " send the token " + c.Place + " to " + b.Host
		if b.Reader != "" {
			result = "only " + b.Reader + " reads " + block + ": other clients send the token " + c.Place + " to " + b.Host
		}
		e.warn(name, "", result, "unset the variable, and put the token into the file of "+setUp+", which both clients read")
	}
	for _, other := range e.Config.Blocks() {
		if other.Kind == client.CredentialsBlock && other.Host == b.Host && c.Token != "" && !isLogin &&
			filepath.Base(other.File) == loginFile {
			e.warn(name, "", "clients do not use the login for "+b.Host+" in "+e.quote(other.File)+", but the token "+c.Place,
				logout)
		}
	}
	for _, service := range []struct{ id, noun, path, needed string }{
		{providersService, "providers", hostblock.ProvidersPath, e.providerOf(b.Host)},
		{modulesService, "modules", hostblock.ModulesPath, e.moduleOf(ctx, b.Host)},
	} {
		result := fmt.Sprintf("%s replaces all services of the host and has no %s, so clients find no %s of it", block,
			service.id, service.noun)
		switch {
		case b.Services[service.id] != "":
			e.serviceURL(b, block, service.id, service.noun, service.path)
		case service.needed != "":
			e.wrong(name, "", result+"; this folder needs "+e.quote(service.needed), "add the service: run "+setUp+" again")
		default:
			e.ok(name, "", result)
		}
	}
}

// isMirror reports whether the path of a URL is that of a protocol of other hosts.
func isMirror(path string) bool {
	return strings.HasPrefix(path, hostblock.ModulesPath) || strings.HasPrefix(path, hostblock.ProvidersPath)
}

// serviceURL adds a step if a host block leads a service to a wrong URL of the examined
// registry, or to another registry. The mirror has the service below a path.
func (e *examination) serviceURL(b client.Block, block, id, noun, path string) {
	u, err := url.Parse(b.Services[id])
	host, invalid := registry.ParseHost(b.Host)
	if err != nil || invalid != nil || u.Host == "" {
		return
	}
	// For any other host, its block can make it another name of this registry.
	isOther := publicHosts[b.Host] != "" || e.Mirror != nil && e.Mirror.Hostname == string(host)
	given, isHere := strings.TrimSuffix(u.Path, "/")+"/", sameHost(u.Host, e.Host)
	right := hostblock.URL("https://"+u.Host, path, host)
	fix := "change the URL to " + e.quote(right)
	result := block + " leads " + id + " to " + e.shown(u) + ", "
	switch {
	case u.String() == right && isHere:
	case u.String() == right:
		e.warn("configuration", "", result+"and not to "+e.Host, "if this is intended, examine that registry; otherwise change "+
			"the URL to "+hostblock.URL("https://"+e.Host, path, host))
	case u.String()+"/" == right && id == modulesService:
		e.warn("configuration", "", result+"without a slash at its end; OpenTofu and Terraform add it, but other programs "+
			"may not", fix)
	case isMirror(given),
		isHere && (given == usual(id) && isOther || given == usualMirror || given != u.Path || u.Scheme != "https"):
		result += "where clients find no " + noun + " of " + b.Host
		if given != u.Path && id == providersService {
			result += ": without a slash at its end, they drop the last part of the URL"
		}
		if isHere && id == providersService {
			e.misled = append(e.misled, b.Host)
		}
		e.wrong("configuration", "", result, fix)
	}
}

// wellKnown is the document of a mirror that tests a token, below a service's URL.
const wellKnown = ".well-known/terraform.json"

// maxFolderFile bounds the files of the examined folder, in bytes.
const maxFolderFile = 4 << 20

// moduleOf returns a module of a host that the examined folder uses, or "". After an
// init that has failed, only the configuration names it.
func (e *examination) moduleOf(ctx context.Context, host string) string {
	var manifest struct{ Modules []struct{ Source string } }
	if text, _ := e.inFolder(".terraform/modules/modules.json"); text != nil {
		_ = json.Unmarshal(text, &manifest) // clients write it again
	}
	for _, m := range manifest.Modules {
		if strings.HasPrefix(m.Source, host+"/") {
			return m.Source
		}
	}
	var parser safehcl.Parser
	var files []os.DirEntry
	if e.Folder != "" {
		files, _ = os.ReadDir(e.Folder)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".tf") && !strings.HasSuffix(f.Name(), ".tofu") {
			continue
		}
		text, _ := e.inFolder(f.Name())
		file, err := parser.Parse(ctx, f.Name(), text)
		if err != nil {
			continue // clients report it
		}
		for _, source := range safehcl.ModuleSources(file) {
			address, _, _ := strings.Cut(source, "//")
			_, err := registry.ParseModule(address)
			switch reader := publicHosts[host]; {
			case strings.HasPrefix(source, host+"/"):
				return source
			case reader != "" && err == nil:
				return source + " with " + reader
			}
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
func (e *examination) isInstalledOtherwise(address registry.MirrorAddress) bool {
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

// leads returns the providers.v1 of a host's host block if that is the URL of a mirror
// of the host. Otherwise it is nil.
func (e *examination) leads(host string) *url.URL {
	return e.leadsBy(host, providersService, hostblock.ProvidersPath)
}

// leadsBy is leads for a service, which a mirror has below a path.
func (e *examination) leadsBy(host, service, path string) *url.URL {
	parsed, err := registry.ParseHost(host)
	b, _ := e.blockOf(parsed.Display())
	u, invalid := url.Parse(b.Services[service])
	if err != nil || invalid != nil || hostblock.URL("https://"+u.Host, path, parsed) != u.String() {
		return nil
	}
	return u
}

// leading returns the hosts whose host blocks lead to a mirror of a registry.
func (e *examination) leading(to string) (hosts []string) {
	for _, b := range e.Config.Blocks() {
		u := e.leads(b.Host)
		if b.Kind == client.HostBlock && u != nil && sameHost(u.Host, to) && !slices.Contains(hosts, b.Host) {
			hosts = append(hosts, b.Host)
		}
	}
	return hosts
}

// leadsTo is leads for a module, or for a provider that clients install from its
// registry.
func (e *examination) leadsTo(p registry.MirrorAddress) *url.URL {
	if p.IsModule() {
		return e.leadsBy(p.Hostname, modulesService, hostblock.ModulesPath)
	}
	if e.isInstalledOtherwise(p) {
		return nil
	}
	return e.leads(p.Hostname)
}

// without returns what clients do if the mirror lacks something.
func (e *examination) without() string {
	switch {
	case e.leadsTo(*e.Mirror) != nil:
		return "so clients report that its registry lacks it"
	case e.Mirror.IsModule():
		return "so clients with a host block report that its registry lacks it"
	}
	return "so clients try the next installation method"
}

// blockCredentials adds a step for each host block that leads to the examined registry,
// about the token that clients send there.
func (e *examination) blockCredentials(ctx context.Context) {
	if e.blocked != "" || e.credential.given {
		return
	}
	for _, host := range e.leading(e.Host) {
		if slices.Contains(e.foreign, host) {
			e.refused = append(e.refused, host) // only clients send such a token
			continue
		}
		c, err := e.credentialOf(ctx, host)
		if err != nil {
			e.wrong("credential", "", e.quote(err.Error()), "fix this first: until then clients have no credential for "+host)
			e.refused = append(e.refused, host)
			continue
		}
		if !e.blockCredential(ctx, host, c) {
			e.refused = append(e.refused, host)
		}
	}
}

// blockCredential adds a step about the credential that clients have for a host. It
// reports whether the registry accepts it. A token can be only for providers or only for
// modules, and clients may need no others.
func (e *examination) blockCredential(ctx context.Context, host string, c credential) (accepted bool) {
	const name, whole = "credential", "mirror/**"
	// The request only tests the token. The registry looks nothing up.
	a := e.getAs(ctx, name, e.leads(host).JoinPath(wellKnown), c, whole, http.StatusForbidden)
	if a == nil {
		return false
	}
	isForbidden := a.status == http.StatusForbidden
	if u := e.moduleTest(ctx, host, isForbidden); u != nil {
		m, err := e.send(ctx, u, c)
		switch {
		case err != nil: // the first request has not failed
		case m.status == http.StatusForbidden && !isForbidden:
			result, fix := e.explainStatus(m, "mirror-modules/**")
			e.wrong(name, m.request, result, fix)
			return true
		case isForbidden && e.providerOf(host) == "" &&
			m.status != http.StatusForbidden && m.status != http.StatusUnauthorized:
			e.ok(name, m.request, "the registry accepts the token "+c.Place+" only for modules of "+host)
			return true
		}
	}
	switch {
	case isForbidden:
		result, fix := e.explainStatus(a, whole)
		e.wrong(name, a.request, result, fix)
		return false
	case c.Token == "":
		e.ok(name, a.request, "the mirror of "+host+" needs no token")
	default:
		e.ok(name, a.request, "the registry accepts the token "+c.Place+" for the mirror of "+host)
	}
	return true
}

// moduleTest returns a URL that tests a token for modules of a host. If the examined
// folder needs one, it is that of its versions, because scopes can be for a part of the
// host. If it needs none, the URL is nil unless the test is always wanted.
func (e *examination) moduleTest(ctx context.Context, host string, always bool) *url.URL {
	u := e.leadsBy(host, modulesService, hostblock.ModulesPath)
	if u == nil || !sameHost(u.Host, e.Host) {
		return nil
	}
	source, _, _ := strings.Cut(e.moduleOf(ctx, host), " ")
	address, _, _ := strings.Cut(strings.TrimPrefix(source, host+"/"), "//")
	switch {
	case address != "":
		return u.JoinPath(address, "versions")
	case always:
		return u.JoinPath(wellKnown)
	}
	return nil
}

// blockFor returns a host block for the mirrored provider. It is empty if clients have
// a network mirror, or if a mirror does not have the provider for host blocks.
func (e *examination) blockFor(ctx context.Context, base *url.URL) (text string) {
	for _, i := range e.Config.Installations() {
		if slices.ContainsFunc(i.Methods, func(m client.Method) bool { return m.Kind == client.NetworkMirror }) {
			return ""
		}
	}
	host, token := registry.Host(e.Mirror.Hostname), ""
	c, err := e.credentialOfMirror(ctx, base)
	if err == nil && c.Token != "" {
		token = "YOUR TOKEN"
	}
	u := &url.URL{Scheme: "https", Host: base.Host, Path: hostblock.ProvidersPath + string(host)}
	a, err := e.send(ctx, u.JoinPath(e.Mirror.Provider().String(), "versions"), c)
	if err != nil || a.status != http.StatusOK || !a.isJSON() {
		return ""
	}
	return hostblock.Text("https://"+base.Host, host, token)
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
	}
	base = base.JoinPath(e.Mirror.Provider().String())
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
	isRelease := func(p protocol.ListedProvider) bool { return p.Version.Prerelease == "" }
	newest, platform := list.Versions[max(0, slices.IndexFunc(list.Versions, isRelease))], e.Platform
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
	e.ok(name, a.request, fmt.Sprintf("clients get %s for %s", newest.Version, platform))
	e.signature(ctx, name, a, found, true)
}
