// Package pkg_test tests the rules about which packages may import which.
package pkg_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/larder-registry/larder/"

// pkg is the output of `go list` for a package.
type pkg struct {
	ImportPath                string
	Imports                   []string
	TestImports, XTestImports []string // the additional imports of its tests
	Deps                      []string // all packages that it links, without those of its tests
	Doc                       string
	GoFiles                   []string
}

// list returns all packages of this module by their paths below it. With the
// flag -test it also returns the program of each package's tests, under its
// path and ".test".
func list(t *testing.T, flags ...string) map[string]pkg {
	t.Helper()
	args := append([]string{"list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps,Doc,GoFiles"}, flags...)
	out, err := exec.CommandContext(t.Context(), "go", append(args, modulePath+"...")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]pkg)
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimPrefix(p.ImportPath, modulePath)] = p
	}
}

// rule has the packages that a package may link, and those that it must not
// link.
type rule struct {
	pkg    string
	own    []string // the packages of this module that it may link; nil: any
	except []string // prefixes of packages that it must not link
}

var rules = []rule{
	{"pkg/registry/errs", []string{}, notInDiscovery("net/http", "log/slog", "encoding/json")},
	{"pkg/network/connerror", []string{}, notInDiscovery("log/slog", "encoding/json", "github.com/aws/")},
	{"pkg/network/ipclass", []string{}, notInDiscovery("net/http", "log/slog", "encoding/json")},
	{"pkg/cloud/partition", []string{}, notInDiscovery("net/http", "log/slog", "encoding/json", "github.com/aws/")},
	{"pkg/text/printable", []string{}, notInDiscovery("net/http", "log/slog", "encoding/json")},
	{"pkg/files/regularfile", []string{"pkg/registry/errs"}, notInDiscovery("net/http", "log/slog", "encoding/json")},
	{"pkg/sources/monorepo", publishing("pkg/sources/git"), []string{"net/http", "github.com/aws/", "database/sql", "github.com/spf13/"}},
	{"pkg/sources/git", []string{"pkg/registry"}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{"pkg/progress", []string{}, notInDiscovery("net/http", "log/slog", "encoding/json")},
	{"pkg/text/suggest", []string{}, notInDiscovery("net/http", "log/slog", "encoding/json")},
	{
		"pkg/files/jsonfile", []string{"pkg/registry/errs", "pkg/text/suggest"},
		notInDiscovery("net/http", "log/slog", "github.com/aws/"),
	},
	{"pkg/text/terminal", []string{}, []string{"net/http", "log/slog", "github.com/aws/"}},
	{"pkg/client/contexts", []string{"pkg/files/jsonfile", "pkg/registry", "pkg/registry/errs", "pkg/files/regularfile", "pkg/text/suggest"},
		[]string{"net/http", "log/slog", "github.com/aws/"}},
	{"pkg/ttlcache", []string{}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{"pkg/registry", []string{"pkg/registry/errs"}, []string{"net/http", "database/sql", "github.com/aws/"}},
	{"pkg/httpapi/requestlog", []string{"pkg/registry/errs"}, notInDiscovery("github.com/aws/")},
	{"pkg/httpapi", []string{"pkg/registry/errs", "pkg/httpapi/requestlog"}, notInDiscovery("github.com/aws/")},
	{"pkg/discovery", []string{"pkg/registry/errs", "pkg/httpapi", "pkg/access/openid"}, notInDiscovery("github.com/aws/")},
	{"pkg/access/openid", []string{"pkg/registry/errs"}, notInDiscovery("github.com/aws/")},
	{"pkg/protocol", []string{"pkg/registry"}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{"pkg/modules", []string{"pkg/registry", "pkg/protocol", "pkg/httpapi"}, []string{"github.com/aws/", "database/sql"}},
	{"pkg/access", []string{"pkg/registry", "pkg/httpapi", "pkg/access/openid"}, []string{"github.com/aws/", "database/sql"}},
	{
		"pkg/web/session", []string{"pkg/registry", "pkg/protocol", "pkg/httpapi", "pkg/access/openid", "pkg/access", "pkg/catalog"},
		[]string{"github.com/aws/", "database/sql", "html/template"},
	},
	{"pkg/catalog", []string{"pkg/registry", "pkg/protocol"}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{
		"pkg/mirror/admission", []string{"pkg/registry", "pkg/protocol"},
		[]string{"net/http", "github.com/aws/", "github.com/hashicorp/hcl/", "database/sql"},
	},
	{
		"pkg/mirror/policyfile", []string{"pkg/registry", "pkg/content/safehcl"},
		[]string{"net/http", "github.com/aws/", "database/sql"},
	},
	{"pkg/objects", []string{"pkg/registry"}, []string{"github.com/aws/", "database/sql"}},
	{
		"pkg/docs/compare", []string{},
		[]string{"net/http", "github.com/aws/", "github.com/hashicorp/", "github.com/zclconf/", "database/sql"},
	},
	{"pkg/docs", []string{}, []string{"net/http", "github.com/", "golang.org/", "database/sql"}},
	{
		"pkg/docs/extract", []string{"pkg/registry", "pkg/content/safehcl", "pkg/docs/render"},
		[]string{"net/http", "github.com/aws/", "database/sql"},
	},
	{"pkg/content/secrets", []string{"pkg/registry"}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{"pkg/content/safehcl", []string{}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{
		"pkg/docs/render", []string{"pkg/content/safehcl"},
		[]string{"net/http", "html/template", "github.com/aws/", "database/sql", "github.com/alecthomas/chroma"},
	},
	{
		"pkg/content/archive", []string{"pkg/registry", "pkg/content/safehcl", "pkg/content/secrets", "pkg/progress"},
		[]string{"github.com/aws/", "database/sql", "net/http"},
	},
	{
		"pkg/publish/inspection",
		[]string{
			"pkg/registry", "pkg/content/safehcl", "pkg/progress", "pkg/content/archive", "pkg/content/secrets",
			"pkg/docs/extract", "pkg/docs/render",
		},
		[]string{"net/http", "github.com/aws/", "database/sql"},
	},
	{"pkg/content/signing", []string{"pkg/registry"}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{
		"pkg/publish/rules",
		[]string{
			"pkg/registry", "pkg/content/safehcl", "pkg/progress", "pkg/content/archive", "pkg/content/secrets", "pkg/docs/extract", "pkg/docs/render",
			"pkg/protocol", "pkg/content/signing",
		},
		[]string{"net/http", "github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{
		"pkg/publish",
		[]string{
			"pkg/registry", "pkg/catalog", "pkg/content/safehcl", "pkg/progress", "pkg/content/archive", "pkg/content/secrets", "pkg/objects",
			"pkg/protocol", "pkg/content/signing", "pkg/publish/rules", "pkg/docs/extract", "pkg/docs/render", "pkg/publish/inspection",
		},
		[]string{"net/http", "github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{"pkg/catalog/sqlite", []string{"pkg/registry", "pkg/protocol", "pkg/catalog"}, []string{"github.com/aws/"}},
	{
		"pkg/objects/disk", []string{"pkg/registry", "pkg/httpapi", "pkg/objects"},
		[]string{"github.com/aws/", "database/sql"},
	},
	{
		"pkg/providers", []string{"pkg/registry", "pkg/protocol", "pkg/httpapi"}, []string{"github.com/aws/", "database/sql"},
	},
	{
		"pkg/mirror", []string{"pkg/registry", "pkg/protocol", "pkg/httpapi", "pkg/mirror/admission"},
		[]string{"github.com/aws/", "database/sql"},
	},
	{
		"pkg/search", []string{"pkg/registry", "pkg/protocol", "pkg/catalog", "pkg/httpapi/requestlog"},
		[]string{"github.com/aws/", "database/sql", "html/template"},
	},
	{"pkg/docs/stored", []string{"pkg/registry", "pkg/objects"}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{
		"pkg/metadata",
		[]string{
			"pkg/registry", "pkg/protocol", "pkg/httpapi", "pkg/access", "pkg/access/openid", "pkg/catalog", "pkg/objects",
			"pkg/docs/stored", "pkg/search", "pkg/mirror/admission",
		},
		[]string{
			"github.com/aws/", "database/sql", "github.com/hashicorp/hcl/v2", "github.com/yuin/goldmark", "html/template",
		},
	},
	{
		"pkg/web",
		[]string{
			"pkg/registry", "pkg/protocol", "pkg/httpapi", "pkg/access", "pkg/access/openid", "pkg/catalog", "pkg/objects",
			"pkg/docs/stored", "pkg/docs/compare", "pkg/search", "pkg/web/session", "pkg/mirror/admission",
		},
		[]string{"github.com/aws/", "database/sql", "github.com/hashicorp/hcl/v2", "github.com/yuin/goldmark"},
	},
	{
		"pkg/client", []string{"pkg/registry", "pkg/content/safehcl"},
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/"},
	},
	{
		"pkg/examine/doctor",
		[]string{
			"pkg/registry", "pkg/protocol", "pkg/content/safehcl", "pkg/client", "pkg/progress", "pkg/content/archive", "pkg/content/secrets",
			"pkg/content/signing", "pkg/mirror/admission", "pkg/sources/location",
		},
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{
		"pkg/examine/stackdoctor",
		[]string{
			"pkg/registry", "pkg/protocol", "pkg/content/safehcl", "pkg/client", "pkg/progress", "pkg/content/archive", "pkg/content/secrets",
			"pkg/content/signing", "pkg/mirror/admission", "pkg/sources/location", "pkg/examine/doctor", "pkg/httpapi", "pkg/access/openid", "pkg/access",
			"pkg/objects", "pkg/settings", "pkg/cloud/signedcall",
		},
		[]string{
			"github.com/aws/aws-lambda-go", "github.com/aws/aws-cdk-go", "database/sql", "github.com/spf13/",
			"golang.org/x/term",
		},
	},
	{
		"pkg/mirror/filling",
		[]string{
			"pkg/registry", "pkg/mirror/admission", "pkg/content/safehcl", "pkg/protocol", "pkg/httpapi", "pkg/providers", "pkg/client",
			"pkg/content/signing", "pkg/progress", "pkg/content/archive", "pkg/content/secrets", "pkg/objects", "pkg/catalog", "pkg/docs/extract",
			"pkg/docs/render", "pkg/publish/inspection", "pkg/publish/rules", "pkg/publish",
		},
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{
		"pkg/mirror/pull",
		publishing(
			"pkg/mirror/admission", "pkg/httpapi", "pkg/providers", "pkg/client", "pkg/objects", "pkg/catalog", "pkg/publish/inspection",
			"pkg/publish", "pkg/mirror/filling",
		),
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{
		"pkg/examine/verify",
		[]string{
			"pkg/registry", "pkg/content/safehcl", "pkg/mirror/policyfile", "pkg/protocol", "pkg/catalog", "pkg/progress",
			"pkg/content/archive", "pkg/content/secrets", "pkg/docs/extract", "pkg/docs/render", "pkg/objects", "pkg/publish/rules", "pkg/content/signing",
		},
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{
		"pkg/usage", []string{"pkg/registry", "pkg/httpapi/requestlog"},
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/"},
	},
	{
		"pkg/usage/daily", []string{"pkg/registry", "pkg/httpapi/requestlog", "pkg/files/regularfile", "pkg/usage"},
		[]string{"github.com/aws/", "github.com/spf13/"},
	},
	{
		"pkg/usage/insights", []string{"pkg/registry", "pkg/httpapi/requestlog", "pkg/cloud/signedcall", "pkg/usage"},
		[]string{"github.com/aws/aws-lambda-go", "github.com/aws/aws-cdk-go", "database/sql", "github.com/spf13/"},
	},
	{"pkg/settings", []string{}, []string{"github.com/aws/"}},
	{
		"pkg/cloud/signedcall", []string{"pkg/registry/errs"},
		notInDiscovery(sdk+"service", sdk+"config", sdk+"credentials", "github.com/aws/aws-lambda-go"),
	},
	{
		"pkg/catalog/dynamodb", []string{"pkg/registry", "pkg/protocol", "pkg/catalog", "pkg/settings"},
		[]string{"github.com/aws/aws-lambda-go", "github.com/aws/aws-cdk-go"},
	},
	{
		"pkg/objects/presign", []string{"pkg/registry", "pkg/objects"},
		[]string{"github.com/aws/aws-sdk-go-v2/service", "github.com/aws/aws-sdk-go-v2/config"},
	},
	{
		"pkg/objects/s3", []string{"pkg/registry", "pkg/objects", "pkg/objects/presign"},
		[]string{"github.com/aws/aws-lambda-go", "github.com/aws/aws-cdk-go"},
	},
	{"pkg/deployed/metrics", []string{}, notInDiscovery("net/http", "github.com/aws/")},
	{
		"pkg/deployed/lambdahttp", []string{"pkg/registry/errs", "pkg/httpapi", "pkg/deployed/metrics", "pkg/settings"},
		notInDiscovery("github.com/aws/aws-sdk-go-v2"),
	},
	{
		"functions/discovery",
		[]string{
			"pkg/registry/errs", "pkg/httpapi", "pkg/discovery", "pkg/access/openid", "pkg/settings", "pkg/deployed/lambdahttp", "pkg/deployed/metrics",
		},
		notInFunctions(notInDiscovery("github.com/aws/aws-sdk-go-v2")...),
	},
	{"pkg/deployed", onDeployed(), slowToStart("database/sql")},
	{"functions/modules", onDeployed("pkg/modules", "pkg/deployed"), notInFunctions(slowToStart()...)},
	{"functions/providers", onDeployed("pkg/providers", "pkg/deployed"), notInFunctions(slowToStart()...)},
	{
		"functions/pull",
		onDeployed(publishing(
			"pkg/deployed", "pkg/objects/s3", "pkg/publish/inspection", "pkg/mirror/admission", "pkg/providers", "pkg/client", "pkg/publish",
			"pkg/mirror/filling", "pkg/mirror/pull",
		)...),
		notInFunctions(),
	},
	{"functions/mirror", onDeployed("pkg/mirror", "pkg/mirror/admission", "pkg/deployed"), notInFunctions(slowToStart()...)},
	{
		"functions/metadata", onDeployed("pkg/metadata", "pkg/mirror/admission", "pkg/search", "pkg/docs/stored", "pkg/deployed"),
		notInFunctions(slowToStart("github.com/hashicorp/hcl/v2", "github.com/yuin/goldmark")...),
	},
	{
		"functions/web",
		onDeployed(
			"pkg/web", "pkg/mirror/admission", "pkg/web/session", "pkg/search", "pkg/docs/stored", "pkg/docs/compare", "pkg/deployed",
		),
		notInFunctions(slowToStart("github.com/hashicorp/hcl/v2", "github.com/yuin/goldmark")...),
	},
	{
		"functions/publish",
		onDeployed(
			"pkg/deployed", "pkg/objects/s3", "pkg/publish/publishapi", "pkg/publish/rules", "pkg/content/safehcl", "pkg/progress", "pkg/content/archive",
			"pkg/content/secrets", "pkg/publish/inspection", "pkg/content/signing", "pkg/docs/extract", "pkg/docs/render",
		),
		notInFunctions(),
	},
	{
		"pkg/publish/publishapi",
		publishing(
			"pkg/publish/inspection", "pkg/httpapi", "pkg/access", "pkg/access/openid", "pkg/catalog", "pkg/objects", "pkg/discovery",
			"pkg/settings",
		),
		[]string{"github.com/aws/", "database/sql"},
	},
	{
		"pkg/publish/publishclient", publishing("pkg/client"),
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{"pkg/sources/location", []string{"pkg/registry"}, []string{"net/http", "github.com/aws/", "database/sql"}},
	{
		"pkg/sources/fetch", []string{"pkg/registry", "pkg/sources/location", "pkg/sources/git", "pkg/client", "pkg/progress", "pkg/content/safehcl", "pkg/objects"},
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/"},
	},
	{
		"pkg/sources/copying",
		publishing(
			"pkg/client", "pkg/publish", "pkg/catalog", "pkg/objects", "pkg/publish/inspection", "pkg/publish/publishclient",
			"pkg/metadata/metadataclient", "pkg/httpapi/requestlog",
		),
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{
		"pkg/metadata/metadataclient",
		[]string{"pkg/registry", "pkg/protocol", "pkg/content/safehcl", "pkg/client", "pkg/httpapi/requestlog"},
		[]string{"github.com/aws/", "database/sql", "github.com/spf13/", "golang.org/x/term"},
	},
	{
		"infra",
		publishing(
			"pkg/publish/publishapi", "pkg/publish/inspection", "pkg/httpapi", "pkg/catalog", "pkg/objects", "pkg/discovery", "pkg/modules",
			"pkg/providers", "pkg/mirror", "pkg/metadata", "pkg/search", "pkg/docs/stored", "pkg/docs/compare", "pkg/web",
			"pkg/web/session", "pkg/access", "pkg/access/openid", "pkg/settings", "pkg/deployed/metrics", "pkg/mirror/admission", "pkg/sources/git",
			"pkg/cloud/signedcall",
		),
		[]string{"github.com/aws/aws-lambda-go"},
	},
	{
		"scripts/larder", nil,
		[]string{modulePath + "internal", "github.com/aws/aws-cdk-go", "github.com/aws/aws-lambda-go"},
	},
	{
		"pkg/local", nil,
		[]string{modulePath + "pkg/mirror/filling", modulePath + "pkg/publish/publishclient", modulePath + "internal"},
	},
	{testkit + "programs", []string{}, withoutEmulators("github.com/aws/")},
	{testkit + "clock", []string{}, withoutEmulators("github.com/aws/", "net/http", "database/sql")},
	{testkit + "keys", []string{}, withoutEmulators("github.com/aws/", "net/http", "database/sql")},
	{testkit + "builds", []string{testkit + "keys"}, withoutEmulators("github.com/aws/", "net/http", "database/sql")},
	{
		testkit + "providerfiles", []string{testkit + "keys"},
		withoutEmulators("github.com/aws/", "net/http", "database/sql"),
	},
	{testkit + "clients", []string{testkit + "programs"}, withoutEmulators("github.com/aws/")},
	{
		testkit + "golden", []string{"pkg/registry", "pkg/registry/errs"},
		withoutEmulators("github.com/aws/", "net/http", "database/sql"),
	},
	{testkit + "hostile", []string{}, withoutEmulators("github.com/aws/", "database/sql")},
	{testkit + "progresstest", []string{}, withoutEmulators("github.com/aws/", "net/http", "database/sql")},
	{testkit + "iam", []string{}, withoutEmulators("github.com/aws/")},
	{testkit + "nodejs", []string{}, withoutEmulators("github.com/aws/", "net/http", "database/sql")},
	{testkit + "issuers", []string{testkit + "programs", testkit + "nodejs"}, withoutEmulators("github.com/aws/")},
	{
		testkit + "browser", []string{testkit + "programs", testkit + "nodejs"},
		withoutEmulators("github.com/aws/", "database/sql"),
	},
	{
		testkit + "cloudwatch", []string{"pkg/deployed/metrics"},
		withoutEmulators("github.com/aws/aws-sdk-go-v2", "github.com/aws/aws-lambda-go", "github.com/aws/aws-cdk-go"),
	},
	{testkit + "showcase", nil, withoutEmulators("github.com/aws/")},
	{testkit + "awstest", []string{}, withoutEmulators()},
	{testkit + "lambda", []string{testkit + "programs", testkit + "awstest"}, withoutEmulators()},
	{
		testkit + "dynamodbtest", []string{testkit + "awstest"},
		[]string{modulePath + "pkg", sdk + "service/s3", sdk + "config"},
	},
	{
		testkit + "s3test", []string{testkit + "programs", testkit + "awstest"},
		[]string{minidyn, sdk + "service/dynamodb", sdk + "config"},
	},
}

const (
	testkit = "internal/testkit/"
	sdk     = "github.com/aws/aws-sdk-go-v2/"
	minidyn = "github.com/truora/minidyn"
)

// leaves link nothing of this project but pkg/registry/errs and each other. Every
// package may link them.
var leaves = []string{
	"pkg/network/connerror", "pkg/docs", "pkg/network/ipclass", "pkg/files/jsonfile", "pkg/cloud/partition", "pkg/text/printable",
	"pkg/files/regularfile", "pkg/text/suggest", "pkg/ttlcache",
}

// publishing returns the packages that both ends of the publish API link, and
// more.
func publishing(more ...string) []string {
	return append(
		more, "pkg/registry", "pkg/protocol", "pkg/publish/rules", "pkg/content/safehcl", "pkg/progress", "pkg/content/archive", "pkg/content/secrets",
		"pkg/content/signing", "pkg/docs/extract", "pkg/docs/render",
	)
}

// onDeployed returns the packages that a function of a deployed registry links,
// and more.
func onDeployed(more ...string) []string {
	return append(
		more, "pkg/registry", "pkg/protocol", "pkg/httpapi", "pkg/deployed/metrics", "pkg/deployed/lambdahttp", "pkg/discovery", "pkg/access",
		"pkg/access/openid", "pkg/settings", "pkg/catalog", "pkg/catalog/dynamodb", "pkg/objects", "pkg/objects/presign",
	)
}

// slowToStart returns the packages that no function links while a client waits,
// and more. These functions need only the DynamoDB client of the AWS SDK.
func slowToStart(more ...string) []string {
	return append(
		more, "github.com/aws/aws-sdk-go-v2/service/s3", "github.com/aws/aws-sdk-go-v2/config",
		"github.com/aws/aws-sdk-go-v2/credentials",
	)
}

// withoutEmulators returns the packages that only the emulators of AWS link,
// and more.
func withoutEmulators(more ...string) []string {
	return append(more, minidyn, sdk+"service", sdk+"config")
}

// notInFunctions returns the packages that no function links, and more.
func notInFunctions(more ...string) []string {
	return append(
		more, "github.com/aws/aws-cdk-go", "github.com/aws/jsii-runtime-go", "database/sql", "modernc.org",
		"github.com/spf13", modulePath+"scripts", modulePath+"pkg/local", modulePath+"internal",
	)
}

// notInDiscovery returns the packages that the discovery function does not
// link, and more. Every client waits for this function first. The packages are
// signatures and the parsers of addresses and versions with their Unicode
// tables.
func notInDiscovery(more ...string) []string {
	return append(
		more, "github.com/opentofu", "github.com/apparentlymart", "github.com/go-jose", "github.com/hashicorp",
		"github.com/ProtonMail", "golang.org/x/text", "golang.org/x/net", "golang.org/x/mod", "golang.org/x/crypto",
		"database/sql",
	)
}

// Only pkg/deployed/lambdahttp imports the Lambda library, apart from tests.
func TestLambdaHasOneImporter(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		for _, i := range p.Imports {
			if strings.HasPrefix(i, "github.com/aws/aws-lambda-go") && name != "pkg/deployed/lambdahttp" && name != testkit+"lambda" {
				t.Errorf("%s imports %s", name, i)
			}
		}
	}
}

// Only pkg/sources/git starts git, so that git never obeys a repository of a stranger. Of
// the other packages, only one has the text "git": it is a type of location.
func TestGitHasOneStarter(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("[\"`/]git(\\.exe)?[\"`]")
	for name, p := range list(t) {
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

// Only one package parses HCL, because it limits the input. The package of
// policies reads the tree that it returns.
func TestHCLHasOneParser(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		for _, parser := range []string{
			"github.com/hashicorp/hcl/v2/hclsyntax", "github.com/hashicorp/hcl/v2/json",
			"github.com/hashicorp/hcl/v2/hclparse",
		} {
			if !slices.Contains(p.Imports, parser) || name == "pkg/content/safehcl" || name == "pkg/mirror/policyfile" {
				continue
			}
			t.Errorf("%s imports %s", name, parser)
		}
	}
}

// HTML is rendered when a module is published. Only the package that extracts
// documentation imports the renderer, so that no reader links it.
func TestRendererHasOneImporter(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		if slices.Contains(p.Imports, modulePath+"pkg/docs/render") && name != "pkg/docs/extract" {
			t.Errorf("%s imports the renderer of documentation", name)
		}
		for _, i := range p.Imports {
			isRenderer := strings.HasPrefix(i, "github.com/yuin/goldmark") || strings.HasPrefix(i, "github.com/microcosm-cc/")
			if isRenderer && name != "pkg/docs/render" {
				t.Errorf("%s imports %s", name, i)
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
	for name, p := range list(t) {
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

// The packages below internal are for tests, and for the commands that rehearse
// and measure. Only its own command imports the rehearsal.
func TestRehearsalIsNotServed(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		for _, i := range p.Imports {
			own := strings.TrimPrefix(i, modulePath)
			if strings.HasPrefix(own, "internal/") && !strings.HasPrefix(name, "internal/") {
				t.Errorf("%s imports %s", name, own)
			}
			if own == "internal/rehearsal" && name != "internal/rehearsal/rehearse" {
				t.Errorf("%s imports %s", name, own)
			}
		}
	}
}

// The tests of a package link an emulator or a client of an AWS service for two
// reasons only. They import it, or the package itself links that client.
func TestUnitTestsLinkNoEmulator(t *testing.T) {
	t.Parallel()
	packages := list(t, "-test")
	for name, p := range packages {
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

func TestImports(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for name := range packages {
		hasRule := slices.ContainsFunc(rules, func(r rule) bool { return r.pkg == name })
		if strings.HasPrefix(name, "functions/") && !hasRule {
			t.Errorf("there is no rule for %s", name)
		}
	}
	for _, rule := range rules {
		p, found := packages[rule.pkg]
		if !found {
			t.Errorf("there is a rule for %s, which does not exist", rule.pkg)
		}
		for _, dep := range p.Deps {
			// A package that links pkg/registry also links its core. One that
			// links pkg/httpapi also links the request log.
			if dep == modulePath+"pkg/registry/errs" && slices.Contains(rule.own, "pkg/registry") ||
				dep == modulePath+"pkg/httpapi/requestlog" && slices.Contains(rule.own, "pkg/httpapi") {
				continue
			}
			own, ok := strings.CutPrefix(dep, modulePath)
			if ok && rule.own != nil && !slices.Contains(append(leaves, rule.own...), own) {
				t.Errorf("%s links %s", rule.pkg, own)
			}
			for _, prefix := range rule.except {
				if dep == prefix || strings.HasPrefix(dep, strings.TrimSuffix(prefix, "/")+"/") {
					t.Errorf("%s links %s", rule.pkg, dep)
				}
			}
		}
	}
}

// Every package has a package comment.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", name)
		}
	}
}
