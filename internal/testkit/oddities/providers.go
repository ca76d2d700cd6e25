package oddities

import (
	"archive/zip"
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/providerfiles"
)

// Here is the platform of this machine. Releases have packages for it and for
// Elsewhere, whose name comes first in lists.
var Here = clients.Platform()

// Elsewhere is a platform on which no test runs.
const Elsewhere = "aix_ppc64"

// Provider is a release of a provider that is odd in one way. Its address is
// NAME/inventory.
type Provider struct {
	// Name describes what is odd.
	Name string
	Reason
	// Spelled is the address as a person writes it.
	Spelled string
	// Number is the version that a configuration requires.
	Number string
	// Dir has the files of the release, and Signed what belongs to its signature.
	Dir string
	Signed

	oddProvider
	release builds.Release
}

// oddProvider has what is odd about a provider. Everything else is as usual.
type oddProvider struct {
	// spelled is the address, and version the version in the listing and in names.
	spelled, version string
	// build changes the files before they are listed, and sums changes SHA256SUMS
	// before it is signed. damage changes the files after that.
	build, damage func(testing.TB, builds.Release)
	sums          func(text string) string
	sign          Signer
	// listing and document change the responses. If document returns false, the
	// origin does not have the platform.
	listing  func(versions map[string]any)
	document func(platform string, d map[string]any) bool
	// filename returns the name of a package, if it is another one.
	filename func(platform string) string
	// served means that only the responses are odd, and not the files.
	served bool
}

// IsServed reports whether only the responses of the origin are odd, and not the
// files of the release.
func (o oddProvider) IsServed() bool { return o.served }

// Providers returns the providers with names, or all, in order. It writes their
// releases.
func Providers(t testing.TB, names ...string) []Provider {
	t.Helper()
	all := maps.Clone(oddProviders)
	for name, s := range signers {
		all[name] = oddProvider{sign: s, served: slices.Contains(servedKeys, name)}
	}
	var made []Provider
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		odd := all[name]
		p := Provider{Name: name, Reason: reasons[name], oddProvider: odd}
		p.version = cmp.Or(p.version, "1.0.0")
		p.Number = p.version
		p.Spelled = cmp.Or(p.spelled, name+"/inventory")
		p.release = builds.NewRelease(t, p.version, Here, Elsewhere)
		p.Dir = p.release.Dir
		if p.build != nil {
			p.build(t, p.release)
			p.release.Sign(t)
		}
		sums := read(t, p.sumsFile())
		if p.sums != nil {
			sums = p.sums(sums)
			write(t, p.sumsFile(), sums)
		}
		if p.sign == nil {
			p.sign = usual
		}
		p.Signed = p.sign(t, []byte(sums))
		write(t, p.sumsFile()+".sig", string(p.Signature))
		if p.damage != nil {
			p.damage(t, p.release)
		}
		made = append(made, p)
	}
	return made
}

// KeysThen returns the keys as they were when the release was signed.
func (p Provider) KeysThen() []string {
	if p.Earlier != nil {
		return p.Earlier
	}
	return p.Keys
}

// Sums returns SHA256SUMS.
func (p Provider) Sums() ([]byte, error) { return os.ReadFile(p.sumsFile()) }

func (p Provider) sumsFile() string { return filepath.Join(p.Dir, p.release.Name+"_SHA256SUMS") }

// versions returns the response for the versions.
func (p Provider) versions() map[string]any {
	var platforms []any
	for _, platform := range []string{Here, Elsewhere} {
		system, arch, _ := strings.Cut(platform, "_")
		platforms = append(platforms, map[string]any{"os": system, "arch": arch})
	}
	d := map[string]any{"versions": []any{map[string]any{
		"version": p.version, "protocols": []string{"5.0", "6.0"}, "platforms": platforms,
	}}}
	if p.listing != nil {
		p.listing(d)
	}
	return d
}

// describe returns the response for a platform, or nil.
func (p Provider) describe(platform string) map[string]any {
	file := p.release.Name + "_" + platform + ".zip"
	if p.filename != nil {
		file = p.filename(platform)
	}
	content, err := os.ReadFile(filepath.Join(p.Dir, file))
	if err != nil {
		return nil
	}
	var keys []any
	for _, key := range p.Keys {
		keys = append(keys, map[string]any{"ascii_armor": key, "key_id": "0123456789ABCDEF"})
	}
	system, arch, _ := strings.Cut(platform, "_")
	at := "/files/" + p.Name + "/"
	d := map[string]any{
		"protocols": []string{"5.0", "6.0"}, "os": system, "arch": arch, "filename": file,
		"download_url": at + file, "shasum": providerfiles.Sum(content),
		"shasums_url":           at + filepath.Base(p.sumsFile()),
		"shasums_signature_url": at + filepath.Base(p.sumsFile()) + ".sig",
		"signing_keys":          map[string]any{"gpg_public_keys": keys},
	}
	if p.document != nil && !p.document(platform, d) {
		return nil
	}
	return d
}

// each changes the response for each platform.
func each(change func(d map[string]any)) func(string, map[string]any) bool {
	return func(_ string, d map[string]any) bool {
		change(d)
		return true
	}
}

// set sets a field of the response for each platform.
func set(name string, value any) func(string, map[string]any) bool {
	return each(func(d map[string]any) { d[name] = value })
}

// without removes a field of the response for each platform.
func without(name string) func(string, map[string]any) bool {
	return each(func(d map[string]any) { delete(d, name) })
}

// version returns the first version of a listing.
func version(listing map[string]any) map[string]any {
	return listing["versions"].([]any)[0].(map[string]any)
}

// setURLs changes the URLs in the response for each platform.
func setURLs(change func(url string) string) func(string, map[string]any) bool {
	return each(func(d map[string]any) {
		for _, name := range []string{"download_url", "shasums_url", "shasums_signature_url"} {
			d[name] = change(d[name].(string))
		}
	})
}

// line changes each line of SHA256SUMS.
func line(change func(digest, name string) string) func(string) string {
	return func(text string) string {
		var out strings.Builder
		for l := range strings.Lines(text) {
			digest, name, _ := strings.Cut(strings.TrimSpace(l), "  ")
			out.WriteString(change(digest, name))
		}
		return out.String()
	}
}

// file is an entry of a zip.
type file struct {
	name, content string
	mode          fs.FileMode
}

// zipped returns a change of the files: the packages of both platforms are zips of
// files. In the names and contents, PLATFORM stands for the platform.
func zipped(method uint16, files ...file) func(testing.TB, builds.Release) {
	return func(t testing.TB, r builds.Release) {
		t.Helper()
		for _, platform := range []string{Here, Elsewhere} {
			var out bytes.Buffer
			z := zip.NewWriter(&out)
			for _, f := range files {
				header := &zip.FileHeader{Name: f.name, Method: method}
				header.SetMode(f.mode)
				w, err := z.CreateHeader(header)
				must(t, err)
				_, err = w.Write([]byte(strings.ReplaceAll(f.content, "PLATFORM", platform)))
				must(t, err)
			}
			must(t, z.Close())
			r.Write(t, r.Name+"_"+platform+".zip", out.String())
		}
	}
}

// program is the program of a package.
var program = file{"terraform-provider-inventory_v1.0.0", "program for PLATFORM", 0o755}

// zip64 makes the packages zips with fields of 64 bits, as some programs always
// write them.
func zip64(t testing.TB, r builds.Release) {
	t.Helper()
	for _, platform := range []string{Here, Elsewhere} {
		content := []byte("program for " + platform)
		header := &zip.FileHeader{
			Name: program.name, Method: zip.Store, CRC32: crc32.ChecksumIEEE(content),
			CompressedSize64: uint64(len(content)), UncompressedSize64: uint64(len(content)), ReaderVersion: 45,
		}
		header.SetMode(0o755)
		size := []byte{byte(len(content)), 0, 0, 0, 0, 0, 0, 0}
		header.Extra = slices.Concat([]byte{1, 0, 16, 0}, size, size)
		var out bytes.Buffer
		z := zip.NewWriter(&out)
		w, err := z.CreateRaw(header)
		must(t, err)
		_, err = w.Write(content)
		must(t, err)
		must(t, z.Close())
		data := out.Bytes()
		// The sizes in both headers refer to the extra field.
		unknown := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		copy(data[18:], unknown)
		copy(data[bytes.Index(data, []byte("PK\x01\x02"))+20:], unknown)
		r.Write(t, r.Name+"_"+platform+".zip", string(data))
	}
}

// repack changes the package for this machine after SHA256SUMS was signed.
func repack(t testing.TB, r builds.Release) {
	t.Helper()
	r.Zip(t, r.Name+"_"+Here+".zip", map[string]string{program.name: "another program"})
}

// more adds a package for another platform.
func more(platform, program string) func(testing.TB, builds.Release) {
	return func(t testing.TB, r builds.Release) {
		t.Helper()
		r.Zip(t, r.Name+"_"+platform+".zip", map[string]string{program: "program for " + platform})
	}
}

// add returns a listing with one more platform.
func add(system, arch string) func(map[string]any) {
	return func(d map[string]any) {
		v := version(d)
		v["platforms"] = append(v["platforms"].([]any), map[string]any{"os": system, "arch": arch})
	}
}

// otherFilename is a name of a package that the clients take, but that no other release
// has.
func otherFilename(platform string) string {
	return "terraform-provider-inventory-" + platform + ".zip"
}

// oddProviders are the providers without an odd signature.
var oddProviders = map[string]oddProvider{
	"usual": {},

	// Responses.
	"no-key":           {served: true, document: without("signing_keys")},
	"no-signature-url": {served: true, document: without("shasums_signature_url")},
	"no-sums-url":      {served: true, document: without("shasums_url")},
	"no-protocols": {served: true, document: without("protocols"), listing: func(d map[string]any) {
		delete(version(d), "protocols")
	}},
	"protocols-empty": {served: true, document: set("protocols", []string{}), listing: func(d map[string]any) {
		version(d)["protocols"] = []string{}
	}},
	"protocols-short":     {served: true, document: set("protocols", []string{"5"})},
	"protocols-with-v":    {served: true, document: set("protocols", []string{"v5.0"})},
	"protocols-unknown":   {served: true, document: set("protocols", []string{"7.0"})},
	"protocols-and-newer": {served: true, document: set("protocols", []string{"6.0", "7.0"})},
	"protocols-null":      {served: true, document: set("protocols", nil)},
	"null-fields": {served: true, document: func(_ string, d map[string]any) bool {
		d["packages"], d["source"] = nil, nil
		return true
	}},
	"null-key": {served: true, document: each(func(d map[string]any) {
		keys := d["signing_keys"].(map[string]any)
		keys["gpg_public_keys"] = append(keys["gpg_public_keys"].([]any), nil)
	})},
	"key-with-source": {served: true, document: each(func(d map[string]any) {
		key := d["signing_keys"].(map[string]any)["gpg_public_keys"].([]any)[0].(map[string]any)
		key["source"], key["source_url"], key["trust_signature"] = "Acme", "https://acme.example.com/", ""
	})},
	"key-with-trust-signature": {served: true, document: each(func(d map[string]any) {
		key := d["signing_keys"].(map[string]any)["gpg_public_keys"].([]any)[0].(map[string]any)
		key["trust_signature"] = "of a partner"
	})},
	"upper-case-shasum": {served: true, document: each(func(d map[string]any) {
		d["shasum"] = strings.ToUpper(d["shasum"].(string))
	})},
	"other-shasum": {served: true, document: set("shasum", strings.Repeat("ab", 32))},
	"other-filename": {served: true, document: func(platform string, d map[string]any) bool {
		d["filename"] = "terraform-provider-inventory_9.9.9_" + platform + ".zip"
		return true
	}},
	"other-system": {served: true, document: set("os", "plan9")},
	"full-urls":    {served: true, document: setURLs(func(url string) string { return "$ORIGIN" + url })},
	"other-host":   {served: true, document: setURLs(func(url string) string { return "$OTHER" + url })},
	"relative-urls": {served: true, document: setURLs(func(url string) string {
		return "../../../../../.." + url
	})},
	"redirects": {served: true, document: setURLs(func(url string) string { return "/moved" + url })},
	"redirects-to-another-host": {served: true, document: setURLs(func(url string) string {
		return "/elsewhere" + url
	})},
	"urls-with-query": {served: true, document: setURLs(func(url string) string { return url + "?token=a%20b" })},
	"plain-http":      {served: true, document: setURLs(func(url string) string { return "$PLAIN" + url })},
	"not-found-zip":   {served: true, document: set("download_url", "/files/missing.zip")},
	"fewer-platforms": {served: true, document: func(platform string, _ map[string]any) bool {
		return platform == Here
	}, listing: func(d map[string]any) { version(d)["platforms"] = version(d)["platforms"].([]any)[:1] }},
	"platform-only-listed": {served: true, document: func(platform string, _ map[string]any) bool {
		return platform == Here
	}},
	"no-platforms":    {served: true, listing: func(d map[string]any) { delete(version(d), "platforms") }},
	"empty-platforms": {served: true, listing: func(d map[string]any) { version(d)["platforms"] = []any{} }},
	"large-listing": {served: true, listing: func(d map[string]any) {
		all := d["versions"].([]any)
		for i := range 300 {
			all = append(all, map[string]any{"version": fmt.Sprintf("0.%d.0", i), "protocols": []string{"5.0"}})
		}
		d["versions"] = all
	}},
	"invalid-version-listed": {served: true, listing: func(d map[string]any) {
		d["versions"] = append(d["versions"].([]any), map[string]any{"version": "latest"})
	}},
	"version-listed-twice": {served: true, listing: func(d map[string]any) {
		d["versions"] = append(d["versions"].([]any), version(d))
	}},
	"warnings":            {served: true, listing: func(d map[string]any) { d["warnings"] = []string{"use another one"} }},
	"capitals-in-address": {served: true, spelled: "Capitals-In-Address/Inventory"},

	// Versions.
	"version-with-v":         {served: true, listing: func(d map[string]any) { version(d)["version"] = "v1.0.0" }},
	"version-short":          {served: true, listing: func(d map[string]any) { version(d)["version"] = "1.0" }},
	"version-pre-release":    {version: "1.0.0-rc.1"},
	"version-build-metadata": {version: "1.0.0+build.5"},

	// SHA256SUMS.
	"sums-comment":    {sums: func(text string) string { return "# of build 7\n" + text }},
	"sums-one-space":  {sums: line(func(digest, name string) string { return digest + " " + name + "\n" })},
	"sums-tab":        {sums: line(func(digest, name string) string { return digest + "\t" + name + "\n" })},
	"sums-binary":     {sums: line(func(digest, name string) string { return digest + " *" + name + "\n" })},
	"sums-upper-case": {sums: line(func(digest, name string) string { return strings.ToUpper(digest) + "  " + name + "\n" })},
	"sums-crlf":       {sums: line(func(digest, name string) string { return digest + "  " + name + "\r\n" })},
	"sums-dot-slash":  {sums: line(func(digest, name string) string { return digest + "  ./" + name + "\n" })},
	"sums-blank-line": {sums: func(text string) string { return text + "\n" }},
	"sums-bom":        {sums: func(text string) string { return "\ufeff" + text }},
	"sums-no-newline": {sums: strings.TrimSpace},
	"sums-twice":      {sums: func(text string) string { return text + text }},
	"sums-other-file": {sums: func(text string) string {
		return text + strings.Repeat("ab", 32) + "  terraform-provider-inventory_1.0.0.sbom.json\n"
	}},
	"sums-unlisted-zip": {sums: func(text string) string { return strings.ReplaceAll(text, Here+".zip", "plan9_386.zip") }},
	"sums-missing-zip": {sums: func(text string) string {
		return text + strings.Repeat("ab", 32) + "  terraform-provider-inventory_1.0.0_plan9_386.zip\n"
	}},
	"sums-other-digest": {damage: repack},
	"sums-empty":        {sums: func(string) string { return "" }},

	// The manifest.
	"manifest-missing": {build: func(t testing.TB, r builds.Release) {
		must(t, os.Remove(filepath.Join(r.Dir, r.Name+"_manifest.json")))
	}},
	"manifest-listed-but-missing": {damage: func(t testing.TB, r builds.Release) {
		must(t, os.Remove(filepath.Join(r.Dir, r.Name+"_manifest.json")))
	}},
	"manifest-unlisted": {sums: func(text string) string {
		var out strings.Builder
		for l := range strings.Lines(text) {
			if !strings.Contains(l, "manifest") {
				out.WriteString(l)
			}
		}
		return out.String()
	}},
	"manifest-other-protocols": {build: func(t testing.TB, r builds.Release) {
		r.Write(t, r.Name+"_manifest.json", `{"version": 1, "metadata": {"protocol_versions": ["7.0"]}}`)
	}},

	// Packages.
	"zip-other-filename": {filename: otherFilename, build: func(t testing.TB, r builds.Release) {
		for _, platform := range []string{Here, Elsewhere} {
			must(t, os.Rename(filepath.Join(r.Dir, r.Name+"_"+platform+".zip"), filepath.Join(r.Dir, otherFilename(platform))))
		}
	}},
	"zip-platform-linux-armv7": {
		build: more("linux_armv7", program.name), listing: add("linux", "armv7"),
	},
	"zip-windows-without-exe": {
		build: more("windows_amd64", program.name), listing: add("windows", "amd64"),
	},
	"zip-linux-with-exe":      {build: zipped(zip.Deflate, file{program.name + ".exe", "PLATFORM", 0o755})},
	"zip-not-executable":      {build: zipped(zip.Deflate, file{program.name, "PLATFORM", 0o644})},
	"zip-no-program":          {build: zipped(zip.Deflate, file{"README.md", "PLATFORM", 0o644})},
	"zip-other-program":       {build: zipped(zip.Deflate, file{"terraform-provider-other_v1.0.0", "PLATFORM", 0o755})},
	"zip-program-of-opentofu": {build: zipped(zip.Deflate, file{"opentofu-provider-inventory_v1.0.0", "PLATFORM", 0o755})},
	"zip-program-without-version": {build: zipped(zip.Deflate,
		file{"terraform-provider-inventory", "PLATFORM", 0o755})},
	"zip-program-in-folder": {build: zipped(zip.Deflate, file{"bin/" + program.name, "PLATFORM", 0o755})},
	"zip-two-programs": {build: zipped(zip.Deflate, program,
		file{"terraform-provider-inventory_v0.9.0", "PLATFORM", 0o755})},
	"zip-more-files": {build: zipped(zip.Deflate, program, file{"LICENSE", "of PLATFORM", 0o644},
		file{"README.md", "of PLATFORM", 0o644}, file{"guides/index.txt", "of PLATFORM", 0o644})},
	"zip-folder-entries": {build: zipped(zip.Store, program, file{"guides/", "", fs.ModeDir | 0o755},
		file{"guides/index.txt", "of PLATFORM", 0o644})},
	"zip-set-uid": {build: zipped(zip.Deflate, file{program.name, "PLATFORM", fs.ModeSetuid | 0o755})},
	"zip-64":      {build: zip64},
	"zip-stored":  {build: zipped(zip.Store, program)},
	"zip-link": {build: zipped(zip.Store, program,
		file{"link", program.name, fs.ModeSymlink | 0o777})},
	"zip-twice-the-same-name": {build: zipped(zip.Deflate, program, program)},
	"zip-leads-out":           {build: zipped(zip.Deflate, program, file{"../out", "PLATFORM", 0o644})},
	"zip-names-of-windows":    {build: zipped(zip.Deflate, program, file{`guides\index.txt`, "PLATFORM", 0o644})},
	"zip-comment": {build: func(t testing.TB, r builds.Release) {
		for _, platform := range []string{Here, Elsewhere} {
			var out bytes.Buffer
			z := zip.NewWriter(&out)
			must(t, z.SetComment("of build 7"))
			header := &zip.FileHeader{Name: program.name, Method: zip.Deflate}
			header.SetMode(0o755)
			w, err := z.CreateHeader(header)
			must(t, err)
			_, err = w.Write([]byte("program for " + platform))
			must(t, err)
			must(t, z.Close())
			r.Write(t, r.Name+"_"+platform+".zip", out.String())
		}
	}},
	"zip-with-prefix": {build: func(t testing.TB, r builds.Release) {
		for _, platform := range []string{Here, Elsewhere} {
			name := r.Name + "_" + platform + ".zip"
			r.Write(t, name, "#!/bin/sh\n"+read(t, filepath.Join(r.Dir, name)))
		}
	}},
	"zip-damaged": {build: func(t testing.TB, r builds.Release) {
		for _, platform := range []string{Here, Elsewhere} {
			name := r.Name + "_" + platform + ".zip"
			r.Write(t, name, read(t, filepath.Join(r.Dir, name))[:100])
		}
	}},
	"zip-the-same-for-two-platforms": {build: zipped(zip.Deflate, file{program.name, "program", 0o755})},
}
