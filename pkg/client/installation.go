package client

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/registry"
)

// CLIs are the names of the programs whose configuration this package reads.
var CLIs = []string{"OpenTofu", "Terraform"}

// NetworkMirror is the [Method.Kind] that has a URL.
const NetworkMirror = "network_mirror"

// Installation is a provider_installation block. A CLI uses the first one.
type Installation struct {
	File string
	// Refused reports that the CLIs reject the block, because it is JSON with a
	// method that is not a list.
	Refused bool
	// Reader is the CLI that reads the file. It is empty if both do.
	Reader  string
	Methods []Method
}

// Method is one source from which the CLIs install providers.
type Method struct {
	Kind             string // for example direct
	URL              string // unchanged from the file; only for NetworkMirror
	Include, Exclude []string
}

// Selects reports whether the CLIs install a provider with this method. It
// matches patterns like the CLIs do, with two exceptions. A pattern without a
// host matches either CLI's own registry. An invalid pattern matches nothing.
func (m Method) Selects(provider registry.MirrorAddress) bool {
	matches := func(pattern string) bool {
		parts := strings.Split(strings.ToLower(pattern), "/")
		hosts := []string{"registry.opentofu.org", "registry.terraform.io"}
		if len(parts) == 2 && slices.Contains(hosts, provider.Hostname) {
			parts = append([]string{provider.Hostname}, parts...)
		}
		// The CLIs reject a pattern in Punycode.
		address := []string{registry.Host(provider.Hostname).Display(), provider.Namespace, provider.Name}
		return slices.EqualFunc(parts, address, func(part, name string) bool { return part == "*" || part == name })
	}
	return (len(m.Include) == 0 || slices.ContainsFunc(m.Include, matches)) && !slices.ContainsFunc(m.Exclude, matches)
}

// SelectsHost reports whether the CLIs install some providers of a host with this
// method. It takes the form of the host for people.
func (m Method) SelectsHost(host string) bool {
	matches := func(pattern string) bool {
		parts := strings.Split(strings.ToLower(pattern), "/")
		if len(parts) == 2 { // of the default host of the CLI
			return slices.Contains(publicHosts, svchost.Hostname(host))
		}
		return parts[0] == "*" || parts[0] == host
	}
	isWhole := func(pattern string) bool { return matches(pattern) && strings.HasSuffix(pattern, "*/*") }
	return (len(m.Include) == 0 || slices.ContainsFunc(m.Include, matches)) && !slices.ContainsFunc(m.Exclude, isWhole)
}

// installationsOf returns the blocks of a file. It ignores mistakes, because
// this package installs no providers and the CLIs report them.
func installationsOf(tree *ast.File) (found []Installation) {
	list, ok := tree.Node.(*ast.ObjectList)
	if !ok {
		return nil
	}
	for _, block := range list.Filter("provider_installation").Items {
		var body []map[string]any
		if hcl.DecodeObject(&body, block.Val) != nil {
			continue
		}
		// The parser creates a block for each method of that form.
		if refused := len(block.Keys) > 0; !refused || len(found) == 0 {
			found = append(found, Installation{Refused: refused, Methods: methodsOf(body)})
		}
	}
	return found
}

func methodsOf(body []map[string]any) (found []Method) {
	for _, part := range body {
		for _, kind := range []string{NetworkMirror, "filesystem_mirror", "oci_mirror", "direct"} {
			methods, _ := part[kind].([]map[string]any)
			for _, method := range methods {
				text, _ := method["url"].(string)
				found = append(found, Method{
					Kind: kind, URL: text, Include: stringsOf(method["include"]), Exclude: stringsOf(method["exclude"]),
				})
			}
		}
	}
	return found
}

func stringsOf(value any) (found []string) {
	values, _ := value.([]any)
	for _, v := range values {
		if s, ok := v.(string); ok {
			found = append(found, s)
		}
	}
	return found
}
