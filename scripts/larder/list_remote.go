package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// listRemote lists a namespace, a hostname, an address, or everything if what is
// empty. It is for registries that are named by their URL.
func listRemote(ctx context.Context, r *place.Reader, what string) (output.View, error) {
	first, _, _ := strings.Cut(what, "/")
	hostname := strings.Contains(first, ".")
	var v output.View
	var err error
	switch slashes := strings.Count(what, "/"); {
	case hostname && slashes < 2:
		v, err = output.As(remoteMirrored(ctx, r, what))
	case slashes == 0:
		v, err = output.As(remoteNamespace(ctx, r, what))
	default:
		v, err = output.As(remoteVersions(ctx, r, strings.TrimPrefix(what, "mirror/")))
	}
	if !errors.Is(err, registry.ErrNotFound) || registry.Hint(err) != "" {
		return v, err
	}
	if near := r.Near(ctx, what); near != "" {
		return nil, registry.WithHint(err, "Did you mean `larder list %s%s`?", near, r.Flags)
	}
	return nil, registry.WithHint(err, place.ListHint, r.Flags)
}

// remoteNamespace lists a namespace, or everything if namespace is empty.
func remoteNamespace(ctx context.Context, r *place.Reader, namespace string) (v summariesView, err error) {
	modules, _, err := r.Modules(ctx, metadataclient.Query{Namespace: namespace})
	if err != nil {
		return v, err
	}
	providers, _, err := r.Providers(ctx, metadataclient.Query{Namespace: namespace})
	if err != nil {
		return v, err
	}
	v = summariesView{
		Modules: output.Mapped(modules, moduleSummary), Providers: output.Mapped(providers, providerSummary),
		Mirrored: []registry.Summary{}, remote: true,
	}
	if namespace != "" {
		if len(modules)+len(providers) == 0 {
			err = fmt.Errorf("cannot list namespace %s: %w", namespace, registry.ErrNotFound)
		}
		return v, err
	}
	mirrored, err := r.Mirrored(ctx)
	v.Mirrored = output.Mapped(mirrored, mirroredSummary)
	if err == nil && len(v.Modules)+len(v.Providers)+len(mirrored) == 0 {
		err = needsCredential(ctx, r)
	}
	return v, err
}

// needsCredential returns registry.ErrUnauthenticated if a request without a
// credential may read only a part of the registry. The registry answers that before it
// looks whether the module exists.
func needsCredential(ctx context.Context, r *place.Reader) error {
	_, err := r.Module(ctx, registry.Module{Namespace: "larder", Name: "larder", System: "none"}, nil)
	if errors.Is(err, registry.ErrUnauthenticated) {
		return err
	}
	return nil
}

// remoteMirrored lists the mirrored providers of HOSTNAME or HOSTNAME/NAMESPACE.
func remoteMirrored(ctx context.Context, r *place.Reader, part string) (v summariesView, err error) {
	mirrored, err := r.Mirrored(ctx)
	if err != nil {
		return v, err
	}
	all := slices.DeleteFunc(output.Mapped(mirrored, mirroredSummary), func(s registry.Summary) bool {
		return !strings.HasPrefix(s.Address, strings.TrimSuffix(part, "/")+"/")
	})
	if len(all) == 0 {
		return v, fmt.Errorf("cannot list mirrored providers of %s: %w", part, registry.ErrNotFound)
	}
	return summariesView{
		Modules: []registry.Summary{}, Providers: []registry.Summary{}, Mirrored: all, remote: true,
	}, nil
}

func remoteVersions(ctx context.Context, r *place.Reader, what string) (v listedView, err error) {
	a, err := registry.ParseAddress(what)
	if err != nil {
		return v, err
	}
	v.Address = a.String()
	if p, ok := a.(registry.MirrorProvider); ok {
		mirrored, err := r.MirroredProvider(ctx, p)
		if err == nil {
			v.mirrored(mirrored)
		}
		return v, err
	}
	if v.Versions, err = r.Listing(ctx, a); err == nil {
		v.Deprecated, err = r.Deprecation(ctx, a)
	}
	return v, err
}

func moduleSummary(m protocol.ModuleSummary) registry.Summary {
	return registry.Summary{
		Address: metadataclient.ModuleAddress(m), Latest: m.Version, Description: m.Description,
		PublishedAt: m.PublishedAt, Source: m.Source, Deprecated: reasonOf(m.Deprecation),
	}
}

func providerSummary(p protocol.ProviderSummary) registry.Summary {
	return registry.Summary{
		Address: metadataclient.ProviderAddress(p), Latest: p.Version, Description: p.Description,
		PublishedAt: p.PublishedAt, Source: p.Source, Deprecated: reasonOf(p.Deprecation),
	}
}

func mirroredSummary(m protocol.MirroredDetail) registry.Summary {
	return registry.Summary{Address: metadataclient.MirroredAddress(m), Latest: m.Version}
}

// reasonOf returns the reason for a deprecation, or an empty string without
// one.
func reasonOf(note *protocol.DeprecationNote) string {
	if note == nil {
		return ""
	}
	return note.Reason
}

// listedView is a list of versions from a registry's own endpoint.
type listedView struct {
	Address string `json:"address"`
	// Deprecated is the deprecation message of the latest version, or of all
	// versions.
	Deprecated string `json:"deprecated,omitempty"`
	// Versions are those that clients can select.
	Versions []metadataclient.Listed `json:"versions"`
	// Mirror describes a mirrored provider, with the versions that are too new,
	// refused or on request.
	Mirror *protocol.MirroredProvider `json:"mirror,omitempty"`
}

func (v *listedView) mirrored(d protocol.MirroredProvider) {
	v.Mirror, v.Versions = &d, []metadataclient.Listed{}
	for _, one := range d.Versions {
		if one.State == string(admission.Available) {
			v.Versions = append(v.Versions, metadataclient.Listed{Version: one.Version, PublishedAt: one.PublishedAt})
		}
	}
}

// mirrorText prints the versions of a mirrored provider with their states.
func (v listedView) mirrorText(p output.Page) {
	printDenied(p, v.Address, v.Mirror.Denied)
	rows := versionRows{between: 1}
	for _, one := range v.Mirror.Versions {
		if admission.State(one.State).IsOnRequest() {
			continue
		}
		state, published := one.State, ""
		if state == string(admission.Available) {
			state = ""
		}
		if !one.PublishedAt.IsZero() {
			published = output.FormatTime(one.PublishedAt)
		}
		rows.add(one.Version, state, mirroredReason(one), published)
	}
	if len(rows.rows) > 0 {
		p.Table([]terminal.Column{output.VersionColumn, output.StateColumn, output.PublishedColumn, output.ReasonColumn}, rows.rows)
	} else {
		p.Println("No version of %s is mirrored.", v.Address)
	}
	if v.Mirror.Pull != nil {
		p.Printf("\n")
		printPulled(p, *v.Mirror.Pull, v.Mirror.Versions)
	}
}

func mirroredReason(v protocol.MirroredVersion) string {
	var why []string
	switch {
	case v.State == string(admission.TooNew):
		why = append(why, "from "+output.FormatFrom(v.AvailableAt))
	case v.State == string(admission.Refused):
		why = append(why, printable.Escape(v.Reason))
	}
	if v.Admitted != nil {
		why = append(why, strings.TrimSuffix("admitted by "+v.Admitted.By+": "+v.Admitted.Reason, ": "))
	}
	if v.AgeUnknown && v.State != string(admission.Refused) {
		why = append(why, "age unknown")
	}
	return strings.Join(why, "; ")
}

func (v listedView) Text(p output.Page) {
	if v.Mirror != nil {
		v.mirrorText(p)
		return
	}
	printDeprecated(p, v.Address, v.Deprecated)
	rows := make([][]string, len(v.Versions))
	for i, one := range v.Versions {
		published := ""
		if !one.PublishedAt.IsZero() {
			published = output.FormatTime(one.PublishedAt)
		}
		platforms := output.Mapped(one.Platforms, registry.Platform.String)
		rows[i] = []string{
			one.Version.String(), published, strings.Join(one.Protocols, " "), strings.Join(platforms, " "),
		}
	}
	p.Table([]terminal.Column{
		output.VersionColumn, output.PublishedColumn, {Title: "PROTOCOLS", Optional: true},
		{Title: "PLATFORMS", Min: len("windows_amd64 +2"), Shorten: output.ShortList},
	}, rows)
}

func (v listedView) Quiet(p output.Page) {
	for _, one := range v.Versions {
		p.Printf("%s\n", one.Version)
	}
}
