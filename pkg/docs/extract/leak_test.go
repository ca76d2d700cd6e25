package extract_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/docs"
)

// secret is in the default of each variable in secrets.
const secret = "hunter2-do-not-store"

// secrets are modules in which a variable a is sensitive.
var secrets = []module{
	{"string", native(`
variable "a" {
  default   = "SECRET"
  sensitive = true
}`)},
	{"heredoc", native("variable \"a\" {\n  sensitive = true\n  default = <<-EOT\n    SECRET\n  EOT\n}\n")},
	{"list", native(`
variable "a" {
  type      = list(string)
  default   = ["x", "SECRET"]
  sensitive = true
}`)},
	{"value of a map", native(`
variable "a" {
  default   = { x = "SECRET" }
  sensitive = true
}`)},
	{"key of a map", native(`
variable "a" {
  type      = map(string)
  default   = { "SECRET" = 1 }
  sensitive = true
}`)},
	{"expression", native(`
variable "a" {
  default   = upper("SECRET")
  sensitive = true
}`)},
	{"template", native(`
variable "a" {
  default   = "x-${"SECRET"}"
  sensitive = true
}`)},
	{"default of an optional attribute", native(`
variable "a" {
  type      = object({ b = optional(string, "SECRET") })
  sensitive = true
}`)},
	{"nested default of an optional attribute", native(`
variable "a" {
  type      = map(list(object({ b = optional(object({ c = string }), { c = "SECRET" }) })))
  default   = {}
  sensitive = true
}`)},
	{"only for Terraform", map[string]string{
		"main.tf":   "variable \"a\" {\n  default   = \"x\"\n  sensitive = true\n}\n",
		"main.tofu": "variable \"a\" {\n  default = \"SECRET\"\n}\n",
	}},
	{"comment in a type", native(`
variable "a" {
  type = object({
    b = string # SECRET
  })
  sensitive = true
}`)},
	{"type that is not valid", native(`
variable "a" {
  type      = object({ b = optional(text, "SECRET") })
  sensitive = true
}`)},
	{"default of an optional attribute that is not a literal", native(`
variable "a" {
  type      = object({ b = optional(string, upper("SECRET")) })
  sensitive = true
}`)},
	{"default that is not of the type", native(`
variable "a" {
  type      = number
  default   = "SECRET"
  sensitive = true
}`)},
	{"sensitive in quotes", native(`
variable "a" {
  default   = "SECRET"
  sensitive = "true"
}`)},
	{"sensitive by an expression", native(`
variable "a" {
  default   = "SECRET"
  sensitive = 1 == 1
}`)},
	{"sensitive by a reference", native(`
variable "a" {
  default   = "SECRET"
  sensitive = local.yes
}`)},
	{"sensitive is null", native(`
variable "a" {
  default   = "SECRET"
  sensitive = null
}`)},
	{"sensitive is a list", native(`
variable "a" {
  default   = "SECRET"
  sensitive = [false]
}`)},
	{"JSON", inJSON(`{"variable": {"a": {"default": "SECRET", "sensitive": true}}}`)},
	{"JSON, in quotes", inJSON(`{"variable": {"a": {"default": {"x": ["SECRET"]}, "sensitive": "true"}}}`)},
	{"JSON, template", inJSON(`{"variable": {"a": {"default": "SECRET", "sensitive": "${true}"}}}`)},
	{"JSON, null", inJSON(`{"variable": {"a": {"default": "SECRET", "sensitive": null}}}`)},
	{"JSON, twice", inJSON(`{"variable": {"a": {"default": "SECRET", "sensitive": false, "sensitive": true}}}`)},
	{"JSON, default of an optional attribute", inJSON(
		`{"variable": {"a": {"type": "object({b=optional(string, \"SECRET\")})", "sensitive": true}}}`)},
	{"JSON, type that is not valid", inJSON(
		`{"variable": {"a": {"type": "object({b=optional(string, \"SECRET\"", "sensitive": true}}}`)},
	{"only an override file", map[string]string{
		"main.tf": `variable "a" { default = "SECRET" }`, "override.tf": `variable "a" { sensitive = true }`,
	}},
	{"only an override file in JSON", map[string]string{
		"main.tf": `variable "a" { default = "SECRET" }`, "x_override.tofu.json": `{"variable": {"a": {"sensitive": true}}}`,
	}},
	{"default in an override file", map[string]string{
		"main.tf": `variable "a" { sensitive = true }`, "override.tf": `variable "a" { default = "SECRET" }`,
	}},
	{"type in an override file", map[string]string{
		"main.tf":     `variable "a" { sensitive = true }`,
		"override.tf": `variable "a" { type = object({ b = optional(string, "SECRET") }) }`,
	}},
	{"override file makes it public", map[string]string{
		"main.tf":     "variable \"a\" {\n  sensitive = true\n  default = \"SECRET\"\n}\n",
		"override.tf": `variable "a" { sensitive = false }`,
	}},
	{"override file is not valid", map[string]string{
		"main.tf":     `variable "a" { default = "SECRET" }`,
		"override.tf": "variable \"a\" {\n  sensitive = true\n  default = SECRET",
	}},
	{"declared twice", map[string]string{
		"a.tf": "variable \"a\" {\n  sensitive = true\n}\n", "b.tf": `variable "a" { default = "SECRET" }`,
	}},
	{"validation message", native(`
variable "a" {
  default   = "SECRET"
  sensitive = true
  validation {
    condition     = var.a != ""
    error_message = "not ${"SECRET"}"
  }
}`)},
	{"hidden file", map[string]string{
		"a.tf":   `variable "a" { default = "SECRET" }`,
		"a.tofu": "variable \"a\" {\n  default = \"SECRET\"\n  sensitive = true\n}\n",
	}},
	{"ephemeral too", native(`
variable "a" {
  default   = "SECRET"
  sensitive = true
  ephemeral = true
}`)},
}

// The default of a sensitive variable is in no byte of stored documentation.
func TestSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	for _, test := range secrets {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, dir := range []string{"", "modules/x/", "examples/x/"} {
				files := make(map[string]string)
				for name, content := range test.files {
					files[dir+name] = strings.ReplaceAll(content, "SECRET", secret)
				}
				text := stored(t, extracted(t, files))
				if strings.Contains(text, secret) {
					t.Errorf("in %q the secret is stored: %s", dir, text)
				}
				if !strings.Contains(text, `"sensitive":true`) && !strings.Contains(text, "is not valid") {
					t.Errorf("in %q the variable is not sensitive: %s", dir, text)
				}
			}
		})
	}
}

// The default of any other variable is stored, so that the test above can fail.
func TestPublicDefaultsAreStored(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"not sensitive":         native(`variable "a" { default = "SECRET" }`),
		"ephemeral":             native("variable \"a\" {\n  default   = \"SECRET\"\n  ephemeral = true\n}\n"),
		"sensitive is false":    native("variable \"a\" {\n  default   = \"SECRET\"\n  sensitive = false\n}\n"),
		"in quotes":             native("variable \"a\" {\n  default   = \"SECRET\"\n  sensitive = \"false\"\n}\n"),
		"JSON":                  inJSON(`{"variable": {"a": {"default": "SECRET", "sensitive": false}}}`),
		"of optional attribute": native(`variable "a" { type = object({ b = optional(string, "SECRET") }) }`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := stored(t, extracted(t, files)); !strings.Contains(text, "SECRET") {
				t.Errorf("the default is not stored: %s", text)
			}
		})
	}
}

// stored returns the decompressed bytes of stored documentation.
func stored(t testing.TB, d docs.Documentation) string {
	t.Helper()
	encoded, err := docs.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	in, err := gzip.NewReader(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The source of a module block is stored as written, without secrets.
func TestModuleSources(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ written, want string }{
		"a registry":      {`"acme/vpc/aws"`, "acme/vpc/aws"},
		"a folder":        {`"./modules/sub"`, "./modules/sub"},
		"a variable":      {`"./modules/${var.name}"`, `"./modules/${var.name}"`},
		"a password":      {`"git::https://ci:hunter2@example.com/vpc.git"`, "git::https://example.com/vpc.git"},
		"only a password": {`"git::https://:hunter2@example.com/vpc.git"`, "git::https://example.com/vpc.git"},
		"a token":         {`"git::https://hunter2@example.com/vpc.git"`, "git::https://example.com/vpc.git"},
		"an SSH password": {`"git::ssh://git:hunter2@example.com/vpc.git"`, "git::ssh://git@example.com/vpc.git"},
		"parameters": {
			`"git::ssh://git@example.com/vpc.git?ref=v1&sshkey=hunter2"`,
			"git::ssh://git@example.com/vpc.git?ref=v1&sshkey=…",
		},
		"a user": {`"git::ssh://git@example.com/vpc.git?ref=v1"`, "git::ssh://git@example.com/vpc.git?ref=v1"},
		"a port": {`"https://example.com:8443/a@b.zip"`, "https://example.com:8443/a@b.zip"},
		"a variable and a password": {
			`"git::https://ci:hunter2@example.com/${var.name}.git"`, `"git::https://example.com/${var.name}.git"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := "module \"x\" {\n  source = " + test.written + "\n}\n"
			d := extracted(t, map[string]string{"main.tf": config})
			want := []docs.Dependency{{Name: "x", Source: test.want}}
			if diff := cmp.Diff(want, d.Root.Dependencies, anyPlace); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The version of a module block with variables is not like that of a block
// without a version.
func TestModuleVersions(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{`"~> 1.0"`: "~> 1.0", "var.vpc": "var.vpc", `"${var.vpc}"`: `"${var.vpc}"`, "null": ""} {
		d := extracted(t, native("module \"x\" {\n  source = \"acme/vpc/aws\"\n  version = "+written+"\n}\n"))
		if diff := cmp.Diff([]docs.Dependency{{Name: "x", Source: "acme/vpc/aws", Version: want}}, d.Root.Dependencies, anyPlace); diff != "" {
			t.Errorf("%s (-want +got):\n%s", written, diff)
		}
		if len(d.Notes) > 0 {
			t.Errorf("%s: the notes are %q", written, d.Notes)
		}
	}
}
