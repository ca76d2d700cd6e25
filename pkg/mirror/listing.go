package mirror

import (
	"encoding/json"
	"fmt"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// Listing is the index.json of a provider: which versions are mirrored, in any order, as the protocol has none.
type Listing []registry.Version

// MarshalJSON writes an index.json.
func (l Listing) MarshalJSON() ([]byte, error) {
	out := Index{make(map[string]struct{}, len(l))}
	for _, v := range l {
		out.Versions[v.String()] = struct{}{}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Listing) UnmarshalJSON(text []byte) error {
	var in Index
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*l = make(Listing, 0, len(in.Versions))
	for s := range in.Versions {
		v, err := registry.ParseVersion(s)
		if err != nil {
			return fmt.Errorf("index: %w", err)
		}
		*l = append(*l, v)
	}
	return nil
}

// Encode renders a listing: the bytes that are stored as a version is mirrored and handed over at each request.
func (l Listing) Encode() ([]byte, error) { return httpapi.CompressJSON(l) }

// DecodeListing returns what Encode was given.
func DecodeListing(data []byte) (l Listing, err error) {
	err = httpapi.DecompressJSON(data, &l)
	return l, err
}
