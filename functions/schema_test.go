package functions_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// otherRelease is a registry of functions whose items become another release's.
type otherRelease struct {
	published
	functions map[string]*examined
	// known is a token that functions have cached. They must look up unknown.
	known, unknown, unknownID string
	// upload is the path of an open upload.
	upload string
	rows   []exchange
}

func newOtherRelease(t *testing.T) *otherRelease {
	t.Helper()
	o := &otherRelease{published: publishAll(t), functions: make(map[string]*examined)}
	var begun atomic.Bool
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if begun.Load() {
			t.Errorf("the bucket gets %s %s", r.Method, r.URL.Path)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(bucket.Close)
	o.bucket = bucket.URL
	o.known, _ = o.publisher(t)
	o.unknown, o.unknownID = o.publisher(t)
	env := o.env(o.dynamo.URL)
	maps.Copy(env, settings.DefaultPublishLimits.Environment())
	var mu sync.Mutex
	for _, name := range []string{"modules", "providers", "mirror", "publish", "discovery"} {
		secrets := []string{o.known, o.unknown}
		o.functions[name] = &examined{t: t, f: start(t, name, env), secrets: secrets, mu: &mu, rows: &o.rows}
	}
	for function, path := range map[string]string{"modules": versions, "providers": providerList, "mirror": index} {
		o.functions[function].sendRequest("", path, request(t, "GET", path, o.known, ""), fine)
	}
	uploads := "/v1/publish/" + vpc.Path() + "/1.1.0/uploads"
	answer := o.functions["publish"].sendRequest("", uploads, request(t, "POST", uploads, o.known, announced), fine)
	var upload protocol.Begun
	if err := json.Unmarshal([]byte(answer.Body), &upload); err != nil {
		t.Fatal(err)
	}
	begun.Store(true)
	o.upload = uploads + "/" + upload.Upload
	return o
}

// announced is the announcement of a module.
const announced = `{"files": [{"name": "vpc.tar.gz", "size": 1, "sha256": "` + digest + `"}]}`

// announcedRelease is the announcement of a provider.
var announcedRelease = func() string {
	var files []string
	for _, name := range []string{"linux_amd64.zip", "SHA256SUMS", "SHA256SUMS.sig"} {
		name = "terraform-provider-note_1.1.0_" + name
		files = append(files, fmt.Sprintf(`{"name": %q, "size": 1, "sha256": %q}`, name, digest))
	}
	return `{"files": [` + strings.Join(files, ", ") + `], "protocols": ["6.0"]}`
}()

// publisher creates a token that reads and publishes. It also returns its ID.
func (o *otherRelease) publisher(t *testing.T) (token, id string) {
	t.Helper()
	token, digest := access.NewToken()
	scopes := []string{"read:**", "publish:*/acme/**", "publish:*/other/**"}
	if err := o.catalog.AddToken(t.Context(), digest,
		registry.Token{Name: "tests-" + digest[:12], Scopes: scopes}); err != nil {
		t.Fatal(err)
	}
	return token, registry.TokenID(digest)
}

// schemaRequest is a request to a function.
type schemaRequest struct {
	function, method, path, body string
	// what describes the data of another release in the log.
	what string
}

// requests returns requests for existing items.
func (o *otherRelease) requests() []schemaRequest {
	const deprecation = `{"message": "use another"}`
	const module, moduleListing = "/v1/publish/modules/acme/vpc/aws", "item modules/acme/vpc/aws listing"
	const mirrored = "item mirror/example.com/acme/note "
	const provider, providerListing = "/v1/publish/providers/acme/note", "item providers/acme/note listing"
	upload := "item uploads/" + o.upload[strings.LastIndexByte(o.upload, '/')+1:] + " upload"
	return []schemaRequest{
		{"modules", "GET", versions, "", moduleListing},
		{"modules", "GET", "/v1/modules/acme/vpc/aws/1.0.0/download", "", "item modules/acme/vpc/aws version/1.0.0"},
		{"providers", "GET", providerList, "", providerListing},
		{"providers", "GET", download, "", "item providers/acme/note version/1.0.0"},
		{"mirror", "GET", index, "", mirrored + "listing"},
		{"mirror", "GET", "/v1/mirror/example.com/acme/note/1.0.0.json", "", mirrored + "version/1.0.0"},
		{"publish", "POST", module + "/1.0.0/uploads", announced, moduleListing},
		{"publish", "POST", module + "/1.1.0/uploads", announced, moduleListing},
		{"publish", "POST", module + "/1.2.0/uploads", announced, moduleListing},
		{"publish", "POST", provider + "/1.1.0/uploads", announcedRelease, signer},
		{"publish", "POST", o.upload + "/files/0/inspect", "", upload},
		{"publish", "POST", o.upload + "/commit", "", upload},
		{"publish", "DELETE", o.upload, "", upload},
		{"publish", "PUT", module + "/deprecation", deprecation, moduleListing},
		{"publish", "PUT", module + "/1.0.0/deprecation", deprecation, moduleListing},
		{"publish", "PUT", provider + "/deprecation", deprecation, providerListing},
		{"publish", "PUT", provider + "/1.0.0/deprecation", deprecation, providerListing},
	}
}

const signer = "item keys/acme 0123456789ABCDEF"

// additions are requests that need no existing item.
var additions = []schemaRequest{
	{"publish", "POST", "/v1/publish/modules/acme/vpc/new/1.0.0/uploads", announced, "the registry"},
	{"publish", "POST", "/v1/publish/modules/other/vpc/aws/1.0.0/uploads", announced, "the registry"},
}

// refuse changes the schema version of the items in the selected partitions, and
// sends requests. Their responses must be internal errors. Each request logs its
// cause once and changes nothing.
func (o *otherRelease) refuse(
	t *testing.T, fault string, schema int, picks func(partition string) bool, token string, requests []schemaRequest) {
	t.Helper()
	all := func(string) bool { return true }
	err := errors.Join(o.dynamo.SetSchema(t.Context(), 1, all), o.dynamo.SetSchema(t.Context(), schema, picks))
	if err != nil {
		t.Fatal(err)
	}
	before, err := o.dynamo.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		e := request(t, r.method, r.path, token, r.body)
		o.functions[r.function].sendRequest(fault, r.method+" "+r.path, e, broken(r.what))
	}
	const discovery = "/.well-known/terraform.json"
	o.functions["discovery"].sendRequest(fault, discovery, request(t, "GET", discovery, token, ""), fine)
	after, err := o.dynamo.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("%s: the table has changed: %s", fault, diff)
	}
}

// Functions neither read nor change data of another schema version. Callers
// receive the fixed message of an internal error. The log has the item and its
// schema version.
func TestSchema(t *testing.T) {
	t.Parallel()
	o := newOtherRelease(t)
	isToken := func(partition string) bool { return partition == "tokens" }
	isItem := func(partition string) bool { return !isToken(partition) }
	isSchema := func(partition string) bool { return partition == "catalog/" }
	isKey := func(partition string) bool { return strings.HasPrefix(partition, "keys/") }

	o.refuse(t, "a newer release's registry", 2, isItem, o.known, o.requests())
	// The schema version is enough to prevent changes of any kind.
	changes := slices.Clone(additions)
	for _, r := range o.requests() {
		if r.function == "publish" && (r.method != "POST" || strings.HasSuffix(r.path, "/inspect")) {
			r.what = "the registry"
			changes = append(changes, r)
		}
	}
	o.refuse(t, "a newer release's schema version", 2, isSchema, o.known, changes)
	o.refuse(t, "a newer release's key", 2, isKey, o.known, []schemaRequest{{"providers", "GET", download, "", signer}})

	// A caller with a token that cannot be read gets 500, and not 401.
	var strangers []schemaRequest
	for _, r := range o.requests() {
		r.what = "item tokens " + o.unknownID
		strangers = append(strangers, r)
	}
	o.refuse(t, "a newer release's token", 2, isToken, o.unknown, strangers)

	o.refuse(t, "an older schema version", 0, isItem, o.known, o.requests())
	o.refuse(t, "an older token's schema version", 0, isToken, o.unknown, strangers)
	upload := o.upload[strings.LastIndexByte(o.upload, '/')+1:]
	golden.New(t).Text(t, causes(o.rows, upload, "UPLOAD", o.unknownID, "TOKEN"))
	t.Log(summary(o.rows))
}
