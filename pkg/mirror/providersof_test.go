package mirror_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

const providersOf = "/v1/providers-of/registry.opentofu.org/hashicorp/random/"

// proven gives each version of a fake a signed SHA256SUMS, but not the packages for
// Windows.
func (f *fake) proven(t testing.TB) *fake {
	t.Helper()
	verifiable := make(map[registry.Version][]registry.Platform)
	for i := range f.records {
		r := &f.records[i]
		file := func(sum, end string) registry.StoredFile {
			name := "terraform-provider-random_" + r.Version.String() + "_SHA256SUMS" + end
			return registry.StoredFile{Object: random.FileKey(r.Version, strings.Repeat(sum, 64), name), SHA256: sum, Size: 1}
		}
		r.Protocols = []string{"5.0", "6.0"}
		r.Sums = []registry.MirrorSums{{
			Sums: file("a", ""), Signature: file("b", ".sig"), SigningKey: "0C0AF313E5FD9F80",
			Keys: []registry.PublicKey{{KeyID: "0C0AF313E5FD9F80", ASCIIArmor: "ARMOR", TrustSignature: "TRUST"}},
		}}
		r.Packages[0].Sums, r.Packages[1].Sums = 1, 1
		r.Offered = []registry.OfferedPackage{{
			Platform: registry.Platform{OS: "linux", Arch: "arm64"}, H1: "h1:offered", SHA256: strings.Repeat("4", 64), Size: 5,
		}}
		verifiable[r.Version] = r.Verifiable()
	}
	stored, err := protocol.Compress(f.listing.Index(verifiable))
	if err != nil {
		t.Fatal(err)
	}
	f.stored = stored
	return f
}

// Responses equal the golden files, which were reviewed.
func TestProvidersOfGolden(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"providersof-versions": providersOf + "versions",
		"providersof-download": providersOf + "1.0.0/download/linux/amd64",
	} {
		f := newFake(t).proven(t)
		status, header, body := f.get(t, path)
		if status != http.StatusOK {
			t.Errorf("%s: status %d", name, status)
		}
		if got := header.Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: content type %q", name, got)
		}
		if f.reads != 1 {
			t.Errorf("%s: %d reads", name, f.reads)
		}
		want := httpapi.NoStore
		if strings.HasSuffix(name, "versions") {
			want = httpapi.Revalidate
		}
		if got := header.Get("Cache-Control"); got != want {
			t.Errorf("%s: Cache-Control %q, want %q", name, got, want)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, []byte(body), "", "  "); err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, filepath.Join("testdata", name+".golden.json"), indented.Bytes())
	}
}

// Clients of the provider registry protocol report what the status means.
func TestProvidersOfStatuses(t *testing.T) {
	t.Parallel()
	download := func(version, platform string) string { return providersOf + version + "/download/" + platform }
	for name, test := range map[string]struct {
		path   string
		change func(*fake)
		status int
		reads  int
	}{
		"versions":                          {providersOf + "versions", nil, 200, 1},
		"another provider":                  {"/v1/providers-of/registry.opentofu.org/hashicorp/null/versions", nil, 404, 1},
		"another spelling":                  {"/v1/providers-of/registry.opentofu.org/Hashicorp/random/versions", nil, 404, 0},
		"host with a port":                  {"/v1/providers-of/registry.opentofu.org:443/hashicorp/random/versions", nil, 404, 0},
		"without SHA256SUMS":                {providersOf + "versions", func(f *fake) { f.stored = nil }, 404, 1},
		"damaged listing":                   {providersOf + "versions", func(f *fake) { f.stored = []byte("x") }, 500, 1},
		"table fails":                       {providersOf + "versions", func(f *fake) { f.err = registry.ErrUnavailable }, 503, 1},
		"package":                           {download("1.0.0", "linux/amd64"), nil, 200, 1},
		"short version":                     {download("1.0", "linux/amd64"), nil, 200, 1},
		"build metadata":                    {download("2.0.0+build.5", "linux/amd64"), nil, 200, 1},
		"version that is missing":           {download("9.0.0", "linux/amd64"), nil, 404, 1},
		"platform that only the origin has": {download("1.0.0", "linux/arm64"), nil, 404, 1},
		"package without SHA256SUMS":        {download("1.0.0", "windows/amd64"), nil, 404, 1},
		"package without keys": {download("1.0.0", "linux/amd64"),
			func(f *fake) { f.records[0].Sums[0].Keys = nil }, 404, 1},
		"package that nobody signed": {download("1.0.0", "linux/amd64"), func(f *fake) {
			f.records[0].Sums[0] = registry.MirrorSums{Sums: f.records[0].Sums[0].Sums}
		}, 200, 1},
		"odd version":        {download("latest", "linux/amd64"), nil, 404, 0},
		"odd platform":       {download("1.0.0", "linux/"), nil, 404, 0},
		"table fails, too":   {download("1.0.0", "linux/amd64"), func(f *fake) { f.err = registry.ErrUnavailable }, 503, 1},
		"signer unavailable": {download("1.0.0", "linux/amd64"), func(f *fake) { f.signErr = errors.New("no") }, 500, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t).proven(t)
			if test.change != nil {
				test.change(f)
			}
			status, _, body := f.get(t, test.path)
			if status != test.status {
				t.Errorf("status %d, want %d: %s", status, test.status, body)
			}
			if f.reads != test.reads {
				t.Errorf("%d reads, want %d", f.reads, test.reads)
			}
		})
	}
}

// OpenTofu crashes if two platforms share a hash, and rejects a list without the
// requested platform.
func TestProvidersOfPackages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*registry.MirrorVersion)
		want   string
	}{
		"of the mirror and of the origin": {func(*registry.MirrorVersion) {}, "darwin_arm64 linux_amd64 linux_arm64"},
		"of the mirror":                   {func(r *registry.MirrorVersion) { r.Offered = nil }, "darwin_arm64 linux_amd64"},
		"with a hash twice": {func(r *registry.MirrorVersion) {
			r.Offered[0].H1 = r.Packages[0].H1
		}, ""},
	} {
		f := newFake(t).proven(t)
		test.change(&f.records[0])
		_, _, body := f.get(t, providersOf+"1.0.0/download/linux/amd64")
		var answer protocol.ProviderDownload
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		var got []string
		for platform := range answer.Packages {
			got = append(got, platform)
		}
		slices.Sort(got)
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// Packages that the mirror lacks are those of the origin in open mode. In closed
// mode, clients try again until they are copied.
func TestProvidersOfPulled(t *testing.T) {
	t.Parallel()
	offered := registry.PulledVersion{
		Archives: []registry.PulledArchive{{
			Platform: registry.Platform{OS: "linux", Arch: "amd64"}, URL: "https://origin.example.com/a.zip",
			SHA256: strings.Repeat("a", 64), Filename: "a.zip",
		}},
		SumsURL: "https://origin.example.com/sums", SignatureURL: "https://origin.example.com/sig",
		Keys: []registry.PublicKey{{ASCIIArmor: "ARMOR"}}, Protocols: []string{"6.0"},
	}
	with := func(change func(*registry.PulledVersion)) *registry.PulledVersion {
		found := offered
		change(&found)
		return &found
	}
	for name, test := range map[string]struct {
		mode   registry.PullMode
		found  *registry.PulledVersion
		path   string
		status int
		want   string // in the response or the log
	}{
		"open":                    {registry.PullOpen, &offered, "linux/amd64", 200, "https://origin.example.com/a.zip"},
		"open, another platform":  {registry.PullOpen, &offered, "darwin/arm64", 404, ""},
		"open, not in the policy": {registry.PullOpen, &offered, "plan9/386", 404, ""},
		"open, without the SHA256SUMS": {registry.PullOpen, with(func(f *registry.PulledVersion) { f.SumsURL = "" }),
			"linux/amd64", 503, "not copied yet"},
		"open, without keys": {registry.PullOpen, with(func(f *registry.PulledVersion) { f.Keys = nil }), "linux/amd64", 503,
			"not copied yet"},
		"refused": {registry.PullOpen, &registry.PulledVersion{Problem: "signed by another key"}, "linux/amd64", 404,
			"signed by another key"},
		"the origin is down": {registry.PullOpen, &registry.PulledVersion{Problem: "it is down", IsTransient: true},
			"linux/amd64", 503, "it is down"},
		"closed, refused": {registry.PullClosed, &registry.PulledVersion{Problem: "signed by another key"}, "linux/amd64", 404,
			"signed by another key"},
		"closed, the origin is down": {registry.PullClosed, &registry.PulledVersion{Problem: "it is down", IsTransient: true},
			"linux/amd64", 503, "it is down"},
		"no answer in time": {registry.PullOpen, nil, "linux/amd64", 503, "did not answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPuller(t, test.mode)
			p.version = test.found
			status, body, logged := p.requestPath(t, providersOf+"1.0.0/download/"+test.path)
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			if all := body + logged; !strings.Contains(all, test.want) {
				t.Errorf("the response and the log have no %q: %s", test.want, all)
			}
		})
	}
}

// A closed mirror that has not copied a version in time responds so that clients
// request it again.
func TestProvidersOfNotCopied(t *testing.T) {
	t.Parallel()
	p := newPuller(t, registry.PullClosed)
	p.version, p.wait = &registry.PulledVersion{}, 1
	status, _, logged := p.requestPath(t, providersOf+"1.0.0/download/linux/amd64")
	if status != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503: %s", status, logged)
	}
}

// An origin that does not answer is not one that lacks the provider.
func TestProvidersOfUnanswered(t *testing.T) {
	t.Parallel()
	for transient, want := range map[bool]int{true: 503, false: 404} {
		p := newPuller(t, registry.PullOpen)
		p.provider = &registry.PulledAddress{
			Problem: "no", IsTransient: transient, PolicySetAt: p.policy.SetAt, RetryAt: noon.Add(1e9), RequestedAt: noon,
		}
		if status, _, logged := p.requestPath(t, providersOf+"versions"); status != want {
			t.Errorf("transient %t: status %d, want %d: %s", transient, status, want, logged)
		}
		if status, _, logged := p.requestPath(t, of+"index.json"); status != http.StatusNotFound {
			t.Errorf("index.json, transient %t: status %d, want 404: %s", transient, status, logged)
		}
	}
}

// The list is the one of the last check, with the mirrored versions.
func TestProvidersOfListed(t *testing.T) {
	t.Parallel()
	p := newPuller(t, registry.PullOpen)
	all := protocol.MirrorListing{version(t, "2.0.0"), version(t, "1.0.0"), version(t, "0.9.0")}
	index, err := protocol.Compress(all.Index(map[registry.Version][]registry.Platform{
		all[0]: {{OS: "linux", Arch: "amd64"}}, all[1]: nil,
	}))
	if err != nil {
		t.Fatal(err)
	}
	p.provider = &registry.PulledAddress{Index: index, PolicySetAt: p.policy.SetAt, CheckedAt: noon, RequestedAt: noon}
	_, body, _ := p.requestPath(t, providersOf+"versions")
	var got protocol.ProviderListing
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("[{2.0.0 [] [linux_amd64]} {1.0.0 [] []}]", fmt.Sprint(short(got))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// short returns the versions of a listing without their times.
func short(l protocol.ProviderListing) (all []struct {
	Version              registry.Version
	Protocols, Platforms any
}) {
	for _, v := range l.Versions {
		all = append(all, struct {
			Version              registry.Version
			Protocols, Platforms any
		}{v.Version, v.Protocols, v.Platforms})
	}
	return all
}
