package web

import (
	"context"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
)

// moduleOf returns the module of a request. The error is registry.ErrNotFound if
// the caller may not read it.
func moduleOf(v *visit) (registry.Module, error) {
	m, err := registry.ParseModule(v.PathValue("namespace") + "/" + v.PathValue("name") + "/" + v.PathValue("system"))
	return m, checkReadable(v.Context(), m, err)
}

// providerOf returns the provider of a request. The error is
// registry.ErrNotFound if the caller may not read it.
func providerOf(v *visit) (registry.Provider, error) {
	p, err := registry.ParseProvider(v.PathValue("namespace") + "/" + v.PathValue("type"))
	return p, checkReadable(v.Context(), p, err)
}

// mirrorOf is like providerOf for a mirrored provider or module.
func mirrorOf(v *visit) (registry.MirrorAddress, error) {
	parts := []string{v.PathValue("hostname"), v.PathValue("namespace"), v.PathValue("type")}
	if system := v.PathValue("system"); system != "" {
		parts = append(parts[:2], v.PathValue("name"), system)
	}
	p, err := registry.ParseMirrorAddress(strings.Join(parts, "/"))
	return p, checkReadable(v.Context(), p, err)
}

// checkReadable returns the error of parsing an address, or registry.ErrNotFound if
// the caller may not read it.
func checkReadable(ctx context.Context, a registry.Address, parsing error) error {
	if parsing == nil && !access.CanRead(ctx, a.Path()) {
		return fmt.Errorf("%s: %w", a, registry.ErrNotFound)
	}
	return parsing
}

func headOfModule(m registry.Module) head {
	return head{
		Breadcrumb: []link{{"Modules", "/modules"}, {m.Namespace, "/modules/" + m.Namespace}},
		Before:     m.Namespace + "/", Name: m.Name, After: "/" + m.System,
	}
}

func headOfProvider(p registry.Provider) head {
	return head{
		Breadcrumb: []link{{"Providers", "/providers"}, {p.Namespace, "/providers/" + p.Namespace}},
		Before:     p.Namespace + "/", Name: p.Type,
	}
}

func headOfMirror(p registry.MirrorAddress) head {
	if p.IsModule() {
		return head{
			Breadcrumb: []link{{"Mirrored modules", "/mirror-modules"}, {Text: p.Hostname}},
			Before:     p.Namespace + "/", Name: p.Name, After: "/" + p.System,
		}
	}
	return head{
		Breadcrumb: []link{{"Mirrored providers", "/mirror"}, {Text: p.Hostname}},
		Before:     p.Namespace + "/", Name: p.Name,
	}
}

// of returns the head of a page about a part. root is the path of the page of the
// version.
func (h head) of(part, root string) head {
	kind, name, found := strings.Cut(part, "/")
	if kind == filesKind && found {
		h.Breadcrumb = append(h.Breadcrumb, link{kind, root + "/" + kind})
	}
	h.Before, h.Name, h.After = kind+"/", name, ""
	if !found {
		h.Before, h.Name = "", strings.ToUpper(kind[:1])+kind[1:]
	}
	return h
}

func (h head) address() string { return h.Before + h.Name + h.After }

func (h head) below(path string) head {
	h.Breadcrumb = append(h.Breadcrumb, link{h.Name + h.After, path})
	return h
}
