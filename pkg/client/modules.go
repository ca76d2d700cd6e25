package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// ModuleVersions returns the versions of a module, highest first. It skips the
// versions that Larder cannot publish, such as 1.2.3.4, and returns their texts
// as other. date is that of [Service.ProviderVersions].
//
// Source: module registry protocol, "List Available Versions for a Specific
// Module". Clients read only the first module of the response. The protocol has no
// publication times. Larder adds published_at.
func (s *Service) ModuleVersions(ctx context.Context, m registry.Module) (
	found []OfferedVersion, other []string, date time.Time, err error,
) {
	var body struct {
		Modules []struct {
			Versions moduleVersions `json:"versions"`
		} `json:"modules"`
	}
	a, err := s.getJSON(ctx, m.String()+"/versions", maxAnswer, &body)
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	if len(body.Modules) == 0 {
		return nil, nil, time.Time{}, registry.Errorf(registry.ErrInvalid,
			"cannot read the versions of %s at %s: the list is empty", m, printable.Mark(s.URL.Host, 300))
	}
	listed := body.Modules[0].Versions
	found, err = listed.valid.sorted(a)
	return found, listed.other, a.date(), err
}

// moduleVersions are the versions of a listing of a module.
type moduleVersions struct {
	valid offeredVersions
	other []string
}

// maxOther is the maximum number of other versions that a message can name.
const maxOther = 100

// UnmarshalJSON implements [json.Unmarshaler].
func (o *moduleVersions) UnmarshalJSON(text []byte) error {
	type entry struct {
		Version     string          `json:"version"`
		PublishedAt publicationTime `json:"published_at"`
	}
	*o = moduleVersions{}
	seen := make(map[string]bool)
	return decodeEach(text, func(e entry) {
		// Clients accept a leading v, and request the version without it.
		v, err := registry.ParseVersion(strings.TrimPrefix(e.Version, "v"))
		switch {
		case err != nil && len(o.other) < maxOther:
			o.other = append(o.other, printable.Mark(e.Version, 100))
		case err == nil && !seen[v.String()] && len(o.valid) <= maxVersions:
			seen[v.String()] = true
			o.valid = append(o.valid, OfferedVersion{Version: v, PublishedAt: time.Time(e.PublishedAt)})
		}
	})
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
