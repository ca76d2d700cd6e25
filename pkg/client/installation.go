package client

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/ast"

	"github.com/larder-registry/larder/pkg/registry"
)

// CLIs are those whose configuration this reads.
var CLIs = []string{"OpenTofu", "Terraform"}

// NetworkMirror is the kind of a Method that has a URL.
const NetworkMirror = "network_mirror"

// Installation is a provider_installation block: where providers are installed from. A CLI takes the first.
type Installation struct {
	File string
	// Refused says that it is written so that the CLIs do not take it: in JSON, with a method that is no list.
	Refused bool
	// Reader is the CLI that reads it; empty: both do.
	Reader  string
	Methods []Method
}

// Method is one place that providers are installed from.
type Method struct {
	Kind             string // such as direct
	URL              string // as it is written; of a network mirror alone
	Include, Exclude []string
}

// Selects says whether a provider is installed from there. Patterns are compared as the CLIs do it, but that one without
// a host is of either CLI's own registry, and one that is none selects nothing.
func (m Method) Selects(provider registry.MirrorProvider) bool {
	matches := func(pattern string) bool {
		parts := strings.Split(strings.ToLower(pattern), "/")
		if len(parts) == 2 && (provider.Hostname == "registry.opentofu.org" || provider.Hostname == "registry.terraform.io") {
			parts = append([]string{provider.Hostname}, parts...)
		}
		return len(parts) == 3 && slices.EqualFunc(parts, []string{provider.Hostname, provider.Namespace, provider.Type}, func(part, is string) bool {
			return part == "*" || part == is
		})
	}
	return (len(m.Include) == 0 || slices.ContainsFunc(m.Include, matches)) && !slices.ContainsFunc(m.Exclude, matches)
}

// installationsOf returns the blocks of a file. Nothing here installs a provider by them, so that what is wrong there is
// the CLIs' to say.
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
		// The parser makes a block of each such method.
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
				found = append(found, Method{Kind: kind, URL: text, Include: stringsOf(method["include"]), Exclude: stringsOf(method["exclude"])})
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
