// Package usage has the results of counting downloads. Each kind of registry
// has a package that counts.
//
// A download is a response that leads a client to a package, or in a mirror to
// the packages of a version. Clients and caches may request the bytes again
// without the registry.
package usage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
)

// MaxRows is the maximum number of rows of a report.
const MaxRows = 10_000

// Query selects the downloads to count.
type Query struct {
	// Address limits the query to one address, and counts each caller
	// separately. If nil, the downloads of all addresses are counted.
	Address registry.Address
	// Version limits the query to one version of the address. If nil, all
	// versions are counted.
	Version *registry.Version
	// From and To are the period, which is limited to the downloads that the
	// registry still has.
	From, To time.Time
}

// Download is the number of downloads of something.
type Download struct {
	Address registry.Address
	Version registry.Version
	// Caller is the name of a token or of an identity. It is empty if the
	// caller is anonymous or the query does not distinguish callers.
	Caller string
	Count  int64
	// Last is the time of the last download, truncated to milliseconds.
	Last time.Time
}

// Report is the result of a query.
type Report struct {
	// From and To are the counted period.
	From, To time.Time
	// Retention is how long the registry stores what it counts.
	Retention time.Duration
	// Downloads has the most frequent first.
	Downloads []Download
	// Cut reports that there are MaxRows rows or more, counting all versions. The
	// rarest downloads may be missing.
	Cut bool
}

// ParseAddress parses the address of a download of a kind, in the form of the
// registry's routes.
func ParseAddress(kind, address string) (registry.Address, error) {
	switch requestlog.Download(kind) {
	case requestlog.ModuleDownload:
		return registry.ParseModule(address)
	case requestlog.ProviderDownload:
		return registry.ParseProvider(address)
	case requestlog.MirrorDownload:
		return registry.ParseMirrorAddress(address)
	}
	return nil, fmt.Errorf("%w kind of download", registry.ErrInvalid)
}

// Kind returns the log's name for downloads of an address.
func Kind(a registry.Address) requestlog.Download {
	switch a.(type) {
	case registry.Module:
		return requestlog.ModuleDownload
	case registry.Provider:
		return requestlog.ProviderDownload
	default:
		return requestlog.MirrorDownload
	}
}

// Sort sorts downloads. The most frequent come first.
func Sort(downloads []Download) {
	slices.SortFunc(downloads, func(a, b Download) int {
		return cmp.Or(
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Address.Path(), b.Address.Path()),
			registry.CompareVersions(b.Version, a.Version), cmp.Compare(a.Caller, b.Caller),
		)
	})
}
