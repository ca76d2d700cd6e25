package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// providerPage is the model of the page of a provider or a mirrored provider.
type providerPage struct {
	Head head
	// Origin is the host of a mirrored provider's registry.
	Origin string
	// Use is the configuration that installs the provider, and Hint a sentence
	// below it.
	Use, Hint string
	Platforms platforms
	Packages  []packageFile
	Key       signingKey
	// versionTable has the newest versions. All is the path of the list of all.
	versionTable
	// Mirrored are the newest versions of a mirrored provider.
	Mirrored []mirroredRow
	// Pull is nil for a provider of which clients cannot make the mirror fetch
	// versions.
	Pull  *onRequest
	Total int
	All   string

	Provenance   provenance
	Verification verification
	// Requirements are the clients that can use the provider.
	Requirements []field
}

// signingKey is the key that signed a version.
type signingKey struct {
	ID     string
	Fields []field
	// Note is a sentence about the key.
	Note string
}

// verification is what the registry has checked.
type verification struct{ Verdict, Tone, Text string }

// platforms are the archives of a version as a table.
type platforms struct {
	Architectures []string
	Rows          []platformRow
	Count         int
}

// platformRow has the sizes of the archives for one operating system, in the
// order of the architectures. A missing archive has an empty size.
type platformRow struct {
	System string
	Sizes  []string
}

// packageFile is an archive with its digest.
type packageFile struct{ Platform, Filename, SHA256 string }

// provider serves the page of a version of a provider. It makes two requests to
// the table.
func (h *handler) provider(v *visit) (page, error) {
	p, err := providerOf(v)
	if err != nil {
		return page{}, err
	}
	e, err := openEdition(v.Context(), h.Catalog.Providers, p, v.PathValue("version"))
	if err != nil {
		return page{}, err
	}
	counted := h.startDownloads(v.Context(), p)
	id := e.Entry.SigningKey
	if r, found := e.Records[e.Number]; found {
		id = r.SigningKey
	}
	records, key, err := h.Catalog.SignedRecords(v.Context(), p, id, e.others()...)
	if err := e.add(v.Context(), records, err); err != nil {
		return page{}, fmt.Errorf("provider %s: %w", p, err)
	}
	r := e.record()
	m := providerPage{Head: headOfProvider(p), Total: len(e.all()), All: e.Path + "/versions"}
	m.Head.Picker, m.Head.Banner = e.picker(), e.banner()
	title := p.String() + " " + e.Number.String()
	if r.Withdrawn != nil {
		return withdrawnPage(m.Head, e.Number, title), nil
	}
	m.Downloads = counted()
	m.Head.setUses(p, e.Number, m.Downloads)
	m.Head.Published = r.PublishedAt
	m.Head.From, m.Head.At = sourceOf(r.PublishedBy, "#provenance")
	if r.SigningKey != "" {
		m.Head.Facts = []field{{Label: "Signed by", Value: link{r.SigningKey, "#signing-key"}, IsCode: true}}
	}
	m.Use, m.Hint = providerBlock(p.Type, v.host+"/"+p.String(), e.Number.String()), "Then run `tofu init` or `terraform init`."
	m.setPackages(r.Packages)
	m.Key = newSigningKey(r.SigningKey, p.Namespace, key, id == r.SigningKey && err == nil)
	for _, n := range e.picked() {
		l := e.line(n)
		l.Downloads = m.Downloads.of(n)
		m.Versions = append(m.Versions, l)
	}
	m.Provenance = newProvenance(r.PublishedBy, r.PublishedAt)
	m.Provenance.addCopies(r.CopiedFrom, r.CopiedTo)
	m.Verification = verification{
		Verdict: "Signature and digests are valid", Tone: "ok",
		Text: fmt.Sprintf("The registry checked the signature of SHA256SUMS and the digest of %s before it published them. "+
			"Clients check both again.", eachArchive(len(r.Packages))),
	}
	m.Requirements = requirementsOf(r.Protocols)
	m.addSections()
	return page{
		template: "provider", title: title, description: fmt.Sprintf("A provider for OpenTofu and Terraform in %s.", v.host),
		canonical: e.pathOf(e.Number), model: m,
	}, nil
}

// sourceOf returns the repository and the tag or the commit that published a
// version, if an identity proves them. provenance is the path of the details.
func sourceOf(by registry.Publisher, provenance string) (from, at link) {
	source := by.SourceURL()
	if source == "" {
		return link{}, link{}
	}
	return link{by.Repository, source}, link{cmp.Or(refName(by.Ref), shortCommit(by.Commit)), provenance}
}

func providerBlock(name, source, version string) string {
	return fmt.Sprintf(`terraform {
  required_providers {
    %s = {
      source  = %q
      version = %q
    }
  }
}`, name, source, version)
}

// eachArchive returns "each of 9 archives", or "the archive" if there is one.
func eachArchive(n int) string {
	if n == 1 {
		return "the archive"
	}
	return "each of " + plural(n, "archive")
}

// commonArchitectures are the columns that come first.
var commonArchitectures = []string{"amd64", "arm64", "386", "arm"}

// Shown returns the number of versions on the page.
func (m providerPage) Shown() int { return len(m.Versions) + len(m.Mirrored) }

// setPackages sets what the page shows of the archives.
func (m *providerPage) setPackages(packages []registry.ProviderPackage) {
	t := platforms{Count: len(packages)}
	for _, p := range packages {
		if !slices.Contains(t.Architectures, p.Arch) {
			t.Architectures = append(t.Architectures, p.Arch)
		}
	}
	rank := func(arch string) int {
		if i := slices.Index(commonArchitectures, arch); i >= 0 {
			return i
		}
		return len(commonArchitectures)
	}
	slices.SortFunc(t.Architectures, func(a, b string) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b)) })
	for _, p := range packages { // sorted by system
		if len(t.Rows) == 0 || t.Rows[len(t.Rows)-1].System != p.OS {
			t.Rows = append(t.Rows, platformRow{p.OS, make([]string, len(t.Architectures))})
		}
		t.Rows[len(t.Rows)-1].Sizes[slices.Index(t.Architectures, p.Arch)] = size(p.Size)
		m.Packages = append(m.Packages, packageFile{p.String(), p.Filename, p.SHA256})
	}
	m.Platforms = t
}

// newSigningKey describes the key of a namespace. If key is nil although it was
// read, the namespace does not have it any more.
func newSigningKey(id, namespace string, key *registry.SigningKey, read bool) signingKey {
	k := signingKey{ID: id}
	if id == "" {
		return k
	}
	k.Fields = []field{{Label: "Key ID", Value: link{Text: id}, IsCode: true}}
	switch {
	case !read:
		return k
	case key == nil:
		k.Note = "The namespace " + namespace + " does not have this key any more, so clients refuse this version."
		return k
	}
	k.Fields = append(k.Fields,
		field{Label: "Owner", Value: link{Text: key.Owner}},
		field{Label: "Algorithm", Value: link{Text: key.Algorithm}},
		field{Label: "Added", Value: link{Text: date(key.AddedAt) + " to namespace " + namespace}},
		field{Label: "Created", Value: link{Text: date(key.CreatedAt)}},
	)
	if !key.ExpiresAt.IsZero() {
		k.Fields = append(k.Fields, field{Label: "Expires", Value: link{Text: date(key.ExpiresAt)}})
	}
	return k
}

// requirementsOf returns the clients that can use a provider with some plugin
// protocols.
//
// Source: https://developer.hashicorp.com/terraform/plugin/terraform-plugin-protocol.
func requirementsOf(protocols []string) []field {
	if len(protocols) == 0 {
		return nil
	}
	all := []field{{Label: "Protocol", Value: link{Text: strings.Join(protocols, ", ")}}}
	has := func(major string) bool {
		return slices.ContainsFunc(protocols, func(p string) bool { return p == major || strings.HasPrefix(p, major+".") })
	}
	clients := func(tofu, terraform string) []field {
		return append(all, field{Label: "OpenTofu", Value: link{Text: tofu}}, field{Label: "Terraform", Value: link{Text: terraform}})
	}
	switch {
	case has("5"):
		return clients("every version", "0.12 or later")
	case has("6"):
		return clients("every version", "1.0 or later")
	case has("4"):
		return clients("none", "0.11 or earlier")
	}
	return all
}

func (m *providerPage) addSections() {
	m.Head.Sections = []section{{ID: "use", Title: "Use"}}
	if m.Platforms.Count > 0 {
		m.Head.Sections = append(m.Head.Sections, section{ID: "platforms", Title: "Platforms", Count: m.Platforms.Count})
	}
	m.Head.Sections = append(m.Head.Sections,
		section{ID: "signing-key", Title: "Signing key"},
		section{ID: "versions", Title: "Versions", Count: m.Total},
		section{ID: "provenance", Title: "Provenance", Apart: true})
	if m.Pull != nil {
		m.Head.Sections = append(m.Head.Sections,
			section{ID: "on-request", Title: "On request", Count: m.Pull.Count, Apart: true})
	}
}
