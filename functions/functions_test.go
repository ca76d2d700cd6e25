// Package functions_test runs the binaries of the functions as Lambda does.
// They run under a Runtime API server, behind a gateway that creates HTTP API
// events, and use emulators of DynamoDB and S3.
package functions_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/web"
)

var built = sync.OnceValues(func() (string, error) {
	arch := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[runtime.GOARCH]
	out, err := exec.Command("../scripts/build", arch).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return filepath.Join("..", "dist", arch), nil
})

// start starts the binary of a function that scripts/build has built.
func start(t testing.TB, name string, env map[string]string) *lambda.Function {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("LEFT OUT: functions are built for Linux")
	}
	dist, err := built()
	if err != nil {
		t.Fatal(err)
	}
	timeout := lambda.FunctionTimeout
	if name == "publish" || name == "pull" {
		timeout = 15 * time.Minute
	}
	f, err := lambda.StartFunction(t.Context(), name, filepath.Join(dist, name, "bootstrap"), env, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		if t.Failed() {
			t.Logf("function %s:\n%s", name, f.Log())
		}
	})
	return f
}

// deployed is a registry of functions on emulators.
type deployed struct {
	gateway   *lambda.Gateway
	publisher publish.Publisher
	catalog   *catalog.Catalog
	functions map[string]*lambda.Function
	env       map[string]string // of all functions except discovery
	s3        *s3test.Server
	dynamo    *dynamodbtest.Server
	caFile    string
	token     string // reads and publishes everything
}

func deploy(t *testing.T) deployed {
	t.Helper()
	const table, bucket = "larder", "larder-objects"
	s3server := s3test.ForTest(t, bucket)
	dynamo, err := dynamodbtest.Start(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	s := settings.Settings{Table: table, Bucket: bucket, PresignLifetime: settings.MinPresignLifetime, PathStyle: true}
	env := s.Environment()
	env["AWS_ENDPOINT_URL_DYNAMODB"], env["AWS_ENDPOINT_URL_S3"] = dynamo.URL, s3server.URL
	maps.Copy(env, settings.MetricsEnvironment(namespace))
	d := deployed{s3: s3server, dynamo: dynamo, env: env, functions: map[string]*lambda.Function{
		"discovery": start(t, "discovery", settings.MetricsEnvironment(namespace)),
		"modules":   start(t, "modules", env),
		"providers": start(t, "providers", env),
		"mirror":    start(t, "mirror", env),
		"metadata":  start(t, "metadata", env),
		"web":       start(t, "web", env),
		"publish":   start(t, "publish", env),
	}}
	d.gateway = lambda.StartGateway(routes(d.functions))
	t.Cleanup(func() {
		d.gateway.Close()
		if failures := d.gateway.Failures(); len(failures) != 0 {
			t.Errorf("requests failed in their function: %v", failures)
		}
	})
	d.caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := d.gateway.WriteCA(d.caFile); err != nil {
		t.Fatal(err)
	}
	published := catalog.New(dynamodb.New(awstest.Config(dynamo.URL), table))
	d.catalog = published
	var digest string
	d.token, digest = access.NewToken()
	if err := published.AddToken(t.Context(), digest,
		registry.Token{Name: "tests", Scopes: []string{"read:**", "publish:**", "publish:*/acme/**"}}); err != nil {
		t.Fatal(err)
	}
	d.publisher = publish.Publisher{
		Catalog: published,
		Objects: s3.New(awstest.Config(s3server.URL), bucket, s3.Options{PathStyle: true}),
		By:      registry.Publisher{Kind: registry.PublisherAWS, Name: "arn:aws:iam::000000000000:user/rehearsal"},
	}
	return d
}

// routes returns the routes of the stack to functions by their names.
func routes[F lambda.Target](functions map[string]F) map[string]lambda.Target {
	all := make(map[string]lambda.Target)
	for name, keys := range map[string][]string{
		"discovery": httpapi.RouteKeys(discovery.Routes()),
		"modules":   httpapi.RouteKeys(modules.Routes()),
		"providers": httpapi.RouteKeys(providers.Routes()),
		"mirror":    httpapi.RouteKeys(mirror.Routes(), mirror.ProvidersPath, mirror.ModulesPath),
		"metadata":  httpapi.RouteKeys(nil, metadata.Tree),
		"web":       httpapi.RouteKeys(nil, web.Tree),
		"publish":   httpapi.RouteKeys(nil, protocol.PublishPath),
	} {
		for _, key := range keys {
			all[key] = functions[name]
		}
	}
	return all
}

func (d deployed) publish(t *testing.T, address, version, content string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := registry.ParseModule(address)
	if err != nil {
		t.Fatal(err)
	}
	v, err := registry.ParseTag(version)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.publisher.Module(t.Context(), rules.Module{Dir: dir, Address: m, Version: v}); err != nil {
		t.Fatal(err)
	}
}

// publishedAt matches a publication time in a listing.
var publishedAt = regexp.MustCompile(`"20\d\d-\d\d-\d\dT[\d:]+Z"`)

// The real clients get a module from the functions, and its archive from S3.
func TestInit(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	for _, v := range []string{"1.0.0", "1.2.0", "2.0.0+build.5"} {
		d.publish(t, "Acme/vpc/aws", v, `output "it" { value = "`+v+`" }`)
	}
	// The next request sees the published versions.
	response, body := d.get(t, "/v1/modules/Acme/vpc/aws/versions")
	if response.StatusCode != 200 {
		t.Errorf("versions: %s, want 200", response.Status)
	}
	const want = `{"modules":[{"versions":[{"version":"2.0.0+build.5","published_at":"TIME"},` +
		`{"version":"1.2.0","published_at":"TIME"},{"version":"1.0.0","published_at":"TIME"}]}]}` + "\n"
	if got := publishedAt.ReplaceAllString(body, `"TIME"`); got != want {
		t.Errorf("versions: %s, want %s", got, want)
	}
	response, _ = d.get(t, "/v1/modules/Acme/vpc/aws/1.0/download")
	location := response.Header.Get("X-Terraform-Get")
	if response.StatusCode != 204 {
		t.Errorf("download: %s, want 204", response.Status)
	}
	if !strings.HasPrefix(location, d.s3.URL+"/") {
		t.Errorf("download: the location is %.40s, want one in S3", location)
	}
	if !strings.Contains(location, "&archive=tar.gz&checksum=sha256:") {
		t.Error("download: the location has no archive format or no checksum")
	}
	// A presigned URL is for one method. S3 denies the HEAD with which go-getter
	// begins.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, strings.Split(location, "&archive=")[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if head, err := http.DefaultClient.Do(request); err != nil || head.StatusCode != 403 {
		t.Errorf("HEAD of the archive: %v, %v", head, err)
	}
	for name, f := range d.functions {
		for _, part := range []string{d.token, "X-Amz-Signature", "ERROR"} {
			if log := f.Log(); strings.Contains(log, part) {
				t.Errorf("the log of %s has %s:\n%s", name, part, log)
			}
		}
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		dir := t.TempDir()
		config := `module "a" {
  source  = "` + d.gateway.Host + `/Acme/vpc/aws"
  version = "~> 1.0"
}
module "b" {
  source  = "` + d.gateway.Host + `/Acme/vpc/aws"
  version = "2.0.0+build.5"
}
output "a" { value = module.a.it }
output "b" { value = module.b.it }
`
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		session := clients.Session{
			Client: c,
			Home:   t.TempDir(),
			CAFile: d.caFile,
			Config: fmt.Sprintf("credentials %q {\n  token = %q\n}\n", d.gateway.Host, d.token),
		}
		for _, args := range [][]string{{"init"}, {"apply", "-auto-approve"}} {
			if out, err := session.Run(t.Context(), dir, args...); err != nil {
				t.Fatal(err, out)
			}
		}
		out, err := session.Run(t.Context(), dir, "output", "-json")
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]struct{ Value string }
		if err := json.Unmarshal([]byte(out), &got); err != nil || got["a"].Value != "1.2.0" ||
			got["b"].Value != "2.0.0+build.5" {
			t.Errorf("%s, %v", out, err)
		}
	})
}

func (d deployed) get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+d.gateway.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	response, err := d.gateway.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// recorded returns events as AWS documents them. Their paths are decoded, and
// anyone can send any path.
func recorded(t *testing.T) map[string]events.APIGatewayV2HTTPRequest {
	t.Helper()
	data, err := os.ReadFile("testdata/event.json")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]events.APIGatewayV2HTTPRequest)
	add := func(name string, change func(*events.APIGatewayV2HTTPRequest)) {
		var e events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		change(&e)
		out[name] = e
	}
	for _, path := range []string{
		"/.well-known/terraform.json",
		"/v1/modules/acme/vpc/aws/versions", "/v1/modules/acme/vpc/aws/1.0.0/download",
		"/v1/providers/acme/x/versions", "/v1/mirror/example.com/acme/x/index.json",
		"/v1/modules", "/v1/modules/search", "/v1/modules/acme", "/v1/modules/acme/vpc/aws", "/v1/modules/acme/vpc/aws/1.0.0",
		"/v1/modules/acme/vpc/aws/download", "/v1/providers/acme/x", "/v1/mirror", "/v1/openapi.json",
		"/", "", "//", "/..", "/v1/modules/../x", "/v1/modules/acme/vpc/aws//versions",
		"/v1/modules/acme%/vpc/aws/versions", "/v1/modules/acme%2Fvpc/aws/versions", "/v1/modules/a b/vpc/aws/versions",
		"/v1/modules/a?b=c/vpc/aws/versions", "/v1/modules/a#b/vpc/aws/versions", "/v1/modules/\u00e4/vpc/aws/versions",
		"/v1/modules/a\x00/vpc/aws/versions", "/" + strings.Repeat("a", 9000), "no slash", "/favicon.ico",
	} {
		add("path "+path, func(e *events.APIGatewayV2HTTPRequest) { e.RawPath, e.RequestContext.HTTP.Path = path, path })
	}
	for _, method := range []string{"HEAD", "POST", "DELETE", "OPTIONS", "", "BREW COFFEE"} {
		add("method "+method, func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.Method = method })
	}
	const uploads = "/v1/publish/modules/acme/vpc/aws/1.0.0/uploads"
	for path, method := range map[string]string{
		uploads:                "POST",
		uploads + "/U/inspect": "POST",
		uploads + "/U/commit":  "POST",
		uploads + "/U":         "DELETE",
		uploads + "/" + strings.Repeat("U", 3000):            "DELETE",
		uploads + "/../x":                                    "DELETE",
		"/v1/publish/modules/acme/vpc/aws/deprecation":       "PUT",
		"/v1/publish/modules/acme/vpc/aws/1.0.0/deprecation": "PUT",
		"/v1/publish/providers/acme/x/1.0.0/uploads":         "POST",
		"/v1/publish/providers/acme/x/deprecation":           "PUT",
		"/v1/publish/modules/../x/aws/1.0.0/uploads":         "POST",
		"/v1/publish/modules/acme/vpc/aws/x/uploads":         "POST",
		"/v1/publish/": "POST",
	} {
		for what, body := range map[string]string{
			"nothing": "", "no JSON": "{", "null": "null", "a list": "[]",
			"a file":        `{"files": [{"name": "vpc.tar.gz", "size": 1, "sha256": "` + strings.Repeat("0", 64) + `"}]}`,
			"an odd file":   `{"files": [{"name": "../\u0000", "size": -1, "sha256": "x"}], "description": "\n"}`,
			"many files":    `{"files": [` + strings.Repeat("{},", 10000) + `{}]}`,
			"another field": `{"x": 1}`, "a message": `{"message": "x"}`,
			"depth": strings.Repeat("[", 100000), "no UTF-8": "{\"message\": \"\xff\"}",
		} {
			add(method+" of "+what+" to "+path, func(e *events.APIGatewayV2HTTPRequest) {
				e.RawPath, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.Method, e.Body = path, path, method, body
				e.Headers["content-type"] = "application/json"
			})
		}
	}
	add("no headers", func(e *events.APIGatewayV2HTTPRequest) { e.Headers = nil })
	add("odd headers", func(e *events.APIGatewayV2HTTPRequest) {
		e.Headers = map[string]string{
			"accept":          ",,;q=",
			"authorization":   "Bearer",
			"accept-encoding": "gzip;q=x",
			"content-length":  "-1",
			"x":               strings.Repeat("y", 9000),
		}
	})
	add("a query", func(e *events.APIGatewayV2HTTPRequest) { e.RawQueryString = "%zz&=&a=%00" })
	add("a body", func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "!", true })
	add("nothing", func(e *events.APIGatewayV2HTTPRequest) { *e = events.APIGatewayV2HTTPRequest{} })
	return out
}

// hostile returns events with further odd parts of paths, bodies and headers, some
// with a secret that someone has pasted.
func hostile(t *testing.T, secret string) map[string]events.APIGatewayV2HTTPRequest {
	t.Helper()
	ordinary := recorded(t)["path /v1/modules/acme/vpc/aws/versions"]
	out := make(map[string]events.APIGatewayV2HTTPRequest)
	add := func(name string, change func(*events.APIGatewayV2HTTPRequest)) {
		e := ordinary
		e.Headers = maps.Clone(ordinary.Headers)
		change(&e)
		out[name] = e
	}
	path := func(path string) {
		add("path "+path, func(e *events.APIGatewayV2HTTPRequest) { e.RawPath, e.RequestContext.HTTP.Path = path, path })
	}
	for _, part := range []string{
		"%2e%2e%2f", "..%2f..%2f", "%252e%252e", "a/b", `a\b`, ".", "\u202egnp.exe", "\u2066a\u2069", "\ufeff", "\xff\xfe",
		"a\nb", "a\r\nSet-Cookie: b=c", "' OR '1'='1", "1; DROP TABLE items;--", `{"S":"a"}`, "{namespace}", "{{7*7}}",
		"${jndi:ldap://a}", "<script>alert(1)</script>", "-1", "99999999999999999999", "1e309", "\u0661\u0660", "a:b", "con",
		"\U0001f600", "**", "listing", "version/1.0.0", "%zz", ";a=b", "|id", "$(id)", secret,
	} {
		path("/v1/modules/" + part + "/vpc/aws/versions")
		path("/v1/providers/acme/note/" + part + "/download/linux/amd64")
		path("/v1/mirror/registry.example.com/" + part + "/note/index.json")
	}
	path("/" + secret + ordinary.RawPath)
	path(ordinary.RawPath + "%3FX-Amz-Signature=" + secret)
	path(strings.Repeat("/", 5000) + ordinary.RawPath)
	path("https://evil.example" + ordinary.RawPath)
	for _, query := range []string{"token=" + secret, "X-Amz-Signature=" + secret, "%zz&&==;\x00\xff"} {
		add("query "+query, func(e *events.APIGatewayV2HTTPRequest) { e.RawQueryString = query })
	}
	for name, value := range map[string]string{
		"": "a", "host": "a b/\\\x00", "x-evil": strings.Repeat("a", 100<<10), "x-http-method-override": "DELETE",
		"accept-encoding": strings.Repeat("gzip;q=2,", 2000), "accept": strings.Repeat("/;q=,", 2000),
		"if-none-match": strings.Repeat(`W/"`, 2000), "range": "bytes=9-1,-,evil", "content-length": "99999999999999999999",
	} {
		add("header "+name, func(e *events.APIGatewayV2HTTPRequest) { e.Headers[name] = value })
	}
	const large = 6<<20 - 64<<10 // an event of Lambda has 6 MiB
	for name, body := range map[string]string{
		"text behind JSON": "{} evil", "a field twice": `{"files":[],"files":null}`,
		"deep objects":          strings.Repeat(`{"files":`, 20_000),
		"a number out of range": `{"files":[{"name":"a","size":1e400,"sha256":""}]}`, "UTF-16": "\xff\xfe{\x00}\x00",
		"control characters": `{"message":"\u0000\u001b[2J\u202e"}`,
		"much":               `{"message":"` + strings.Repeat("a", large) + `"}`,
		"XML":                `<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>`, "a form": "message=a",
	} {
		add("body of "+name, func(e *events.APIGatewayV2HTTPRequest) {
			const uploads = "/v1/publish/modules/acme/vpc/aws/1.0.0/uploads"
			e.RawPath, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.Method, e.Body = uploads, uploads, "POST", body
			e.Headers["content-type"] = "application/json"
		})
	}
	add("cookies", func(e *events.APIGatewayV2HTTPRequest) { e.Cookies = []string{"a=b", "=", "\x00"} })
	add("another version", func(e *events.APIGatewayV2HTTPRequest) { e.Version = "1.0" })
	add("no domain", func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.DomainName = "" })
	add("an odd address", func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.SourceIP = "evil\n" })
	add("base64 that breaks off", func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "YW", true })
	for _, method := range []string{"EVIL", "get", "TRACE", "GET\r\nA: b"} {
		add("method "+method, func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.Method = method })
	}
	return out
}

// Each function responds to any event with JSON that reveals nothing, or with a
// page, and never with 5xx.
func TestEvents(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	all := recorded(t)
	maps.Copy(all, hostile(t, d.token))
	for what, e := range maps.Clone(all) {
		if e.Headers["authorization"] == "" && e.Headers != nil {
			e.Headers = maps.Clone(e.Headers)
			e.Headers["authorization"] = "Bearer " + d.token
			all["with a token: "+what] = e
		}
	}
	for name, f := range d.functions {
		for what, e := range all {
			payload, err := f.Invoke(t.Context(), e)
			if err != nil {
				t.Errorf("%s, %.60q: %v", name, what, err)
				continue
			}
			var response events.APIGatewayV2HTTPResponse
			if err := json.Unmarshal(payload, &response); err != nil {
				t.Errorf("%s, %.60q: %v", name, what, err)
			}
			if response.StatusCode < 200 || response.StatusCode >= 500 {
				t.Errorf("%s, %.60q: status %d", name, what, response.StatusCode)
			}
			got := response.Headers["Content-Type"]
			if got != "application/json" && (name != "web" || got != "text/html; charset=utf-8") {
				t.Errorf("%s, %.60q: Content-Type %q", name, what, got)
			}
			if response.Headers["Cache-Control"] == "" {
				t.Errorf("%s, %.60q: no Cache-Control", name, what)
			}
			if e.RequestContext.HTTP.Method != "HEAD" && response.StatusCode >= 400 &&
				!strings.HasPrefix(response.Body, `{"errors":["`) {
				t.Errorf("%s, %.60q: %s", name, what, response.Body)
			}
		}
		for _, text := range []string{`"level":"ERROR"`, d.token} {
			if strings.Contains(f.Log(), text) {
				t.Errorf("%s has logged %s", name, text)
			}
		}
	}
}

// A function without a table setting reports that and exits before its first
// request.
func TestMissingSettings(t *testing.T) {
	t.Parallel()
	f := start(t, "modules", map[string]string{"LARDER_TABLE": "x", "LARDER_PRESIGN_SECONDS": "3600"})
	_, err := f.Invoke(t.Context(), events.APIGatewayV2HTTPRequest{})
	if err == nil || !strings.Contains(err.Error(), "LARDER_BUCKET") {
		t.Errorf("%v, want an error with LARDER_BUCKET", err)
	}
}

// Clients wait for functions to start, and for discovery first. The functions
// are therefore not much larger than one that does nothing.
func TestFunctionsAreSmall(t *testing.T) {
	t.Parallel()
	dist, err := built()
	if err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "bootstrap")
	if err := lambda.BuildBare(t.Context(), lambda.Architecture(), bare); err != nil {
		t.Fatal(err)
	}
	least, err := lambda.PackedSize(bare)
	if err != nil {
		t.Fatal(err)
	}
	// The templates of web call methods by name, so the linker drops none.
	for name, most := range map[string]float64{
		"discovery": 1.1, "modules": 1.7, "providers": 1.7, "mirror": 1.7, "metadata": 1.7, "web": 2.3, "usage": 1.7,
	} {
		got, err := lambda.PackedSize(filepath.Join(dist, name, "bootstrap"))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s has %d bytes packed, and a function that does nothing has %d", name, got, least)
		if float64(got) > most*float64(least) {
			t.Errorf("%s has %d bytes packed, more than %.1f times %d", name, got, most, least)
		}
	}
}

// The discovery function uses the endpoints of the login issuer. With invalid
// settings it exits before its first request.
func TestLogin(t *testing.T) {
	t.Parallel()
	var issuer *httptest.Server
	issuer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{
			"issuer":                 issuer.URL,
			"authorization_endpoint": issuer.URL + "/authorize",
			"token_endpoint":         issuer.URL + "/token",
		})
	}))
	defer issuer.Close()
	event := recorded(t)["path /.well-known/terraform.json"]
	f := start(t, "discovery", settings.LoginEnvironment(`{"issuer":"`+issuer.URL+`","client":"cli"}`))
	payload, err := f.Invoke(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	var response events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(payload, &response); err != nil {
		t.Fatalf("%s: %v", payload, err)
	}
	if response.StatusCode != 200 {
		t.Errorf("status %d, want 200", response.StatusCode)
	}
	want := `{"larder-publish.v1":"/v1/publish/","login.v1":{"client":"cli","grant_types":["authz_code"],` +
		`"authz":"` + issuer.URL + `/authorize","token":"` + issuer.URL + `/token","ports":[10000,10010],` +
		`"scopes":["openid"]},"modules.v1":"/v1/modules/","providers.v1":"/v1/providers/"}` + "\n"
	if diff := cmp.Diff(want, response.Body); diff != "" {
		t.Errorf("the discovery document differs: %s", diff)
	}
	f = start(t, "discovery", settings.LoginEnvironment(`{"issuer":"http://login.example.com","client":"cli"}`))
	_, err = f.Invoke(t.Context(), event)
	if err == nil || !strings.Contains(err.Error(), "http://login.example.com") {
		t.Errorf("%v, want an error with the issuer", err)
	}
}

// The build is reproducible. It depends neither on the source folder nor on the
// settings of the user.
func TestReproducible(t *testing.T) {
	t.Parallel()
	if _, err := built(); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if out, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "..",
		elsewhere).CombinedOutput(); err != nil {
		t.Skipf("LEFT OUT: it is no git checkout: %v %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "status", "--porcelain", "--",
		"functions", "pkg", "go.mod", "scripts/build").Output(); err != nil ||
		len(out) > 0 {
		t.Skip("LEFT OUT: there are uncommitted changes")
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[runtime.GOARCH]
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask 077; exec "$0" "$1"`,
		filepath.Join(elsewhere, "scripts/build"), arch)
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=true", "CGO_ENABLED=1", "GOAMD64=v3")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	for _, name := range []string{"discovery", "modules", "providers", "mirror", "metadata", "pull", "publish", "usage"} {
		first, err1 := os.ReadFile(filepath.Join("..", "dist", arch, name, "bootstrap"))
		second, err2 := os.ReadFile(filepath.Join(elsewhere, "dist", arch, name, "bootstrap"))
		if err1 != nil || err2 != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: the bytes differ, %v, %v", name, err1, err2)
		}
		// Lambda runs them as another user, so everyone needs permission to execute
		// them.
		if info, err := os.Stat(filepath.Join(elsewhere, "dist", arch, name, "bootstrap")); err != nil ||
			info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
