package functions_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

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

// schemaRequests are requests for existing items, with what the log names.
var schemaRequests = []struct{ function, method, path, body, what string }{
	{"modules", "GET", versions, "", "item modules/acme/vpc/aws listing"},
	{"providers", "GET", download, "", "item providers/acme/note version/1.0.0"},
	{"mirror", "GET", index, "", "item mirror/example.com/acme/note listing"},
	{"publish", "POST", "/v1/publish/modules/acme/vpc/aws/1.2.0/uploads", announced, "item modules/acme/vpc/aws listing"},
	{
		"publish", "PUT", "/v1/publish/providers/acme/note/deprecation", `{"message": "use another"}`,
		"item providers/acme/note listing",
	},
	{"publish", "DELETE", "UPLOAD", "", "item uploads/"},
}

// refuse changes the schema version of the items in the selected partitions, and
// sends requests. Their responses must be internal errors. Each request logs its
// cause once and changes nothing. If what is not empty, each log line names it.
func (o *otherRelease) refuse(
	t *testing.T, fault string, schema int, picks func(partition string) bool, token, what string) {
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
	for _, r := range schemaRequests {
		path := strings.Replace(r.path, "UPLOAD", o.upload, 1)
		e := request(t, r.method, path, token, r.body)
		o.functions[r.function].sendRequest(fault, r.method+" "+path, e, broken(cmp.Or(what, r.what)))
	}
	const discovery = "/.well-known/terraform.json"
	o.functions["discovery"].sendRequest(fault, discovery, request(t, "GET", discovery, token, ""), fine)
	after, err := o.dynamo.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, after); diff != "" {
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
	o.refuse(t, "a newer release's registry", 2, isItem, o.known, "")
	o.refuse(t, "an older schema version", 0, isItem, o.known, "")
	// A caller with a token that cannot be read gets 500, and not 401.
	o.refuse(t, "a newer release's token", 2, isToken, o.unknown, "item tokens "+o.unknownID+" has schema version 2")
	t.Log(summary(o.rows))
}
