package filling_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

func TestAddChooses(t *testing.T) {
	t.Parallel()
	record(t)
	both := []string{"linux_amd64", "darwin_arm64"}
	o := newOrigin(t,
		release{"1.0.0", both, ours, ""}, release{"0.9.0", both, ours, ""},
		release{"1.10.0", []string{"linux_amd64", "windows_amd64", "linux_arm64"}, ours, ""},
		release{"1.9.0", both, ours, ""}, release{"2.0.0-beta.1", both, ours, ""}, release{"1.11.0-rc.1", both, ours, ""},
		release{"3.0.0+build.5", both, ours, ""})
	// Versions that clients cannot request do not prevent mirroring the others.
	o.mu.Lock()
	versions := o.pages[versionsPage].json["versions"].([]any)
	o.pages[versionsPage].json["versions"] = append(versions, map[string]any{"version": "v9.0.0"},
		map[string]any{"version": "latest"}, map[string]any{"version": "1.0.0"})
	o.mu.Unlock()
	linux := "linux_amd64"
	for _, test := range []struct {
		constraint string
		all        bool
		platforms  []string
		want       string // or
		err        error
		words      []string
	}{
		{"~> 1.0", false, []string{linux}, "1.10.0 [linux_amd64 added]", nil, nil},
		{"", false, []string{linux}, "3.0.0+build.5 [linux_amd64 added]", nil, nil},
		{" ", false, []string{linux}, "3.0.0+build.5 [linux_amd64 added]", nil, nil},
		{">= 0.9, < 1.9.0", false, []string{linux}, "1.0.0 [linux_amd64 added]", nil, nil},
		{">= 1.0.0, != 1.10.0, < 2", false, []string{linux}, "1.9.0 [linux_amd64 added]", nil, nil},
		{"1.0.0", false, []string{linux}, "1.0.0 [linux_amd64 added]", nil, nil},
		{"= 1.0", false, []string{linux}, "1.0.0 [linux_amd64 added]", nil, nil},
		{"1.11.0-rc.1", false, []string{linux}, "1.11.0-rc.1 [linux_amd64 added]", nil, nil},
		{"= 2.0.0-beta.1", false, []string{linux}, "2.0.0-beta.1 [linux_amd64 added]", nil, nil},
		{"~> 1.0", true, []string{linux}, "1.10.0 [linux_amd64 added], 1.9.0 [linux_amd64 added], 1.0.0 [linux_amd64 " +
			"added]", nil, nil},
		{"", true, []string{linux}, "3.0.0+build.5 [linux_amd64 added], 1.10.0 [linux_amd64 added], 1.9.0 [linux_amd64 " +
			"added], 1.0.0 [linux_amd64 added], 0.9.0 [linux_amd64 added]", nil, nil},
		{"< 1.0", true, nil, "0.9.0 [darwin_arm64 added, linux_amd64 added]", nil, nil},
		{"1.10.0", false, nil, "1.10.0 [linux_amd64 added, linux_arm64 added, windows_amd64 added]", nil, nil},
		{"1.0.0", false, []string{"linux_amd64", "darwin_arm64", "linux_amd64"}, "1.0.0 [darwin_arm64 added, linux_amd64 " +
			"added]", nil, nil},
		{
			">= 4", false, []string{linux}, "", registry.ErrNotFound,
			[]string{`">= 4"`, "its newest is 3.0.0+build.5", inventory.String()},
		},
		{"2.0.0", false, []string{linux}, "", registry.ErrNotFound, []string{"3.0.0+build.5"}},
		{"1.10.0", false, []string{linux, "darwin_arm64"}, "", registry.ErrNotFound, []string{"darwin_arm64"}},
		{"newest", false, []string{linux}, "", registry.ErrInvalid, []string{"newest"}},
		{"~> 1.0 2.0", false, []string{linux}, "", registry.ErrInvalid, nil},
		{"> 99999999999999999999999999", false, []string{linux}, "", registry.ErrInvalid, nil},
		{strings.Repeat("> 1, ", 100), false, []string{linux}, "", registry.ErrInvalid, nil},
	} {
		what := fmt.Sprintf("%.40q for %v", test.constraint, test.platforms)
		s := newStore(t)
		results, err := s.mirror(o).Add(t.Context(), filling.Wanted{
			Address:    inventory,
			Constraint: test.constraint,
			All:        test.all,
			Platforms:  platforms(t, test.platforms...),
		})
		if test.err != nil {
			failed(t, what, err, test.err, test.words...)
			s.empty(t, what)
			continue
		}
		if want := strings.ReplaceAll(strings.ReplaceAll(test.want, ",", ""), " added", ""); err != nil ||
			describe(results) != test.want ||
			strings.ReplaceAll(s.has(t), ",", "") != want {
			t.Errorf("%s: %s, %v, %s", what, describe(results), err, s.has(t))
		}
		for _, r := range results {
			if r.Address != inventory || r.Signer != keyID(t, ours) || !strings.HasPrefix(r.Owner, "Acme Releases") ||
				!r.Changed() ||
				len(r.Notes) != 0 {
				t.Errorf("%s: %+v", what, r)
			}
		}
	}
	// A version for no platform, and one without a list of platforms.
	o.edit("versions", []any{map[string]any{"version": "1.0.0"}}, versionsPage)
	s := newStore(t)
	_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory})
	failed(t, "platforms that the origin does not list", err, registry.ErrInvalid)
	s.gives(t, "platforms that are named", "1.0.0 [linux_amd64 added]")(
		s.mirror(o).Add(t.Context(), wanted(t, "linux_amd64")),
	)
	_, err = s.mirror(o).Add(t.Context(), wanted(t, "plan9_386"))
	failed(t, "a platform that does not exist", err, registry.ErrNotFound, "plan9_386")
	o.edit("versions", []any{}, versionsPage)
	_, err = s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory})
	failed(t, "no versions", err, registry.ErrNotFound)
}

// Doing it again changes nothing and downloads nothing; platforms come later.
func TestAddAgain(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	add := func(want string, downloads int, names ...string) {
		t.Helper()
		o.heal(t)
		m := s.mirror(o)
		results, err := m.Add(t.Context(),
			filling.Wanted{Address: inventory, Constraint: "~> 1.0", Platforms: platforms(t, names...)})
		if err != nil || describe(results) != want || o.times(".zip") != downloads {
			t.Errorf("%v: %s, %v, %d downloads", names, describe(results), err, o.times(".zip"))
		}
		// Who fills the mirror sees each download, to its end.
		p := m.Progress.(*progresstest.Recorder)
		p.CheckComplete(t, "looking up ")
		downloaded := p.Transfers("downloading ")
		if len(downloaded) != downloads || len(p.Transfers("checking ")) != downloads {
			t.Errorf("%v: reported %v", names, p.Transfers(""))
		}
		for _, d := range downloaded {
			if int(d.Moved) != len(o.pages[files+strings.TrimPrefix(d.What, "downloading ")].body) {
				t.Errorf("reported %+v", d)
			}
		}
		if downloads == 0 && results[0].Changed() {
			t.Errorf("%v: %+v has changed", names, results)
		}
	}
	add("1.0.0 [darwin_arm64 added, linux_amd64 added]", 2, "linux_amd64", "darwin_arm64")
	before := s.records(t)[inventory][0]
	add("1.0.0 [darwin_arm64 unchanged, linux_amd64 unchanged]", 0, "linux_amd64", "darwin_arm64")
	add("1.0.0 [linux_amd64 unchanged, windows_amd64 added]", 1, "windows_amd64", "linux_amd64")
	add("1.0.0 [darwin_arm64 unchanged, linux_amd64 unchanged, windows_amd64 unchanged]", 0)
	after := s.records(t)[inventory][0]
	if s.has(t) != "1.0.0 [darwin_arm64 linux_amd64 windows_amd64]" || s.count(t) != 3 ||
		!slices.Equal(after.Packages[:2], before.Packages) {
		t.Errorf("%s, %d objects, %+v", s.has(t), s.count(t), after)
	}
	for _, pkg := range after.Packages {
		name := zipName("1.0.0", pkg.String())
		h1, zh := hashes(t, o.releases[0].zip(t, pkg.String()))
		if pkg.Filename != name || pkg.H1 != h1 || "zh:"+pkg.SHA256 != zh || pkg.SigningKey != keyID(t, ours) ||
			pkg.Object != inventory.FileKey(after.Version, pkg.SHA256, name) {
			t.Errorf("%+v", pkg)
		}
	}
	// The token is sent to the registry, and not to the host of its files.
	if o.tokens[versionsPage] != "Bearer a-token" || o.tokens[packagePage("1.0.0", "linux_amd64")] != "Bearer a-token" ||
		o.tokens[zipPage("1.0.0", "linux_amd64")]+o.tokens[sumsPage("1.0.0")]+o.tokens[signaturePage("1.0.0")] != "" {
		t.Errorf("%v", o.tokens)
	}
}

// A failed run stores nothing, and the next run works.
func TestAddRefuses(t *testing.T) {
	t.Parallel()
	record(t)
	const linux, darwin = "linux_amd64", "darwin_arm64"
	zips, descriptions := zipPage("1.0.0", linux), packagePage("1.0.0", linux)
	_, foreign := entity(t, stranger)
	keys := func(all ...any) map[string]any { return map[string]any{"gpg_public_keys": all} }
	armored := func(key []byte) map[string]any { return map[string]any{"ascii_armor": string(key)} }
	both := []string{descriptions, packagePage("1.0.0", darwin)}
	type fault struct {
		what  string
		make  func(*testing.T, *origin)
		kind  error
		words []string
	}
	set := func(path string, p page) func(*testing.T, *origin) {
		return func(_ *testing.T, o *origin) { o.set(path, p) }
	}
	edit := func(field string, value any, paths ...string) func(*testing.T, *origin) {
		return func(_ *testing.T, o *origin) { o.edit(field, value, paths...) }
	}
	resum := func(change func(string) string) func(*testing.T, *origin) {
		return func(t *testing.T, o *origin) { t.Helper(); o.resum(t, change) }
	}
	without := func(s string) string { return s[strings.Index(s, "\n")+1:] } // linux comes first
	fails := func(kind error, what string, make func(*testing.T, *origin), words ...string) fault {
		return fault{what, make, kind, words}
	}
	invalid := func(what string, make func(*testing.T, *origin), words ...string) fault {
		return fails(registry.ErrInvalid, what, make, words...)
	}
	faults := []fault{
		invalid(
			"a zip that differs from SHA256SUMS",
			set(zips, page{body: providerfiles.Zip(t, "terraform-provider-inventory", "another")}), linux,
		),
		invalid("another platform's zip", func(_ *testing.T, o *origin) { o.set(zips, o.pages[zipPage("1.0.0", darwin)]) }),
		invalid("SHA256SUMS without the file", resum(without), zipName("1.0.0", linux)),
		invalid("SHA256SUMS with another sum", resum(func(s string) string { return strings.Repeat("0", 64) + s[64:] })),
		invalid("SHA256SUMS with another sum first", resum(func(s string) string {
			return strings.Repeat("0", 64) + "  " + zipName("1.0.0", linux) + "\n" + s
		})),
		invalid("SHA256SUMS with another sum first, and a word at the end", resum(func(s string) string {
			return strings.Repeat("0", 64) + "  " + zipName("1.0.0", linux) + " x\n" + s
		})), // clients read the first two words
		invalid("SHA256SUMS as of sha256sum -b", resum(func(s string) string { return strings.ReplaceAll(s, "  ", " *") })),
		invalid("SHA256SUMS that is empty", resum(func(string) string { return "" })),
		invalid("another sum in the description", edit("shasum", strings.Repeat("0", 64), descriptions)),
		invalid("another name in the description", edit("filename", "terraform-provider-inventory.zip", descriptions)),
		invalid("a name with a path", edit("filename", "../../x.zip", descriptions), "filename"),
		invalid("an invalid sum", edit("shasum", "abc", descriptions), "shasum"),
		invalid("a description of another platform", edit("arch", "arm64", descriptions)),
		invalid("no download_url", edit("download_url", "", descriptions), "download_url"),
		invalid("no shasums_url", edit("shasums_url", nil, descriptions), "shasums_url"),
		invalid("a URL with another scheme", edit("download_url", "ftp://x.example.com/y.zip", descriptions), "download_url"),
		invalid("a foreign signature", func(t *testing.T, o *origin) {
			o.set(signaturePage("1.0.0"), page{body: sign(t, stranger, o.pages[sumsPage("1.0.0")].body)})
		}),
		invalid("a foreign key", edit("signing_keys", keys(armored(foreign.Public)), both...)),
		invalid("a signature of something else", func(_ *testing.T, o *origin) {
			o.set(sumsPage("1.0.0"),
				page{body: append(slices.Clone(o.pages[sumsPage("1.0.0")].body), strings.Repeat("0", 64)+"  more.txt\n"...)})
		}),
		invalid("an armored signature", func(t *testing.T, o *origin) {
			o.set(signaturePage("1.0.0"), page{body: enclose(t, o.pages[signaturePage("1.0.0")].body)})
		}, "signature"),
		invalid("an empty signature", set(signaturePage("1.0.0"), page{}), "signature"),
		fails(registry.ErrNotFound, "no signature", set(signaturePage("1.0.0"), page{status: 404})),
		fails(registry.ErrNotFound, "no SHA256SUMS", set(sumsPage("1.0.0"), page{status: 404}), "SHA256SUMS"),
		invalid("an invalid key", edit("signing_keys", keys(armored([]byte("nonsense"))), both...)),
		invalid(
			"keys that are null", edit("signing_keys", map[string]any{"gpg_public_keys": nil}, both...), "--allow-unsigned",
		),
		invalid("a key that is null", edit("signing_keys", keys(nil), both...), "--allow-unsigned"),
		invalid("no keys in the list", edit("signing_keys", keys(), both...), "--allow-unsigned"),
		invalid("no list of keys", edit("signing_keys", nil, both...), "--allow-unsigned"),
		invalid(
			"keys that are empty", edit("signing_keys", keys(armored(nil), armored([]byte(" \n"))), both...),
			"--allow-unsigned",
		),
		invalid("an invalid zip", func(t *testing.T, o *origin) { o.rezip(t, []byte("<html>")) }, zipName("1.0.0", linux)),
		invalid("an empty zip", func(t *testing.T, o *origin) { o.rezip(t, nil) }),
		invalid("another provider inside", func(t *testing.T, o *origin) {
			o.rezip(t, providerfiles.Zip(t, "terraform-provider-other", "program"))
		}, "terraform-provider-inventory"),
		invalid("a bomb", func(t *testing.T, o *origin) {
			o.rezip(t, providerfiles.Zip(t, "terraform-provider-inventory", strings.Repeat("0", 80<<20)))
		}),
		invalid("protocols that no client supports", edit("protocols", []any{"4.0"}, descriptions), "4.0"),
		invalid("future protocols", edit("protocols", []any{"7.0", "8.1"}, descriptions), "7.0, 8.1"),
		invalid("invalid protocols", edit("protocols", []any{"v5"}, descriptions)),
		invalid("a large zip", set(zips, page{length: 6 << 30})),
		invalid("a large SHA256SUMS", set(sumsPage("1.0.0"), page{body: make([]byte, signing.MaxSums+1)}), "SHA256SUMS"),
		invalid("a large signature", set(signaturePage("1.0.0"), page{body: make([]byte, signing.MaxSignature+1)})),
		fails(registry.ErrUnavailable, "a truncated SHA256SUMS", func(_ *testing.T, o *origin) {
			o.set(sumsPage("1.0.0"), page{body: o.pages[sumsPage("1.0.0")].body, length: 1000})
		}, "SHA256SUMS"),
		invalid("no JSON", set(descriptions, page{body: []byte("<html>")})),
		invalid("no JSON of versions", set(versionsPage, page{body: []byte("<html>")})),
		invalid("no discovery", set(discovery, page{body: []byte("<html>")}), inventory.Hostname),
		fails(registry.ErrNotFound,
			"no such service", edit("providers.v1", nil, discovery), inventory.Hostname, "providers.v1",
		),
		invalid("endless redirects of a zip", set(zips, page{to: zips}), "redirects"),
		invalid("endless redirects of a description", set(descriptions, page{to: descriptions}), "redirects"),
		invalid("a zip that redirects to http", set(zips, page{to: "http://files.example.com" + zips})),
		invalid("SHA256SUMS that redirects to http", set(sumsPage("1.0.0"), page{to: "http://files.example.com" + zips})),
		invalid(
			"a description that redirects to http", set(descriptions, page{to: "http://files.example.com" + descriptions}),
		),
	}
	for _, path := range []string{discovery, versionsPage, descriptions, sumsPage("1.0.0"), signaturePage("1.0.0"), zips} {
		for status, kind := range map[int]error{
			http.StatusForbidden:          registry.ErrForbidden,
			http.StatusNotFound:           registry.ErrNotFound,
			http.StatusServiceUnavailable: registry.ErrUnavailable,
		} {
			faults = append(faults, fault{fmt.Sprint(status, " for ", path), set(path, page{status: status}), kind, nil})
		}
		// A 401 for a request with a token means that the token is invalid.
		kind := registry.ErrUnauthenticated
		if path == versionsPage || path == descriptions || path == discovery {
			kind = registry.ErrBadCredential
		}
		faults = append(faults, fault{"401 for " + path, set(path, page{status: http.StatusUnauthorized}), kind, nil})
	}
	for _, fault := range faults {
		t.Run(fault.what, func(t *testing.T) {
			t.Parallel()
			o, s := simple(t), newStore(t)
			want := wanted(t, linux, darwin)
			fault.make(t, o)
			results, err := s.mirror(o).Add(t.Context(), want)
			failed(t, fault.what, err, fault.kind, append(fault.words, inventory.String())...)
			if len(results) != 0 {
				t.Errorf("reported %s", describe(results))
			}
			s.empty(t, fault.what)
			o.heal(t)
			s.gives(t, "then", "1.0.0 [darwin_arm64 added, linux_amd64 added]", "1.0.0 [darwin_arm64 linux_amd64]")(
				s.mirror(restarted(t, o)).Add(t.Context(), want),
			)
		})
	}
}

// restarted returns the origin without its log of requests.
func restarted(t testing.TB, o *origin) *origin {
	t.Helper()
	return newOrigin(t, o.releases...)
}

func enclose(t testing.TB, signature []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.SignatureType, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(signature)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What else SHA256SUMS has, and how, is of no interest to clients.
func TestSumsOfOthers(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(string) string{
		"line ends of Windows": func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"no line end":          func(s string) string { return strings.TrimSuffix(s, "\n") },
		"capital letters":      func(s string) string { return strings.ToUpper(s[:64]) + s[64:] },
		"tabs":                 func(s string) string { return strings.ReplaceAll(s, "  ", "\t") },
		"more lines": func(s string) string {
			return "# sums\n\nabc\n" + strings.Repeat("0", 64) + "  manifest.json\n" + s + "\n\n"
		},
	} {
		o, s := simple(t), newStore(t)
		o.resum(t, change)
		if results, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory}); err != nil ||
			describe(results) != "1.0.0 [darwin_arm64 added, linux_amd64 added, windows_amd64 added]" ||
			s.count(t) != 3 {
			t.Errorf("%s: %s, %v", what, describe(results), err)
		}
	}
}

// A transfer that breaks is begun again, some times.
func TestTruncated(t *testing.T) {
	t.Parallel()
	record(t)
	o, s := simple(t), newStore(t)
	zips := zipPage("1.0.0", "linux_amd64")
	want := wanted(t, "linux_amd64", "darwin_arm64")
	body := o.pages[zips].body
	for what, short := range map[string]page{
		"all but a byte": {body: body, length: int64(len(body)) + 1}, "half": {
			body: body[:len(body)/2], length: int64(len(body)),
		}, "nothing": {length: int64(len(body))},
	} {
		o.heal(t)
		o.set(zips, short)
		_, err := s.mirror(o).Add(t.Context(), want)
		failed(t, what, err, registry.ErrUnavailable, "linux_amd64")
		if n := o.times("linux_amd64.zip"); n < 2 || n > 9 {
			t.Errorf("%s: requested %d times", what, n)
		}
		s.empty(t, what)
	}
	// A truncated response without a Content-Length has the wrong content.
	o.heal(t)
	o.set(zips, page{body: body[:len(body)/2]})
	_, err := s.mirror(o).Add(t.Context(), want)
	failed(t, "truncated at the origin", err, registry.ErrInvalid)
	s.empty(t, "truncated at the origin")
	o.heal(t)
	if results, err := s.mirror(o).Add(t.Context(), want); err != nil ||
		describe(results) != "1.0.0 [darwin_arm64 added, linux_amd64 added]" ||
		s.count(t) != 2 {
		t.Errorf("then: %s, %v", describe(results), err)
	}
}

// A version does not change.
func TestAddOtherContent(t *testing.T) {
	t.Parallel()
	record(t)
	o, s := simple(t), newStore(t)
	want := wanted(t, "linux_amd64")
	s.mirrors(t, o, want)
	before := fmt.Sprint(s.records(t))
	o.rezip(t, providerfiles.Zip(t, "terraform-provider-inventory", "another"))
	for _, names := range [][]string{{"linux_amd64"}, {"darwin_arm64", "linux_amd64"}, {"darwin_arm64"}} {
		want.Platforms = platforms(t, names...)
		for _, dry := range []bool{true, false} {
			m := s.mirror(o)
			m.DryRun = dry
			_, err := m.Add(t.Context(), want)
			failed(t, fmt.Sprint(names), err, registry.ErrExists, "linux_amd64")
		}
	}
	if fmt.Sprint(s.records(t)) != before || s.count(t) != 1 {
		t.Errorf("%v, %d objects", s.records(t), s.count(t))
	}
}

// One version that fails takes nothing of the others.
func TestAddAllContinues(t *testing.T) {
	t.Parallel()
	record(t)
	o := newOrigin(t, build("1.0.0", ours), build("1.1.0", ours), build("1.2.0", ours))
	s := newStore(t)
	want := filling.Wanted{Address: inventory, All: true}
	o.set(signaturePage("1.1.0"), page{status: http.StatusNotFound})
	results, err := s.mirror(o).Add(t.Context(), want)
	failed(t, "a version without a signature", err, registry.ErrNotFound, "1.1.0")
	if describe(results) != "1.2.0 [linux_amd64 added], 1.0.0 [linux_amd64 added]" ||
		s.has(t) != "1.2.0 [linux_amd64], 1.0.0 [linux_amd64]" {
		t.Errorf("%s, %s", describe(results), s.has(t))
	}
	o.heal(t)
	s.gives(t, "then", "1.2.0 [linux_amd64 unchanged], 1.1.0 [linux_amd64 added], 1.0.0 [linux_amd64 unchanged]")(
		s.mirror(o).Add(t.Context(), want),
	)
}

// counted is a table that counts the queries of it.
type counted struct {
	catalog.Table
	queries int
}

func (c *counted) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	c.queries++
	return c.Table.Query(ctx, q)
}

// A provider's records are read once for any number of versions. The signing
// keys of earlier versions count for later ones.
func TestAddAllReadsOnce(t *testing.T) {
	t.Parallel()
	record(t)
	o := newOrigin(t, build("1.0.0", ours), build("1.1.0", ours), build("1.2.0", ours))
	o.edit("signing_keys", nil, packagePage("1.0.0", "linux_amd64"))
	s := newStore(t)
	table := &counted{Table: s.table}
	s.table = table
	_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, All: true, AllowUnsigned: true})
	failed(t, "keys taken away from the oldest", err, registry.ErrNotAdmitted, "1.0.0", keyID(t, ours))
	if table.queries != 1 {
		t.Errorf("%d queries", table.queries)
	}
	if got := s.has(t); got != "1.2.0 [linux_amd64], 1.1.0 [linux_amd64]" {
		t.Error(got)
	}
}

// Clients of a mirror do not see who signed a release, so Add reports it. An
// operator has to trust each further key.
func TestSigners(t *testing.T) {
	t.Parallel()
	record(t)
	o := newOrigin(t, build("1.0.0", ours), build("1.1.0", stranger), build("1.2.0", lapsed))
	s := newStore(t)
	a, b, c := keyID(t, ours), keyID(t, stranger), keyID(t, lapsed)
	for i, step := range []struct {
		version, signer string
		notes           []string // each has these words
	}{
		{"1.0.0", a, nil},
		{"1.1.0", b, []string{b, a}},
		{"1.1.0", b, nil},
		{"1.0.0", a, nil},
		{"1.2.0", c, []string{c, a, b}},
		{"1.2.0", c, []string{c}},
	} {
		want := filling.Wanted{Address: inventory, Constraint: step.version}
		results, err := s.mirror(o).Add(t.Context(), want)
		if refused := i == 1 || i == 4; refused != errors.Is(err, registry.ErrNotAdmitted) {
			t.Fatalf("%d: %s: %v, want that it is refused: %v", i, step.version, err, refused)
		} else if refused {
			if _, _, err := s.mirror(o).Trust(t.Context(), inventory, step.signer, ""); err != nil {
				t.Fatalf("%s: %v", step.version, err)
			}
			results, err = s.mirror(o).Add(t.Context(), want)
		}
		if err != nil {
			t.Fatalf("%s: %v", step.version, err)
		}
		if got := results[0].Signer; got != step.signer {
			t.Errorf("%s: signed by %s, want %s", step.version, got, step.signer)
		}
		if got := notes(results); len(step.notes) == 0 && got != "" {
			t.Errorf("%s: unexpected notes %q", step.version, got)
		}
		if len(step.notes) > 0 {
			noted(t, fmt.Sprint(i, ": ", step.version), results, step.notes...)
		}
	}
	for _, v := range s.records(t)[inventory] {
		want := map[string]string{"1.0.0": a, "1.1.0": b, "1.2.0": c}[v.Version.String()]
		if v.Packages[0].SigningKey != want {
			t.Errorf("%s is signed by %q", v.Version, v.Packages[0].SigningKey)
		}
	}
}

// An origin that has removed its keys does not count as one without keys.
func TestKeysRemoved(t *testing.T) {
	t.Parallel()
	record(t)
	o := newOrigin(t, build("1.0.0", ours), build("1.1.0", ours))
	s := newStore(t)
	s.adds(t, o, "1.0.0")
	o.edit("signing_keys", nil, packagePage("1.1.0", "linux_amd64"))
	_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, AllowUnsigned: true})
	failed(t, "keys taken away", err, registry.ErrNotAdmitted, keyID(t, ours))
	if s.has(t) != "1.0.0 [linux_amd64]" {
		t.Error(s.has(t))
	}
}

// With All set, an old version that lacks a platform is mirrored for the
// others. A note names the platforms for which only older versions have a
// package.
func TestAllButSomePlatforms(t *testing.T) {
	t.Parallel()
	record(t)
	o := newOrigin(t, release{"1.0.0", []string{"linux_amd64"}, ours, ""},
		release{"1.1.0", []string{"linux_amd64", "darwin_arm64"}, ours, ""},
		release{"1.2.0", []string{"darwin_arm64"}, ours, ""})
	s := newStore(t)
	results, err := s.mirror(o).Add(t.Context(), filling.Wanted{
		Address:    inventory,
		Constraint: "< 1.2.0",
		All:        true,
		Platforms:  platforms(t, "linux_amd64", "darwin_arm64"),
	})
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("1.1.0 [darwin_arm64 linux_amd64], 1.0.0 [linux_amd64]", s.has(t)); diff != "" {
		t.Errorf("mirrored (-want +got):\n%s", diff)
	}
	noted(t, "below 1.2.0", results, "darwin_arm64")
	results, err = s.mirror(o).Add(t.Context(), wanted(t, "darwin_arm64"))
	if err != nil {
		t.Error(err)
	}
	noted(t, "the newest", results, "linux_amd64")
}

func TestAllowUnsigned(t *testing.T) {
	t.Parallel()
	record(t)
	const linux = "linux_amd64"
	want := filling.Wanted{Address: inventory, Platforms: platforms(t, linux), AllowUnsigned: true}
	for what, keys := range map[string]any{
		"null":             map[string]any{"gpg_public_keys": nil},
		"empty":            map[string]any{"gpg_public_keys": []any{}},
		"one that is null": map[string]any{"gpg_public_keys": []any{nil}},
		"none":             nil,
	} {
		o, s := simple(t), newStore(t)
		o.edit("signing_keys", keys, packagePage("1.0.0", linux))
		results, err := s.mirror(o).Add(t.Context(), want)
		if err != nil || describe(results) != "1.0.0 [linux_amd64 added]" {
			t.Fatalf("%s: %s, %v", what, describe(results), err)
		}
		if got := results[0].Signer; got != "" {
			t.Errorf("%s: signed by %s", what, got)
		}
		if got := o.times(".sig"); got != 0 {
			t.Errorf("%s: %d requests for a signature", what, got)
		}
		noted(t, what, results, "SHA256SUMS")
		if s.has(t) != "1.0.0 [linux_amd64]" || s.records(t)[inventory][0].Packages[0].SigningKey != "" {
			t.Errorf("%s: %v", what, s.records(t))
		}
		if again, err := s.mirror(o).Add(t.Context(), want); err != nil ||
			describe(again) != "1.0.0 [linux_amd64 unchanged]" ||
			o.times(".zip") != 1 {
			t.Errorf("%s: again: %s, %v", what, describe(again), err)
		}
		// As soon as there are keys, the package is verified by them.
		o.heal(t)
		if signed, err := s.mirror(o).Add(t.Context(), want); err != nil || signed[0].Signer != keyID(t, ours) ||
			s.records(t)[inventory][0].Packages[0].SigningKey != keyID(t, ours) ||
			s.count(t) != 1 {
			t.Errorf("%s: signed later: %+v, %v, %v", what, signed, err, s.records(t))
		}
	}
	// It is for who names no keys, and for nothing else that is wrong.
	for what, fault := range map[string]func(*origin){
		"a foreign signature": func(o *origin) {
			o.set(signaturePage("1.0.0"), page{body: sign(t, stranger, o.pages[sumsPage("1.0.0")].body)})
		},
		"a wrong zip": func(o *origin) {
			o.edit("signing_keys", nil, packagePage("1.0.0", linux))
			o.set(zipPage("1.0.0", linux), page{body: providerfiles.Zip(t, "terraform-provider-inventory", "another")})
		},
		"SHA256SUMS of something else": func(o *origin) {
			o.edit("signing_keys", nil, packagePage("1.0.0", linux))
			o.set(sumsPage("1.0.0"), page{body: []byte("none\n")})
		},
	} {
		o, s := simple(t), newStore(t)
		fault(o)
		_, err := s.mirror(o).Add(t.Context(), want)
		failed(t, what, err, registry.ErrInvalid)
		s.empty(t, what)
	}
}

func TestAddDryRun(t *testing.T) {
	t.Parallel()
	record(t)
	o, s := simple(t), newStore(t)
	want := wanted(t, "linux_amd64", "darwin_arm64")
	dry := func(expect string) {
		t.Helper()
		m := s.mirror(o)
		m.DryRun = true
		before := o.times(".zip")
		results, err := m.Add(t.Context(), want)
		if err != nil || describe(results) != expect || o.times(".zip") != before || results[0].Signer != keyID(t, ours) {
			t.Errorf("%s, %v, %d zips", describe(results), err, o.times(".zip"))
		}
	}
	dry("1.0.0 [darwin_arm64 added, linux_amd64 added]")
	s.empty(t, "a dry run")
	s.mirrors(t, o, wanted(t, "linux_amd64"))
	dry("1.0.0 [darwin_arm64 added, linux_amd64 unchanged]")
	if s.has(t) != "1.0.0 [linux_amd64]" {
		t.Error(s.has(t))
	}
	// It finds what would be refused.
	o.set(signaturePage("1.0.0"), page{body: []byte("x")})
	m := s.mirror(o)
	m.DryRun = true
	_, err := m.Add(t.Context(), want)
	failed(t, "a dry run of a bad release", err, registry.ErrInvalid)
}

func TestUpstream(t *testing.T) {
	t.Parallel()
	record(t)
	const elsewhere, base = "elsewhere.example.com", "/v1/providers/"
	for _, test := range []struct {
		upstream   string
		discovered bool // it requests discovery
		err        error
	}{
		{"https://" + elsewhere, true, nil},
		{"https://" + elsewhere + "/", true, nil},
		{"https://" + elsewhere + base, false, nil},
		{"https://" + elsewhere + strings.TrimSuffix(base, "/"), false, nil},
		{"http://" + elsewhere, false, registry.ErrInvalid},
		{"http://" + elsewhere + base, false, registry.ErrInvalid},
		{"https://somebody:a-secret@" + elsewhere, false, registry.ErrInvalid},
		{"https://somebody:a-secret@" + elsewhere + base, false, registry.ErrInvalid},
		{"https://a-secret@" + elsewhere + base, false, registry.ErrInvalid},
		{"https://" + elsewhere + base + "?key=a-secret", false, registry.ErrInvalid},
		{"https://" + elsewhere + base + "#a-secret", false, registry.ErrInvalid},
		{"https://a-secret%zz/", false, registry.ErrInvalid},
		{"ftp://" + elsewhere + base, false, registry.ErrInvalid},
		{"ftp://" + elsewhere, false, registry.ErrInvalid},
		{elsewhere, false, registry.ErrInvalid},
		{elsewhere + base, false, registry.ErrInvalid},
		{"//" + elsewhere + base, false, registry.ErrInvalid},
		{"https://", false, registry.ErrInvalid},
		{"https://" + base, false, registry.ErrInvalid},
		{"https://:443" + base, false, registry.ErrInvalid},
		{"https://-" + base, false, nil}, // invalid for discovery, but still a host
	} {
		o, s := simple(t), newStore(t)
		results, err := s.mirror(o).Add(t.Context(),
			filling.Wanted{Address: inventory, Platforms: platforms(t, "linux_amd64"), Upstream: test.upstream})
		if test.err != nil {
			failed(t, test.upstream, err, test.err)
			if strings.Contains(fmt.Sprint(err), "a-secret") || o.times("") != 0 {
				t.Errorf("%s: %v, %d requests", test.upstream, err, o.times(""))
			}
			s.empty(t, test.upstream)
			continue
		}
		if err != nil || describe(results) != "1.0.0 [linux_amd64 added]" || s.has(t) != "1.0.0 [linux_amd64]" ||
			o.times(discovery) == 1 != test.discovered {
			t.Errorf("%s: %s, %v, %d discoveries", test.upstream, describe(results), err, o.times(discovery))
		}
		for path, host := range o.hosts {
			if strings.Contains(test.upstream, elsewhere) &&
				(host != elsewhere || strings.HasPrefix(path, base) && o.tokens[path] != "Bearer another-token") {
				t.Errorf("%s: %s got a request for %s with %q", test.upstream, host, path, o.tokens[path])
			}
		}
	}
}

// Registries may store their packages on other hosts, and redirect to them.
func TestRedirects(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	for _, path := range []string{zipPage("1.0.0", "linux_amd64"), sumsPage("1.0.0"), signaturePage("1.0.0")} {
		o.set("/elsewhere"+path, o.pages[path])
		o.set(path, page{to: "https://files.example.com/elsewhere" + path})
	}
	// A relative URL is relative to the URL of the response.
	description := packagePage("1.0.0", "linux_amd64")
	o.set("/elsewhere"+description, o.pages[description])
	o.set(description, page{to: "https://files.example.com/elsewhere" + description})
	s.gives(t, "", "1.0.0 [linux_amd64 added]", "1.0.0 [linux_amd64]")(
		s.mirror(o).Add(t.Context(), wanted(t, "linux_amd64")),
	)
	for path, token := range o.tokens {
		if o.hosts[path] != "registry.example.com" && token != "" {
			t.Errorf("%s at %s gets %q", path, o.hosts[path], token)
		}
	}
	if o.hosts[zipPage("1.0.0", "linux_amd64")] != "files.example.com" {
		t.Errorf("%v", o.hosts)
	}
}

// Mirroring again restores lost files.
func TestLostObject(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	want := wanted(t, "linux_amd64", "darwin_arm64")
	s.mirrors(t, o, want)
	before := s.records(t)
	if err := os.Remove(s.file(before[inventory][0].Packages[1])); err != nil {
		t.Fatal(err)
	}
	o.heal(t)
	results, err := s.mirror(o).Add(t.Context(), want)
	if err != nil || describe(results) != "1.0.0 [darwin_arm64 unchanged, linux_amd64 restored]" || o.times(".zip") != 1 ||
		fmt.Sprint(s.records(t)) != fmt.Sprint(before) ||
		s.count(t) != 2 {
		t.Errorf("%s, %v, %d zips, %v", describe(results), err, o.times(".zip"), s.records(t))
	}
	// A truncated object cannot be replaced, and the result must not claim that it
	// was.
	if err := os.Truncate(s.file(before[inventory][0].Packages[1]), 7); err != nil {
		t.Fatal(err)
	}
	if results, err := s.mirror(o).Add(t.Context(), want); err == nil ||
		!strings.Contains(err.Error(), before[inventory][0].Packages[1].Object) {
		t.Errorf("%s, %v", describe(results), err)
	}
}

// SHA256SUMS names a version only in file names. A host without the signing key
// cannot make the mirror take the files of one version for another one.
func TestAddRefusesFilesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("2.0.0", ours))
	o.set(packagePage("2.0.0", "linux_amd64"), o.pages[packagePage("1.0.0", "linux_amd64")])
	for _, w := range []filling.Wanted{
		{Address: inventory}, {Address: inventory, Constraint: "2.0.0"}, {Address: inventory, AllowUnsigned: true},
	} {
		s := newStore(t)
		_, err := s.mirror(o).Add(t.Context(), w)
		failed(t, w.Constraint, err, registry.ErrInvalid, zipName("1.0.0", "linux_amd64"), zipName("2.0.0", "linux_amd64"),
			"another version")
		s.empty(t, w.Constraint)
	}
}

// An origin may rename its packages after they were mirrored.
func TestLostObjectOfAnotherName(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	want := wanted(t, "linux_amd64")
	s.mirrors(t, o, want)
	before := s.records(t)
	o.edit("filename", "inventory.zip", packagePage("1.0.0", "linux_amd64"))
	o.resum(t, func(sums string) string {
		return strings.ReplaceAll(sums, zipName("1.0.0", "linux_amd64"), "inventory.zip")
	})
	s.gives(t, "renamed", "1.0.0 [linux_amd64 unchanged]")(s.mirror(o).Add(t.Context(), want))
	if err := os.Remove(s.file(before[inventory][0].Packages[0])); err != nil {
		t.Fatal(err)
	}
	results, err := s.mirror(o).Add(t.Context(), want)
	if err != nil || describe(results) != "1.0.0 [linux_amd64 restored]" ||
		fmt.Sprint(s.records(t)) != fmt.Sprint(before) ||
		s.count(t) != 1 {
		t.Errorf("%s, %v, %d objects, %v", describe(results), err, s.count(t), s.records(t))
	}
}

func TestAddInterrupted(t *testing.T) {
	t.Parallel()
	o := simple(t)
	interrupted(t, 3, "1.0.0 [darwin_arm64 linux_amd64 windows_amd64]", func(m *filling.Mirror) error {
		m.Client = o.client
		_, err := m.Add(t.Context(), filling.Wanted{Address: inventory})
		return err
	})
}

// Requests to an origin that is briefly unavailable are retried a few times.
func TestAddUnavailable(t *testing.T) {
	t.Parallel()
	record(t)
	o, s := simple(t), newStore(t)
	o.set(zipPage("1.0.0", "linux_amd64"), page{status: http.StatusServiceUnavailable})
	_, err := s.mirror(o).Add(t.Context(), wanted(t, "linux_amd64"))
	failed(t, "an origin that is down", err, registry.ErrUnavailable)
	if n := o.times(".zip"); n < 2 || n > 9 {
		t.Errorf("the origin got %d requests", n)
	}
}

// Several who mirror the same at once do not disturb one another.
func TestAddAtOnce(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	errs := make(chan error)
	for _, names := range [][]string{
		{"linux_amd64"}, {"linux_amd64", "darwin_arm64"}, {"windows_amd64"}, {"darwin_arm64", "windows_amd64"},
	} {
		want := wanted(t, names...)
		go func() {
			_, err := s.mirror(o).Add(t.Context(), want)
			errs <- err
		}()
	}
	var all error
	for range 4 {
		all = errors.Join(all, <-errs)
	}
	if all != nil || s.has(t) != "1.0.0 [darwin_arm64 linux_amd64 windows_amd64]" || s.count(t) != 3 {
		t.Errorf("%v, %s, %d objects", all, s.has(t), s.count(t))
	}
}

// Two versions that differ only in build metadata are not both mirrored.
func TestAddBuildMetadata(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0+a", ours), build("1.0.0+b", ours))
	s := newStore(t)
	if _, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory}); err != nil ||
		s.has(t) != "1.0.0+b [linux_amd64]" {
		t.Fatalf("%v, %s", err, s.has(t))
	}
	s.gives(t, "", "1.0.0+b [linux_amd64 unchanged]", "1.0.0+b [linux_amd64]")(
		s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, All: true}),
	)
	if v, err := catalog.New(s.table).Mirror.Get(t.Context(), inventory, parseVersion(t, "1.0.0+a")); !errors.Is(
		err, registry.ErrNotFound) {
		t.Errorf("%+v, %v", v, err)
	}
}

// A package whose program clients cannot run on its platform is mirrored with a note.
func TestProgramsOfOtherPlatforms(t *testing.T) {
	t.Parallel()
	const ofWindows = "MZ\x00\x00 a program of Windows, which has at least 64 bytes in front of its header"
	for name, test := range map[string]struct{ platform, program, content, note string }{
		"as it should be": {"linux_amd64", "terraform-provider-inventory", "", ""},
		"without .exe": {
			"windows_amd64", "terraform-provider-inventory", "",
			"the name of its program, terraform-provider-inventory, does not end in .exe, so clients cannot run it on windows_amd64",
		},
		"of Windows for Linux": {
			"linux_amd64", "terraform-provider-inventory", ofWindows,
			"its PE program is built for an unknown architecture and cannot run on linux_amd64",
		},
	} {
		packed, r := providerfiles.Zip(t, test.program, test.content), release{"1.0.0", []string{test.platform}, ours, ""}
		if test.note != "" {
			test.note = zipName("1.0.0", test.platform) + ": " + test.note
		}
		check := func(how string, results []filling.Result, err error) {
			if err != nil || describe(results) != "1.0.0 ["+test.platform+" added]" || notes(results) != test.note {
				t.Errorf("%s, %s: %s with %q, %v, want %q", name, how, describe(results), notes(results), err, test.note)
			}
		}
		o := newOrigin(t, r)
		o.pages[zipPage("1.0.0", test.platform)] = page{body: packed}
		o.describe(t, r)
		results, err := newStore(t).mirror(o).Add(t.Context(), wanted(t, test.platform))
		check("added", results, err)
		f := newFolder(t, r)
		write(t, f.at(zipName("1.0.0", test.platform)), packed)
		f.archives(t, test.platform, zipName("1.0.0", test.platform), "zh:"+providerfiles.Sum(packed))
		results, err = newStore(t).mirror(nil).Import(t.Context(), string(f))
		check("imported", results, err)
	}
}

// breaksOff is for a connection that ends after a part of the package.
const breaksOff = -1

// signURLs makes an origin sign the URL of each package again when it describes it.
// The URLs end after 30 seconds, which is visible or not. refuses returns the status
// for the nth request for a package, or 0 if the origin sends it.
func signURLs(o *origin, visible bool, refuses func(n int, ended bool) (status int)) (now func() time.Time, pass func(time.Duration)) {
	var mu sync.Mutex
	clock := time.Now().UTC()
	ends := make(map[string]time.Time)
	requests := make(map[string]int)
	o.serve = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.Contains(r.URL.Path, "/download/"):
			id := strconv.Itoa(len(ends))
			ends[id] = clock.Add(30 * time.Second)
			query := "?X-Amz-Signature=" + id
			if visible {
				query += "&X-Amz-Expires=30&X-Amz-Date=" + clock.Format("20060102T150405Z")
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			description := maps.Clone(o.pages[r.URL.Path].json)
			description["download_url"] = fmt.Sprint(description["download_url"], query)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(description)
			return true
		case strings.HasSuffix(r.URL.Path, ".zip"):
			requests[r.URL.Path]++
			status := refuses(requests[r.URL.Path], clock.After(ends[r.URL.Query().Get("X-Amz-Signature")]))
			switch status {
			case 0:
			case breaksOff:
				w.Header().Set("Content-Length", "1000")
				_, _ = w.Write([]byte("PK"))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			default:
				w.WriteHeader(status)
				return true
			}
		}
		return false
	}
	return func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return clock
		}, func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			clock = clock.Add(d)
		}
}

// A URL that may have ended before its download begins is requested again, so that
// it is never refused.
func TestURLsEndBeforeDownloads(t *testing.T) {
	t.Parallel()
	all := []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "freebsd_amd64"}
	for name, visible := range map[string]bool{"visible": true, "invisible": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, s := newOrigin(t, release{"1.0.0", all, ours, ""}), newStore(t)
			now, pass := signURLs(o, visible, func(n int, ended bool) int {
				if ended {
					t.Errorf("request %d for a package has a URL that has ended", n)
				}
				return 0
			})
			served := o.serve
			o.serve = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "SHA256SUMS") { // after the descriptions
					pass(time.Minute)
				}
				return served(w, r)
			}
			m := s.mirror(o)
			m.Now = now
			results, err := m.Add(t.Context(), wanted(t, all...))
			if err != nil {
				t.Fatal(err)
			}
			if n := len(results[0].Packages); n != len(all) {
				t.Errorf("%d packages are mirrored, want %d", n, len(all))
			}
			described := 0
			for _, platform := range all {
				described += o.times(packagePage("1.0.0", platform))
			}
			if want := 2 * len(all); described != want {
				t.Errorf("packages were described %d times, want %d", described, want)
			}
		})
	}
}

// If a signed URL is refused, the origin describes the package again, at most twice.
func TestURLsAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		statuses        []int // of the requests for the package, then 200
		changes         bool  // the origin has another package meanwhile
		requests, looks int
		problem         string
	}{
		"once":                         {[]int{403}, false, 2, 2, ""},
		"twice":                        {[]int{403, 400}, false, 3, 3, ""},
		"always":                       {[]int{403, 403, 403, 403}, false, 3, 3, "(403)"},
		"not found":                    {[]int{404}, false, 2, 2, ""},
		"redirected without a place":   {[]int{304}, false, 1, 1, "(304)"},
		"once, with another package":   {[]int{403}, true, 1, 2, "the origin changed"},
		"after two broken connections": {[]int{breaksOff, breaksOff, 403}, false, 3, 1, "(403)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, s := newOrigin(t, build("1.0.0", ours)), newStore(t)
			now, _ := signURLs(o, false, func(n int, _ bool) int {
				if n > len(test.statuses) {
					return 0
				}
				if test.changes {
					o.edit("shasum", strings.Repeat("0", 64), packagePage("1.0.0", "linux_amd64"))
				}
				return test.statuses[n-1]
			})
			m := s.mirror(o)
			m.Now = now
			_, err := m.Add(t.Context(), wanted(t, "linux_amd64"))
			if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("%v, want %q", err, test.problem)
			}
			if n := o.times(".zip"); n != test.requests {
				t.Errorf("the package was requested %d times, want %d", n, test.requests)
			}
			if n := o.times(packagePage("1.0.0", "linux_amd64")); n != test.looks {
				t.Errorf("the package was described %d times, want %d", n, test.looks)
			}
		})
	}
}

// An origin can have what ends in the paths of its URLs.
func TestPathsAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"download_url", "shasums_url", "shasums_signature_url"} {
		for _, renewed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " renewed ", renewed), func(t *testing.T) {
				t.Parallel()
				o, s := newOrigin(t, build("1.0.0", ours)), newStore(t)
				described, refused := 0, 0
				o.serve = func(w http.ResponseWriter, r *http.Request) bool {
					o.mu.Lock()
					defer o.mu.Unlock()
					path, isNew := strings.CutPrefix(r.URL.Path, "/1/")
					switch {
					case strings.Contains(r.URL.Path, "/download/"):
						description := maps.Clone(o.pages[r.URL.Path].json)
						address := description[name].(string)
						description[name] = strings.Replace(address, files, fmt.Sprintf("/%d%s", described, files), 1)
						if renewed {
							described++
						}
						w.Header().Set("Content-Type", "application/json")
						_ = json.NewEncoder(w).Encode(description)
					case strings.HasPrefix(r.URL.Path, "/0/"):
						refused++
						w.WriteHeader(http.StatusForbidden)
					case isNew:
						http.Redirect(w, r, "/"+path, http.StatusFound)
					default:
						return false
					}
					return true
				}
				_, err := s.mirror(o).Add(t.Context(), wanted(t, "linux_amd64"))
				if renewed && err != nil || !renewed && (err == nil || !strings.Contains(err.Error(), "(403)")) {
					t.Errorf("%v", err)
				}
				if refused != 1 {
					t.Errorf("the URL was requested %d times, want 1", refused)
				}
			})
		}
	}
}

// If an origin cannot describe a package again before its URL may have ended, the
// download uses the URL that it has.
func TestURLsThatCannotBeRenewed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  int
		problem string
	}{
		"the origin fails":          {http.StatusServiceUnavailable, ""},
		"the origin has it no more": {http.StatusNotFound, "(404)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, s := newOrigin(t, build("1.0.0", ours)), newStore(t)
			now, pass := signURLs(o, true, func(int, bool) int { return 0 })
			var fails atomic.Bool
			served := o.serve
			o.serve = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "SHA256SUMS") { // after the description
					pass(time.Minute)
					fails.Store(true)
				}
				if fails.Load() && strings.Contains(r.URL.Path, "/download/") {
					w.WriteHeader(test.status)
					return true
				}
				return served(w, r)
			}
			m := s.mirror(o)
			m.Now = now
			_, err := m.Add(t.Context(), wanted(t, "linux_amd64"))
			if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("%v, want %q", err, test.problem)
			}
			if n, want := o.times(".zip"), map[bool]int{true: 1}[test.problem == ""]; n != want {
				t.Errorf("the package was requested %d times, want %d", n, want)
			}
		})
	}
}
