package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// OfferedVersion is one version of a provider or a module that an origin offers.
type OfferedVersion struct {
	Version registry.Version
	// Platforms lists the platforms for which the origin announces packages.
	// Some origins leave it out, because the CLIs do not read it.
	Platforms []registry.Platform
	// PublishedAt is when the version was published, as the origin claims. It is
	// the zero time if the listing has no plausible time.
	PublishedAt time.Time
}

// ProviderVersions returns the versions of a provider, highest first. It skips
// versions and platforms that are invalid, because clients cannot request them.
// date is the time of the origin's clock, or the zero time if the response has
// none.
//
// Source: provider registry protocol, "List Available Versions". The protocol
// has no publication times. Larder and other registries add published_at.
func (s *Service) ProviderVersions(ctx context.Context, p registry.Provider) (
	found []OfferedVersion, date time.Time, err error,
) {
	var body struct {
		Versions offeredVersions `json:"versions"`
	}
	body.Versions = offeredVersions{} // the listing can have none
	a, err := s.getJSON(ctx, p.String()+"/versions", maxAnswer, &body)
	if err != nil {
		return nil, time.Time{}, err
	}
	found, err = body.Versions.sorted(a)
	return found, a.date(), err
}

// sorted returns the versions of a response, the highest first.
func (o offeredVersions) sorted(a *answer) ([]OfferedVersion, error) {
	if len(o) > maxVersions {
		return nil, registry.Errorf(registry.ErrInvalid,
			"cannot read the response to %s: it has more than %d versions", a.info, maxVersions)
	}
	slices.SortFunc(o, func(a, b OfferedVersion) int { return registry.CompareVersions(b.Version, a.Version) })
	return o, nil
}

// maxVersions is the maximum number of versions that an origin lists.
const maxVersions = 100_000

// offeredVersions are the valid versions of a listing, but not more than
// maxVersions+1.
type offeredVersions []OfferedVersion

// UnmarshalJSON implements [json.Unmarshaler].
func (o *offeredVersions) UnmarshalJSON(text []byte) error {
	type entry struct {
		Version     string           `json:"version"`
		Platforms   offeredPlatforms `json:"platforms"`
		PublishedAt publicationTime  `json:"published_at"`
	}
	*o = offeredVersions{}
	seen := make(map[string]bool)
	return decodeEach(text, func(e entry) {
		version, err := registry.ParseVersion(e.Version)
		if err != nil || seen[version.String()] || len(*o) > maxVersions {
			return
		}
		seen[version.String()] = true
		*o = append(*o, OfferedVersion{version, e.Platforms, time.Time(e.PublishedAt)})
	})
}

// offeredPlatforms are the valid platforms of a version.
type offeredPlatforms []registry.Platform

// UnmarshalJSON implements [json.Unmarshaler].
func (o *offeredPlatforms) UnmarshalJSON(text []byte) error {
	*o = nil
	has := make(map[registry.Platform]bool)
	return decodeEach(text, func(p registry.Platform) {
		if _, err := registry.ParsePlatform(p.String()); err == nil && !has[p] {
			has[p] = true
			*o = append(*o, p)
		}
	})
}

// decodeEach decodes the entries of a JSON array one after the other, because an
// entry of three bytes can need a hundred bytes of memory.
func decodeEach[T any](text []byte, use func(T)) error {
	from := json.NewDecoder(bytes.NewReader(text))
	begin, err := from.Token()
	if begin == nil || err != nil { // null
		return err
	}
	if begin != json.Delim('[') {
		return &json.UnmarshalTypeError{}
	}
	for from.More() {
		var entry T
		if err := from.Decode(&entry); err != nil {
			return err
		}
		use(entry)
	}
	return nil
}

// PublishedAt requests when a version of a module or a provider was published, as
// the origin claims. The protocols have no such request. The public Terraform
// registry and the metadata API of Larder answer it.
//
// It returns the zero time if the origin does not know the request, or responds
// without a plausible time for the version. Every other response is an error,
// because a firewall or a page about maintenance must not hide the time.
func (s *Service) PublishedAt(ctx context.Context, of registry.Address, v registry.Version) (time.Time, error) {
	a, err := s.getOptional(ctx, of.String()+"/"+v.String(), maxAnswer)
	if a == nil || err != nil {
		return time.Time{}, err
	}
	var body struct {
		Version     string          `json:"version"`
		PublishedAt publicationTime `json:"published_at"`
	}
	// An origin can answer unknown requests with its latest version.
	if a.decode(&body) != nil || body.Version != "" && body.Version != v.String() {
		return time.Time{}, nil //nolint:nilerr // documented above
	}
	return time.Time(body.PublishedAt), nil
}

// publicationTime is a time as an origin writes it. It is the zero time if that
// is not a plausible time in the format of RFC 3339.
type publicationTime time.Time

// UnmarshalJSON implements [json.Unmarshaler]. It never returns an error, so
// that an origin with other times can still be mirrored.
func (t *publicationTime) UnmarshalJSON(text []byte) error {
	const first, last = 2000, 2200 // years
	*t = publicationTime{}
	var at time.Time
	if json.Unmarshal(text, &at) != nil {
		return nil //nolint:nilerr // documented above
	}
	if at = at.UTC(); at.Year() >= first && at.Year() <= last {
		*t = publicationTime(at)
	}
	return nil
}

// date returns the time of the server's clock, or the zero time if the response
// has none. A cache adds how long it has stored the response.
func (a *answer) date() time.Time {
	at, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	const longest = 10 * 365 * 24 * 60 * 60
	if age, err := strconv.ParseInt(a.header.Get("Age"), 10, 64); err == nil && age > 0 && age < longest {
		at = at.Add(time.Duration(age) * time.Second)
	}
	return at.UTC()
}

// ProviderPackage locates a provider's package for one platform, with the files
// and keys that verify it.
type ProviderPackage struct {
	// Filename is the name in SHA256SUMS, without a folder.
	Filename string
	// SHA256 is the digest of the package, in lower-case hexadecimal.
	SHA256 string
	// DownloadURL, SumsURL and SignatureURL are absolute, with https or http.
	// Fetch them without a credential. They may contain a secret themselves.
	DownloadURL, SumsURL, SignatureURL string
	// Keys lists the keys that may have signed.
	Keys []registry.PublicKey
	// Protocols lists the plugin protocols that the provider supports, for
	// example 6.0.
	Protocols []string
	// Packages lists the packages for all platforms of the version, if the origin
	// describes them. Their hashes are not verified.
	Packages []registry.OfferedPackage
}

// ProviderPackage requests the package of one version for one platform. It
// returns registry.ErrInvalid for a response that OpenTofu or Terraform would
// reject.
//
// Source: provider registry protocol, "Find a Provider Package".
func (s *Service) ProviderPackage(
	ctx context.Context, p registry.Provider, v registry.Version, platform registry.Platform,
) (ProviderPackage, error) {
	var body struct {
		Protocols    []string `json:"protocols"`
		OS           string   `json:"os"`
		Arch         string   `json:"arch"`
		Filename     string   `json:"filename"`
		DownloadURL  string   `json:"download_url"`
		SHA256       string   `json:"shasum"`
		SumsURL      string   `json:"shasums_url"`
		SignatureURL string   `json:"shasums_signature_url"`
		SigningKeys  struct {
			GPG []*registry.PublicKey `json:"gpg_public_keys"`
		} `json:"signing_keys"`
		Packages map[string]struct {
			Hashes []string `json:"hashes"`
			Size   int64    `json:"package_size"`
		} `json:"packages"`
	}
	path := p.String() + "/" + v.String() + "/download/" + platform.OS + "/" + platform.Arch
	answered, err := s.getJSON(ctx, path, maxDescription, &body)
	if err != nil {
		return ProviderPackage{}, err
	}
	invalid := func(format string, a ...any) (ProviderPackage, error) {
		return ProviderPackage{}, fmt.Errorf("%s %s for %s: %w response of %s: %s",
			p, v, platform, registry.ErrInvalid, printable.Mark(s.URL.Host, 300), fmt.Sprintf(format, a...))
	}
	if body.OS != platform.OS || body.Arch != platform.Arch {
		return invalid("it is for another platform")
	}
	if sum, err := hex.DecodeString(body.SHA256); err != nil || len(sum) != 32 {
		return invalid("its shasum is not a hexadecimal SHA-256 digest")
	}
	if !isFilename(body.Filename) {
		return invalid("its filename is not a plain file name")
	}
	for _, protocol := range body.Protocols {
		if _, err := registry.ParseVersion(protocol); err != nil {
			return invalid("one of its protocols is not a version")
		}
	}
	found := ProviderPackage{Filename: body.Filename, SHA256: strings.ToLower(body.SHA256), Protocols: body.Protocols}
	for _, u := range []struct {
		field, value string
		into         *string
	}{
		{"download_url", body.DownloadURL, &found.DownloadURL},
		{"shasums_url", body.SumsURL, &found.SumsURL},
		{"shasums_signature_url", body.SignatureURL, &found.SignatureURL},
	} {
		// Clients resolve an empty URL to the response's own URL, and fail on
		// what they find there.
		if u.value == "" {
			return invalid("it lacks %s, which every client needs", u.field)
		}
		absolute, ok := resolve(answered.url, u.value)
		if !ok {
			return invalid("its %s is not an https or http URL", u.field)
		}
		*u.into = absolute
	}
	size := 0
	for _, key := range body.SigningKeys.GPG {
		if key != nil && strings.TrimSpace(key.ASCIIArmor) != "" {
			found.Keys = append(found.Keys, *key)
			size += len(key.KeyID) + len(key.ASCIIArmor) + len(key.TrustSignature)
		}
	}
	if size > maxKeys {
		return invalid("its signing keys have more than %d bytes", maxKeys)
	}
	for name, described := range body.Packages {
		os, arch, _ := strings.Cut(name, "_")
		p := registry.OfferedPackage{Platform: registry.Platform{OS: os, Arch: arch}, Size: described.Size}
		for _, hash := range described.Hashes {
			if h1, ok := strings.CutPrefix(hash, "h1:"); ok && isH1(h1) {
				p.H1 = hash
			} else if zip, ok := strings.CutPrefix(hash, "zh:"); ok {
				p.SHA256 = strings.ToLower(zip)
			}
		}
		// The mirror can do without a package that is not described completely.
		if _, err := registry.ParsePlatform(name); err == nil && p.H1 != "" && p.SHA256 != "" && p.Size > 0 {
			found.Packages = append(found.Packages, p)
		}
	}
	slices.SortFunc(found.Packages, func(a, b registry.OfferedPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	return found, nil
}

// isH1 reports whether a text is a SHA-256 in Base64.
func isH1(text string) bool {
	sum, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(sum) == 32
}

// resolve makes a URL of a response absolute. The URL may be a secret, so
// resolve returns no error that could quote it.
func resolve(base *url.URL, reference string) (string, bool) {
	parsed, err := url.Parse(reference)
	if err != nil {
		return "", false
	}
	u := base.ResolveReference(parsed)
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil {
		return "", false
	}
	u.Fragment, u.RawFragment = "", ""
	absolute := u.String()
	return absolute, len(absolute) <= maxURL
}

// isFilename reports whether a name is a plain file name that cannot lead to
// another folder.
func isFilename(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '\\' || unicode.IsControl(r) })
}
