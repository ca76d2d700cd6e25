package protocol_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

func TestModuleListing(t *testing.T) {
	t.Parallel()
	published := time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600))
	newest := protocol.ListModule(registry.ModuleVersion{Version: version(t, "2.0.0"), PublishedAt: published})
	others := []protocol.ListedModule{{Version: version(t, "1.0.0-rc.1+b")}, {Version: version(t, "0.0.0")}}
	tests := map[string]struct {
		listing protocol.ModuleListing
		text    string
	}{
		"without versions": {protocol.ModuleListing{Versions: []protocol.ListedModule{}}, `{"modules":[{"versions":[]}]}`},
		"with all fields": {
			protocol.ModuleListing{Source: "https://example.com/net", Versions: []protocol.ListedModule{newest}},
			`{"modules":[{"source":"https://example.com/net",` +
				`"versions":[{"version":"2.0.0","published_at":"2026-01-02T02:04:05Z"}]}]}`,
		},
		"with other versions": {
			protocol.ModuleListing{Versions: others},
			`{"modules":[{"versions":[{"version":"1.0.0-rc.1+b"},{"version":"0.0.0"}]}]}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			encoded, err := protocol.Compress(tt.listing)
			if err != nil {
				t.Fatal(err)
			}
			text, err := encoded.JSON()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.text+"\n", string(text)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
			got, err := protocol.Decode[protocol.ModuleListing](encoded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.listing, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
	// Clients fail on null.
	if text, err := json.Marshal(protocol.ModuleListing{}); string(text) != `{"modules":[{"versions":[]}]}` {
		t.Errorf("no listing is %s, %v", text, err)
	}
}

func TestDamagedModuleListing(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "hello", "\x1f\x8b"} {
		if _, err := protocol.Decode[protocol.ModuleListing]([]byte(bad)); err == nil {
			t.Errorf("Decode(%q) succeeds", bad)
		}
	}
	var twice bytes.Buffer
	w := gzip.NewWriter(&twice)
	_, _ = io.WriteString(w, `{"modules":[{},{}]}`)
	_ = w.Close()
	if _, err := protocol.Decode[protocol.ModuleListing](twice.Bytes()); err == nil {
		t.Error("Decode of two modules succeeds")
	}
}

func TestProviderListing(t *testing.T) {
	t.Parallel()
	linux, mac := registry.Platform{OS: "linux", Arch: "amd64"}, registry.Platform{OS: "darwin", Arch: "arm64"}
	want := protocol.ProviderListing{
		Versions: []protocol.ListedProvider{
			{Version: version(t, "2.0.0-beta.1"), Protocols: []string{"6.0"}, Platforms: []registry.Platform{linux}},
			{Version: version(t, "1.0.0"), Protocols: []string{"5.0", "6.0"}, Platforms: []registry.Platform{mac, linux}},
		},
		Warnings: []string{"a", "b"},
	}
	data, err := protocol.Compress(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := protocol.Decode[protocol.ProviderListing](data)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
	wrongSum := append(bytes.Clone(data[:len(data)-8]), make([]byte, 8)...)
	twice := append(bytes.Clone(data), data...)
	for _, bad := range [][]byte{nil, []byte("{}"), data[:len(data)-1], wrongSum, twice} {
		if _, err := protocol.Decode[protocol.ProviderListing](bad); err == nil {
			t.Errorf("Decode accepts %d bytes", len(bad))
		}
	}
	tooLarge := binary.LittleEndian.AppendUint32(bytes.Clone(data[:len(data)-4]), 64<<20+1)
	_, err = protocol.Decode[protocol.ProviderListing](tooLarge)
	if want := "67108865 bytes, more than 67108864"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Decode of a document that is too large: %v, want an error with %q", err, want)
	}
}

// Renovate gets the fields of a listed provider by these names. See
// docs/other-clients.md.
func TestListedProviderJSON(t *testing.T) {
	t.Parallel()
	listed := protocol.ListProvider(registry.ProviderVersion{
		Version: version(t, "1.0.0"), Protocols: []string{"6.0"},
		Packages:    []registry.ProviderPackage{{Platform: registry.Platform{OS: "linux", Arch: "amd64"}}},
		PublishedAt: time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600)),
	})
	text, err := json.Marshal(protocol.ProviderListing{Versions: []protocol.ListedProvider{listed}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"versions":[{"version":"1.0.0","protocols":["6.0"],"platforms":[{"os":"linux","arch":"amd64"}],` +
		`"published_at":"2026-01-02T02:04:05Z"}]}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestMirrorListing(t *testing.T) {
	t.Parallel()
	for _, want := range []protocol.MirrorListing{{}, versions(t, "1.0.0", "1.1.0-rc.1", "2.0.0+b")} {
		data, err := protocol.Compress(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := protocol.Decode[protocol.MirrorListing](data)
		slices.SortFunc(got, registry.CompareVersions)
		if err != nil || !slices.Equal(got, slices.SortedFunc(slices.Values(want), registry.CompareVersions)) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
		wrongSum := append(bytes.Clone(data[:len(data)-8]), make([]byte, 8)...)
		for _, bad := range [][]byte{nil, []byte(`{"versions":{}}`), data[:len(data)-1], wrongSum} {
			if _, err := protocol.Decode[protocol.MirrorListing](bad); err == nil {
				t.Errorf("Decode accepts %d bytes", len(bad))
			}
		}
	}
	// Clients fail on null.
	if text, err := json.Marshal(protocol.MirrorListing(nil)); err != nil || string(text) != `{"versions":{}}` {
		t.Errorf("%s, %v", text, err)
	}
	for _, bad := range []any{
		map[string]any{"versions": map[string]any{"x": map[string]any{}}}, map[string]any{"versions": []string{"1.0.0"}},
		"1.0.0",
	} {
		data, err := protocol.Compress(bad)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := protocol.Decode[protocol.MirrorListing](data); err == nil {
			t.Errorf("Decode(%v) = %v", bad, got)
		}
	}
}

func version(t *testing.T, s string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func versions(t *testing.T, all ...string) (out []registry.Version) {
	t.Helper()
	for _, s := range all {
		out = append(out, version(t, s))
	}
	return out
}

// FindDropped compares a version with the newest earlier one. Pre-releases
// count only if there are no other versions.
func TestFindDropped(t *testing.T) {
	t.Parallel()
	linux, mac := registry.Platform{OS: "linux", Arch: "amd64"}, registry.Platform{OS: "darwin", Arch: "arm64"}
	windows := registry.Platform{OS: "windows", Arch: "amd64"}
	listed := func(platforms map[string][]registry.Platform) protocol.Document {
		var list protocol.ProviderListing
		for number, of := range platforms {
			list.Versions = append(list.Versions, protocol.ListedProvider{Version: version(t, number), Platforms: of})
		}
		slices.SortFunc(list.Versions, func(a, b protocol.ListedProvider) int {
			return registry.CompareVersions(b.Version, a.Version)
		})
		document, err := protocol.Compress(list)
		if err != nil {
			t.Fatal(err)
		}
		return document
	}
	all := []registry.Platform{windows, linux, mac}
	type of = map[string][]registry.Platform
	for name, test := range map[string]struct {
		listed    protocol.Document
		version   string
		platforms []registry.Platform
		want      string
	}{
		"the first version":     {nil, "1.0.0", all[:1], ""},
		"a damaged listing":     {protocol.Document("{"), "1.0.0", all[:1], ""},
		"fewer":                 {listed(of{"1.0.0": all}), "1.1.0", all[1:2], "1.0.0 [darwin_arm64 windows_amd64]"},
		"as many":               {listed(of{"1.0.0": all}), "1.1.0", all, ""},
		"others":                {listed(of{"1.0.0": all[:1]}), "1.1.0", all[1:], "1.0.0 [windows_amd64]"},
		"the newest counts":     {listed(of{"1.0.0": all, "1.1.0": all[:1]}), "1.2.0", all[:1], ""},
		"an older version":      {listed(of{"1.0.0": all[:1], "2.0.0": all}), "1.0.1", all[:1], ""},
		"after a pre-release":   {listed(of{"1.0.0": all, "1.1.0-rc.1": all[:1]}), "1.1.0", all[:2], "1.0.0 [darwin_arm64]"},
		"only pre-releases":     {listed(of{"1.0.0-rc.1": all}), "1.0.0", all[:2], "1.0.0-rc.1 [darwin_arm64]"},
		"nothing but newer":     {listed(of{"2.0.0": all}), "1.0.0", all[:1], ""},
		"a version that is new": {listed(of{"0.9.0": nil}), "1.0.0", all, ""},
	} {
		record := registry.ProviderVersion{Version: version(t, test.version)}
		for _, p := range test.platforms {
			record.Packages = append(record.Packages, registry.ProviderPackage{Platform: p})
		}
		got := ""
		if d := protocol.FindDropped(test.listed, record); d != nil {
			got = fmt.Sprint(d.Since, " ", d.Platforms)
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
