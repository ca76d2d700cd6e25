package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// ModuleVersions returns the versions of a module, highest first. It skips the
// versions that Larder cannot publish, such as 1.2.3.4, and returns their texts
// as other.
//
// Source: module registry protocol, "List Available Versions for a Specific
// Module". Clients read only the first module of the response.
func (s *Service) ModuleVersions(ctx context.Context, m registry.Module) (
	found []registry.Version, other []string, err error,
) {
	var body struct {
		Modules []struct {
			Versions []struct {
				Version string `json:"version"`
			} `json:"versions"`
		} `json:"modules"`
	}
	if _, err := s.GetJSON(ctx, m.String()+"/versions", &body); err != nil {
		return nil, nil, err
	}
	if len(body.Modules) == 0 {
		return nil, nil, registry.Errorf(registry.ErrInvalid, "cannot read the versions of %s at %s: the list is empty",
			m, printable.Mark(s.URL.Host, 300))
	}
	seen := make(map[string]bool)
	for _, listed := range body.Modules[0].Versions {
		// Clients accept a leading v, and request the version without it.
		v, err := registry.ParseVersion(strings.TrimPrefix(listed.Version, "v"))
		switch {
		case err != nil:
			other = append(other, printable.Mark(listed.Version, 100))
		case !seen[v.String()]:
			seen[v.String()] = true
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	return found, other, nil
}

// ModuleLocation is where a registry locates the archive of a module.
type ModuleLocation struct {
	// Reference is the location as the registry writes it. It may contain a
	// secret.
	Reference string
	// Base is the URL to which a relative reference refers.
	Base *url.URL
	// Direct means that the reference is a plain URL. Otherwise it has the syntax
	// of go-getter.
	Direct bool
	// Service is set if clients send the registry's credential to the location.
	// It then downloads the archive.
	Service *Service
}

// ModuleLocation requests the location of a version. As in OpenTofu, a location
// in the body takes precedence over one in the header. The exception is one that
// requires the credential, because Terraform gets the version from the header.
//
// Source: module registry protocol, "Download Source Code for a Specific Module
// Version". OpenTofu 1.12 reads use_registry_credentials.
func (s *Service) ModuleLocation(ctx context.Context, m registry.Module, v registry.Version) (ModuleLocation, error) {
	a, err := s.ask(ctx, http.MethodGet, m.String()+"/"+v.String()+"/download", nil, true, maxDescription)
	if err != nil {
		return ModuleLocation{}, err
	}
	if a.status != http.StatusOK && a.status != http.StatusNoContent {
		return ModuleLocation{}, a.info.statusError(a.status, complaint{})
	}
	l := ModuleLocation{Reference: a.header.Get("X-Terraform-Get"), Base: a.info.url}
	var body struct {
		Location   string `json:"location"`
		Credential *bool  `json:"use_registry_credentials"`
	}
	// Terraform does not read the body, so it can be anything beside a header.
	isBody := len(a.body) > 0 && a.decode(&body) == nil && body.Location != ""
	requires := isBody && body.Credential != nil && *body.Credential
	if isBody && (!requires || l.Reference == "") {
		l.Reference, l.Direct = body.Location, body.Credential != nil
		if requires {
			l.Service = s
		}
	}
	if l.Reference == "" || len(l.Reference) > maxURL {
		return ModuleLocation{}, fmt.Errorf("cannot locate %s %s: %w response of %s: it has no location of the module",
			m, v, registry.ErrInvalid, printable.Mark(s.URL.Host, 300))
	}
	return l, nil
}
