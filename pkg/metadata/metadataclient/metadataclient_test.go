package metadataclient_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

const token = "s3cr3t-t0ken"

// api is a registry with fixed responses by path and query. Requests need the
// token. All other paths are 404.
type api map[string]string

func (a api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.RequestURI()
	if path == "/.well-known/terraform.json" && a[path] == "" {
		_, _ = io.WriteString(w, `{"modules.v1":"/v1/modules/"}`)
		return
	}
	if got := r.Header.Get("Authorization"); got != "Bearer "+token && path != "/.well-known/terraform.json" {
		http.Error(w, `{"errors":["authentication required"],"code":"unauthenticated"}`, http.StatusUnauthorized)
		return
	}
	body, found := a[path]
	if !found {
		w.WriteHeader(http.StatusNotFound)
		body = `{"errors":["not found"],"code":"not_found"}`
	}
	_, _ = io.WriteString(w, body)
}

// open returns a client of a server and the server's host.
func open(t *testing.T, a http.Handler, token string) (*metadataclient.Client, string, error) {
	t.Helper()
	server := httptest.NewUnstartedServer(a)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "https://")
	file := filepath.Join(t.TempDir(), "tofurc")
	if err := os.WriteFile(file, fmt.Appendf(nil, "credentials %q {\n  token = %q\n}\n", host, token), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + file}, "")
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(config, "larder/test", server.Client().Transport)
	c.Wait = time.Millisecond
	opened, err := metadataclient.Open(t.Context(), c, host)
	return opened, host, err
}

func opened(t *testing.T, a http.Handler) *metadataclient.Client {
	t.Helper()
	c, _, err := open(t, a, token)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// page returns a page of modules with the names m0, m1 and so on.
func page(from, to, total int, next string) string {
	var modules []string
	for i := from; i < to; i++ {
		modules = append(modules, fmt.Sprintf(`{"namespace":"acme","name":"m%d","provider":"aws","version":"1.0.0"}`, i))
	}
	return fmt.Sprintf(`{"meta":{"total":%d%s},"modules":[%s]}`, total, next, strings.Join(modules, ","))
}

func next(offset int) string { return `,"next_offset":` + strconv.Itoa(offset) }

func TestPages(t *testing.T) {
	t.Parallel()
	c := opened(t, api{
		"/v1/modules?limit=100":             page(0, 100, 150, next(100)),
		"/v1/modules?limit=100&offset=100":  page(100, 150, 150, ""),
		"/v1/modules?limit=7":               page(0, 7, 150, next(7)),
		"/v1/modules/acme?limit=100&q=m1+m": page(1, 2, 1, ""),
		"/v1/modules?limit=100&q=nothing":   `{"meta":{"total":0},"modules":[]}`,
		"/v1/modules?limit=100&q=end":       page(0, 1, 2, next(0)),
	})
	for name, test := range map[string]struct {
		query metadataclient.Query
		want  []string // the first and the last address
		total int
		err   error
	}{
		"all":   {want: []string{"150", "acme/m0/aws", "acme/m149/aws"}, total: 150},
		"limit": {query: metadataclient.Query{Limit: 7}, want: []string{"7", "acme/m0/aws", "acme/m6/aws"}, total: 150},
		"words": {
			metadataclient.Query{Words: "m1 m", Namespace: "acme"}, []string{"1", "acme/m1/aws", "acme/m1/aws"}, 1, nil,
		},
		"no result": {query: metadataclient.Query{Words: "nothing"}, want: []string{"0"}},
		"no end":    {query: metadataclient.Query{Words: "end"}, err: registry.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, meta, err := c.Modules(t.Context(), test.query)
			if !errors.Is(err, test.err) {
				t.Fatalf("error is %v", err)
			}
			if err != nil {
				return
			}
			got := []string{strconv.Itoa(len(all))}
			if len(all) > 0 {
				got = append(got, metadataclient.ModuleAddress(all[0]), metadataclient.ModuleAddress(all[len(all)-1]))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if meta.Total != test.total {
				t.Errorf("total is %d, want %d", meta.Total, test.total)
			}
		})
	}
}

const list = "/v1/modules?limit=1"

var (
	vpc       = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	inventory = registry.Provider{Namespace: "acme", Type: "inventory"}
	random    = registry.MirrorAddress{
		Hostname: "registry.opentofu.org", Namespace: "hashicorp", Name: "random",
	}
	version = registry.Version{Major: 1, Minor: 2, Metadata: "b"}
)

func TestDetails(t *testing.T) {
	t.Parallel()
	c := opened(t, api{
		"/v1/modules/acme/vpc/aws":         `{"version":"1.3.0","root":{"inputs":[{"name":"cidr"}]}}`,
		"/v1/modules/acme/vpc/aws/1.2.0+b": `{"version":"1.2.0+b"}`,
		"/v1/providers/acme/inventory":     `{"version":"1.1.0"}`,
		list:                               page(0, 1, 1, ""),
	})
	newest, err := c.Module(t.Context(), vpc, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("1.3.0", newest.Version.String()); diff != "" {
		t.Errorf("newest version (-want +got):\n%s", diff)
	}
	if len(newest.Root.Inputs) != 1 {
		t.Errorf("inputs: %+v", newest.Root.Inputs)
	}
	older, err := c.Module(t.Context(), vpc, &version)
	if err != nil || older.Version != version {
		t.Errorf("version %s, %v", older.Version, err)
	}
	provider, err := c.Provider(t.Context(), inventory, nil)
	if err != nil || provider.Version.String() != "1.1.0" {
		t.Errorf("version %s, %v", provider.Version, err)
	}
	if _, err := c.Provider(t.Context(), inventory, &version); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("another version: %v", err)
	}
}

// A namespace that no provider can have has no providers, and the API would refuse it.
func TestOtherNamespaces(t *testing.T) {
	t.Parallel()
	c := opened(t, api{"/v1/modules/My_Team?limit=100": `{"modules":[{"namespace":"My_Team","name":"vpc","provider":"aws"}]}`})
	modules, _, err := c.Modules(t.Context(), metadataclient.Query{Namespace: "My_Team"})
	if err != nil || len(modules) != 1 {
		t.Errorf("modules %v, %v", modules, err)
	}
	providers, _, err := c.Providers(t.Context(), metadataclient.Query{Namespace: "My_Team"})
	if err != nil || len(providers) != 0 {
		t.Errorf("providers %v, %v", providers, err)
	}
}

func TestMirroredHistory(t *testing.T) {
	t.Parallel()
	c := opened(t, api{
		"/v1/mirror/registry.opentofu.org/hashicorp/random?history=true": `{"version":"1.0.0","versions":[
			{"version":"1.0.0","state":"available"},
			{"version":"2.0.0","state":"too new","available_at":"2026-01-02T03:04:05Z"}]}`,
	})
	got, err := c.MirroredHistory(t.Context(), random)
	if err != nil {
		t.Fatal(err)
	}
	if got.Version == nil || got.Version.String() != "1.0.0" {
		t.Errorf("the latest version is %s, want 1.0.0", got.Version)
	}
	want := []protocol.MirroredVersion{
		{Version: registry.Version{Major: 2}, State: "too new", AvailableAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		{Version: registry.Version{Major: 1}, State: "available"},
	}
	if diff := cmp.Diff(want, got.Versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if _, err := opened(t, api{}).MirroredHistory(t.Context(), random); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("nothing is mirrored: %v, want %v", err, registry.ErrNotFound)
	}
}

// Histories are the same over the network and in the same process.
func TestHistories(t *testing.T) {
	t.Parallel()
	const mirrored = "/v1/mirror/registry.opentofu.org/hashicorp/random?history=true"
	responses := api{
		"/v1/modules/acme/vpc/aws/history": `{"address":"acme/vpc/aws","all_deprecated":"old","versions":[
			{"version":"1.1.0","size":121},{"version":"1.0.0","state":"missing"}]}`,
		"/v1/providers/acme/inventory/history": `{"address":"acme/inventory","versions":[{"version":"1.0.0",
			"state":"withdrawn","reason":"leaked","withdrawn":{"at":"2026-01-02T03:04:05Z","by":"ada","reason":"leaked"}}]}`,
		mirrored: `{"min_age":60,"versions":[{"version":"1.0.0","state":"missing"},
			{"version":"2.0.0","state":"available","packages":[{"os":"linux","arch":"amd64","size":5}]}]}`,
		list: page(0, 1, 1, ""),
	}
	numbered := func(major, minor uint64) registry.Version { return registry.Version{Major: major, Minor: minor} }
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	modules := protocol.ModuleHistory{Address: "acme/vpc/aws", AllDeprecated: "old", Versions: []protocol.PastModule{
		{VersionState: protocol.VersionState{Version: numbered(1, 1)}, Size: 121},
		{VersionState: protocol.VersionState{Version: numbered(1, 0), State: protocol.StateMissing}},
	}}
	providers := protocol.ProviderHistory{Address: "acme/inventory", Versions: []protocol.PastProvider{{
		VersionState: protocol.VersionState{
			Version: numbered(1, 0), State: protocol.StateWithdrawn, Reason: "leaked",
			Withdrawn: &registry.Withdrawal{At: at, By: "ada", Reason: "leaked"},
		},
	}}}
	versions := []protocol.MirroredVersion{
		{Version: numbered(2, 0), State: "available", Packages: []protocol.MirroredFile{{
			ProviderFile: protocol.ProviderFile{Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Size: 5},
		}}},
		{Version: numbered(1, 0), State: protocol.StateMissing},
	}
	authorized := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		responses.ServeHTTP(w, r)
	})
	for name, c := range map[string]*metadataclient.Client{
		"network": opened(t, responses), "process": metadataclient.InProcess(authorized, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gotModules, err := c.ModuleHistory(t.Context(), vpc)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(modules, gotModules); diff != "" {
				t.Errorf("module (-want +got):\n%s", diff)
			}
			gotProviders, err := c.ProviderHistory(t.Context(), inventory)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(providers, gotProviders); diff != "" {
				t.Errorf("provider (-want +got):\n%s", diff)
			}
			gotMirrored, err := c.MirroredHistory(t.Context(), random)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(versions, gotMirrored.Versions); diff != "" {
				t.Errorf("mirrored provider (-want +got):\n%s", diff)
			}
			if gotMirrored.MinAge != 60 {
				t.Errorf("the minimum age is %d, want 60", gotMirrored.MinAge)
			}
			other, otherVPC := registry.Provider{Namespace: "acme", Type: "none"}, vpc
			otherVPC.Name = "none"
			_, noModule := c.ModuleHistory(t.Context(), otherVPC)
			_, noProvider := c.ProviderHistory(t.Context(), other)
			_, notMirrored := c.MirroredHistory(t.Context(), registry.MirrorAddress{Hostname: "x.example", Namespace: other.Namespace, Name: other.Type})
			for what, err := range map[string]error{
				"module": noModule, "provider": noProvider, "mirrored provider": notMirrored,
			} {
				if !errors.Is(err, registry.ErrNotFound) {
					t.Errorf("unknown %s: %v, want %v", what, err, registry.ErrNotFound)
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		api   http.Handler
		token string
		err   error
	}{
		"no such module":  {api{list: page(0, 0, 0, "")}, token, registry.ErrNotFound},
		"no metadata API": {api{}, token, registry.ErrNotFound},
		"no modules": {
			api{"/.well-known/terraform.json": `{"providers.v1":"/v1/providers/"}`}, token, registry.ErrNotFound,
		},
		"other paths":      {api{"/.well-known/terraform.json": `{"modules.v1":"/registry/"}`}, token, registry.ErrNotFound},
		"wrong credential": {api{}, "other", registry.ErrBadCredential},
		"invalid":          {api{"/v1/modules/acme/vpc/aws": `{"version":"one"}`}, token, registry.ErrInvalid},
		"too long": {
			api{"/v1/modules/acme/vpc/aws": `{"readme":"` + strings.Repeat("x", 9<<20) + `"}`}, token, registry.ErrInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, host, err := open(t, test.api, test.token)
			if err == nil {
				_, err = c.Module(t.Context(), vpc, nil)
			}
			if !errors.Is(err, test.err) {
				t.Fatalf("error is %v, want %v", err, test.err)
			}
			texts.Error(t, err, host, "HOST", registry.Hint(err), stable(registry.Hint(err)))
		})
	}
}

// stable returns a hint without the name of the configuration file.
func stable(hint string) string {
	if i := strings.Index(hint, os.TempDir()); i >= 0 {
		return hint[:i] + "FILE" + hint[i+strings.Index(hint[i:], " "):]
	}
	return hint
}

// A client in the same process returns the errors that responses conceal.
func TestInProcess(t *testing.T) {
	t.Parallel()
	damaged := fmt.Errorf("item: %w", registry.ErrCorrupt)
	c := metadataclient.InProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/modules/acme/vpc/aws":
			_, _ = io.WriteString(w, `{"version":"1.3.0"}`)
		case "/v1/providers/acme/inventory":
			requestlog.From(r.Context()).Err = damaged
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/v1/mirror":
			w.WriteHeader(http.StatusTeapot)
		case "/v1/modules":
			_, _ = io.WriteString(w, page(0, 0, 0, ""))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}), "")
	if d, err := c.Module(t.Context(), vpc, nil); err != nil || d.Version.String() != "1.3.0" {
		t.Errorf("%s, %v", d.Version, err)
	}
	if _, err := c.Provider(t.Context(), inventory, nil); !errors.Is(err, registry.ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
	if _, err := c.Module(t.Context(), vpc, &version); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	if _, err := c.Mirrored(t.Context()); err == nil {
		t.Error("an unexpected status is no error")
	}
}
