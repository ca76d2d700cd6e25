// Package pkg_test tests the rules about which packages may import which.
package pkg_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	modulePath = "github.com/larder-registry/larder/"
	testkit    = "internal/testkit/"
	sdk        = "github.com/aws/aws-sdk-go-v2/"
	minidyn    = "github.com/truora/minidyn"
)

// pkg is the output of `go list` for a package.
type pkg struct {
	ImportPath                string
	Imports                   []string
	TestImports, XTestImports []string // the additional imports of its tests
	Deps                      []string // all packages that it links, without those of its tests
	Doc                       string
	GoFiles                   []string
}

// list returns all packages of this module by their paths below it. It also
// returns the program of each package's tests, under its path and ".test".
func list(t *testing.T) map[string]pkg {
	t.Helper()
	found, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var listed = sync.OnceValues(func() (map[string]pkg, error) {
	fields := "-json=ImportPath,Imports,TestImports,XTestImports,Deps,Doc,GoFiles"
	out, err := exec.Command("go", "list", "-test", fields, modulePath+"...").Output()
	if err != nil {
		return nil, err
	}
	found := make(map[string]pkg)
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		// The variants that tests compile have a space in their names.
		if name := strings.TrimPrefix(p.ImportPath, modulePath); !strings.Contains(name, " ") {
			found[name] = p
		}
	}
})

// sources returns the packages of [list] without the programs of tests.
func sources(t *testing.T) map[string]pkg {
	t.Helper()
	packages := maps.Clone(list(t))
	maps.DeleteFunc(packages, func(name string, _ pkg) bool { return strings.HasSuffix(name, ".test") })
	return packages
}

// below reports whether a package is one of the folders, or below one.
func below(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return name == folder || strings.HasPrefix(name, folder+"/")
	})
}

// linked returns the packages of this module that a package links, by their paths
// below it, in order.
func linked(p pkg) []string {
	var own []string
	for _, dep := range p.Deps {
		if name, ok := strings.CutPrefix(dep, modulePath); ok {
			own = append(own, name)
		}
	}
	return slices.Sorted(slices.Values(own))
}

// The map of the architecture page has each package of pkg once. Each folder of
// pkg imports only folders below it.
func TestMap(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Map\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var packages, folders []string
	for _, row := range regexp.MustCompile("(?m)^\\|[^|]*\\| `(pkg/[^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		packages, folders = append(packages, row[1]), append(folders, folderOf(row[1]))
	}
	folders = slices.Compact(folders)
	all := sources(t)
	maps.DeleteFunc(all, func(name string, p pkg) bool { return !strings.HasPrefix(name, "pkg/") || len(p.GoFiles) == 0 })
	want := slices.Sorted(maps.Keys(all))
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(packages))); diff != "" {
		t.Errorf("the packages on the map (-want +got):\n%s", diff)
	}
	for name, p := range all {
		for _, dep := range p.Imports {
			imported, ok := strings.CutPrefix(dep, modulePath)
			if ok && slices.Index(folders, folderOf(imported)) < slices.Index(folders, folderOf(name)) {
				t.Errorf("%s imports %s, which is above it on the map", name, imported)
			}
		}
	}
	if len(folders) > 30 {
		t.Errorf("pkg has %d folders, and may have 30", len(folders))
	}
}

// folderOf returns the folder of pkg with a package, such as pkg/catalog for
// pkg/catalog/sqlite.
func folderOf(name string) string {
	parts := strings.Split(name, "/")
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// onlyLinks has what is large, slow to start or private, and the packages that
// link it. A slash at the end of a package stands for the packages below it too.
var onlyLinks = []struct {
	what, by []string
}{
	{[]string{"database/sql"}, []string{"pkg/catalog/sqlite", "pkg/usage/daily", "pkg/local/", "scripts/larder/", "infra"}},
	{[]string{"modernc.org"}, []string{"pkg/catalog/sqlite", "pkg/usage/daily", "pkg/local/", "scripts/larder/"}},
	{
		[]string{"github.com/aws"},
		[]string{
			"pkg/catalog/dynamodb", "pkg/objects/presign", "pkg/objects/s3", "pkg/cloud/signedcall", "pkg/cloud/kmskey",
			"pkg/examine/stackdoctor", "pkg/deployed", "pkg/deployed/lambdahttp", "functions/", "scripts/larder/", "infra",
		},
	},
	{
		[]string{sdk + "service/dynamodb"},
		[]string{
			"pkg/catalog/dynamodb", "pkg/examine/stackdoctor", "pkg/deployed", "functions/metadata", "functions/mirror",
			"functions/modules", "functions/providers", "functions/publish", "functions/pull", "functions/usage", "functions/web",
			"scripts/larder/", "infra",
		},
	},
	{
		[]string{sdk + "service/s3"},
		[]string{
			"pkg/objects/s3", "pkg/examine/stackdoctor", "functions/publish", "functions/pull", "scripts/larder/", "infra",
		},
	},
	{[]string{sdk + "config", sdk + "credentials"}, []string{"scripts/larder/", "infra"}},
	{[]string{"github.com/aws/aws-lambda-go"}, []string{"pkg/deployed", "pkg/deployed/lambdahttp", "functions/"}},
	{[]string{"github.com/aws/aws-cdk-go", "github.com/aws/jsii-runtime-go"}, []string{"infra"}},
	{[]string{"github.com/spf13"}, []string{"scripts/larder/"}},
	{[]string{"golang.org/x/term"}, []string{"pkg/text/terminal", "scripts/larder/"}},
	// The library of Lambda links it without the tag of the build.
	{
		[]string{"html/template"},
		[]string{
			"pkg/web", "pkg/local/", "pkg/deployed", "pkg/deployed/lambdahttp", "functions/", "scripts/larder/", "infra",
		},
	},
	// HTML is rendered when a module is published, so that no reader links the
	// renderer.
	{
		[]string{"github.com/yuin/goldmark", "github.com/microcosm-cc", modulePath + "pkg/docs/render"},
		[]string{
			"pkg/docs/render", "pkg/docs/extract", "pkg/publish/", "pkg/mirror/filling", "pkg/mirror/pull",
			"pkg/sources/copying", "pkg/sources/monorepo", "pkg/examine/verify", "pkg/local/", "functions/publish",
			"functions/pull", "scripts/larder/",
		},
	},
	{
		[]string{"github.com/hashicorp/hcl"},
		[]string{
			"pkg/content/archive", "pkg/content/configuration", "pkg/content/safehcl", "pkg/docs/extract",
			"pkg/client", "pkg/publish/",
			"pkg/mirror/policyfile", "pkg/mirror/filling", "pkg/mirror/pull", "pkg/metadata/metadataclient",
			"pkg/sources/copying", "pkg/client/fetch", "pkg/client/forge", "pkg/sources/monorepo", "pkg/examine/", "pkg/local/",
			"functions/publish", "functions/pull", "scripts/larder/",
		},
	},
	{
		[]string{"github.com/ProtonMail"},
		[]string{
			"pkg/content/signing", "pkg/publish", "pkg/publish/rules", "pkg/publish/publishapi", "pkg/publish/publishclient",
			"pkg/mirror/filling", "pkg/mirror/pull", "pkg/sources/copying", "pkg/sources/monorepo", "pkg/examine/",
			"pkg/local/", "functions/publish", "functions/pull", "scripts/larder/",
		},
	},
	{[]string{"github.com/alecthomas/chroma", minidyn}, nil},
	{[]string{modulePath + "pkg/local"}, []string{"pkg/local/", "scripts/larder/"}},
	{[]string{modulePath + "pkg/mirror/filling"}, []string{"pkg/mirror/pull", "functions/pull", "scripts/larder/"}},
	{[]string{modulePath + "pkg/publish/publishapi"}, []string{"pkg/local/", "functions/publish", "scripts/larder/"}},
	{[]string{modulePath + "pkg/publish/publishclient"}, []string{"pkg/sources/copying", "scripts/larder/"}},
	// The packages below internal are for tests, and for the commands that rehearse
	// and take pictures.
	{[]string{modulePath + "internal", modulePath + "infra", modulePath + "functions"}, nil},
	{[]string{modulePath + "scripts"}, []string{"scripts/larder/"}},
}

func TestOnlyLinks(t *testing.T) {
	t.Parallel()
	packages := sources(t)
	maps.DeleteFunc(packages, func(name string, _ pkg) bool { return strings.HasPrefix(name, "internal/") })
	for _, rule := range onlyLinks {
		used := make(map[string]bool)
		for name, p := range packages {
			at := slices.IndexFunc(p.Deps, func(dep string) bool { return below(dep, rule.what) })
			if at < 0 {
				continue
			}
			by := slices.IndexFunc(rule.by, func(by string) bool {
				folder, all := strings.CutSuffix(by, "/")
				return name == folder || all && strings.HasPrefix(name, by)
			})
			if by < 0 {
				t.Errorf("%s links %s", name, p.Deps[at])
			} else {
				used[rule.by[by]] = true
			}
		}
		for _, by := range rule.by {
			if !used[by] {
				t.Errorf("the rule about %q names %s, which does not link it", rule.what, by)
			}
		}
	}
}

// linksNone has packages that know nothing of others, so that each declares what
// it needs in an interface of its own, or stays useful elsewhere.
var linksNone = []struct {
	packages, of []string
}{
	{
		[]string{"pkg/discovery", "pkg/modules", "pkg/providers", "pkg/mirror"},
		[]string{"pkg/access", "pkg/catalog", "pkg/docs/stored", "pkg/objects"},
	},
	{
		[]string{"pkg/publish/publishclient", "pkg/metadata/metadataclient", "pkg/client", "pkg/examine/doctor"},
		[]string{"pkg/access", "pkg/catalog", "pkg/objects", "pkg/publish/publishapi", "pkg/search"},
	},
	{[]string{"pkg/publish/inspection"}, []string{"pkg/catalog", "pkg/objects"}},
	{[]string{"pkg/docs", "pkg/docs/compare"}, []string{"pkg/content", "pkg/objects", "pkg/registry"}},
	{[]string{"pkg/search", "pkg/usage"}, []string{"pkg/access", "pkg/objects"}},
	{[]string{"pkg/usage", "pkg/usage/daily", "pkg/usage/logged"}, []string{"pkg/catalog"}},
}

func TestLinksNone(t *testing.T) {
	t.Parallel()
	packages := sources(t)
	for _, rule := range linksNone {
		for _, name := range rule.packages {
			p, ok := packages[name]
			if !ok {
				t.Errorf("there is no %s", name)
			}
			for _, dep := range linked(p) {
				isAllowed := name == "pkg/discovery" && dep == "pkg/access/openid"
				if below(dep, rule.of) && !isAllowed {
					t.Errorf("%s links %s", name, dep)
				}
			}
		}
	}
}

// onlyImports has packages that only one other may import, or a few.
var onlyImports = []struct {
	what, by []string
}{
	{[]string{"github.com/aws/aws-lambda-go"}, []string{"pkg/deployed/lambdahttp", testkit + "lambda"}},
	// safehcl limits the input of these parsers. The packages of policies and of
	// configuration read the tree that it returns.
	{
		[]string{
			"github.com/hashicorp/hcl/v2/hclsyntax", "github.com/hashicorp/hcl/v2/json", "github.com/hashicorp/hcl/v2/hclparse",
		},
		[]string{"pkg/content/safehcl", "pkg/content/configuration", "pkg/mirror/policyfile"},
	},
	{[]string{modulePath + "pkg/docs/render"}, []string{"pkg/docs/extract"}},
	{[]string{"github.com/yuin/goldmark", "github.com/microcosm-cc"}, []string{"pkg/docs/render"}},
	{[]string{modulePath + "internal/rehearsal"}, []string{"internal/rehearsal/rehearse"}},
}

func TestOnlyImports(t *testing.T) {
	t.Parallel()
	for name, p := range sources(t) {
		for _, rule := range onlyImports {
			for _, i := range p.Imports {
				if below(i, rule.what) && !slices.Contains(rule.by, name) {
					t.Errorf("%s imports %s", name, i)
				}
			}
		}
	}
}

// These packages make no requests.
var silent = []string{
	"pkg/catalog", "pkg/catalog/sqlite", "pkg/catalog/tabletest", "pkg/client/contexts", "pkg/cloud/partition",
	"pkg/content/archive", "pkg/content/configuration", "pkg/content/safehcl", "pkg/content/secrets", "pkg/content/signing", "pkg/deployed/metrics",
	"pkg/docs", "pkg/docs/changelog", "pkg/docs/compare", "pkg/docs/extract", "pkg/docs/highlight", "pkg/docs/moduleblock",
	"pkg/docs/render", "pkg/docs/stored", "pkg/examine/verify",
	"pkg/files/jsonfile", "pkg/files/regularfile", "pkg/files/temporary", "pkg/files/textfile", "pkg/mirror/admission",
	"pkg/mirror/policyfile", "pkg/network/ipclass", "pkg/objects", "pkg/progress", "pkg/protocol", "pkg/publish",
	"pkg/publish/changes", "pkg/publish/inspection", "pkg/publish/rules",
	"pkg/registry", "pkg/registry/errs", "pkg/settings", "pkg/client/git", "pkg/client/location", "pkg/sources/monorepo",
	"pkg/text/printable", "pkg/text/suggest", "pkg/text/terminal", "pkg/text/terms", "pkg/ttlcache",
}

func TestSilentPackages(t *testing.T) {
	t.Parallel()
	packages := sources(t)
	for _, name := range silent {
		if p, ok := packages[name]; !ok {
			t.Errorf("there is no %s", name)
		} else if slices.Contains(p.Deps, "net/http") {
			t.Errorf("%s links net/http", name)
		}
	}
}

// A function links its own handler, and no other. Discovery links least, since
// every client waits for it first.
func TestFunctionsLinkTheirOwn(t *testing.T) {
	t.Parallel()
	// reading are the packages that each function links that reads the registry.
	reading := []string{
		"pkg/access", "pkg/access/openid", "pkg/catalog", "pkg/catalog/dynamodb", "pkg/cloud/partition", "pkg/deployed",
		"pkg/deployed/lambdahttp", "pkg/deployed/metrics", "pkg/docs", "pkg/files/jsonfile", "pkg/httpapi",
		"pkg/httpapi/requestlog", "pkg/network/connerror", "pkg/objects", "pkg/objects/presign", "pkg/protocol",
		"pkg/registry", "pkg/registry/errs", "pkg/settings", "pkg/text/printable", "pkg/text/suggest", "pkg/ttlcache",
	}
	pages := slices.Concat(reading, []string{
		"pkg/docs/stored", "pkg/mirror/admission", "pkg/network/ipclass", "pkg/search", "pkg/text/terms",
	})
	inspecting := slices.Concat(reading, []string{
		"pkg/content/archive", "pkg/content/configuration", "pkg/content/safehcl", "pkg/content/secrets", "pkg/content/signing", "pkg/docs/compare",
		"pkg/docs/extract", "pkg/docs/stored",
		"pkg/docs/highlight", "pkg/docs/moduleblock", "pkg/docs/render", "pkg/files/regularfile", "pkg/files/temporary", "pkg/files/textfile", "pkg/objects/s3",
		"pkg/progress", "pkg/publish/changes", "pkg/publish/inspection", "pkg/publish/rules", "pkg/text/terms",
	})
	want := map[string][]string{
		"functions/discovery": {
			"pkg/access/openid", "pkg/deployed/lambdahttp", "pkg/deployed/metrics", "pkg/discovery", "pkg/httpapi",
			"pkg/httpapi/requestlog", "pkg/network/connerror", "pkg/registry/errs", "pkg/settings", "pkg/text/printable",
		},
		"functions/modules":   slices.Concat(reading, []string{"pkg/modules"}),
		"functions/providers": slices.Concat(reading, []string{"pkg/providers"}),
		"functions/mirror": slices.Concat(reading, []string{
			"pkg/mirror", "pkg/mirror/admission", "pkg/mirror/hostblock", "pkg/modules",
		}),
		"functions/metadata": slices.Concat(pages, []string{"pkg/metadata"}),
		"functions/web": slices.Concat(pages, []string{
			"pkg/docs/changelog", "pkg/docs/compare", "pkg/docs/highlight", "pkg/docs/moduleblock", "pkg/files/regularfile",
			"pkg/files/textfile", "pkg/mirror/hostblock", "pkg/usage", "pkg/usage/logged", "pkg/web", "pkg/web/session",
		}),
		"functions/publish": slices.Concat(inspecting, []string{"pkg/publish/publishapi"}),
		"functions/pull": slices.Concat(inspecting, []string{
			"pkg/client", "pkg/mirror/admission", "pkg/mirror/filling", "pkg/mirror/pull", "pkg/modules",
			"pkg/network/ipclass", "pkg/providers", "pkg/publish", "pkg/client/fetch", "pkg/client/forge",
			"pkg/client/git", "pkg/client/location",
		}),
		"functions/usage": slices.Concat(reading, []string{"pkg/usage", "pkg/usage/logged"}),
	}
	got := make(map[string][]string)
	for name, p := range sources(t) {
		if strings.HasPrefix(name, "functions/") {
			got[name] = linked(p)
		}
	}
	for name := range want {
		slices.Sort(want[name])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the functions link (-want +got):\n%s", diff)
	}
}

// Discovery links no signatures, no AWS SDK, and no parsers of addresses and
// versions with their Unicode tables.
func TestDiscoveryLinksLittle(t *testing.T) {
	t.Parallel()
	libraries := []string{
		"github.com/aws/aws-lambda-go", "github.com/awslabs/aws-lambda-go-api-proxy", "golang.org/x/sync", "vendor",
		strings.TrimSuffix(modulePath, "/"),
	}
	for _, dep := range sources(t)["functions/discovery"].Deps {
		first, _, _ := strings.Cut(dep, "/")
		if isStandard := !strings.Contains(first, "."); !isStandard && !below(dep, libraries) {
			t.Errorf("functions/discovery links %s", dep)
		}
	}
}

// The kit for tests links little of what it helps to test. So all packages can
// use it. Only the emulators link an AWS SDK, each the client of its own service.
func TestTestkit(t *testing.T) {
	t.Parallel()
	own := map[string][]string{
		"cloudwatch": {"pkg/deployed/metrics"},
		"golden":     {"pkg/registry", "pkg/registry/errs", "pkg/text/printable"},
		"stock": {
			"pkg/catalog", "pkg/docs", "pkg/protocol", "pkg/registry", "pkg/registry/errs", "pkg/text/printable",
		},
	}
	aws := []string{"awstest", "dynamodbtest", "lambda", "s3test"}
	http := append([]string{"cloudwatch", "issuers", "modulehosts", "notimeout", "oddities", "showcase"}, aws...)
	clients := map[string]string{sdk + "service/s3": "s3test", sdk + "service/dynamodb": "dynamodbtest", minidyn: "dynamodbtest"}
	packages := sources(t)
	for _, name := range slices.Concat(http, slices.Collect(maps.Keys(own))) {
		if _, ok := packages[testkit+name]; !ok {
			t.Errorf("there is no %s", testkit+name)
		}
	}
	for path, p := range packages {
		name, ok := strings.CutPrefix(path, testkit)
		if !ok {
			continue
		}
		got := slices.DeleteFunc(linked(p), func(dep string) bool { return strings.HasPrefix(dep, testkit) })
		if diff := cmp.Diff(own[name], got, cmpopts.EquateEmpty()); name != "showcase" && diff != "" {
			t.Errorf("what %s links (-want +got):\n%s", path, diff)
		}
		for _, dep := range p.Deps {
			for client, emulator := range clients {
				if below(dep, []string{client}) && name != emulator {
					t.Errorf("%s links %s", path, dep)
				}
			}
			if strings.HasPrefix(dep, "github.com/aws/") && !slices.Contains(aws, name) ||
				dep == "net/http" && !slices.Contains(http, name) {
				t.Errorf("%s links %s", path, dep)
			}
		}
	}
}

// Only pkg/client/git starts git, so that git never obeys a repository of a
// stranger. Only one other package has the text "git": it is a type of location.
func TestGitHasOneStarter(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("[\"`/]git(\\.exe)?[\"`]")
	for name, p := range sources(t) {
		for _, file := range p.GoFiles {
			// pkg/registry has the name of a user and of a scheme.
			if name == "pkg/client/git" || name == "pkg/client/location" || name == "pkg/registry" || strings.HasPrefix(name, testkit) {
				continue
			}
			text, err := os.ReadFile(filepath.Join("..", name, file))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if named.MatchString(line) && !strings.Contains(line, "/pkg/client/git\"") {
					t.Errorf("%s/%s may start git: %s", name, file, strings.TrimSpace(line))
				}
			}
		}
	}
}

// The functions, the command line and the stack link only the AWS SDK's clients of
// DynamoDB and S3, and those that get credentials. Others would make them
// larger and slower to build. The requests to other services are in one package.
func TestClientsOfServices(t *testing.T) {
	t.Parallel()
	allowed := []string{"dynamodb", "s3", "signin", "sso", "ssooidc", "sts", "internal"}
	for name, p := range sources(t) {
		if !strings.HasPrefix(name, "pkg/") && !strings.HasPrefix(name, "functions/") && name != "scripts/larder" && name != "infra" {
			continue
		}
		for _, dep := range p.Deps {
			path, isClient := strings.CutPrefix(dep, sdk+"service/")
			if service, _, _ := strings.Cut(path, "/"); isClient && !slices.Contains(allowed, service) {
				t.Errorf("%s links %s", name, dep)
			}
		}
	}
}

// The tests of a package link an emulator or a client of an AWS service for two
// reasons only. They import it, or the package itself links that client.
func TestUnitTestsLinkNoEmulator(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for name, p := range sources(t) {
		tests := append(slices.Clone(p.TestImports), p.XTestImports...)
		table, bucket := slices.Contains(
			tests, modulePath+testkit+"dynamodbtest",
		), slices.Contains(tests, modulePath+testkit+"s3test")
		for prefix, emulated := range map[string]bool{minidyn: table, sdk + "service": table || bucket} {
			under := func(path string) bool { return strings.HasPrefix(path, prefix+"/") }
			linked := slices.IndexFunc(packages[name+".test"].Deps, under)
			if linked >= 0 && !emulated && !slices.ContainsFunc(append(tests, p.Deps...), under) {
				t.Errorf("the tests of %s link %s", name, packages[name+".test"].Deps[linked])
			}
		}
	}
}

// Every package has a package comment.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for name, p := range sources(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", name)
		}
	}
}
