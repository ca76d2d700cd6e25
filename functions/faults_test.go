package functions_test

import (
	"bytes"
	"cmp"
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
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/internal/testkit/programs"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// TestFaults tests that callers receive a correct response in time if a service
// fails, and that the log has the reason. After the fault the same process
// continues to work. The tests mostly wait, so all of them run at the same time.
//
// The meaning of each error is tested with the clients of the services.
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
	URL      string
	service  http.Handler
	listener net.Listener
	server   *http.Server

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
		f.down()
	})
	return f
}

// down closes the listener until up opens it again.
func (f *faulty) down() {
	if f.server != nil {
		_ = programs.CloseListener(context.Background(), f.listener)
		_ = f.server.Close()
		f.server = nil
	}
}

// up opens the listener.
func (f *faulty) up(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp4", strings.TrimPrefix(f.URL, "http://"))
	if err != nil {
		t.Error(err)
		return
	}
	f.listener = l
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(l) }(f.server)
}

// begin begins a fault, for only one request if its name ends with "once". If the
// fault is nil, nobody listens.
func (f *faulty) begin(name string, fault fault) {
	switch {
	case fault == nil:
		f.down()
	case strings.HasSuffix(name, ", once"):
		f.have(first(fault))
	default:
		f.have(fault)
	}
}

// end ends a fault.
func (f *faulty) end(t *testing.T) {
	f.have(nil)
	if f.server == nil {
		f.up(t)
	}
}

// have applies a fault to every request. A nil fault forwards the requests.
func (f *faulty) have(fault fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault == nil {
		f.service.ServeHTTP(w, r)
		return
	}
	fault(w, r, f.service)
}

// refuses returns a fault that responds with a DynamoDB error.
func refuses(name string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		body := `{"__type":"com.amazonaws.dynamodb.v20120810#` + name + `","message":"it is the fault of a test"}`
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amzn-Requestid", "REQUEST")
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(body))), 10))
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, body)
	}
}

// first applies a fault only to the first request.
func first(f fault) fault {
	var applied atomic.Bool
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) {
		if applied.Swap(true) {
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
	x.checkLog(problem, want)
	if fault != "" {
		x.mu.Lock()
		*x.rows = append(*x.rows, a)
		x.mu.Unlock()
	}
	return r
}

// checkLog checks that the function has logged one line for a request.
func (x *examined) checkLog(problem func(string, ...any), want outcome) {
	log := x.f.Log()
	printed := slices.Collect(strings.Lines(log[x.read:]))
	x.read = len(log)
	var line struct{ Level, Error string }
	if len(printed) != 1 {
		problem("the function logged %d lines, want 1: %q", len(printed), printed)
		return
	}
	if err := json.Unmarshal([]byte(printed[0]), &line); err != nil {
		problem("the function logged %q, which is invalid JSON: %v", printed[0], err)
		return
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
}

// The versions that are published before the faults.
var (
	vpc  = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	note = registry.Provider{Namespace: "acme", Type: "note"}
	far  = registry.MirrorAddress{Hostname: "example.com", Namespace: note.Namespace, Name: note.Type}
)

const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// readers are the functions that read. Each has a request that makes it cache a
// token, and a request for the faults.
var readers = []struct {
	function, warm, path string
	what                 string // the subject, if it is not the path
	token                bool   // whether the function must look up a new token
	only                 string // the operation to which the fault applies
}{
	{function: "modules", warm: versions, path: versions},
	{function: "modules", warm: versions, path: versions, what: "a token", token: true},
	{function: "providers", warm: providerList, path: download},
	{function: "providers", warm: providerList, path: download, what: "keys of a namespace", only: "Query"},
	{function: "mirror", warm: index, path: mirrored},
}

const (
	versions     = "/v1/modules/acme/vpc/aws/versions"
	archive      = "/v1/modules/acme/vpc/aws/1.0.0/download"
	providerList = "/v1/providers/acme/note/versions"
	download     = "/v1/providers/acme/note/1.0.0/download/linux/amd64"
	index        = "/v1/mirror/example.com/acme/note/index.json"
	mirrored     = "/v1/mirror/example.com/acme/note/1.0.0.json"
)

// published is a table with the published versions, and its server.
type published struct {
	dynamo  *dynamodbtest.Server
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
	table := dynamodb.New(awstest.Config(dynamo.URL), "larder")
	p := published{dynamo: dynamo, catalog: catalog.New(table), bucket: s3.URL}
	p.all(t)
	return p
}

// put publishes a record.
func put[A registry.Address, R registry.Record](
	ctx context.Context, versions catalog.Versions[A, R], a A, r R) (stored R, created bool, err error) {
	makeRecord := func(context.Context, protocol.Document) (R, error) { return r, nil }
	return versions.Publish(ctx, a, r.Number(), "somebody", makeRecord)
}

// all publishes a module, a provider with its signing key, and a mirrored
// provider.
func (p published) all(t *testing.T) {
	t.Helper()
	v, err := registry.ParseVersion("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	key := registry.SigningKey{
		ID:         "0123456789ABCDEF",
		ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n-----END PGP PUBLIC KEY BLOCK-----\n",
	}
	file := func(name string, key func(registry.Version, string, string) string) registry.StoredFile {
		return registry.StoredFile{Object: key(v, digest, name), SHA256: digest, Size: 1}
	}
	zip := registry.ProviderPackage{
		Platform: registry.Platform{OS: "linux", Arch: "amd64"}, StoredFile: file("note.zip", note.FileKey),
		Filename: "note.zip", H1: "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
	}
	_, err1 := p.catalog.AddSigningKey(t.Context(), "acme", key)
	_, _, err2 := put(t.Context(), p.catalog.Modules, vpc,
		registry.ModuleVersion{Version: v, Object: vpc.ArchiveKey(v, digest), SHA256: digest, ContentSHA256: digest, Size: 1})
	_, _, err3 := put(t.Context(), p.catalog.Providers, note, registry.ProviderVersion{
		Version: v, Protocols: []string{"6.0"}, SigningKey: key.ID,
		Sums: file("SHA256SUMS", note.FileKey), Signature: file("SHA256SUMS.sig", note.FileKey),
		Packages: []registry.ProviderPackage{zip},
	})
	zip.StoredFile = file("note.zip", far.FileKey)
	_, _, err4 := p.catalog.Mirror.Add(t.Context(), far,
		registry.MirrorVersion{Version: v, Packages: []registry.MirrorPackage{{ProviderPackage: zip}}}, "tests")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
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

// tableFaults are faults of DynamoDB. All readers have the first fault. Only the
// first reader has the others.
var tableFaults = []struct {
	name  string
	fault fault // nil: nobody listens
	want  outcome
}{
	{"throttled", refuses("ThrottlingException"), unavailable("ThrottlingException")},
	{"answers after 1 s", slow(time.Second), fine},
	{"answers after 30 s", slow(30 * time.Second), unavailable("exceeded")},
	{"never answers", slow(time.Hour), unavailable("exceeded")},
	{"nobody listens", nil, unavailable("connection refused")},
	{"reset in an answer", cut(true), unavailable("connection reset")},
	{"half an answer", cut(false), unavailable("unexpected EOF")},
	{"half an answer as all of it", changed(shorter), unavailable("deserialization failed")},
	{
		"garbage",
		respondWith(200, map[string]string{"Content-Type": "application/x-amz-json-1.0"}, "<html>Welcome to the hotel's network"),
		unavailable("deserialization failed"),
	},
	{"wrong checksum", changed(wrongChecksum), unavailable("checksum")},
	{"sent elsewhere", respondWith(307, map[string]string{"Location": "http://127.0.0.1:1/"}, ""), unavailable("307")},
	{"access denied", refuses("AccessDeniedException"), broken("AccessDeniedException")},
	{"expired credentials", refuses("ExpiredTokenException"), broken("ExpiredTokenException")},
	// Clients do not notice faults of a single request.
	{"throttled, once", refuses("ThrottlingException"), fine},
	{"reset in an answer, once", cut(true), fine},
	{"wrong checksum, once", changed(wrongChecksum), fine},
}

// faultsOfTheTable tests the functions that read, with faults of DynamoDB.
func faultsOfTheTable(t *testing.T) {
	p := publishAll(t)
	var rows []exchange
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, f := range tableFaults {
		affected := readers
		if i > 0 {
			affected = readers[:1]
		}
		for _, r := range affected {
			known, unknown := p.token(t, "read:**"), p.token(t, "read:**")
			before := before(t, p.dynamo.URL)
			x := &examined{
				t: t, f: start(t, r.function, p.env(before.URL)), secrets: []string{known, unknown}, mu: &mu, rows: &rows,
			}
			all.Go(func() {
				warm := x.sendRequest("", r.warm, request(t, "GET", r.warm, known, ""), fine) // from here on the token is known
				token, fault := known, f.fault
				if r.token {
					token = unknown
				}
				if r.only != "" {
					fault = only(r.only, fault)
				}
				before.begin(f.name, fault)
				got := x.sendRequest(f.name, cmp.Or(r.what, r.path), request(t, "GET", r.path, token, ""), f.want)
				if f.want == fine && got.Body != warm.Body {
					t.Errorf("%s: body %s, want %s", f.name, got.Body, warm.Body)
				}
				before.end(t)
				x.sendRequest("", r.path, request(t, "GET", r.path, token, ""), fine)
			})
		}
	}
	all.Wait()
	t.Log(summary(rows))
}

// attributes are the attributes of a DynamoDB item.
type attributes = map[string]types.AttributeValue

// half cuts off the second half of an item's data.
func half(a attributes) {
	switch v := a["data"].(type) {
	case *types.AttributeValueMemberB:
		a["data"] = &types.AttributeValueMemberB{Value: v.Value[:len(v.Value)/2]}
	case *types.AttributeValueMemberS:
		a["data"] = &types.AttributeValueMemberS{Value: v.Value[:len(v.Value)/2]}
	}
}

// damage changes an item of the table, or deletes it if change is nil. It returns
// a function that restores the item.
func (p published) damage(t *testing.T, partition, sort string, change func(attributes)) (restore func()) {
	t.Helper()
	client, table := ddb.NewFromConfig(awstest.Config(p.dynamo.URL)), "larder"
	key := attributes{
		"pk": &types.AttributeValueMemberS{Value: partition}, "sk": &types.AttributeValueMemberS{Value: sort},
	}
	found, err := client.GetItem(t.Context(), &ddb.GetItemInput{TableName: &table, Key: key})
	if err != nil || found.Item == nil {
		t.Fatal(partition, sort, err)
	}
	put := func(item attributes) {
		t.Helper()
		if _, err := client.PutItem(t.Context(), &ddb.PutItemInput{TableName: &table, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	if change == nil {
		if _, err := client.DeleteItem(t.Context(), &ddb.DeleteItemInput{TableName: &table, Key: key}); err != nil {
			t.Fatal(err)
		}
	} else {
		changed := maps.Clone(found.Item)
		change(changed)
		put(changed)
	}
	return func() { put(found.Item) }
}

// damagedItems tests that functions do not return damaged items, do not treat
// them as missing, and name them in the log. A module without its listing or
// record is not found. A mirrored version without its record has no archives.
// Tests of pkg/catalog, its tables and pkg/protocol have more kinds of damage.
func damagedItems(t *testing.T) {
	p := publishAll(t)
	token := p.token(t, "read:**")
	damaged, digest := access.NewToken()
	if err := p.catalog.AddToken(t.Context(), digest, registry.Token{Name: "damaged", Scopes: []string{"read:**"}}); err != nil {
		t.Fatal(err)
	}
	var rows []exchange
	var mu sync.Mutex
	functions := make(map[string]*examined)
	for _, name := range []string{"modules", "providers", "mirror"} {
		f := start(t, name, p.env(p.dynamo.URL))
		functions[name] = &examined{t: t, f: f, secrets: []string{token, damaged}, mu: &mu, rows: &rows}
	}
	for _, test := range []struct {
		name, function, path, token string
		partition, sort             string
		change                      func(attributes) // nil: the item is missing
		want                        outcome
	}{
		{"half of a key", "providers", download, token, "keys/acme", "0123456789ABCDEF", half, broken("acme")},
		{"half of a token", "modules", versions, damaged, "tokens", digest, half, broken("token")},
		{"attribute of another type", "modules", versions, token, vpc.Path(), "listing", func(a attributes) {
			a["data"] = &types.AttributeValueMemberN{Value: "1"}
		}, broken(vpc.String())},
		{"no data", "modules", versions, token, vpc.Path(), "listing", func(a attributes) {
			delete(a, "data")
		}, broken(vpc.String())},
		{"no revision", "modules", versions, token, vpc.Path(), "listing", func(a attributes) {
			delete(a, "revision")
		}, broken(vpc.String())},
		{"half of a listing", "modules", versions, token, vpc.Path(), "listing", half, broken(vpc.String())},
		{"half of a listing", "providers", providerList, token, note.Path(), "listing", half, broken(note.String())},
		{"half of a listing", "mirror", index, token, far.Path(), "listing", half, broken(far.String())},
		{"missing listing", "modules", versions, token, vpc.Path(), "listing", nil, outcome{404, vpc.String()}},
		{"half of a record", "modules", archive, token, vpc.Path(), "version/1.0.0", half, broken(vpc.String())},
		{"half of a record", "providers", download, token, note.Path(), "version/1.0.0", half, broken(note.String())},
		{"half of a record", "mirror", mirrored, token, far.Path(), "version/1.0.0", half, broken(far.String())},
		{"missing record", "modules", archive, token, vpc.Path(), "version/1.0.0", nil, outcome{404, vpc.String()}},
		{"missing record", "mirror", mirrored, token, far.Path(), "version/1.0.0", nil, fine}, // it has no archives
	} {
		restore := p.damage(t, test.partition, test.sort, test.change)
		functions[test.function].sendRequest(test.name, test.path, request(t, "GET", test.path, test.token, ""), test.want)
		restore()
	}
	for path, x := range map[string]*examined{ // the same processes continue
		archive: functions["modules"], download: functions["providers"], mirrored: functions["mirror"],
	} {
		x.sendRequest("", path, request(t, "GET", path, token, ""), fine)
	}
	t.Log(summary(rows))
}

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
	prepared, err := rules.Preparer{}.Module(t.Context(), rules.Module{Dir: dir, Address: m})
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

const onTable, onBucket = "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_S3"

// publishFaults are faults of the services that the publish function uses, with
// the response to each step.
var publishFaults = []struct {
	name, service          string
	fault                  fault // nil: nobody listens
	begin, inspect, commit outcome
}{
	// The begin of a new upload sends no request to S3.
	{"S3: access denied", onBucket, s3Says(403, "AccessDenied"), fine, broken("403"), broken("AccessDenied")},
	{"S3: slow down", onBucket, s3Says(503, "SlowDown"), fine, unavailable("503"), unavailable("SlowDown")},
	{"S3: slow down, once", onBucket, s3Says(503, "SlowDown"), fine, fine, fine},
	{"S3: never answers", onBucket, slow(time.Hour), fine, unavailable("timeout"), unavailable("timeout")},
	// S3 answers HEAD as for a missing object.
	{
		"S3: no such bucket", onBucket, s3Says(404, "NoSuchBucket"),
		fine, outcome{409, "m.tar.gz"}, broken("NoSuchBucket"),
	},
	{"S3: half an answer", onBucket, cut(false), fine, unavailable("EOF"), unavailable("EOF")},
	{
		"table: writes are throttled", onTable, only("TransactWriteItems", refuses("ThrottlingException")),
		unavailable("ThrottlingException"), unavailable("ThrottlingException"), unavailable("ThrottlingException"),
	},
	{
		"table: throttled, once", onTable, refuses("ThrottlingException"),
		fine, fine, fine,
	},
	{
		"table: never answers", onTable, slow(time.Hour),
		unavailable("timeout"), unavailable("timeout"), unavailable("timeout"),
	},
	{
		"table: nobody listens", onTable, nil,
		unavailable("connection refused"), unavailable("connection refused"), unavailable("connection refused"),
	},
	{
		"table: access denied", onTable, refuses("AccessDeniedException"),
		broken("AccessDeniedException"), broken("AccessDeniedException"), broken("AccessDeniedException"),
	},
}

// faultsOfPublishing tests that a fault leaves nothing half visible, and that a
// retry after the fault publishes.
func faultsOfPublishing(t *testing.T) {
	p := publishAll(t)
	limits := settings.DefaultPublishLimits
	limits.AllInspections = settings.MaxPublishLimits.AllInspections // all run at once, on one table
	s3 := s3test.ForTest(t, "larder-objects")
	packed := pack(t, vpc, "output \"it\" { value = 1 }\n")
	var rows []exchange
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, f := range publishFaults {
		for step, want := range []outcome{f.begin, f.inspect, f.commit} {
			token := p.token(t, "publish:*/acme/**") // each upload has its own, because open uploads are limited
			fronts := map[string]*faulty{onTable: before(t, p.dynamo.URL), onBucket: before(t, s3.URL)}
			env := p.env("")
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
						front.begin(f.name, f.fault)
						x.sendRequest(f.name, name, e, want)
						front.end(t)
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
				do(1, "inspect", u.path+"/"+u.begun.Upload+"/inspect", "")
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

// faultsOfAnIssuer tests that callers try again while an OpenID issuer is down.
// Cached keys work meanwhile, and tokens of the registry do not need it.
func faultsOfAnIssuer(t *testing.T) {
	p := publishAll(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer := http.NewServeMux()
	service := httptest.NewServer(issuer)
	t.Cleanup(service.Close)
	front := before(t, service.URL)
	answer := func(path string, v any) {
		issuer.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) })
	}
	answer("/.well-known/openid-configuration", map[string]string{"issuer": front.URL, "jwks_uri": front.URL + "/keys"})
	answer("/keys", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Use: "sig"}}})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
		(&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "1"))
	if err != nil {
		t.Fatal(err)
	}
	own := p.token(t, "read:**")
	env := p.env(p.dynamo.URL)
	env["LARDER_ACCESS"] = `{"issuers":[{"issuer":"` + front.URL + `","audiences":["a"],` +
		`"rules":[{"claims":{"sub":"*"},"scopes":["read:**"]}]}]}`
	var rows []exchange
	examine := func() *examined {
		return &examined{t: t, f: start(t, "modules", env), secrets: []string{own}, mu: new(sync.Mutex), rows: &rows}
	}
	send := func(x *examined, fault, what, subject string, want outcome) {
		t.Helper()
		job, err := jwt.Signed(signer).Claims(map[string]any{
			"iss": front.URL, "aud": "a", "sub": subject, "exp": time.Now().Add(time.Hour).Unix(),
		}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		x.secrets = append(x.secrets, job)
		x.sendRequest(fault, what, request(t, "GET", versions, job, ""), want)
	}
	const down = "issuer: nobody listens"
	warm, cold := examine(), examine()
	send(warm, "", "a job's token", "1", fine)
	front.begin(down, nil)
	send(warm, down, "a job's token, with keys at hand", "2", fine)
	send(cold, down, "a job's token", "3", unavailable(front.URL))
	cold.sendRequest(down, "a token of the registry", request(t, "GET", versions, own, ""), fine)
	t.Log(summary(rows))
}
