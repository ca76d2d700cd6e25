package calls_test

import (
	"bytes"
	"crypto/sha512"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
)

// TestReadUnits compares reads with the golden file, of long listings and of
// large registries. The first request of a process reads more than the next one.
// DynamoDB bills the units.
func TestReadUnits(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "request\tfirst: GetItem\tQuery\tunits\tnext: GetItem\tQuery\tunits\tbytes")
	read := func(name string, dynamo *dynamodbtest.Server, from http.Handler, path, token string) {
		t.Helper()
		status := http.StatusOK
		if strings.HasSuffix(path, "/download") {
			status = http.StatusNoContent
		}
		dynamo.Reads()
		var reads [2]dynamodbtest.Reads
		for i := range reads {
			for {
				if err := get(t, from, path, token, status); err != nil {
					t.Fatal(err)
				}
				more := dynamo.Reads()
				reads[i].GetItem, reads[i].Query = reads[i].GetItem+more.GetItem, reads[i].Query+more.Query
				reads[i].Units, reads[i].Bytes = reads[i].Units+more.Units, reads[i].Bytes+more.Bytes
				// On a busy machine, a search does not wait for all that it reads.
				if more.Units == 0 || !strings.Contains(path, "/search?") {
					break
				}
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", name, reads[0].GetItem, reads[0].Query, reads[0].Units,
			reads[1].GetItem, reads[1].Query, reads[1].Units, reads[1].Bytes)
	}
	readListings(t, read)
	for _, namespaces := range []int{40, 1} {
		readLists(t, namespaces, read)
	}
	_ = w.Flush() // it writes to memory
	golden.Equal(t, "testdata/units.golden", out.Bytes())
}

type reader func(name string, dynamo *dynamodbtest.Server, from http.Handler, path, token string)

// readListings reads listings and versions with a token.
func readListings(t *testing.T, read reader) {
	t.Helper()
	r := openDynamoDB(t)
	f := stock.Filler{Table: r.table}
	for _, versions := range []int{1, 100, 1000, 5000} {
		f.Module(t, registry.Module{Namespace: "acme", Name: fmt.Sprintf("of-%d", versions), System: "aws"}, versions, 1)
	}
	f.Provider(t, provider, r.signer, 500, 1, 11)
	f.Mirrored(t, mirrored, 500, 14)
	f.MirroredModule(t, mirroredModule, 100)
	f.Flush(t)
	token := r.token(t, "read:**")
	ofModules, ofMirror := modules.New(r.catalog.Modules, r.store), mirror.New(r.catalog.Mirror, r.store, nil)
	ofProviders := func() http.Handler { return providers.NewCaching(r.catalog.Providers, r.catalog, r.store) }
	const (
		acme         = "/v1/modules/acme"
		providerPath = "/v1/providers/acme/note"
		mirrorPath   = "/v1/mirror/registry.example.com/acme/note"
		providersOf  = "/v1/providers-of/registry.example.com/acme/note"
		modulesOf    = "/v1/modules-of/registry.example.com/far/vpc/aws"
	)
	for _, request := range []struct {
		name, path string
		from       http.Handler
	}{
		{"versions of a module, 1", acme + "/of-1/aws/versions", ofModules},
		{"versions of a module, 100", acme + "/of-100/aws/versions", ofModules},
		{"versions of a module, 1,000", acme + "/of-1000/aws/versions", ofModules},
		{"versions of a module, 5,000", acme + "/of-5000/aws/versions", ofModules},
		{"download of a module", acme + "/of-100/aws/1.9.9/download", ofModules},
		{"versions of a provider, 500 for 11 platforms", providerPath + "/versions", ofProviders()},
		{"download of a provider with 11 platforms", providerPath + "/5.9.9/download/linux/amd64", ofProviders()},
		{"index of a mirrored provider, 500 versions", mirrorPath + "/index.json", ofMirror},
		{"version of a mirrored provider with 14 platforms", mirrorPath + "/5.9.9.json", ofMirror},
		{"versions of another registry, 500 for 14 platforms", providersOf + "/versions", ofMirror},
		{"download of another registry with 14 platforms", providersOf + "/5.9.9/download/linux/amd64", ofMirror},
		{"versions of a mirrored module, 100", modulesOf + "/versions", ofMirror},
		{"download of a mirrored module", modulesOf + "/1.9.9/download", ofMirror},
	} {
		read(request.name, r.dynamo, access.New(access.Settings{}, r.catalog).RequireRead(request.from), request.path, token)
	}
}

// readLists reads lists of 1,000 modules. The stored names of each have 2.6
// KiB, which is the median of real modules. They are few long ones, so that a
// search reads all of them before it stops waiting.
func readLists(t *testing.T, namespaces int, read reader) {
	t.Helper()
	dynamo := dynamodbtest.StartLarge("larder")
	t.Cleanup(dynamo.Close)
	table := dynamodb.New(awstest.Config(dynamo.URL), "larder")
	f := stock.Filler{Table: table}
	namespace := func(i int) string { return fmt.Sprintf("team-%02d", i%namespaces) }
	for i := range namespaces {
		f.Namespace(t, namespace(i))
	}
	for i := range 1000 {
		m := registry.Module{Namespace: namespace(i), Name: fmt.Sprintf("module-%05d", i), System: "aws"}
		names := fmt.Sprintf("input_%05d", i)
		for n := range 36 {
			names += fmt.Sprintf(" input_%x", sha512.Sum512(fmt.Appendf(nil, "%d %d", i, n)))
		}
		f.Entry(t, m, stock.Version(1), names)
	}
	f.Flush(t)
	for _, path := range []string{"/v1/modules?limit=100", "/v1/modules/search?q=input_00999", "/v1/modules/team-00"} {
		name := fmt.Sprintf("GET %s, 1,000 modules in namespaces: %d", path, namespaces)
		read(name, dynamo, metadata.New(catalog.New(table), nil, catalog.New(table), access.Everyone), path, "")
	}
}
