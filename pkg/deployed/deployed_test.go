package deployed_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// environment returns a function's environment, with more or other variables.
func environment(more map[string]string) func(string) string {
	env := settings.Settings{
		Table: "larder", Bucket: "larder-archives", PresignLifetime: time.Hour, Access: `{"public":["**"]}`,
	}.Environment()
	maps.Copy(env, map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_SESSION_TOKEN": strings.Repeat("token+/=", 128), // as long as a role's
	})
	maps.Copy(env, more)
	return func(name string) string { return env[name] }
}

// aws is an HTTP client that counts operations. If replay is true, it repeats
// the response to an earlier request.
type aws struct {
	replay bool

	mu    sync.Mutex
	asked []string
	hosts []string
	known map[string]*answer
}

type answer struct {
	header http.Header
	body   []byte
}

func (a *aws) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, cmp.Or(operation, r.Method+" "+r.URL.String()))
	a.hosts = append(a.hosts, r.URL.Host)
	known := a.known[operation+string(body)]
	if known == nil || !a.replay {
		r.Body = io.NopCloser(bytes.NewReader(body))
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		known = &answer{header: response.Header}
		if known.body, err = io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
			return nil, errors.Join(fmt.Errorf("status %s: %.200s", response.Status, known.body), err)
		}
		if a.known == nil {
			a.known = make(map[string]*answer)
		}
		a.known[operation+string(body)] = known
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: known.header, Body: io.NopCloser(bytes.NewReader(known.body)),
		ContentLength: int64(len(known.body)),
	}, nil
}

// recent returns the operations since its last call.
func (a *aws) recent() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := strings.Join(a.asked, " ")
	a.asked = nil
	return asked
}

var (
	vpc       = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	inventory = registry.Provider{Namespace: "acme", Type: "inventory"}
)

const (
	sum     = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	moduleV = "1.0.4999"
)

// fill publishes the versions for the requests below: a module with 5000
// versions, and providers with 14 platforms.
func fill(tb testing.TB, table catalog.Table) {
	tb.Helper()
	c, ctx := catalog.New(table), tb.Context()
	check := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	version := func(s string) registry.Version {
		v, err := registry.ParseVersion(s)
		check(err)
		return v
	}
	var versions protocol.ModuleListing
	for i := range 5000 {
		versions.Versions = append(versions.Versions, protocol.ListedModule{
			Version: version(fmt.Sprintf("1.%d.%d", i/100, i%100)), PublishedAt: time.Unix(int64(i)*100_003, 0).UTC(),
		})
	}
	listing, err := protocol.Compress(versions)
	check(err)
	// Publishing them one by one would take longer than all the tests here.
	check(
		table.Write(
			ctx, catalog.Change{Key: catalog.Key{Partition: "modules/acme/many/aws", Sort: "listing"}, Data: listing},
		),
	)
	_, _, err = put(ctx, c.Modules, vpc, registry.ModuleVersion{
		Version: version(moduleV), Object: "modules/acme/vpc/aws/1.0.4999/" + sum + ".tar.gz", SHA256: sum,
		ContentSHA256: sum, Size: 1 << 20, PublishedAt: time.Now(), PublishedBy: registry.Publisher{
			Kind: registry.PublisherUser, Name: "somebody",
		}, Description: "A network",
	})
	check(err)

	for _, id := range []string{"0123456789ABCDEF", "FEDCBA9876543210"} {
		_, err = c.AddSigningKey(
			ctx, "acme",
			registry.SigningKey{
				ID: id,
				ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + strings.Repeat(
					strings.Repeat("A", 64)+"\n", 48,
				) + "-----END PGP PUBLIC KEY BLOCK-----\n",
			},
		)
		check(err)
	}
	record := registry.ProviderVersion{
		Version: version("1.0.0"), Protocols: []string{"6.0"}, SigningKey: "0123456789ABCDEF",
		Sums:      registry.StoredFile{Object: "providers/acme/inventory/1.0.0/" + sum + "/SHA256SUMS", SHA256: sum},
		Signature: registry.StoredFile{Object: "providers/acme/inventory/1.0.0/" + sum + "/SHA256SUMS.sig", SHA256: sum},
	}
	mirrored := registry.MirrorVersion{Version: version("5.0.0")}
	for i := range 14 {
		platform := registry.Platform{OS: fmt.Sprintf("os%d", i), Arch: "amd64"}
		own := fmt.Sprintf("%064x", i)
		file := fmt.Sprintf("terraform-provider-inventory_1.0.0_%s.zip", platform)
		pkg := registry.ProviderPackage{
			Platform: platform, Filename: file, H1: "h1:" + own[:44],
			StoredFile: registry.StoredFile{Object: inventory.Path() + "/1.0.0/" + own + "/" + file, SHA256: own, Size: 1 << 24},
		}
		record.Packages = append(record.Packages, pkg)
		pkg.Object = "mirror/registry.terraform.io/hashicorp/aws/5.0.0/" + own + "/" + file
		mirrored.Packages = append(
			mirrored.Packages,
			registry.MirrorPackage{
				ProviderPackage: pkg, SigningKey: "34365D9472D7468F", MirroredAt: time.Now(),
				MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: "somebody"},
			},
		)
	}
	_, _, err = put(ctx, c.Providers, inventory, record)
	check(err)
	p, err := registry.ParseMirrorProvider("registry.terraform.io/hashicorp/aws")
	check(err)
	_, _, err = c.Mirror.Add(ctx, p, mirrored, "ada")
	check(err)
}

// put publishes a record.
func put[A registry.Address, R registry.Record](
	ctx context.Context, versions catalog.Versions[A, R], a A, r R,
) (stored R, created bool, err error) {
	makeRecord := func(context.Context, protocol.Document) (R, error) { return r, nil }
	return versions.Publish(ctx, a, r.Number(), "somebody", makeRecord)
}

// function handles events, like a function of a stack.
type function func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// open returns the functions that read, by the first path segment below /v1/,
// with a filled table.
func open(
	tb testing.TB, client *aws, more map[string]string, observers ...func(*requestlog.Entry),
) (functions map[string]function, table catalog.Table) {
	tb.Helper()
	dynamo, err := dynamodbtest.Start(tb.Context(), "larder")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(dynamo.Close)
	table = dynamodb.New(awstest.Config(dynamo.URL), "larder")
	fill(tb, table)
	env := map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": dynamo.URL}
	maps.Copy(env, more)
	r, err := deployed.OpenBy(environment(env), client)
	if err != nil {
		tb.Fatal(err)
	}
	functions = make(map[string]function)
	log := slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // a line costs something too
	for name, h := range map[string]http.Handler{
		"modules":   modules.New(r.Catalog.Modules, r.Archives),
		"providers": providers.NewCaching(r.Catalog.Providers, r.Catalog, r.Archives),
		"mirror":    mirror.New(r.Catalog.Mirror, r.Archives, nil),
	} {
		functions[name] = lambdahttp.Handler(log, r.Access.RequireRead(h), observers...)
	}
	return functions, table
}

func event(path string) events.APIGatewayV2HTTPRequest {
	e := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: path, Headers: map[string]string{
		"accept-encoding": "gzip", "host": "registry.example.com", "user-agent": "OpenTofu/1.12.6",
		"x-amzn-trace-id": "Root=1-5e1b4151-5ac6c58f3b4b0f0d5f0e0f0a", "x-forwarded-for": "192.0.2.1",
		"x-forwarded-port": "443", "x-forwarded-proto": "https",
	}}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path, e.RequestContext.DomainName = http.MethodGet, path,
		"registry.example.com"
	return e
}

// requests are those of an init, with the calls for each, and the additional
// calls of a function's first request.
var requests = []struct{ name, path, calls, first string }{
	{"module versions", "/v1/modules/acme/many/aws/versions", "GetItem", ""},
	{"module download", "/v1/modules/acme/vpc/aws/" + moduleV + "/download", "GetItem", ""},
	{"provider versions", "/v1/providers/acme/inventory/versions", "GetItem", ""},
	{"provider download", "/v1/providers/acme/inventory/1.0.0/download/os3/amd64", "GetItem", " Query"},
	{"mirror index", "/v1/mirror/registry.terraform.io/hashicorp/aws/index.json", "GetItem", ""},
	{"mirror version", "/v1/mirror/registry.terraform.io/hashicorp/aws/5.0.0.json", "GetItem", ""},
}

func (f function) get(tb testing.TB, path string) events.APIGatewayV2HTTPResponse {
	tb.Helper()
	response, err := f(tb.Context(), event(path))
	if err != nil || response.StatusCode >= 300 {
		tb.Fatalf("%s: %+v, %v", path, response, err)
	}
	return response
}

func of(path string) string { return strings.Split(path, "/")[2] }

// A request costs one read of the table, and none of the bucket. The keys of a
// namespace cost one more read each minute.
func TestCalls(t *testing.T) {
	t.Parallel()
	client := &aws{}
	functions, _ := open(t, client, nil)
	for _, r := range requests {
		for n, want := range []string{r.calls + r.first, r.calls, r.calls} {
			functions[of(r.path)].get(t, r.path)
			if got := client.recent(); got != want {
				t.Errorf("%s, request %d: %s, want %s", r.name, n+1, got, want)
			}
		}
	}
}

// A token costs one more read each minute.
func TestCallsForTokens(t *testing.T) {
	t.Parallel()
	client := &aws{}
	functions, table := open(t, client, map[string]string{"LARDER_ACCESS": "{}"})
	token, digest := access.NewToken()
	if err := catalog.New(table).AddToken(
		t.Context(), digest, registry.Token{Name: "tests", Scopes: []string{"read:**"}},
	); err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"GetItem GetItem", "GetItem"} {
		e := event(requests[0].path)
		e.Headers["authorization"] = "Bearer " + token
		if response, err := functions["modules"](t.Context(), e); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%+v, %v", response, err)
		}
		if got := client.recent(); got != want {
			t.Errorf("request %d: %s, want %s", n+1, got, want)
		}
	}
}

// A listing is passed on as stored.
func TestListingIsNotUnpacked(t *testing.T) {
	t.Parallel()
	functions, table := open(t, &aws{}, nil)
	stored, err := table.Get(t.Context(), catalog.Key{Partition: "modules/acme/many/aws", Sort: "listing"})
	if err != nil {
		t.Fatal(err)
	}
	response := functions["modules"].get(t, requests[0].path)
	if got, err := base64.StdEncoding.DecodeString(response.Body); !response.IsBase64Encoded ||
		response.Headers["Content-Encoding"] != "gzip" || !bytes.Equal(got, stored.Data) {
		t.Errorf("%v, %v, %d bytes of %d", response.Headers, err, len(got), len(stored.Data))
	}
}

// Emulators can replace services, each with its own variable or all with one.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env             map[string]string
		table, archives string
	}{
		"AWS": {nil, "dynamodb.eu-central-1.amazonaws.com", "https://larder-archives.s3.eu-central-1.amazonaws.com/"},
		"one": {
			map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "LARDER_S3_PATH_STYLE": "true"}, "127.0.0.1:1",
			"http://127.0.0.1:1/larder-archives/",
		},
		"each": {
			map[string]string{
				"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:2", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:3",
				"AWS_ENDPOINT_URL": "http://127.0.0.1:1",
			},
			"127.0.0.1:2", "http://127.0.0.1:3/larder-archives/",
		},
		"the bucket": {
			map[string]string{"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:3"}, "dynamodb.eu-central-1.amazonaws.com",
			"http://127.0.0.1:3/larder-archives/",
		},
	} {
		client := &refusing{}
		r, err := deployed.OpenBy(environment(test.env), client)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := r.Archives.SignGet(t.Context(), "modules/x")
		if err != nil || !strings.HasPrefix(signed, test.archives+"modules/x?") ||
			!strings.Contains(signed, "X-Amz-Expires=3600&X-Amz-Security-Token=token") {
			t.Errorf("%s: %s, %v", name, signed, err)
		}
		if _, err := r.Catalog.Modules.Listing(t.Context(), vpc); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		// Signed with a role's credentials, and as many attempts as there is
		// time for.
		if !strings.Contains(client.authorization, "Credential=AKID/") || client.host != test.table || client.asked != 3 {
			t.Errorf("%s: %s got %d requests, with %s", name, client.host, client.asked, client.authorization)
		}
	}
}

// Each region's services have hosts in the domain of its partition.
func TestRegions(t *testing.T) {
	t.Parallel()
	for region, domain := range map[string]string{
		"us-east-1": "amazonaws.com", "eu-central-1": "amazonaws.com", "us-gov-west-1": "amazonaws.com",
		"cn-north-1": "amazonaws.com.cn", "us-iso-east-1": "c2s.ic.gov", "us-isob-east-1": "sc2s.sgov.gov",
		"eusc-de-east-1": "amazonaws.eu",
	} {
		client := &refusing{}
		r, err := deployed.OpenBy(environment(map[string]string{
			"AWS_REGION": region, "LARDER_ACCESS": withWeb, "LARDER_PULL_FUNCTION": "pull",
		}), client)
		if err != nil {
			t.Fatal(err)
		}
		want := func(service, got string) {
			t.Helper()
			if host := service + "." + region + "." + domain; got != host {
				t.Errorf("%s of %s: %s, want %s", service, region, got, host)
			}
		}
		signed, err := r.Archives.SignGet(t.Context(), "modules/x")
		if err != nil {
			t.Fatal(err)
		}
		for service, text := range map[string]string{"larder-archives.s3": signed, "lambda": r.PullWorker().URL()} {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			want(service, u.Host)
		}
		_, _ = r.Catalog.Modules.Listing(t.Context(), vpc) // the client refuses it
		want("dynamodb", client.host)
		_, _ = r.WebSecret()(t.Context()) // the client refuses it
		want("ssm", client.host)
	}
}

// Each call of the table is counted with its request, and nothing else is.
func TestCallsAreTimed(t *testing.T) {
	t.Parallel()
	functions, _ := open(t, &aws{}, nil, func(e *requestlog.Entry) {
		calls := e.StoreCalls()
		for _, took := range calls {
			if took <= 0 || took > e.Duration {
				t.Errorf("%s: a call took %v of %v", e.Route, took, e.Duration)
			}
		}
		want := 1
		if e.Download == requestlog.ProviderDownload {
			want = 2
		}
		if len(calls) != want {
			t.Errorf("%s: %d calls, want %d", e.Route, len(calls), want)
		}
	})
	for _, r := range requests {
		functions[of(r.path)].get(t, r.path)
	}
}

// refusing is a client of a service that fails.
type refusing struct {
	asked               int
	host, authorization string
}

func (c *refusing) Do(r *http.Request) (*http.Response, error) {
	c.asked++
	c.host, c.authorization = r.URL.Host, r.Header.Get("Authorization")
	return nil, &url.Error{Op: "POST", URL: r.URL.String(), Err: io.ErrUnexpectedEOF}
}

// The error names the missing setting.
func TestMissing(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for _, name := range []string{
		"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "LARDER_TABLE", "LARDER_BUCKET",
	} {
		_, err := deployed.Open(environment(map[string]string{name: ""}))
		texts.Error(t, err)
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("the error %q does not name %s", err, name)
		}
	}
	for name, value := range map[string]string{
		"LARDER_ACCESS": "{", "AWS_ENDPOINT_URL": "localhost", "LARDER_PUBLISH_FILES": "many",
	} {
		if _, _, err := deployed.OpenToPublish(environment(map[string]string{name: value})); err == nil {
			t.Errorf("%s=%s is accepted", name, value)
		}
	}
}

// BenchmarkOpen measures the start of a function before its first event.
func BenchmarkOpen(b *testing.B) {
	env := environment(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := deployed.Open(env); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRequest measures a request without Lambda's library and the network.
func BenchmarkRequest(b *testing.B) { benchmarkRequest(b) }

// BenchmarkMetered is BenchmarkRequest with metrics.
func BenchmarkMetered(b *testing.B) {
	benchmarkRequest(b, lambdahttp.Count(slog.New(slog.DiscardHandler), io.Discard, "larder"))
}

func benchmarkRequest(b *testing.B, observers ...func(*requestlog.Entry)) {
	b.Helper()
	functions, _ := open(b, &aws{replay: true}, nil, observers...)
	for _, r := range requests {
		b.Run(strings.ReplaceAll(r.name, " ", "-"), func(b *testing.B) {
			f := functions[of(r.path)]
			f.get(b, r.path)
			b.ReportAllocs()
			for b.Loop() {
				f.get(b, r.path)
			}
		})
	}
}
