package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// timesHosts are the hosts and paths of the documents with publication times, by
// the host of the module and provider registry protocols. These registries have no times in
// the protocol.
//
// Source: opentofu/registry-ui, backend/internal/server/openapi.yml, GetProvider and
// GetModule.
// An alias such as hashicorp/random has a document of its own.
var timesHosts = map[string]url.URL{
	"registry.opentofu.org": {Scheme: "https", Host: "api.opentofu.org", Path: "/registry/docs/"},
}

// maxTimes bounds a document with publication times, in bytes. A version needs
// about 70, and the mirror records at most 10,000 versions of a provider.
const maxTimes = 2 << 20

// Times returns the service for [Service.VersionTimes], if s is a protocol of a
// public registry that has one. Its requests carry no credential.
func (s *Service) Times() (times *Service, ok bool) {
	base, ok := timesHosts[s.URL.Host]
	if !ok {
		return nil, false
	}
	return s.client.at(&base, ""), true
}

// VersionTimes requests when the versions of a module or a provider were published,
// in one document of the service that [Service.Times] returns. The result has only
// versions with a plausible time. Errors are like those of [Service.PublishedAt].
func (s *Service) VersionTimes(ctx context.Context, of registry.Address) (map[registry.Version]time.Time, error) {
	a, err := s.getOptional(ctx, of.Path()+"/index.json", maxTimes)
	if IsRefusal(err) {
		err = registry.WithHint(err, TryLater) // no credential would help
	}
	if a == nil || err != nil {
		return nil, err
	}
	var body struct {
		Versions versionTimes `json:"versions"`
	}
	if err := a.decode(&body); err != nil {
		return nil, err
	}
	return body.Versions, nil
}

// versionTimes are the publication times of versions, of several ones for the
// same version the latest.
type versionTimes map[registry.Version]time.Time

// UnmarshalJSON implements [json.Unmarshaler].
func (t *versionTimes) UnmarshalJSON(text []byte) error {
	type entry struct {
		ID        string          `json:"id"` // such as v1.0.0
		Published publicationTime `json:"published"`
	}
	*t = versionTimes{}
	return decodeEach(text, func(e entry) {
		v, err := registry.ParseVersion(strings.TrimPrefix(e.ID, "v"))
		if at := time.Time(e.Published); err == nil && at.After((*t)[v]) {
			(*t)[v] = at
		}
	})
}

// getOptional requests a JSON object that an origin can lack. It returns nil if
// the origin does not know the request. Every other response is an error.
func (s *Service) getOptional(ctx context.Context, path string, limit int) (*answer, error) {
	a, err := s.ask(ctx, http.MethodGet, path, nil, true, limit)
	if err != nil {
		return nil, err
	}
	switch a.status {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return nil, nil //nolint:nilnil // documented above
	default:
		return nil, a.info.statusError(a.status, complaint{})
	}
	var object *map[string]json.RawMessage
	if a.decode(&object) != nil || object == nil {
		return nil, registry.Errorf(registry.ErrInvalid, "cannot read the response to %s: it is not a JSON object", a.info)
	}
	return a, nil
}
