package metadata_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// These types have no exported type in the packages that serve them.
type (
	// ServiceDiscovery has the paths of the registry's protocols.
	ServiceDiscovery map[string]any
	// ModuleVersions are the versions of one module, the newest first.
	ModuleVersions struct {
		Modules []struct {
			Source string `json:"source,omitempty" jsonschema_description:"The repository of the latest version"`

			Versions []protocol.ListedModule `json:"versions"`
		} `json:"modules"`
	}
	// ModuleLocation is the location of an archive for go-getter.
	ModuleLocation struct {
		Location string `json:"location"`
	}
	// Document is a JSON document.
	Document map[string]any
	// Error is the body of an error.
	Error struct {
		Errors []string `json:"errors"`
		// Code is the stable name of the error.
		Code string `json:"code"`
		// Hint describes how to fix the error, or suggests the nearest address.
		Hint string `json:"hint,omitempty"`
	}
)

// operation describes a route.
type operation struct {
	tag, route, summary string
	// query has the names of parameters.
	query string
	body  any
	// responses are the bodies by status. A nil body means none.
	responses map[int]any
	open      bool // needs no credential
}

func ok(body any) map[int]any { return map[int]any{200: body} }

const paging = "offset limit namespace"

// operations describes all routes of a registry.
var operations = []operation{
	{"discovery", "GET /.well-known/terraform.json", "Discover services", "", nil, ok(ServiceDiscovery{}), true},
	{"modules", "GET /v1/modules/{namespace}/{name}/{system}/versions", "List versions of a module", "", nil,
		ok(ModuleVersions{}), false},
	{"modules", "GET /v1/modules/{namespace}/{name}/{system}/{version}/download", "Locate the archive of a version", "",
		nil, map[int]any{200: ModuleLocation{}, 204: nil}, false},
	{"providers", "GET /v1/providers/{namespace}/{type}/versions", "List versions of a provider", "", nil,
		ok(protocol.ProviderListing{}), false},
	{"providers", "GET /v1/providers/{namespace}/{type}/{version}/download/{os}/{arch}", "Locate a package", "", nil,
		ok(protocol.ProviderDownload{}), false},
	{"mirror", "GET /v1/mirror/{hostname}/{namespace}/{type}/{document}", "Read index.json or VERSION.json", "", nil,
		ok(Document{}), false},
	{"mirror", "GET /v1/providers-of/{hostname}/.well-known/terraform.json", "Discover that there is nothing to discover",
		"", nil, ok(Document{}), false},
	{"mirror", "GET /v1/providers-of/{hostname}/{namespace}/{type}/versions", "List versions of a mirrored provider", "",
		nil, ok(protocol.ProviderListing{}), false},
	{"mirror", "GET /v1/providers-of/{hostname}/{namespace}/{type}/{version}/download/{os}/{arch}",
		"Locate a mirrored package", "", nil, ok(protocol.ProviderDownload{}), false},
	{"mirror", "GET /v1/modules-of/{hostname}/.well-known/terraform.json", "Discover that there is nothing to discover",
		"", nil, ok(Document{}), false},
	{"mirror", "GET /v1/modules-of/{hostname}/{namespace}/{name}/{system}/versions", "List versions of a mirrored module",
		"", nil, ok(ModuleVersions{}), false},
	{"mirror", "GET /v1/modules-of/{hostname}/{namespace}/{name}/{system}/{version}/download",
		"Locate the archive of a mirrored module", "", nil, map[int]any{200: ModuleLocation{}, 204: nil}, false},
	{"metadata", "GET /v1/modules", "List modules", "q provider " + paging, nil, ok(protocol.ModuleList{}), false},
	{"metadata", "GET /v1/modules/search", "Search modules", "q provider " + paging, nil, ok(protocol.ModuleList{}),
		false},
	{"metadata", "GET /v1/modules/{namespace}", "List modules of a namespace", "q provider offset limit", nil,
		ok(protocol.ModuleList{}), false},
	{"metadata", "GET /v1/modules/{namespace}/{name}", "List the systems of a module", "q provider offset limit", nil,
		ok(protocol.ModuleList{}), false},
	{"metadata", "GET /v1/modules/{namespace}/{name}/{system}", "Describe the newest version of a module", "", nil,
		ok(protocol.ModuleDetail{}), false},
	{"metadata", "GET /v1/modules/{namespace}/{name}/{system}/{version}", "Describe a version of a module", "", nil,
		ok(protocol.ModuleDetail{}), false},
	{"metadata", "GET /v1/modules/{namespace}/{name}/{system}/{version}/files", "List the files of a version", "path", nil,
		ok(protocol.ModuleFiles{}), false},
	{"metadata", "GET /v1/modules/{namespace}/{name}/{system}/{version}/files/{path...}", "Read a file of a version", "",
		nil, ok(content{}), false},
	{"metadata", "GET /v1/modules/{namespace}/{name}/{system}/download", "Redirect to the download of the newest version",
		"", nil, map[int]any{302: nil}, false},
	{"metadata", "GET /v1/modules/{namespace}/{name}/{system}/history", "List all versions of a module", "", nil,
		ok(protocol.ModuleHistory{}), false},
	{"metadata", "GET /v1/providers", "List providers", "q " + paging, nil, ok(protocol.ProviderList{}), false},
	{"metadata", "GET /v1/providers/{namespace}", "List providers of a namespace", "q offset limit", nil,
		ok(protocol.ProviderList{}), false},
	{"metadata", "GET /v1/providers/{namespace}/{type}", "Describe the newest version of a provider", "", nil,
		ok(protocol.ProviderDetail{}), false},
	{"metadata", "GET /v1/providers/{namespace}/{type}/{version}", "Describe a version of a provider", "", nil,
		ok(protocol.ProviderDetail{}), false},
	{"metadata", "GET /v1/providers/{namespace}/{type}/history", "List all versions of a provider", "", nil,
		ok(protocol.ProviderHistory{}), false},
	{"metadata", "GET /v1/mirror", "List mirrored providers", "q " + paging, nil, ok(protocol.MirrorList{}), false},
	{"metadata", "GET /v1/mirror/{hostname}/{namespace}/{type}", "Describe a mirrored provider", "history", nil,
		ok(protocol.MirroredProvider{}), false},
	{"metadata", "GET /v1/mirror-modules", "List mirrored modules", "q provider " + paging, nil,
		ok(protocol.MirroredModuleList{}), false},
	{"metadata", "GET /v1/mirror-modules/{hostname}/{namespace}/{name}/{system}", "Describe a mirrored module", "history",
		nil, ok(protocol.MirroredProvider{}), false},
	{"metadata", "GET /v1/mirror-modules/{hostname}/{namespace}/{name}/{system}/{version}/files",
		"List the files of a mirrored version", "path", nil, ok(protocol.ModuleFiles{}), false},
	{"metadata", "GET /v1/mirror-modules/{hostname}/{namespace}/{name}/{system}/{version}/files/{path...}",
		"Read a file of a mirrored version", "", nil, ok(content{}), false},
	{"metadata", "GET /v1/modules/{namespace}/{name}/{system}/dependents", "List the modules that call a module",
		"offset limit", nil, ok(protocol.DependentList{}), false},
	{"metadata", "GET /v1/providers/{namespace}/{type}/dependents", "List the modules that require a provider",
		"offset limit", nil, ok(protocol.DependentList{}), false},
	{"metadata", "GET /v1/mirror-providers/{hostname}/{namespace}/{type}/dependents",
		"List the modules that require a mirrored provider", "offset limit", nil, ok(protocol.DependentList{}), false},
	{"metadata", "GET /v1/mirror-modules/{hostname}/{namespace}/{name}/{system}/dependents",
		"List the modules that call a mirrored module", "offset limit", nil, ok(protocol.DependentList{}), false},
	{"metadata", "GET /v1/openapi.json", "Describe this API", "", nil, ok(Document{}), true},
}

// publishOperations describes the routes of the publish API.
func publishOperations() (all []operation) {
	for _, thing := range []string{"modules/{namespace}/{name}/{system}", "providers/{namespace}/{type}"} {
		base := " " + protocol.PublishPath + thing
		upload := base + "/{version}/uploads"
		begun := map[int]any{200: protocol.Begun{}, 201: protocol.Begun{}}
		inspected := map[int]any{200: protocol.Inspected{}, 202: protocol.Inspected{}}
		none := map[int]any{204: nil}
		all = append(all,
			operation{"publish", "POST" + upload, "Begin an upload", "", protocol.Announcement{}, begun, false},
			operation{"publish", "POST" + upload + "/{upload}/inspect", "Inspect the uploaded files", "", nil, inspected,
				false},
			operation{"publish", "POST" + upload + "/{upload}/commit", "Publish an upload", "", nil,
				ok(protocol.Published{}), false},
			operation{"publish", "DELETE" + upload + "/{upload}", "Abandon an upload", "", nil, none, false},
			operation{"publish", "PUT" + base + "/deprecation", "Deprecate all versions", "", protocol.Deprecation{}, none,
				false},
			operation{"publish", "PUT" + base + "/{version}/deprecation", "Deprecate a version", "", protocol.Deprecation{},
				none, false},
			operation{"publish", "PUT" + base + "/{version}/copies", "Record a copy in another registry", "", protocol.Copy{},
				none, false},
		)
	}
	return all
}

// queryParameters describes the parameters of queries.
var queryParameters = map[string]map[string]any{
	"q": {"description": "Words that must all occur in the address, the description or the names of the documentation.",
		"schema": map[string]any{"type": "string", "maxLength": protocol.MaxSearch}},
	"provider": {"description": "The system of the module's address.", "schema": map[string]any{"type": "string"}},
	"history": {"description": "Whether to add the packages or archives, and the versions that are withdrawn or missing.",
		"schema": map[string]any{"type": "boolean", "default": false}},
	"path": {"description": "The path of a file, which is then the response. It can have any character.",
		"schema": map[string]any{"type": "string"}},
	"namespace": {"description": "The namespace of the address.", "schema": map[string]any{"type": "string"}},
	"offset": {"description": "The number of results before the page.",
		"schema": map[string]any{"type": "integer", "minimum": 0, "default": 0}},
	"limit": {"description": "The maximum number of results on the page. More than 100 is like 100.",
		"schema": map[string]any{"type": "integer", "minimum": 1, "default": 20}},
}

// document is an OpenAPI document while it is built.
type document struct {
	t         *testing.T
	reflector *jsonschema.Reflector
	schemas   map[string]any
}

func newDocument(t *testing.T) *document {
	t.Helper()
	d := &document{t: t, schemas: make(map[string]any), reflector: &jsonschema.Reflector{
		Anonymous: true, AllowAdditionalProperties: true, Mapper: textSchema,
	}}
	const here = "github.com/larder-registry/larder/pkg/metadata"
	for _, dir := range []string{"../protocol", "../docs", "../registry", "."} {
		if err := d.reflector.AddGoComments(here, dir); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// textSchema returns the schema of types that encode themselves as text.
func textSchema(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[registry.Version]():
		return &jsonschema.Schema{Type: "string"}
	case reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	}
	return nil
}

// schema adds the schema of a body, and returns a reference to it.
func (d *document) schema(body any) map[string]any {
	d.t.Helper()
	s := d.reflector.Reflect(body)
	for name, definition := range s.Definitions {
		d.schemas[name] = definition
	}
	name := reflect.TypeOf(body).Name()
	if _, found := d.schemas[name]; !found {
		s.Version, s.Definitions = "", nil
		d.schemas[name] = s
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

// content is the body of a file, which can have any type.
type content struct{}

func (d *document) content(body any) map[string]any {
	d.t.Helper()
	if body == (content{}) {
		return map[string]any{"*/*": map[string]any{}}
	}
	return map[string]any{"application/json": map[string]any{"schema": d.schema(body)}}
}

var wildcard = regexp.MustCompile(`\{([a-z]+)\}`)

func (d *document) operation(o operation) map[string]any {
	d.t.Helper()
	_, path, _ := strings.Cut(strings.ReplaceAll(o.route, "...}", "}"), " ")
	parameters := []any{}
	for _, found := range wildcard.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, map[string]any{
			"name": found[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"},
		})
	}
	for name := range strings.FieldsSeq(o.query) {
		p := maps.Clone(queryParameters[name])
		p["name"], p["in"], p["required"] = name, "query", name == "q" && strings.HasSuffix(path, "/search")
		parameters = append(parameters, p)
	}
	responses := map[string]any{"default": map[string]any{"description": "An error", "content": d.content(Error{})}}
	for status, body := range o.responses {
		r := map[string]any{"description": http.StatusText(status)}
		if body != nil {
			r["content"] = d.content(body)
		}
		responses[strconv.Itoa(status)] = r
	}
	if body, found := o.responses[http.StatusOK]; found && o.tag == "metadata" && body != (content{}) {
		// A request with If-None-Match
		responses["304"] = map[string]any{"description": http.StatusText(http.StatusNotModified)}
	}
	out := map[string]any{"tags": []string{o.tag}, "summary": o.summary, "parameters": parameters, "responses": responses}
	if o.body != nil {
		out["requestBody"] = map[string]any{"required": true, "content": d.content(o.body)}
	}
	if o.open {
		out["security"] = []any{}
	}
	return out
}

// goLink is a link in a Go comment.
var goLink = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// encode returns the document of all operations.
func (d *document) encode() []byte {
	d.t.Helper()
	paths := make(map[string]map[string]any)
	for _, o := range append(slices.Clone(operations), publishOperations()...) {
		method, path, _ := strings.Cut(strings.ReplaceAll(o.route, "...}", "}"), " ")
		if paths[path] == nil {
			paths[path] = make(map[string]any)
		}
		paths[path][strings.ToLower(method)] = d.operation(o)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{"title": "Larder", "version": "1",
			"description": "A private registry for OpenTofu and Terraform."},
		"paths":    paths,
		"security": []any{map[string]any{"bearer": []string{}}, map[string]any{}},
		"components": map[string]any{
			"schemas": d.schemas, "securitySchemes": map[string]any{"bearer": map[string]any{
				"type": "http", "scheme": "bearer",
				"description": "A registry token, or a JWT of an issuer that the registry trusts.",
			}},
		},
	}); err != nil {
		d.t.Fatal(err)
	}
	text := bytes.ReplaceAll(out.Bytes(), []byte(`"#/$defs/`), []byte(`"#/components/schemas/`))
	text = bytes.ReplaceAll(text, []byte(`\n`), []byte(" ")) // comments are wrapped
	return goLink.ReplaceAll(text, []byte("$1"))
}

// The description of the API is generated from the types that are served.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	golden.Equal(t, "openapi.json", newDocument(t).encode())
}

// It has exactly the routes that are served.
func TestOpenAPIRoutes(t *testing.T) {
	t.Parallel()
	var served, described []string
	for _, routes := range [][]httpapi.Route{
		discovery.Routes(), modules.Routes(), providers.Routes(), mirror.Routes(), metadata.Routes(), publishapi.Routes(),
	} {
		for _, r := range routes {
			served = append(served, r.Method+" "+r.Path)
		}
	}
	for _, o := range append(slices.Clone(operations), publishOperations()...) {
		described = append(described, o.route)
	}
	slices.Sort(served)
	slices.Sort(described)
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("routes (-served +described):\n%s", diff)
	}
}

type signer struct{}

func (signer) SignGet(_ context.Context, key string) (string, error) {
	return "https://s3.example.com/" + key, nil
}

// everything serves all protocols that read, and the metadata API.
func (s *store) everything() http.Handler {
	c := catalog.New(s.table)
	return httpapi.Join(
		httpapi.Service{Routes: discovery.Routes(), Handler: discovery.New(discovery.Larder(), nil)},
		httpapi.Service{Routes: modules.Routes(), Handler: modules.New(c.Modules, signer{})},
		httpapi.Service{Routes: providers.Routes(), Handler: providers.New(c.Providers, c, signer{})},
		httpapi.Service{Routes: mirror.Routes(), Handler: mirror.New(c.Mirror, signer{}, nil)},
		httpapi.Service{Routes: metadata.Routes(), Handler: metadata.New(c, s.objects, c, access.Everyone)},
	)
}

// Real responses match the description that is served.
func TestOpenAPIResponses(t *testing.T) {
	t.Parallel()
	s := sample(t)
	s.proven(null, "1.1.0")
	s.mirroredModule("1.1.0")
	h := s.everything()
	described, err := validator.UnmarshalJSON(get(t, h, "/v1/openapi.json").Body)
	if err != nil {
		t.Fatal(err)
	}
	compiler := validator.NewCompiler()
	if err := compiler.AddResource("openapi.json", described); err != nil {
		t.Fatal(err)
	}
	values := strings.NewReplacer("{namespace}", "acme", "{name}", "vpc", "{system}", "aws", "{version}", "1.1.0",
		"{path...}", "main.tf",
		"{type}", "inventory", "{os}", "linux", "{arch}", "amd64",
		"/{hostname}/acme/inventory/{document}", "/"+null+"/index.json", "/{hostname}/acme/inventory", "/"+null,
		"/{hostname}/acme/vpc/aws", "/"+mirroredVPC)
	for _, o := range operations {
		method, path, _ := strings.Cut(o.route, " ")
		filled := strings.ReplaceAll(values.Replace(values.Replace(path)), "inventory/1.1.0", "inventory/1.0.0")
		if strings.HasSuffix(path, "/search") {
			filled += "?q=vpc"
		}
		t.Run(o.route, func(t *testing.T) {
			w := get(t, h, filled)
			body, described := o.responses[w.Code]
			if !described {
				t.Fatalf("%s %s: status %d is not described: %s", method, filled, w.Code, w.Body)
			}
			if body == nil || body == (content{}) {
				return
			}
			schema, err := compiler.Compile("openapi.json#/components/schemas/" + reflect.TypeOf(body).Name())
			if err != nil {
				t.Fatal(err)
			}
			v, err := validator.UnmarshalJSON(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s: %v", filled, err)
			}
		})
	}
	for _, name := range []string{
		"ModuleDetail", "ModuleList", "ProviderDetail", "ProviderList", "MirrorList", "MirroredModuleList", "MirroredProvider",
		"ModuleHistory", "ProviderHistory", "DependentList",
	} {
		schema, err := compiler.Compile("openapi.json#/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(map[string]any{"meta": 1, "id": 1}) == nil {
			t.Errorf("the schema %s accepts anything", name)
		}
	}
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if w.Code >= http.StatusBadRequest {
		t.Error(fmt.Sprint(path, ": ", w.Code))
	}
	return w
}
