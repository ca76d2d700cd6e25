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

// within reports whether a package is one of the folders, or below one.
func within(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return name == folder || strings.HasPrefix(name, strings.TrimSuffix(folder, "/")+"/")
	})
}

// own returns the folders of pkg that a package links, such as pkg/catalog for
// pkg/catalog/sqlite.
func own(p pkg) []string {
	var folders []string
	for _, dep := range p.Deps {
		if path, ok := strings.CutPrefix(dep, modulePath+"pkg/"); ok {
			folder, _, _ := strings.Cut(path, "/")
			folders = append(folders, "pkg/"+folder)
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// The map of the architecture page has all folders of pkg. Each folder imports
// only those below it, and its row names all packages in it.
func TestMap(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var folders, rows []string
	row := regexp.MustCompile("(?m)^\\|[^|]*\\| `(pkg/[a-z]+)` \\|.*$")
	for _, row := range row.FindAllStringSubmatch(string(page), -1) {
		folders, rows = append(folders, row[1]), append(rows, row[0])
	}
	for name, p := range sources(t) {
		path, ok := strings.CutPrefix(name, "pkg/")
		if !ok {
			continue
		}
		folder, part, _ := strings.Cut(path, "/")
		at := slices.Index(folders, "pkg/"+folder)
		if at < 0 {
			t.Errorf("pkg/%s is not on the map", folder)
			continue
		}
		if part != "" && !strings.Contains(rows[at], "`"+part+"`") {
			t.Errorf("the row of pkg/%s does not name %s", folder, part)
		}
		for _, i := range p.Imports {
			imported, ok := strings.CutPrefix(i, modulePath+"pkg/")
			imported, _, _ = strings.Cut(imported, "/")
			if ok && slices.Index(folders, "pkg/"+imported) < at {
				t.Errorf("%s imports %s, which is above it on the map", name, strings.TrimPrefix(i, modulePath))
			}
		}
	}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join("..", folder)); err != nil {
			t.Errorf("the map has %s, which does not exist", folder)
		}
	}
}

// onlyLinks has what is large, or slow to start, and the packages that may link
// it: a folder stands for all packages in it.
var onlyLinks = []struct {
	what, by []string
}{
	{
		[]string{"database/sql", "modernc.org"},
		[]string{"pkg/catalog/sqlite", "pkg/usage/daily", "pkg/local", "scripts/larder", "infra"},
	},
	{
		[]string{"github.com/aws/"},
		[]string{
			"pkg/catalog/dynamodb", "pkg/objects/presign", "pkg/objects/s3", "pkg/cloud/signedcall", "pkg/usage/insights",
			"pkg/examine/stackdoctor", "pkg/deployed", "functions", "scripts/larder", "infra",
		},
	},
	{
		[]string{sdk + "service/s3"},
		[]string{
			"pkg/objects/s3", "pkg/examine/stackdoctor", "functions/publish", "functions/pull", "scripts/larder", "infra",
		},
	},
	{[]string{sdk + "config", sdk + "credentials"}, []string{"scripts/larder", "infra"}},
	{[]string{"github.com/aws/aws-lambda-go"}, []string{"pkg/deployed", "functions"}},
	{[]string{"github.com/aws/aws-cdk-go", "github.com/aws/jsii-runtime-go"}, []string{"infra"}},
	{[]string{"github.com/spf13"}, []string{"scripts/larder"}},
	{[]string{"golang.org/x/term"}, []string{"pkg/text/terminal", "scripts/larder"}},
	// HTML is rendered when a module is published, so that no reader links the
	// renderer.
	{
		[]string{"github.com/yuin/goldmark", "github.com/microcosm-cc", modulePath + "pkg/docs/render"},
		[]string{
			"pkg/docs/render", "pkg/docs/extract", "pkg/publish", "pkg/mirror/filling", "pkg/mirror/pull", "pkg/sources/copying",
			"pkg/sources/monorepo", "pkg/examine/verify", "pkg/local", "functions/publish", "functions/pull", "scripts/larder",
			"infra",
		},
	},
	{
		[]string{"github.com/hashicorp/hcl"},
		[]string{
			"pkg/content", "pkg/docs/render", "pkg/docs/extract", "pkg/client", "pkg/publish", "pkg/mirror/policyfile",
			"pkg/mirror/filling", "pkg/mirror/pull", "pkg/metadata/metadataclient", "pkg/sources", "pkg/examine", "pkg/local",
			"functions/publish", "functions/pull", "scripts/larder", "infra",
		},
	},
	{
		[]string{"github.com/ProtonMail"},
		[]string{
			"pkg/content/signing", "pkg/publish", "pkg/mirror/filling", "pkg/mirror/pull", "pkg/sources/copying",
			"pkg/sources/monorepo", "pkg/examine", "pkg/local", "functions/publish", "functions/pull", "scripts/larder", "infra",
		},
	},
	{[]string{"github.com/alecthomas/chroma"}, nil},
	{[]string{modulePath + "pkg/local"}, []string{"pkg/local", "scripts/larder"}},
	{
		[]string{modulePath + "pkg/mirror/filling"},
		[]string{"pkg/mirror/filling", "pkg/mirror/pull", "functions/pull", "scripts/larder"},
	},
	{
		[]string{modulePath + "pkg/publish/publishclient"},
		[]string{"pkg/publish/publishclient", "pkg/sources/copying", "scripts/larder"},
	},
	{[]string{modulePath + "scripts", modulePath + "infra", modulePath + "functions"}, nil},
	{[]string{minidyn}, nil},
	// What is below internal is for tests, and for the commands that rehearse and
	// take pictures.
	{[]string{modulePath + "internal"}, nil},
}

func TestOnlyLinks(t *testing.T) {
	t.Parallel()
	for name, p := range sources(t) {
		if strings.HasPrefix(name, "internal/") {
			continue
		}
		for _, rule := range onlyLinks {
			if within(name, rule.by) {
				continue
			}
			at := slices.IndexFunc(p.Deps, func(dep string) bool { return within(dep, rule.what) })
			if at >= 0 {
				t.Errorf("%s links %s", name, p.Deps[at])
			}
		}
	}
}

// onlyImports has packages that only one other may import, or a few.
var onlyImports = []struct {
	what, by []string
}{
	{[]string{"github.com/aws/aws-lambda-go"}, []string{"pkg/deployed/lambdahttp", testkit + "lambda"}},
	// safehcl limits the input of these parsers. The package of policies reads the
	// tree that it returns.
	{
		[]string{
			"github.com/hashicorp/hcl/v2/hclsyntax", "github.com/hashicorp/hcl/v2/json", "github.com/hashicorp/hcl/v2/hclparse",
		},
		[]string{"pkg/content/safehcl", "pkg/mirror/policyfile"},
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
				if within(i, rule.what) && !slices.Contains(rule.by, name) {
					t.Errorf("%s imports %s", name, i)
				}
			}
		}
	}
}

// These packages make no requests.
var silent = []string{
	"pkg/catalog", "pkg/catalog/sqlite", "pkg/catalog/tabletest", "pkg/client/contexts", "pkg/cloud/partition",
	"pkg/content/archive", "pkg/content/safehcl", "pkg/content/secrets", "pkg/content/signing", "pkg/deployed/metrics",
	"pkg/docs", "pkg/docs/compare", "pkg/docs/extract", "pkg/docs/render", "pkg/docs/stored", "pkg/examine/verify",
	"pkg/files/jsonfile", "pkg/files/regularfile", "pkg/mirror/admission", "pkg/mirror/policyfile", "pkg/network/ipclass",
	"pkg/objects", "pkg/progress", "pkg/protocol", "pkg/publish", "pkg/publish/inspection", "pkg/publish/rules",
	"pkg/registry", "pkg/registry/errs", "pkg/settings", "pkg/sources/git", "pkg/sources/location", "pkg/sources/monorepo",
	"pkg/text/printable", "pkg/text/suggest", "pkg/text/terminal", "pkg/ttlcache",
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

// reading are the folders that each function links that reads the registry.
var reading = []string{
	"pkg/access", "pkg/catalog", "pkg/cloud", "pkg/deployed", "pkg/docs", "pkg/files", "pkg/httpapi", "pkg/network",
	"pkg/objects", "pkg/protocol", "pkg/registry", "pkg/settings", "pkg/text", "pkg/ttlcache",
}

// A function links the folder of its own handler, and no other handler.
func TestFunctionsLinkTheirOwn(t *testing.T) {
	t.Parallel()
	more := map[string][]string{
		"functions/modules":   {"pkg/modules"},
		"functions/providers": {"pkg/providers"},
		"functions/mirror":    {"pkg/mirror"},
		"functions/metadata":  {"pkg/metadata", "pkg/mirror", "pkg/search"},
		"functions/web":       {"pkg/mirror", "pkg/search", "pkg/web"},
		"functions/publish":   {"pkg/content", "pkg/progress", "pkg/publish"},
		// It checks what other registries offer, as publishing checks files.
		"functions/pull": {"pkg/client", "pkg/content", "pkg/mirror", "pkg/progress", "pkg/providers", "pkg/publish"},
	}
	for name, p := range sources(t) {
		if name == "functions/discovery" || !strings.HasPrefix(name, "functions/") {
			continue
		}
		want := slices.Sorted(slices.Values(slices.Concat(reading, more[name])))
		if got := own(p); !slices.Equal(got, want) {
			t.Errorf("%s links %q, want %q", name, got, want)
		}
	}
}

// Every client waits for the discovery function first. So it links no signatures,
// no AWS SDK, and no parsers of addresses and versions with their Unicode tables.
func TestDiscoveryLinksLittle(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"pkg/access/openid", "pkg/deployed/lambdahttp", "pkg/deployed/metrics", "pkg/discovery", "pkg/httpapi",
		"pkg/httpapi/requestlog", "pkg/network/connerror", "pkg/registry/errs", "pkg/settings", "pkg/text/printable",
	}
	libraries := []string{
		"github.com/aws/aws-lambda-go", "github.com/awslabs/aws-lambda-go-api-proxy", "golang.org/x/sync",
	}
	for _, dep := range sources(t)["functions/discovery"].Deps {
		first, _, _ := strings.Cut(dep, "/")
		isStandard := !strings.Contains(first, ".")
		name := strings.TrimPrefix(dep, modulePath)
		if !isStandard && !slices.Contains(allowed, name) && !within(dep, libraries) {
			t.Errorf("functions/discovery links %s", name)
		}
	}
}

// The kit for tests knows little of what it helps to test. So all packages can
// use it. Only the emulators link an AWS SDK.
func TestTestkit(t *testing.T) {
	t.Parallel()
	knows := map[string][]string{
		testkit + "cloudwatch": {"pkg/deployed"},
		testkit + "golden":     {"pkg/registry", "pkg/text"},
		testkit + "stock":      {"pkg/catalog", "pkg/docs", "pkg/protocol", "pkg/registry", "pkg/text"},
	}
	emulators := []string{testkit + "awstest", testkit + "dynamodbtest", testkit + "lambda", testkit + "s3test"}
	for name, p := range sources(t) {
		if !strings.HasPrefix(name, testkit) || name == testkit+"showcase" {
			continue
		}
		if got := own(p); !slices.Equal(got, knows[name]) {
			t.Errorf("%s links %q, want %q", name, got, knows[name])
		}
		at := slices.IndexFunc(p.Deps, func(dep string) bool { return within(dep, []string{"github.com/aws", minidyn}) })
		if at >= 0 && !slices.Contains(emulators, name) {
			t.Errorf("%s links %s", name, p.Deps[at])
		}
	}
}

// Only pkg/sources/git starts git, so that git never obeys a repository of a
// stranger. Of the other packages, only one has the text "git": it is a type of
// location.
func TestGitHasOneStarter(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("[\"`/]git(\\.exe)?[\"`]")
	for name, p := range sources(t) {
		for _, file := range p.GoFiles {
			if name == "pkg/sources/git" || name == "pkg/sources/location" || strings.HasPrefix(name, testkit) {
				continue
			}
			text, err := os.ReadFile(filepath.Join("..", name, file))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if named.MatchString(line) && !strings.Contains(line, "/pkg/sources/git\"") {
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

// The packages that a rule names exist, so that a rule never becomes empty.
func TestRulesHavePackages(t *testing.T) {
	t.Parallel()
	packages := sources(t)
	named := slices.Clone(reading)
	for _, rule := range slices.Concat(onlyLinks, onlyImports) {
		named = append(named, rule.by...)
	}
	for _, folder := range named {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(packages)), func(name string) bool {
			return within(name, []string{folder})
		}) {
			t.Errorf("a rule names %s, which has no package", folder)
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
