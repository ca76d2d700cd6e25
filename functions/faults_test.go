package functions_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-lambda-go/events"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/internal/testkit/programs"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/settings"
)

// TestFaults tests every fault of the services that a function uses. Callers
// receive a correct response in time, and the log has the reason. After the
// fault the same process continues to work. The tests mostly wait, so all of
// them run at the same time.
func TestFaults(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for name, test := range map[string]func(*testing.T){
		"table":      faultsOfTheTable,
		"items":      damagedItems,
		"publishing": faultsOfPublishing,
		"issuer":     faultsOfAnIssuer,
	} {
		all.Go(func() { t.Run(name, test) })
	}
	all.Wait()
}

// fault responds to a request instead of a service, or forwards the request to
// the service.
type fault func(w http.ResponseWriter, r *http.Request, service http.Handler)

// faulty is a proxy in front of a service.
type faulty struct {
	URL     string
	service http.Handler
	server  *http.Server

	mu    sync.Mutex
	fault fault
}

// before starts a proxy in front of the service at a URL.
func before(t *testing.T, service string) *faulty {
	t.Helper()
	proxy := proxyTo(t, service)
	address, err := programs.ReserveAddress(t.Context()) // it stays free while the proxy is down
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{URL: "http://" + address, service: proxy}
	f.up(t)
	t.Cleanup(func() {
		f.have(nil) // end requests that hang
		_ = f.server.Close()
	})
	return f
}

// down closes the listener until up opens it again.
func (f *faulty) down() { _ = f.server.Close() }

// up opens the listener.
func (f *faulty) up(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp4", strings.TrimPrefix(f.URL, "http://"))
	if err != nil {
		t.Error(err)
		return
	}
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(l) }(f.server)
}

// have applies a fault to every request. A nil fault forwards the requests.
func (f *faulty) have(met fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = met
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	met := f.fault
	f.mu.Unlock()
	if met == nil {
		f.service.ServeHTTP(w, r)
		return
	}
	met(w, r, f.service)
}

// refuses returns a fault that responds with a DynamoDB error.
func refuses(status int, name string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		body := `{"__type":"com.amazonaws.dynamodb.v20120810#` + name + `","message":"it is the fault of a test"}`
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amzn-Requestid", "REQUEST")
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(body))), 10))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// first applies a fault only to the first request.
func first(f fault) fault {
	var met atomic.Bool
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
		if met.Swap(true) {
			service.ServeHTTP(w, r)
			return
		}
		f(w, r, service)
	}
}

// only applies a fault only to requests for one DynamoDB operation.
func only(operation string, f fault) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+operation) {
			f(w, r, service)
			return
		}
		service.ServeHTTP(w, r)
	}
}

// slow delays the responses of the service.
func slow(by time.Duration) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
		select {
		case <-r.Context().Done(): // the client has given up
		case <-time.After(by):
			service.ServeHTTP(w, r)
		}
	}
}

// respondWith responds with something that no AWS service sends.
func respondWith(status int, header map[string]string, body string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// changed changes the response bodies of the service.
func changed(change func(*httptest.ResponseRecorder)) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
		if r.Method == http.MethodHead {
			service.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		service.ServeHTTP(answer, r)
		change(answer)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
}

// cut sends half of a response's body. Then it closes the connection, or resets
// it.
func cut(reset bool) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
		if r.Method == http.MethodHead {
			service.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		service.ServeHTTP(answer, r)
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		body := answer.Body.Bytes()
		fmt.Fprintf(connection,
			"HTTP/1.1 %d OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n%s", answer.Code,
			len(body), body[:len(body)/2])
		if tcp, ok := connection.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_ = connection.Close()
	}
}

func wrongChecksum(a *httptest.ResponseRecorder) { a.Header().Set("X-Amz-Crc32", "1") }

// garbled replaces an XML document by invalid XML. It does not change objects.
func garbled(a *httptest.ResponseRecorder) {
	if strings.Contains(a.Header().Get("Content-Type"), "xml") {
		a.Body.Reset()
		_, _ = a.Body.WriteString("<html>Welcome to the hotel's network")
		a.Header().Set("Content-Length", strconv.Itoa(a.Body.Len()))
	}
}

// shorter truncates a response, and its Content-Length, to half of the body.
func shorter(a *httptest.ResponseRecorder) {
	a.Body.Truncate(a.Body.Len() / 2)
	a.Header().Del("X-Amz-Crc32")
	a.Header().Set("Content-Length", strconv.Itoa(a.Body.Len()))
}

// exchange is a request to a function, and its response.
type exchange struct {
	fault, route string
	response     events.APIGatewayV2HTTPResponse
	took         time.Duration
	// logged is the error in the function's log.
	logged string
}

// outcome is the required response to a request during a fault.
type outcome struct {
	status int
	// cause is a part of the error in the log, such as a code of AWS or a name.
	cause string
}

var fine = outcome{status: 200}

func unavailable(cause string) outcome { return outcome{503, cause} }
func broken(cause string) outcome      { return outcome{500, cause} }

// bodies are the fixed response bodies of server errors.
var bodies = map[int]string{
	500: `{"errors":["internal error"],"code":"internal"}`,
	503: `{"errors":["temporarily unavailable, try again"],"code":"unavailable"}`,
}

// request returns the event of a request with a token.
func request(t *testing.T, method, path, token, body string) events.APIGatewayV2HTTPRequest {
	t.Helper()
	e := recorded(t)["path /"]
	e.RawPath, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.Method, e.Body = path, path, method, body
	e.Headers["authorization"] = "Bearer " + token
	return e
}

// summary returns a table with a row for each fault and each kind of response to
// it.
func summary(all []exchange) string {
	type row struct{ fault, answer string }
	var order []row
	took, routes := make(map[row]time.Duration), make(map[row][]string)
	for _, a := range all {
		r := row{a.fault, fmt.Sprintf("%d\t%s", a.response.StatusCode, cmp.Or(a.response.Headers["Retry-After"], "-"))}
		if routes[r] == nil {
			order = append(order, r)
		}
		took[r] = max(took[r], a.took)
		routes[r] = append(routes[r], a.route)
	}
	slices.SortFunc(order, func(a, b row) int {
		return strings.Compare(a.fault+"\x00"+a.answer, b.fault+"\x00"+b.answer)
	})
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nfault\tstatus\tRetry-After\tslowest\troutes")
	for _, r := range order {
		slices.Sort(routes[r])
		of := fmt.Sprint(len(routes[r]))
		if len(routes[r]) <= 3 {
			of = strings.Join(routes[r], ", ")
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f s\t%s\n", r.fault, r.answer, took[r].Seconds(), of)
	}
	_ = w.Flush()
	return out.String()
}

// causes returns the errors in the log for each fault, without repetitions.
func causes(all []exchange, replace ...string) string {
	var lines []string
	for _, a := range all {
		if a.logged != "" {
			lines = append(lines, fmt.Sprintf("%s, %s: %d\n  %s\n", a.fault, a.route, a.response.StatusCode, a.logged))
		}
	}
	replaced := strings.NewReplacer(replace...)
	for i := range lines {
		lines[i] = replaced.Replace(lines[i])
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// examined is a function whose responses and log lines are checked.
type examined struct {
	t       *testing.T
	f       *lambda.Function
	secrets []string
	read    int // bytes of its log so far

	mu   *sync.Mutex
	rows *[]exchange
}

// sendRequest sends a request during a fault, and checks the response and the log.
func (x *examined) sendRequest(fault, route string, e events.APIGatewayV2HTTPRequest,
	want outcome) events.APIGatewayV2HTTPResponse {
	a := exchange{fault: fault, route: route}
	problem := func(format string, args ...any) {
		x.t.Errorf("%s, %s: %s", fault, route, fmt.Sprintf(format, args...))
	}
	begun := time.Now()
	payload, err := x.f.Invoke(x.t.Context(), e)
	a.took = time.Since(begun)
	if err != nil {
		problem("%v", err)
		return a.response
	}
	if err := json.Unmarshal(payload, &a.response); err != nil {
		problem("%v", err)
	}
	r := a.response
	if r.StatusCode != want.status && (want.status != 200 || r.StatusCode != 201 && r.StatusCode != 204) {
		problem("status %d, want %d: %s", r.StatusCode, want.status, r.Body)
	}
	if body := bodies[r.StatusCode]; body != "" && r.Body != body+"\n" {
		problem("body %s, want %s", r.Body, body)
	}
	again := r.Headers["Retry-After"] == "1"
	if wantAgain := r.StatusCode == 503 || r.StatusCode == 409 && want.status == 409; again != wantAgain {
		problem("Retry-After %q with status %d", r.Headers["Retry-After"], r.StatusCode)
	}
	a.logged = x.logged(problem, want)
	if fault != "" {
		x.mu.Lock()
		*x.rows = append(*x.rows, a)
		x.mu.Unlock()
	}
	return r
}

// logged checks that the function has logged one line for a request. It returns
// the error in the line.
func (x *examined) logged(problem func(string, ...any), want outcome) string {
	log := x.f.Log()
	printed := slices.Collect(strings.Lines(log[x.read:]))
	x.read = len(log)
	var line struct{ Level, Error string }
	if len(printed) != 1 {
		problem("the function logged %d lines, want 1: %q", len(printed), printed)
		return ""
	}
	if err := json.Unmarshal([]byte(printed[0]), &line); err != nil {
		problem("the function logged %q, which is invalid JSON: %v", printed[0], err)
		return ""
	}
	level := "INFO"
	if want.status >= 500 {
		level = "ERROR"
	}
	if line.Level != level {
		problem("level %s, want %s", line.Level, level)
	}
	if !strings.Contains(line.Error, want.cause) {
		problem("the logged error is %q, want one with %q", line.Error, want.cause)
	}
	if fails := want.status != 200; fails != (line.Error != "") {
		problem("the logged error is %q with status %d", line.Error, want.status)
	}
	for _, secret := range append(x.secrets, awstest.SecretKey, "X-Amz-Signature", "AWS4-HMAC") {
		if strings.Contains(printed[0], secret) {
			problem("the log has a secret: %s", printed[0])
		}
	}
	return line.Error
}

// The versions that are published before the faults.
var (
	vpc  = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	note = registry.Provider{Namespace: "acme", Type: "note"}
	far  = registry.MirrorProvider{Hostname: "example.com", Provider: note}
)

const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// readers are the functions that read. Each has a request that makes it cache a
// token, and requests for the faults.
var readers = []struct {
	function, warm string
	paths          []string
	what           string // the subject, if it is not the path
	token          bool   // whether the function must look up a new token
	only           string // the operation to which the fault applies
}{
	{function: "modules", warm: versions, paths: []string{versions, "/v1/modules/acme/vpc/aws/1.0.0/download"}},
	{function: "providers", warm: providerList, paths: []string{providerList, download}},
	{function: "mirror", warm: index, paths: []string{index, "/v1/mirror/example.com/acme/note/1.0.0.json"}},
	{function: "modules", warm: versions, paths: []string{versions}, what: "a token", token: true},
	{function: "providers", warm: providerList, paths: []string{download}, what: "keys of a namespace", only: "Query"},
}

const (
	versions     = "/v1/modules/acme/vpc/aws/versions"
	providerList = "/v1/providers/acme/note/versions"
	download     = "/v1/providers/acme/note/1.0.0/download/linux/amd64"
	index        = "/v1/mirror/example.com/acme/note/index.json"
)

// published is a table with the published versions, and its server.
type published struct {
	dynamo  *dynamodbtest.Server
	table   catalog.Table
	catalog *catalog.Catalog
	bucket  string // the URL of an S3 that fails the test at any request
}

func publishAll(t *testing.T) published {
	t.Helper()
	dynamo, err := dynamodbtest.Start(t.Context(), "larder")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	s3 := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a function that reads has sent a request to S3: %s %s", r.Method, r.URL.Path)
	}))
	t.Cleanup(s3.Close)
	p := published{dynamo: dynamo, table: dynamodb.New(awstest.Config(dynamo.URL), "larder"), bucket: s3.URL}
	p.catalog = catalog.New(p.table)
	p.key(t, "acme")
	p.all(t, vpc, note, far)
	return p
}

// key adds a signing key to a namespace.
func (p published) key(t *testing.T, namespace string) {
	t.Helper()
	key := registry.SigningKey{
		ID:         "0123456789ABCDEF",
		ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n-----END PGP PUBLIC KEY BLOCK-----\n",
	}
	if _, err := p.catalog.AddSigningKey(t.Context(), namespace, key); err != nil {
		t.Fatal(err)
	}
}

// put publishes a record.
func put[A registry.Address, R registry.Record](
	ctx context.Context, versions catalog.Versions[A, R], a A, r R) (stored R, created bool, err error) {
	makeRecord := func(context.Context, protocol.Document) (R, error) { return r, nil }
	return versions.Publish(ctx, a, r.Number(), "somebody", makeRecord)
}

// all publishes a module, a provider and a mirrored provider.
func (p published) all(t *testing.T, m registry.Module, o registry.Provider, f registry.MirrorProvider) {
	t.Helper()
	v, err := registry.ParseVersion("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	linux := registry.Platform{OS: "linux", Arch: "amd64"}
	file := func(name string, key func(registry.Version, string, string) string) registry.StoredFile {
		return registry.StoredFile{Object: key(v, digest, name), SHA256: digest, Size: 1}
	}
	const h1 = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	_, _, err1 := put(t.Context(), p.catalog.Modules, m,
		registry.ModuleVersion{Version: v, Object: m.ArchiveKey(v, digest), SHA256: digest, ContentSHA256: digest, Size: 1})
	_, _, err2 := put(t.Context(), p.catalog.Providers, o, registry.ProviderVersion{
		Version: v, Protocols: []string{"6.0"}, SigningKey: "0123456789ABCDEF",
		Sums: file("SHA256SUMS", o.FileKey), Signature: file("SHA256SUMS.sig", o.FileKey),
		Packages: []registry.ProviderPackage{
			{Platform: linux, StoredFile: file("note.zip", o.FileKey), Filename: "note.zip", H1: h1},
		},
	})
	_, _, err3 := p.catalog.Mirror.Add(t.Context(), f,
		registry.MirrorVersion{Version: v, Packages: []registry.MirrorPackage{
			{
				ProviderPackage: registry.ProviderPackage{
					Platform:   linux,
					StoredFile: file("note.zip", f.FileKey),
					Filename:   "note.zip",
					H1:         h1,
				},
			},
		}}, "tests")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
}

// token creates a token with a scope.
func (p published) token(t *testing.T, scope string) string {
	t.Helper()
	token, digest := access.NewToken()
	if err := p.catalog.AddToken(t.Context(), digest,
		registry.Token{Name: "tests-" + digest[:12], Scopes: []string{scope}}); err != nil {
		t.Fatal(err)
	}
	return token
}

// env returns the environment of a function that reads from the table at a URL.
func (p published) env(table string) map[string]string {
	env := settings.Settings{
		Table:           "larder",
		Bucket:          "larder-objects",
		PresignLifetime: time.Hour,
		PathStyle:       true,
	}.Environment()
	env["AWS_ENDPOINT_URL_DYNAMODB"], env["AWS_ENDPOINT_URL_S3"] = table, p.bucket
	return env
}

// faultsOfTheTable tests the functions that read, with faults of DynamoDB.
func faultsOfTheTable(t *testing.T) {
	garbage := map[string]string{"Content-Type": "application/x-amz-json-1.0"}
	var elsewhere string
	faults := []struct {
		name  string
		meets fault // nil: nobody listens
		want  outcome
	}{
		{"throttled", refuses(400, "ThrottlingException"), unavailable("ThrottlingException")},
		{
			"throughput exceeded",
			refuses(400, "ProvisionedThroughputExceededException"),
			unavailable("ProvisionedThroughputExceededException"),
		},
		{"request limit exceeded", refuses(400, "RequestLimitExceeded"), unavailable("RequestLimitExceeded")},
		{"500", refuses(500, "InternalServerError"), unavailable("InternalServerError")},
		{"503", respondWith(503, nil, "<html>Service Unavailable</html>"), unavailable("503")},
		{"answers after 1 s", slow(time.Second), fine},
		{"answers after 30 s", slow(30 * time.Second), unavailable("exceeded")},
		{"never answers", slow(time.Hour), unavailable("exceeded")},
		{"nobody listens", nil, unavailable("connection refused")},
		{"reset in an answer", cut(true), unavailable("connection reset")},
		{"half an answer", cut(false), unavailable("unexpected EOF")},
		{"half an answer as all of it", changed(shorter), unavailable("deserialization failed")},
		{
			"garbage",
			respondWith(200, garbage, "<html>Welcome to the hotel's network</html>"),
			unavailable("deserialization failed"),
		},
		{"wrong checksum", changed(wrongChecksum), unavailable("checksum")},
		{"sent elsewhere", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}, unavailable("307")},
		{"access denied", refuses(400, "AccessDeniedException"), broken("AccessDeniedException")},
		{
			"no such table",
			refuses(400, "ResourceNotFoundException"),
			broken("ResourceNotFoundException"),
		},
		{"expired credentials", refuses(400, "ExpiredTokenException"), broken("ExpiredTokenException")},
		{"unknown credentials", refuses(400, "UnrecognizedClientException"), broken("UnrecognizedClientException")},
		// Clients do not notice faults of a single request.
		{"throttled, once", refuses(400, "ThrottlingException"), fine},
		{"500, once", refuses(500, "InternalServerError"), fine},
		{"reset in an answer, once", cut(true), fine},
		{"half an answer, once", cut(false), fine},
		{"wrong checksum, once", changed(wrongChecksum), fine},
	}
	p := publishAll(t)
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was sent elsewhere, with %d headers", r.Header.Get("X-Amz-Target"), len(r.Header))
	}))
	defer stranger.Close()
	elsewhere = stranger.URL

	var rows []exchange
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, fault := range faults {
		for _, r := range readers {
			known, unknown := p.token(t, "read:**"), p.token(t, "read:**")
			before := before(t, p.dynamo.URL)
			x := &examined{
				t:       t,
				f:       start(t, r.function, p.env(before.URL)),
				secrets: []string{known, unknown},
				mu:      &mu,
				rows:    &rows,
			}
			all.Go(func() {
				listing := x.sendRequest("", r.warm, request(t, "GET", r.warm, known, ""), fine) // from here on the token is known
				token, met := known, fault.meets
				if r.token {
					token = unknown
				}
				if r.only != "" && met != nil {
					met = only(r.only, met)
				}
				for _, path := range r.paths {
					met := met
					if strings.HasSuffix(fault.name, ", once") {
						met = first(met)
					}
					if met == nil {
						before.down()
					} else {
						before.have(met)
					}
					got := x.sendRequest(fault.name, cmp.Or(r.what, path), request(t, "GET", path, token, ""), fault.want)
					if fault.want == fine && path == r.warm && got.Body != listing.Body {
						t.Errorf("%s, %s: %s", fault.name, path, got.Body)
					}
					if met == nil {
						before.up(t)
					}
					before.have(nil)
					if got := x.sendRequest("", path, request(t, "GET", path, token, ""), fine); path == r.warm &&
						got.Body != listing.Body {
						t.Errorf("%s, %s, when it is over: %s", fault.name, path, got.Body)
					}
				}
			})
		}
	}
	all.Wait()
	t.Log(summary(rows))
}

// attributes are the attributes of a DynamoDB item.
type attributes = map[string]types.AttributeValue

// damage is a kind of damage to an item.
type damage struct {
	name   string
	change func(attributes) // nil: the item is missing
}

// outcome returns the required response to a request for a document at a path.
// The error in the log must have the address in the path.
func (d damage) outcome(path string) outcome {
	_, address, _ := strings.Cut(path, "/")
	if d.change == nil {
		return outcome{404, address}
	}
	return broken(address)
}

func data(s string) func(attributes) {
	return func(a attributes) { a["data"] = &types.AttributeValueMemberS{Value: s} }
}

func bytesOf(a attributes) []byte {
	switch v := a["data"].(type) {
	case *types.AttributeValueMemberB:
		return v.Value
	case *types.AttributeValueMemberS:
		return []byte(v.Value)
	}
	return nil
}

// packed replaces the data of an item by gzip-compressed content.
func packed(content string) func(attributes) {
	return func(a attributes) {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err1 := io.WriteString(w, content)
		if err := errors.Join(err1, w.Close()); err != nil {
			panic(err) // writing to memory cannot fail
		}
		a["data"] = &types.AttributeValueMemberB{Value: out.Bytes()}
	}
}

// field changes a field of a version's record, or of each of its packages.
func field(name string, value any) func(attributes) {
	return func(a attributes) {
		var record map[string]any
		if err := json.Unmarshal(bytesOf(a), &record); err != nil {
			panic(err) // all has published it as JSON
		}
		in := []any{record}
		if packages, ok := record["packages"].([]any); ok && name != "version" {
			in = packages
		}
		for _, o := range in {
			if object, ok := o.(map[string]any); ok {
				object[name] = value
			}
		}
		text, err := json.Marshal(record)
		if err != nil {
			panic(err) // it was JSON
		}
		data(string(text))(a)
	}
}

// damagedItems tests that functions do not return damaged items, do not treat
// them as missing, and name them in the log. Missing items are not found. Only
// larder verify checks whether other items refer to them.
func damagedItems(t *testing.T) {
	anyItem := []damage{
		{"an attribute of another type", func(a attributes) {
			a["data"] = &types.AttributeValueMemberN{Value: "1"}
		}},
		{"no data", func(a attributes) { delete(a, "data") }},
		{"no revision", func(a attributes) { delete(a, "revision") }},
	}
	listings := append(slices.Clone(anyItem), []damage{
		{"missing", nil},
		{"no gzip", data(`{"modules":[{"versions":[]}],"versions":[]}`)},
		{"one byte", func(a attributes) {
			a["data"] = &types.AttributeValueMemberB{Value: []byte{0xff}}
		}},
		{"half of it", func(a attributes) {
			b := bytesOf(a)
			a["data"] = &types.AttributeValueMemberB{Value: b[:len(b)/2]}
		}},
		{"another byte", func(a attributes) {
			b := slices.Clone(bytesOf(a))
			b[len(b)-6] ^= 1 // of its checksum
			a["data"] = &types.AttributeValueMemberB{Value: b}
		}},
		{"two in one", func(a attributes) {
			b := bytesOf(a)
			a["data"] = &types.AttributeValueMemberB{Value: append(slices.Clone(b), b...)}
		}},
		{"compressed garbage", packed("<html>")},
		{"too much compressed data", packed(strings.Repeat(" ", 80<<20))},
	}...)
	records := append(slices.Clone(anyItem), []damage{
		{"missing, but in the listing", nil},
		{"half of it", data(`{"version":"1.0.0","obj`)},
		{"null", data(`null`)},
		{"another version", field("version", "1.0.1")},
		{"invalid version", field("version", "latest")},
		{"an object of another address", field("object", "modules/secret/vpc/aws/1.0.0/"+digest+".tar.gz")},
		{"an object of a parent address", field("object", "modules/acme/../secret/x")},
		{"no hash", field("sha256", "")},
		{"invalid hash", field("sha256", "x&y")},
		{"a negative size", field("size", -1)},
		{"invalid size", field("size", "1")},
	}...)
	keys := append(slices.Clone(anyItem), []damage{
		{"half of it", data(`{"id":"01`)},
		{"no fields", data(`{}`)},
		{"no key", field("ascii_armor", "x")},
	}...)
	tokens := append(slices.Clone(anyItem), []damage{
		{"half of it", data(`{"name":"t`)},
		{"invalid scope", field("scopes", []string{"all"})},
	}...)

	p := publishAll(t)
	client := ddb.NewFromConfig(awstest.Config(p.dynamo.URL))
	table := "larder"
	hurt := func(d damage, partition, sort string) {
		t.Helper()
		key := attributes{
			"pk": &types.AttributeValueMemberS{Value: partition},
			"sk": &types.AttributeValueMemberS{Value: sort},
		}
		if d.change == nil {
			if _, err := client.DeleteItem(t.Context(), &ddb.DeleteItemInput{TableName: &table, Key: key}); err != nil {
				t.Fatal(err)
			}
			return
		}
		is, err := client.GetItem(t.Context(), &ddb.GetItemInput{TableName: &table, Key: key})
		if err != nil || is.Item == nil {
			t.Fatal(partition, sort, err)
		}
		d.change(is.Item)
		if _, err := client.PutItem(t.Context(), &ddb.PutItemInput{TableName: &table, Item: is.Item}); err != nil {
			t.Fatal(err)
		}
	}
	var rows []exchange
	var mu sync.Mutex
	token := p.token(t, "read:**")
	of := make(map[string]*examined)
	for _, name := range []string{"modules", "providers", "mirror"} {
		of[name] = &examined{t: t, f: start(t, name, p.env(p.dynamo.URL)), secrets: []string{token}, mu: &mu, rows: &rows}
	}
	n := 0
	// fresh publishes everything again in a namespace, under addresses that no
	// process has cached.
	fresh := func(namespace string) (paths map[string]string) {
		n++
		m := registry.Module{Namespace: namespace, Name: fmt.Sprint("vpc", n), System: "aws"}
		o := registry.Provider{Namespace: namespace, Type: fmt.Sprint("note", n)}
		f := registry.MirrorProvider{Hostname: "example.com", Provider: o}
		p.all(t, m, o, f)
		return map[string]string{"modules": m.Path(), "providers": o.Path(), "mirror": f.Path()}
	}
	documents := map[string][2]string{
		"modules":   {"/versions", "/1.0.0/download"},
		"providers": {"/versions", "/1.0.0/download/linux/amd64"},
		"mirror":    {"/index.json", "/1.0.0.json"},
	}
	for _, d := range listings {
		for name, path := range fresh("acme") {
			packed := request(t, "GET", "/v1/"+path+documents[name][0], token, "")
			unpacked := request(t, "GET", "/v1/"+path+documents[name][0], token, "")
			delete(unpacked.Headers, "accept-encoding")
			of[name].sendRequest("", name, packed, fine)
			hurt(d, path, "listing")
			of[name].sendRequest("listing: "+d.name, name, packed, d.outcome(path))
			of[name].sendRequest("listing: "+d.name, name+", unpacked", unpacked, d.outcome(path))
		}
	}
	for _, d := range records {
		for name, path := range fresh("acme") {
			e := request(t, "GET", "/v1/"+path+documents[name][1], token, "")
			of[name].sendRequest("", name, e, fine)
			hurt(d, path, "version/1.0.0")
			// A version that was never published stays missing.
			want, never := d.outcome(path), outcome{404, "7.0.0"}
			if name == "mirror" {
				never = fine // the response has no archives
				if d.change == nil {
					want = fine
				}
			}
			of[name].sendRequest("record: "+d.name, name, e, want)
			of[name].sendRequest("", name,
				request(t, "GET", "/v1/"+path+strings.Replace(documents[name][1], "1.0.0", "7.0.0", 1), token, ""), never)
		}
	}
	for i, d := range keys {
		namespace := fmt.Sprint("keys", i)
		p.key(t, namespace)
		path := fresh(namespace)["providers"]
		hurt(d, "keys/"+namespace, "0123456789ABCDEF")
		of["providers"].sendRequest("key: "+d.name, "providers",
			request(t, "GET", "/v1/"+path+documents["providers"][1], token, ""), broken(namespace))
	}
	// Create the tokens first, because a damaged token prevents new ones. It may
	// have the same name.
	var replace []string // IDs of tokens
	given, digests := make([]string, len(tokens)), make([]string, len(tokens))
	for i := range tokens {
		given[i], digests[i] = access.NewToken()
		if err := p.catalog.AddToken(t.Context(), digests[i],
			registry.Token{Name: fmt.Sprint("damaged-", i), Scopes: []string{"read:**"}}); err != nil {
			t.Fatal(err)
		}
		replace = append(replace, registry.TokenID(digests[i]), "TOKEN")
	}
	for i, d := range tokens {
		damaged := given[i]
		hurt(d, "tokens", digests[i])
		of["modules"].secrets = append(of["modules"].secrets, damaged)
		of["modules"].sendRequest("token: "+d.name, "modules", request(t, "GET", versions, damaged, ""), broken("token"))
	}
	for _, x := range of { // the same processes continue
		for _, r := range readers {
			if x == of[r.function] {
				x.sendRequest("", r.warm, request(t, "GET", r.warm, token, ""), fine)
			}
		}
	}
	golden.New(t).Text(t, wrongSize.ReplaceAllString(causes(rows, replace...), "has N bytes, more"))
	t.Log(summary(rows))
}

// wrongSize is a size in half of a listing, which differs from run to run.
var wrongSize = regexp.MustCompile(`has \d+ bytes, more`)

// pack returns the archive of a module with one file.
func pack(t *testing.T, m registry.Module, content string) []byte {
	t.Helper()
	return packFiles(t, m, map[string]string{"main.tf": content})
}

// packLarge returns an archive whose inspection needs a slot.
func packLarge(t *testing.T, m registry.Module) []byte {
	t.Helper()
	content := make([]byte, 2<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	return packFiles(t, m, map[string]string{"main.tf": "", "data.bin": string(content)})
}

func packFiles(t *testing.T, m registry.Module, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prepared, err := releases.Preparer{}.Module(t.Context(), releases.Module{Dir: dir, Address: m})
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Close()
	archive, err := prepared.Archive.Open()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := io.ReadAll(archive)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// upload is the upload of a module with its own address.
type upload struct {
	path   string // path of its version
	begun  protocol.Begun
	packed []byte
}

// body returns the request body that announces the archive.
func (u *upload) body() string {
	return fmt.Sprintf(`{"files": [{"name": "m.tar.gz", "size": %d, "sha256": "%x"}]}`, len(u.packed),
		sha256.Sum256(u.packed))
}

// put uploads the archive to the URL that the registry has returned.
func (u *upload) put(t *testing.T, client *http.Client, answer string) error {
	if err := json.Unmarshal([]byte(answer), &u.begun); err != nil || len(u.begun.Files) != 1 {
		return fmt.Errorf("%s: %w", answer, err)
	}
	to := u.begun.Files[0]
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, to.URL, bytes.NewReader(u.packed))
	if err != nil {
		return err
	}
	for name, value := range to.Header {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return errors.New(response.Status)
	}
	return nil
}

// s3Says responds with an S3 error. The response to HEAD has no body.
func s3Says(status int, code string) fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w,
				"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>It is the fault of a "+
					"test</Message><RequestId>R</RequestId></Error>", code)
		}
	}
}

// faultsOfPublishing tests that a fault leaves nothing half visible, and that a
// retry after the fault publishes.
func faultsOfPublishing(t *testing.T) {
	const onTable, onBucket = "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_S3"
	missing := func(cause string) outcome { return outcome{409, cause} }
	faults := []struct {
		name, service string
		meets         fault // nil: nobody listens
		// the response to each step
		begin, inspect, commit outcome
	}{
		{"S3: access denied", onBucket, s3Says(403, "AccessDenied"), broken("403"), broken("403"), broken("AccessDenied")},
		{"S3: slow down", onBucket, s3Says(503, "SlowDown"), unavailable("503"), unavailable("503"), unavailable("SlowDown")},
		{"S3: slow down, once", onBucket, s3Says(503, "SlowDown"), fine, fine, fine},
		{
			"S3: 500",
			onBucket,
			s3Says(500, "InternalError"),
			unavailable("500"),
			unavailable("500"),
			unavailable("InternalError"),
		},
		{
			"S3: never answers",
			onBucket,
			slow(time.Hour),
			unavailable("timeout"),
			unavailable("timeout"),
			unavailable("timeout"),
		},
		// S3 answers HEAD as for a missing object, so only the upload detects the
		// fault.
		{"S3: no such bucket", onBucket, s3Says(404, "NoSuchBucket"), fine, missing("m.tar.gz"), broken("NoSuchBucket")},
		{
			"S3: nobody listens",
			onBucket,
			nil,
			unavailable("connection refused"),
			unavailable("connection refused"),
			unavailable("connection refused"),
		},
		{"S3: half an answer", onBucket, cut(false), fine, unavailable("EOF"), unavailable("EOF")},
		{
			"S3: half an answer as all of it",
			onBucket,
			changed(shorter),
			fine,
			unavailable("unexpected EOF"),
			unavailable("EOF"),
		},
		{"S3: garbage", onBucket, changed(garbled), fine, fine, unavailable("XML syntax error")},

		{
			"table: throttled",
			onTable,
			refuses(400, "ThrottlingException"),
			unavailable("ThrottlingException"),
			unavailable("ThrottlingException"),
			unavailable("ThrottlingException"),
		},
		{"table: throttled, once", onTable, refuses(400, "ThrottlingException"), fine, fine, fine},
		{
			"table: writes are throttled",
			onTable,
			only("TransactWriteItems", refuses(400, "ThrottlingException")),
			unavailable("ThrottlingException"),
			unavailable("ThrottlingException"),
			unavailable("ThrottlingException"),
		},
		{
			"table: 500",
			onTable,
			refuses(500, "InternalServerError"),
			unavailable("InternalServerError"),
			unavailable("InternalServerError"),
			unavailable("InternalServerError"),
		},
		{
			"table: never answers",
			onTable,
			slow(time.Hour),
			unavailable("timeout"),
			unavailable("timeout"),
			unavailable("timeout"),
		},
		{
			"table: nobody listens",
			onTable,
			nil,
			unavailable("connection refused"),
			unavailable("connection refused"),
			unavailable("connection refused"),
		},
		{
			"table: half an answer",
			onTable,
			cut(false),
			unavailable("unexpected EOF"),
			unavailable("unexpected EOF"),
			unavailable("unexpected EOF"),
		},
		{
			"table: wrong checksum",
			onTable,
			changed(wrongChecksum),
			unavailable("checksum"),
			unavailable("checksum"),
			unavailable("checksum"),
		},
		{
			"table: access denied",
			onTable,
			refuses(400, "AccessDeniedException"),
			broken("AccessDeniedException"),
			broken("AccessDeniedException"),
			broken("AccessDeniedException"),
		},
		{
			"table: no such table",
			onTable,
			refuses(400, "ResourceNotFoundException"),
			broken("ResourceNotFoundException"),
			broken("ResourceNotFoundException"),
			broken("ResourceNotFoundException"),
		},
		{
			"table: expired credentials",
			onTable,
			refuses(400, "ExpiredTokenException"),
			broken("ExpiredTokenException"),
			broken("ExpiredTokenException"),
			broken("ExpiredTokenException"),
		},
	}
	p := publishAll(t)
	limits := settings.DefaultPublishLimits
	limits.AllInspections = settings.MaxPublishLimits.AllInspections // all run at once, on one table
	s3 := s3test.ForTest(t, "larder-objects")
	packed := pack(t, vpc, "output \"it\" { value = 1 }\n")
	var rows []exchange
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, f := range faults {
		for step, want := range []outcome{f.begin, f.inspect, f.commit} {
			token := p.token(t, "publish:*/acme/**") // each upload has its own, because open uploads are limited
			env := p.env("")
			fronts := map[string]*faulty{onTable: before(t, p.dynamo.URL), onBucket: before(t, s3.URL)}
			for name, front := range fronts {
				env[name] = front.URL
			}
			maps.Copy(env, limits.Environment())
			x := &examined{t: t, f: start(t, "publish", env), secrets: []string{token}, mu: &mu, rows: &rows}
			m := registry.Module{Namespace: "acme", Name: "m", System: fmt.Sprintf("s%dx%d", i, step)}
			front := fronts[f.service]
			all.Go(func() {
				u := &upload{path: "/v1/publish/" + m.Path() + "/1.0.0/uploads", packed: packed}
				// do performs a step. If the fault is for this step, do performs it with
				// the fault first.
				do := func(is int, name, path, body string) events.APIGatewayV2HTTPResponse {
					e := request(t, "POST", path, token, body)
					if is == step {
						met := f.meets
						switch {
						case met == nil:
							front.down()
						case strings.HasSuffix(f.name, ", once"):
							front.have(first(met))
						default:
							front.have(met)
						}
						x.sendRequest(f.name, name, e, want)
						front.have(nil)
						if met == nil {
							front.up(t)
						}
						_, err := p.catalog.Modules.Listing(t.Context(), m)
						if visible := want == fine && name == "commit"; visible != (err == nil) ||
							err != nil && !errors.Is(err, registry.ErrNotFound) {
							t.Errorf("%s, %s: visible is %t, %v", f.name, name, err == nil, err)
						}
					}
					return x.sendRequest("", f.name+", then "+name, e, fine)
				}
				if err := u.put(t, http.DefaultClient, do(0, "begin", u.path, u.body()).Body); err != nil {
					t.Errorf("%s: %v", f.name, err)
					return
				}
				do(1, "inspect", u.path+"/"+u.begun.Upload+"/files/0/inspect", "")
				do(2, "commit", u.path+"/"+u.begun.Upload+"/commit", "")
				if records, err := p.catalog.Modules.All(t.Context(), m); err != nil || len(records) != 1 ||
					records[0].SHA256 != fmt.Sprintf("%x", sha256.Sum256(packed)) {
					t.Errorf("%s: %v, %v", f.name, records, err)
				}
			})
		}
	}
	all.Wait()
	t.Log(summary(rows))
}

// respondWithKeys returns an issuer's service that responds with keys.
func respondWithKeys(keys string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, keys) })
}

// faultsOfAnIssuer tests faults of an OpenID issuer. Its tokens cannot be
// verified without its keys. Clients must then try again, and not log in again.
// Cached keys work while the issuer is down. Tokens of the registry do not need
// it.
func faultsOfAnIssuer(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	faults := []struct {
		name  string
		meets fault // nil: nobody listens
	}{
		{"issuer: nobody listens", nil},
		{"issuer: 500", respondWith(500, nil, "")},
		{"issuer: 404", respondWith(404, nil, "")},
		{"issuer: never answers", slow(time.Hour)},
		{"issuer: garbage", respondWith(200, nil, "<html>")},
		{"issuer: another's configuration", respondWith(200, nil, `{"issuer":"https://example.com"}`)},
		{"issuer: far too much", respondWith(200, nil, strings.Repeat(" ", 2<<20))},
		{"issuer: half an answer", cut(false)},
		{"issuer: no keys", func(w http.ResponseWriter, r *http.Request, service http.Handler) {
			if strings.HasSuffix(r.URL.Path, "/keys") {
				service = respondWithKeys(`{"keys":[]}`)
			}
			service.ServeHTTP(w, r)
		}},
	}
	p := publishAll(t)
	var rows []exchange
	var mu sync.Mutex
	var all sync.WaitGroup
	var replace []string // addresses of issuers
	for _, f := range faults {
		issuer := http.NewServeMux()
		service := httptest.NewServer(issuer)
		t.Cleanup(service.Close)
		front := before(t, service.URL)
		replace = append(replace, strings.TrimPrefix(front.URL, "http://"), "ISSUER")
		answer := func(v any) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
		}
		issuer.HandleFunc("/.well-known/openid-configuration",
			answer(map[string]string{"issuer": front.URL, "jwks_uri": front.URL + "/keys"}))
		issuer.HandleFunc("/keys",
			answer(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Use: "sig"}}}))
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
			(&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "1"))
		if err != nil {
			t.Fatal(err)
		}
		jobs := func(issuer string) (all [4]string) {
			for i := range all {
				claims := map[string]any{
					"iss": issuer, "aud": "a", "sub": fmt.Sprint(i), "exp": time.Now().Add(time.Hour).Unix(),
				}
				all[i], err = jwt.Signed(signer).Claims(claims).Serialize()
				if err != nil {
					t.Fatal(err)
				}
			}
			return all
		}
		good, strange, own := jobs(front.URL), jobs("https://login.example.com"), p.token(t, "read:**")
		s := settings.Settings{
			Table:           "larder",
			Bucket:          "larder-objects",
			PresignLifetime: time.Hour,
			PathStyle:       true,
			Access: `{"issuers":[{"issuer":"` + front.URL + `","audiences":["a"],` +
				`"rules":[{"claims":{"sub":"*"},"scopes":["read:**"]}]}]}`,
		}
		env := s.Environment()
		env["AWS_ENDPOINT_URL_DYNAMODB"], env["AWS_ENDPOINT_URL_S3"] = p.dynamo.URL, p.bucket
		x := &examined{t: t, f: start(t, "modules", env), secrets: append(good[:], own), mu: &mu, rows: &rows}
		all.Go(func() {
			meet := func(with func()) {
				if front.have(f.meets); f.meets == nil {
					front.down()
				}
				with()
				if front.have(nil); f.meets == nil {
					front.up(t)
				}
			}
			get := func(token string) events.APIGatewayV2HTTPRequest { return request(t, "GET", versions, token, "") }
			meet(func() {
				x.sendRequest(f.name, "a job's token", get(good[0]), unavailable(front.URL))
				x.sendRequest(f.name, "another issuer's token", get(strange[0]), outcome{401, "https://login.example.com"})
				x.sendRequest(f.name, "a token of the registry", get(own), fine)
			})
			time.Sleep(10 * time.Second) // the next request to it is delayed
			x.sendRequest("", f.name+", then", get(good[1]), fine)
			meet(func() { x.sendRequest(f.name, "a job's token, with keys at hand", get(good[2]), fine) })
			x.sendRequest("", f.name+", then again", get(good[3]), fine)
		})
	}
	all.Wait()
	golden.New(t).Text(t, causes(rows, replace...))
	t.Log(summary(rows))
}
