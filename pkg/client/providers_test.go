package client_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

var random = registry.Provider{Namespace: "hashicorp", Type: "random"}

func version(t *testing.T, s string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func origin(t *testing.T, handler http.HandlerFunc) *client.Service {
	t.Helper()
	service := serviceAt(t, newWorld(t, handler).client(t), "https://registry.example.com/v1/providers/")
	return service
}

func TestProviderVersions(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	linux, darwin := registry.Platform{OS: "linux", Arch: "amd64"}, registry.Platform{OS: "darwin", Arch: "arm64"}
	tests := map[string]struct {
		answer string
		want   []client.OfferedVersion
		err    error
	}{
		"sorted": {answer: `{"id":"x","warnings":["w"],"versions":[
			{"version":"1.9.0","protocols":["5.0"],"platforms":[{"os":"linux","arch":"amd64"},{"os":"darwin","arch":"arm64"}]},
			{"version":"1.10.0"},{"version":"2.0.0-rc.1"}]}`,
			want: []client.OfferedVersion{
				{Version: version(t, "2.0.0-rc.1")}, {Version: version(t, "1.10.0")},
				{Version: version(t, "1.9.0"), Platforms: []registry.Platform{linux, darwin}},
			}},
		"what is none is left out": {answer: `{"versions":[{"version":"v1.0.0"},{"version":"latest"},
			{"version":""},{"version":"1.2.3.4"},
			{"version":"99999999999999999999.0.0"},{"version":"1.0"},{"version":"1.0.0"},
			{"version":"1.1.0","platforms":[{"os":"../x","arch":"amd64"},{"os":"linux","arch":"amd64"},
			{"os":"linux","arch":"amd64"},{}]}]}`,
			want: []client.OfferedVersion{
				{Version: version(t, "1.1.0"), Platforms: []registry.Platform{linux}}, {Version: version(t, "1.0.0")},
			}},
		"none":       {answer: `{}`, want: []client.OfferedVersion{}},
		"null":       {answer: `{"versions":null}`, want: []client.OfferedVersion{}},
		"other type": {answer: `{"versions":"foreign words"}`, err: registry.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := origin(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/v1/providers/hashicorp/random/versions" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				answerJSON(w, 200, test.answer)
			})
			got, _, err := service.ProviderVersions(t.Context(), random)
			check(t, texts, err, test.err)
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("versions are %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestProviderPackage(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	sum, hash := strings.Repeat("0aF", 21)+"b", "h1:"+strings.Repeat("A", 43)+"="
	whole := map[string]any{
		"protocols": []string{"5.0", "6.0"}, "os": "linux", "arch": "amd64",
		"filename":     "terraform-provider-random_1.0.0_linux_amd64.zip",
		"download_url": "../files/a.zip?X-Amz-Signature=1", "shasum": sum, "shasums_url": "/SHA256SUMS",
		"shasums_signature_url": "http://cdn.example.com/s.sig#x",
		"signing_keys": map[string]any{
			"gpg_public_keys": []any{
				nil, map[string]string{"ascii_armor": " \n"}, map[string]string{"key_id": "X", "ascii_armor": "KEY"},
			},
		},
	}
	tests := map[string]struct {
		field string
		value any
		err   error
	}{
		"whole":                  {},
		"other os":               {"os", "darwin", registry.ErrInvalid},
		"other arch":             {"arch", "arm64", registry.ErrInvalid},
		"no os":                  {"os", nil, registry.ErrInvalid},
		"short sum":              {"shasum", sum[1:], registry.ErrInvalid},
		"sum that is no hex":     {"shasum", strings.Repeat("x", 64), registry.ErrInvalid},
		"long sum":               {"shasum", sum + "00", registry.ErrInvalid},
		"no filename":            {"filename", nil, registry.ErrInvalid},
		"filename with folder":   {"filename", "../a.zip", registry.ErrInvalid},
		"filename with folders":  {"filename", `a\b.zip`, registry.ErrInvalid},
		"filename dots":          {"filename", "..", registry.ErrInvalid},
		"filename with control":  {"filename", "a\x1b.zip", registry.ErrInvalid},
		"filename long":          {"filename", strings.Repeat("a", 256), registry.ErrInvalid},
		"filename of other type": {"filename", 5, registry.ErrInvalid},
		"no URL":                 {"download_url", nil, registry.ErrInvalid},
		"no sums":                {"shasums_url", "", registry.ErrInvalid},
		"no signature":           {"shasums_signature_url", "", registry.ErrInvalid},
		"other scheme":           {"shasums_url", "ftp://example.com/x?X-Amz-Signature=1", registry.ErrInvalid},
		"no host":                {"shasums_url", "https:///x", registry.ErrInvalid},
		"file":                   {"download_url", "file:///etc/passwd", registry.ErrInvalid},
		"bad URL":                {"download_url", "https://%zz/?" + secret, registry.ErrInvalid},
		"with a password":        {"download_url", "https://u:" + secret + "@example.com/", registry.ErrInvalid},
		"odd protocol":           {"protocols", []string{"v5"}, registry.ErrInvalid},
		"no protocols":           {"protocols", nil, nil},
		"no keys":                {"signing_keys", nil, nil},
		"packages": {"packages", map[string]any{
			"linux_amd64":   map[string]any{"hashes": []string{hash, "zh:" + sum, "h1:x", "h9:new"}, "package_size": 12},
			"darwin_arm64":  map[string]any{"hashes": []string{hash, "zh:" + sum}, "package_size": 11},
			"windows_amd64": map[string]any{"hashes": []string{"zh:" + sum}, "package_size": 12},
			"windows_386":   map[string]any{"hashes": []string{hash, "zh:" + sum}},
			"odd":           map[string]any{"hashes": []string{hash, "zh:" + sum}, "package_size": 12},
		}, nil},
		"packages of another type": {"packages", []string{"x"}, registry.ErrInvalid},
		"keys that are large": {"signing_keys", map[string]any{"gpg_public_keys": slices.Repeat(
			[]any{map[string]string{"ascii_armor": strings.Repeat("K", 64<<10)}}, 5)}, registry.ErrInvalid},
		"URL long after its resolution": {"download_url", "/" + strings.Repeat("x", 8<<10-len("https://meta.example.com")),
			registry.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := maps.Clone(whole)
			if test.field != "" {
				body[test.field] = test.value
			}
			answer, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			service := origin(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/v1/providers/hashicorp/random/1.0.0+b/download/linux/amd64":
					http.Redirect(w, r, "https://meta.example.com/deep/down/answer", http.StatusTemporaryRedirect)
				case "/deep/down/answer":
					answerJSON(w, 200, string(answer))
				default:
					t.Errorf("%s %s", r.Method, r.URL)
				}
			})
			got, err := service.ProviderPackage(
				t.Context(), random, version(t, "1.0.0+b"), registry.Platform{OS: "linux", Arch: "amd64"},
			)
			check(t, texts, err, test.err)
			if test.err != nil {
				return
			}
			want := client.ProviderPackage{
				Filename: "terraform-provider-random_1.0.0_linux_amd64.zip", SHA256: strings.ToLower(sum),
				DownloadURL:  "https://meta.example.com/deep/files/a.zip?X-Amz-Signature=1",
				SumsURL:      "https://meta.example.com/SHA256SUMS",
				SignatureURL: "http://cdn.example.com/s.sig", Keys: []registry.PublicKey{{KeyID: "X", ASCIIArmor: "KEY"}}, Protocols: []string{"5.0", "6.0"},
			}
			switch test.field {
			case "protocols":
				want.Protocols = nil
			case "signing_keys":
				want.Keys = nil
			case "packages": // those that are described completely
				for _, p := range []registry.OfferedPackage{
					{Platform: registry.Platform{OS: "darwin", Arch: "arm64"}, Size: 11},
					{Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Size: 12},
				} {
					p.H1, p.SHA256 = hash, strings.ToLower(sum)
					want.Packages = append(want.Packages, p)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the package differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProviderPackageIsAbsent(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	_, err := origin(t, http.NotFound).ProviderPackage(
		t.Context(), random, version(t, "1.0.0"), registry.Platform{OS: "plan9", Arch: "arm"},
	)
	check(t, texts, err, registry.ErrNotFound)
}

// The response has as many versions, or as many platforms of one version, as
// fit into it.
func BenchmarkProviderVersions(b *testing.B) {
	const many = 60_000
	platform := func(i int) string { return fmt.Sprintf(`{"os":"linux","arch":"a%d"}`, i) }
	version := func(i int, platforms string) string {
		return fmt.Sprintf(`{"version":"1.%d.0","platforms":[%s]}`, i, platforms)
	}
	var versions, platforms []string
	for i := range many {
		versions = append(versions, version(i, platform(1)))
		platforms = append(platforms, platform(i))
	}
	for name, listed := range map[string]string{
		"versions":                 strings.Join(versions, ","),
		"platforms of one version": version(1, strings.Join(platforms, ",")),
	} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answerJSON(w, http.StatusOK, `{"versions":[`+listed+`]}`)
			}))
			defer server.Close()
			service, err := client.New(nil, "larder/test", nil).ServiceAt(server.URL)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				found, _, err := service.ProviderVersions(b.Context(), registry.Provider{Namespace: "acme", Type: "inventory"})
				if err != nil || len(found)*len(found[0].Platforms) != many {
					b.Fatal(len(found), err)
				}
			}
		})
	}
}

// Publication times come from strangers. A time that is missing or absurd is
// none, and never an error.
func TestPublicationTimes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 8, 15, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		`"2026-11-20T08:15:00Z"`:      at,
		`"2026-11-20T09:15:00+01:00"`: at,
		`"2026-11-20T08:15:00.5Z"`:    at.Add(time.Second / 2),
		`"2000-01-01T00:00:00Z"`:      time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		`"1999-12-31T23:59:59Z"`:      {},
		`"2201-01-01T00:00:00Z"`:      {},
		`"0001-01-01T00:00:00Z"`:      {},
		`"2026-11-20"`:                {},
		`"2026-11-20 08:15:00"`:       {},
		`"yesterday"`:                 {},
		`""`:                          {},
		`null`:                        {},
		`1763626500`:                  {},
		`{"at":[]}`:                   {},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			service := origin(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/versions") {
					answerJSON(w, 200, `{"versions":[{"version":"1.0.0","published_at":`+text+`}]}`)
				} else {
					answerJSON(w, 200, `{"version":"1.0.0","published_at":`+text+`}`)
				}
			})
			listed, _, err := service.ProviderVersions(t.Context(), random)
			if err != nil {
				t.Fatal(err)
			}
			if got := listed[0].PublishedAt; !got.Equal(want) {
				t.Errorf("listed %s, want %s", got, want)
			}
			got, err := service.PublishedAt(t.Context(), random, version(t, "1.0.0"))
			if err != nil || !got.Equal(want) {
				t.Errorf("metadata %s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestPublishedAt(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	at := time.Date(2026, 11, 20, 8, 15, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		status int
		answer string
		want   time.Time
		err    error
	}{
		"a time":                     {200, `{"published_at":"2026-11-20T08:15:00Z"}`, at, nil},
		"a time of another version":  {200, `{"version":"1.0.1","published_at":"2026-11-20T08:15:00Z"}`, time.Time{}, nil},
		"a version that is a number": {200, `{"version":1,"published_at":"2026-11-20T08:15:00Z"}`, time.Time{}, nil},
		"no time":                    {200, `{"version":"1.0.0"}`, time.Time{}, nil},
		"a page":                     {200, `<html>`, time.Time{}, registry.ErrInvalid},
		"a list":                     {200, `[]`, time.Time{}, registry.ErrInvalid},
		"null":                       {200, `null`, time.Time{}, registry.ErrInvalid},
		"an empty response":          {200, ``, time.Time{}, registry.ErrInvalid},
		"nothing":                    {204, ``, time.Time{}, registry.ErrInvalid},
		"a bad request":              {400, `{}`, time.Time{}, registry.ErrInvalid},
		"no token":                   {401, `{}`, time.Time{}, registry.ErrUnauthenticated},
		"denied":                     {403, `{}`, time.Time{}, registry.ErrForbidden},
		"not found":                  {404, `{}`, time.Time{}, nil},
		"another method":             {405, `{}`, time.Time{}, nil},
		"gone":                       {410, `{}`, time.Time{}, nil},
		"not implemented":            {501, `{}`, time.Time{}, nil},
		"too many requests":          {429, `{}`, time.Time{}, registry.ErrUnavailable},
		"broken":                     {500, `{}`, time.Time{}, registry.ErrUnavailable},
		"overloaded":                 {503, `{}`, time.Time{}, registry.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := origin(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/v1/providers/hashicorp/random/1.0.0" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				w.Header().Set("Retry-After", "0")
				answerJSON(w, test.status, test.answer)
			})
			got, err := service.PublishedAt(t.Context(), random, version(t, "1.0.0"))
			check(t, texts, err, test.err)
			if !got.Equal(test.want) {
				t.Errorf("published at %s, want %s", got, test.want)
			}
		})
	}
}

// The origin's clock is that of the response, and as much later as a cache has
// stored it.
func TestOriginClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 8, 15, 0, 0, time.UTC)
	for _, test := range []struct {
		name, date, age string
		want            time.Time
	}{
		{"a date", at.Format(http.TimeFormat), "", at},
		{"a date in a cache", at.Format(http.TimeFormat), "3600", at.Add(time.Hour)},
		{"an age that is none", at.Format(http.TimeFormat), "old", at},
		{"a negative age", at.Format(http.TimeFormat), "-3600", at},
		{"an absurd age", at.Format(http.TimeFormat), "9223372036854775807", at},
		{"no date", "", "3600", time.Time{}},
		{"a date that is none", "yesterday", "", time.Time{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			service := origin(t, func(w http.ResponseWriter, _ *http.Request) {
				if w.Header()["Date"] = nil; test.date != "" {
					w.Header().Set("Date", test.date)
				}
				w.Header().Set("Age", test.age)
				answerJSON(w, 200, `{}`)
			})
			_, got, err := service.ProviderVersions(t.Context(), random)
			if err != nil || !got.Equal(test.want) {
				t.Errorf("date %s, %v, want %s", got, err, test.want)
			}
		})
	}
}
