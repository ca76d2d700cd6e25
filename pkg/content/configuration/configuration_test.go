package configuration_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/corpus"
	"github.com/larder-registry/larder/pkg/content/configuration"
	"github.com/larder-registry/larder/pkg/content/safehcl"
)

// files maps the names of files to their content.
type files map[string]string

func (all files) check(t *testing.T) (problems []*safehcl.Error, notes []string) {
	t.Helper()
	var folder []configuration.File
	var parser safehcl.Parser
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !configuration.IsName(name) || strings.Contains(name, "/") {
			continue
		}
		parse := parser.Parse
		if strings.HasSuffix(name, ".json") {
			parse = parser.ParseJSON
		}
		parsed, err := parse(t.Context(), name, []byte(all[name]))
		if problem, ok := errors.AsType[*safehcl.Error](err); ok {
			folder = append(folder, configuration.Unparsed(name, problem))
			continue
		}
		folder = append(folder, configuration.Read(name, parsed))
	}
	return configuration.Check(folder)
}

func (all files) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range all {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func main(content string) files { return files{"main.tf": content} }

// refused are folders that no client loads, with the problems.
var refused = map[string]struct {
	files
	want string
}{
	"a variable twice": {
		files{"a.tf": "variable \"x\" {}\n", "b.tf": "\nvariable \"x\" {}\n"},
		`b.tf:2:1: variable "x" is already declared at a.tf:1`,
	},
	"an output twice in a file": {
		main("output \"x\" { value = 1 }\noutput \"x\" { value = 2 }\n"),
		`main.tf:2:1: output "x" is already declared at main.tf:1`,
	},
	"a local twice, once in JSON": {
		files{"a.tf": "locals {\n  x = 1\n}\n", "b.tf.json": `{"locals": {"x": 2}}`},
		`b.tf.json:1:13: local "x" is already declared at a.tf:2`,
	},
	"a module call twice": {
		files{"a.tf": call, "b.tf": call, "m/main.tf": ""},
		`b.tf:1:1: module "m" is already declared at a.tf:1`,
	},
	"a resource twice": {
		main("resource \"terraform_data\" \"x\" {}\nresource \"terraform_data\" \"x\" {}\n"),
		`main.tf:2:1: resource "terraform_data" "x" is already declared at main.tf:1`,
	},
	"a data resource twice, once in a check": {
		main("data \"terraform_remote_state\" \"x\" {}\ncheck \"c\" {\n  data \"terraform_remote_state\" \"x\" {}\n" +
			"  assert {\n    condition = terraform.workspace != \"\"\n    error_message = \"x\"\n  }\n}\n"),
		`main.tf:3:3: data "terraform_remote_state" "x" is already declared at main.tf:1`,
	},
	"a provider twice": {
		main("provider \"terraform\" {}\nprovider \"terraform\" {}\n"),
		`main.tf:2:1: provider "terraform" is already declared at main.tf:1`,
	},
	"an alias twice": {
		main("provider \"terraform\" { alias = \"a\" }\nprovider \"terraform\" { alias = \"a\" }\n"),
		`main.tf:2:1: provider "terraform" with alias "a" is already declared at main.tf:1`,
	},
	"required_providers twice": {
		files{"a.tf": "terraform {\n  required_providers {}\n}\n", "b.tf": "terraform {\n  required_providers {}\n}\n"},
		`b.tf:2:3: required_providers is already declared at a.tf:2`,
	},
	"two backends": {
		main("terraform {\n  backend \"local\" {}\n}\nterraform {\n  backend \"local\" {}\n}\n"),
		`main.tf:5:3: the place of the state, backend "local", is already declared at main.tf:2`,
	},
	"a backend and a cloud": {
		main("terraform {\n  cloud {}\n  backend \"local\" {}\n}\n"),
		`main.tf:3:3: the place of the state, backend "local", is already declared at main.tf:2`,
	},
	"a check twice": {
		main(strings.Repeat(check, 2)),
		`main.tf:7:1: check "c" is already declared at main.tf:1`,
	},
	"a destroy provisioner with a reference": {
		main("variable \"x\" {}\nresource \"terraform_data\" \"r\" {\n  provisioner \"local-exec\" {\n    when    = destroy\n" +
			"    command = \"echo ${path.module} ${self.id} ${var.x}\"\n  }\n}\n"),
		`main.tf:5:15: the argument command of a provisioner with when = destroy refers to var. It may only use self, count.index and each.key`,
	},
	"a connection of a destroy provisioner": {
		main("resource \"terraform_data\" \"r\" {\n  for_each = {}\n  connection {\n    host = each.value\n  }\n" +
			"  provisioner \"remote-exec\" {\n    when   = \"destroy\"\n    inline = []\n    connection {\n      host = local.x\n    }\n  }\n}\n" +
			"locals {\n  x = 1\n}\n"),
		`main.tf:4:12: the argument host of a provisioner with when = destroy refers to each. It may only use self, count.index and each.key` + "\n" +
			`main.tf:10:14: the argument host of a provisioner with when = destroy refers to local. It may only use self, count.index and each.key`,
	},
	"a module without a source": {
		main("module \"m\" {\n  version = \"1.0.0\"\n}\n"),
		`main.tf:1:12: module "m" has no argument source`,
	},
	"a module without a source in JSON": {
		files{"main.tf.json": `{"module": {"m": {"x": 1}}}`},
		`main.tf.json:1:25: module "m" has no argument source`,
	},
	"an output without a value": {
		main("output \"x\" {}\n"),
		`main.tf:1:12: output "x" has no argument value`,
	},
	"labels": {
		main("variable {}\noutput \"a\" \"b\" { value = 1 }\nresource \"terraform_data\" {}\n"),
		`main.tf:1:10: Missing name for variable: All variable blocks must have 1 labels (name).
main.tf:2:12: Extraneous label for output: Only 1 labels (name) are expected for output blocks.
main.tf:3:27: Missing name for resource: All resource blocks must have 2 labels (type, name).`,
	},
	"mistyped blocks": {
		main("varible \"x\" {}\nOutput \"x\" {\n  value = 1\n}\nterraform {\n  required_provider {}\n}\n"),
		`main.tf:1:1: there is no block varible. Did you mean variable?
main.tf:2:1: there is no block Output. Did you mean output?
main.tf:6:3: there is no block required_provider in terraform. Did you mean required_providers?`,
	},
	"names": {
		main("variable \"a.b\" {}\noutput \"1\" { value = 1 }\nresource \"terraform_data\" \"a b\" {}\n"),
		`main.tf:1:10: variable "a.b": ` + names + `
main.tf:2:8: output "1": ` + names + `
main.tf:3:27: resource "terraform_data" "a b": ` + names,
	},
	"names of a provider": {
		main("provider \"Terraform\" {}\n"),
		`main.tf:1:10: provider "Terraform": the name of a provider has only lower-case letters, digits and dashes`,
	},
	"an argument outside of blocks": {
		main("x = 1\n"),
		`main.tf:1:1: an argument, x, is outside of any block`,
	},
	"unknown arguments": {
		main("variable \"x\" {\n  required = true\n  desciption = \"\"\n}\noutput \"x\" {\n  value = 1\n  default = 1\n}\n" +
			"terraform {\n  required_versions = \"1\"\n}\n"),
		`main.tf:2:3: variable "x" has no argument required
main.tf:3:3: variable "x" has no argument desciption. Did you mean description?
main.tf:7:3: output "x" has no argument default
main.tf:10:3: terraform has no argument required_versions. Did you mean required_version?`,
	},
	"blocks for arguments": {
		main("variable \"x\" {\n  default {}\n}\n"),
		`main.tf:2:3: default in variable "x" is an argument, and not a block`,
	},
	"arguments that are no lists": {
		main("output \"x\" {\n  value = 1\n  depends_on = terraform_data.y\n}\n" +
			"resource \"terraform_data\" \"y\" {\n  depends_on = [file(\"x\")]\n  lifecycle {\n    ignore_changes = input\n  }\n}\n"),
		`main.tf:3:16: the argument depends_on of output "x" must be a list
main.tf:6:17: the argument depends_on of resource "terraform_data" "y" can only have references
main.tf:8:22: the argument ignore_changes of lifecycle in resource "terraform_data" "y" must be a list, or all`,
	},
	"count and for_each": {
		files{"main.tf.json": `{"resource": {"terraform_data": {"x": {"count": 1, "for_each": {}}}}}`},
		`main.tf.json:1:52: resource "terraform_data" "x" has both count and for_each`,
	},
	"providers of a module": {
		files{"main.tf": "module \"m\" {\n  source = \"./m\"\n  providers = [terraform]\n}\n", "m/main.tf": ""},
		`main.tf:3:15: the argument providers of module "m" must be a map`,
	},
	"what a lifecycle cannot have": {
		main("resource \"terraform_data\" \"x\" {\n  lifecycle {\n    create_before_destro = true\n  }\n  lifecycle {}\n}\n" +
			"data \"terraform_remote_state\" \"x\" {\n  lifecycle {\n    prevent_destroy = true\n  }\n}\n"),
		`main.tf:3:5: lifecycle in resource "terraform_data" "x" has no argument create_before_destro. ` +
			`Did you mean create_before_destroy?
main.tf:5:3: resource "terraform_data" "x" has a block lifecycle already, at line 2
main.tf:9:5: lifecycle in data "terraform_remote_state" "x" has no argument prevent_destroy`,
	},
	"incomplete rules": {
		main("variable \"x\" {\n  validation {\n    condition = var.x\n  }\n}\ncheck \"c\" {}\n"),
		`main.tf:2:14: validation in variable "x" has no argument error_message
main.tf:6:1: check "c" has no block assert`,
	},
	"a postcondition of an output": {
		main("output \"x\" {\n  value = 1\n  postcondition {\n    condition = 1 == 1\n    error_message = \"\"\n  }\n}\n"),
		`main.tf:3:3: output "x" cannot have a block postcondition`,
	},
	"reserved arguments and blocks": {
		files{"main.tf": "provider \"terraform\" {\n  count = 1\n  locals {}\n}\nmodule \"m\" {\n  source = \"./m\"\n  locals {}\n}\n", "m/main.tf": ""},
		`main.tf:2:3: provider "terraform" cannot have an argument count
main.tf:3:3: provider "terraform" cannot have a block locals
main.tf:7:3: module "m" cannot have a block locals`,
	},
	"reserved names of variables": {
		main(reserved),
		func() string {
			var want []string
			for i, name := range reservedNames {
				want = append(want, fmt.Sprintf(
					"main.tf:%d:10: variable %q: no module block could set it, because the name has a meaning there", i+1, name))
			}
			return strings.Join(want, "\n")
		}(),
	},
	"types": {
		main("variable \"x\" {\n  type = \"string\"\n}\nvariable \"y\" {\n  type = strng\n}\n"),
		`main.tf:2:10: the type of variable "x" is in quotes
main.tf:5:10: the type of variable "y" is unknown. Did you mean string?`,
	},
	"values that must be known": {
		main("variable \"x\" {\n  default = [\"${path.module}/x\"]\n  description = upper(\"x\")\n}\n" +
			"provider \"terraform\" {\n  alias = other\n}\n"),
		`main.tf:2:17: the argument default of variable "x" cannot have references
main.tf:3:17: the argument description of variable "x" cannot have function calls
main.tf:6:11: the argument alias of provider "terraform" cannot have references`,
	},
	"required_providers": {
		main("terraform {\n  required_providers {\n    a = [1]\n    b = { sources = \"x/b\" }\n" +
			"    c = { version = var.x }\n  }\n}\n"),
		`main.tf:3:9: the provider a in required_providers is neither a string nor an object
main.tf:4:11: the provider b in required_providers has no argument sources
main.tf:5:21: the version of provider c cannot have references`,
	},
	"a block in required_providers": {
		main("terraform {\n  required_providers {\n    d { source = \"x/d\" }\n  }\n}\n"),
		`main.tf:3:5: required_providers can only have arguments`,
	},
	"required_providers outside of terraform": {
		main("required_providers {}\n"),
		`main.tf:1:1: required_providers must be in a terraform block`,
	},
	"a block in locals": {
		main("locals {\n  x {}\n}\n"),
		`main.tf:2:3: locals can only have arguments`,
	},
	"moved, import and removed": {
		main("moved {\n  from = terraform_data.a\n}\nimport {\n  id = \"x\"\n}\nremoved {}\n"),
		`main.tf:1:7: moved has no argument to
main.tf:4:8: import has no argument to
main.tf:7:9: removed has no argument from`,
	},
	"overrides of nothing": {
		files{
			"main.tf": "variable \"x\" {}\n", "override.tf": "variable \"y\" {}\noutput \"o\" {}\nlocals {\n  l = 1\n}\n",
			"a_override.tf.json": `{"resource": {"terraform_data": {"r": {}}}, "provider": {"terraform": {"alias": "a"}}}`,
		},
		`a_override.tf.json:1:39: resource "terraform_data" "r" overrides nothing: no other file declares it
a_override.tf.json:1:71: provider "terraform" with alias "a" overrides nothing: no other file declares it
override.tf:1:1: variable "y" overrides nothing: no other file declares it
override.tf:2:1: output "o" overrides nothing: no other file declares it
override.tf:4:3: local "l" overrides nothing: no other file declares it`,
	},
	"what override files cannot have": {
		files{
			"main.tf": "variable \"x\" {}\n",
			"x_override.tf": "variable \"x\" {\n  validation {\n    condition = var.x\n    error_message = \"\"\n  }\n}\n" +
				"moved {\n  from = terraform_data.a\n  to = terraform_data.b\n}\n" + check +
				"terraform {\n  backend \"local\" {}\n  backend \"local\" {}\n}\n",
		},
		`x_override.tf:2:3: an override file cannot have a block validation
x_override.tf:7:1: an override file cannot have a block moved
x_override.tf:11:1: an override file cannot have a block check
x_override.tf:19:3: the place of the state, backend "local", is already declared at x_override.tf:18`,
	},
	"only .tofu files": {
		files{"a.tofu": "variable \"x\" {}\n", "b.tofu": "variable \"x\" {}\n"},
		`b.tofu:1:1: variable "x" is already declared at a.tofu:1`,
	},
	"a problem in each reading": {
		files{"a.tf": "variable \"x\" {}\nvariable \"x\" {}\n", "a.tofu": "output \"x\" {}\n"},
		`a.tf:2:1: variable "x" is already declared at a.tf:1
a.tofu:1:12: output "x" has no argument value`,
	},
	"two files that do not parse": {
		files{"a.tf": "variable \"x\" {", "a.tofu": "output"},
		`a.tf:1:14: Unclosed configuration block: There is no closing brace for this block before the end of the file. ` +
			`This may be caused by incorrect brace nesting elsewhere in this file.
a.tofu:1:1: Argument or block definition required: An argument or block definition is required here. ` +
			`To set an argument, use the equals sign "=" to introduce the argument value.`,
	},
}

const (
	call  = "module \"m\" {\n  source = \"./m\"\n}\n"
	check = "check \"c\" {\n  assert {\n    condition     = terraform.workspace != \"\"\n    error_message = \"x\"\n  }\n}\n"
	names = "a name begins with a letter or an underscore, and has only letters, digits, underscores and dashes"
)

var reservedNames = []string{
	"source", "version", "count", "for_each", "depends_on", "providers", "lifecycle", "locals", "provider", "_",
}

var reserved = func() (text string) {
	for _, name := range reservedNames {
		text += fmt.Sprintf("variable %q {}\n", name)
	}
	return text
}()

// accepted are folders that a client loads, with the notes.
var accepted = map[string]struct {
	files
	// by are the clients that load it: "tofu terraform" if empty. For those in
	// sometimes it depends on the release.
	by, sometimes string

	want string
}{
	"nothing": {files: main("")},
	"override files": {files: files{
		"main.tf": "variable \"x\" {}\noutput \"x\" { value = 1 }\nlocals {\n  l = 1\n}\n" +
			"resource \"terraform_data\" \"r\" {}\n" + call,
		"m/main.tf":   "",
		"override.tf": "variable \"x\" {\n  default = 1\n}\noutput \"x\" {\n  sensitive = true\n}\n",
		"a_override.tf": "variable \"x\" {}\nvariable \"x\" {}\nlocals {\n  l = 2\n}\nmodule \"m\" {}\n" +
			"provider \"terraform\" {}\nterraform {\n  required_providers {}\n  backend \"local\" {}\n}\n",
		"b_override.tf.json": `{"resource": {"terraform_data": {"r": {}}}, "terraform": {"backend": {"local": {}}}}`,
	}},
	"a .tofu file beside a .tf file": {files: files{
		"main.tf": "variable \"x\" {}\n", "main.tofu": "variable \"x\" {}\n", "a.tf.json": `{"output":{"x":{"value":1}}}`,
		"a.tofu.json": `{"output":{"x":{"value":1}}}`,
	}},
	"a .tofu file beside another .tf file": {
		files: files{"a.tf": "variable \"x\" {}\n", "b.tofu": "variable \"x\" {}\n"}, by: "terraform",
		want: `b.tofu:1:1: variable "x" is already declared at a.tf:1 (only OpenTofu refuses it)`,
	},
	"a .tf file that only a .tofu file repairs": {
		files: files{"a.tf": "variable \"x\" {}\n", "b.tf": "variable \"x\" {}\n", "b.tofu": ""}, by: "tofu",
		want: `b.tf:1:1: variable "x" is already declared at a.tf:1 (only Terraform refuses it)`,
	},
	"a .tf file that does not parse": {
		files: files{"a.tf": "x y z\n", "a.tofu": ""}, by: "tofu",
		want: `a.tf:1:6: Invalid block definition: A block definition must have block content delimited by "{" and "}", ` +
			`starting on the same line as the block header. (only Terraform refuses it)`,
	},
	"only .tofu files": {files: files{"a.tofu": "language {}\nterraform {\n  encryption {}\n}\n"}},
	"unknown blocks": {
		files: main("sometimes \"x\" {}\nterraform {\n  telemetry {}\n}\n"), by: "none",
		want: "main.tf:1:1: no known release of a client has a block sometimes\n" +
			"main.tf:3:3: no known release of a client has a block telemetry in terraform",
	},
	"unknown blocks in JSON": {
		files: files{"main.tf.json": `{"//": "comment", "sometimes": {}}`}, by: "none",
		want: "main.tf.json:1:19: no known release of a client has a block sometimes",
	},
	"comments in JSON": {files: files{"main.tf.json": `{"//": "c", "variable": {"x": {"//": "c", "type": "string"}}}`}},
	"blocks of OpenTofu": {
		files: files{"main.tf": "language {}\nresource \"terraform_data\" \"x\" {\n  lifecycle {\n    enabled = true\n  }\n}\n" +
			"provider \"terraform\" {\n  alias    = \"a\"\n  for_each = { x = 1 }\n}\n" +
			"module \"m\" {\n  source = \"./m\"\n  lifecycle {\n    enabled = true\n  }\n}\n", "m/main.tf": ""}, by: "tofu",
		want: `main.tf:1:1: Terraform has no block language (only Terraform refuses it)
main.tf:4:5: lifecycle in resource "terraform_data" "x" cannot have an argument enabled in Terraform (only Terraform refuses it)
main.tf:9:3: provider "terraform" cannot have an argument for_each in Terraform (only Terraform refuses it)
main.tf:13:3: Terraform has no block lifecycle in module "m" (only Terraform refuses it)`,
	},
	"symbols and actions": {
		files: files{"a.tofu": "symbols \"x\" {\n  source = \"./x\"\n}\n", "b.tf": "action \"a\" \"b\" {}\n"},
		by:    "none", sometimes: "terraform",
		want: "b.tf:1:1: OpenTofu has no block action (only OpenTofu refuses it)",
	},
	"ephemeral values": {files: main(`variable "x" {
  type      = string
  ephemeral = true
}
output "x" {
  value     = var.x
  ephemeral = true
}
`)},
	"arguments of later releases": {
		files: main("variable \"x\" {\n  const = true\n  default = 1\n  deprecated = \"Use y.\"\n}\n" +
			"output \"x\" {\n  value = 1\n  deprecated = \"Use y.\"\n}\n"),
		sometimes: "terraform",
	},
	"checks, imports, moved and removed": {files: main(check + `data "terraform_remote_state" "y" {
  backend = "local"
}
import {
  for_each = { a = "1" }
  to       = terraform_data.x[each.key]
  id       = each.value
}
moved {
  from = terraform_data.a
  to   = terraform_data.x
}
removed {
  from = terraform_data.b
  lifecycle {
    destroy = false
  }
}
resource "terraform_data" "x" {
  for_each = toset(["a"])
  lifecycle {
    ignore_changes = all
    precondition {
      condition     = terraform.workspace != ""
      error_message = "x"
    }
  }
}
`)},
	"functions and types": {files: main(`terraform {
  required_version = ">= 1.0"
  required_providers {
    terraform = {
      source = "terraform.io/builtin/terraform"
    }
  }
}
variable "x" {
  type = object({
    a = optional(list(map(any)), [])
    b = optional(string, "x")
  })
  default  = {}
  nullable = false
  validation {
    condition     = var.x != null
    error_message = "x ${1 + 1}"
  }
}
variable "y" {
  default = -1 + 2
}
variable "z" {
  type    = list
  default = null
}
locals {
  f = provider::terraform::encode_expr(var.x)
}
`)},
	"provisioners and connections": {files: main(`resource "terraform_data" "x" {
  count      = 1
  depends_on = [terraform_data.y]
  connection {
    host = "x"
  }
  provisioner "local-exec" {
    when       = destroy
    on_failure = continue
    command    = "true"
  }
  provisioner "local-exec" {
    command = "true"
    connection {
      host = "x"
    }
  }
}
resource "terraform_data" "y" {
  depends_on = ["terraform_data.z"]
  _ {
    input = 1
  }
}
resource "terraform_data" "z" {}
`)},
	"providers with aliases": {files: files{
		"main.tf": `terraform {
  required_providers {
    terraform = {
      source = "terraform.io/builtin/terraform"
    }
  }
}
provider "terraform" {}
provider "terraform" {
  alias = "a"
}
provider "terraform" {
  alias = "b"
}
module "m" {
  source    = "./m"
  providers = {
    terraform   = terraform
    terraform.x = terraform.a
  }
}
resource "terraform_data" "x" {
  provider = terraform.b
}
`,
		"m/main.tf": "terraform {\n  required_providers {\n    terraform = {\n      source = \"terraform.io/builtin/terraform\"\n" +
			"      configuration_aliases = [terraform.x]\n    }\n  }\n}\n",
	}},
	"a destroy provisioner with its own values": {files: main("resource \"terraform_data\" \"r\" {\n  count = 1\n" +
		"  provisioner \"local-exec\" {\n    when       = destroy\n    on_failure = continue\n" +
		"    command    = \"echo ${path.module} ${self.id} ${count.index} ${terraform.workspace}\"\n  }\n" +
		"  provisioner \"local-exec\" {\n    command = terraform_data.s.id\n  }\n}\nresource \"terraform_data\" \"s\" {}\n")},
	"experiments": {
		files: main("terraform {\n  experiments = [module_variable_optional_attrs]\n}\n"), by: "tofu",
		want: "main.tf:2:3: terraform cannot have an argument experiments in Terraform (only Terraform refuses it)",
	},
	"the same name for different things": {files: main("variable \"x\" {}\noutput \"x\" { value = 1 }\nlocals { x = 1 }\n" +
		"resource \"terraform_data\" \"x\" {}\ndata \"terraform_remote_state\" \"x\" {\n  backend = \"local\"\n}\n")},
	"tests and leftovers": {files: files{
		"main.tf": "variable \"x\" {}\n", ".main.tf": "variable \"x\" {}\n", "main.tf~": "variable \"x\" {}\n",
		"#main.tf#": "variable \"x\" {}\n", "x.tofutest.hcl": "run \"x\" {}\n", "x.tftest.hcl": "run \"x\" {}\n",
		"terraform.tfvars.json": "{}",
	}},
	"a source with a variable": {
		files: files{"main.tf": "locals {\n  m = \"./m\"\n}\nmodule \"m\" {\n  source = local.m\n}\n", "m/main.tf": ""}, by: "tofu",
	},
	"JSON": {files: files{"main.tf.json": `{
  "terraform": [{"required_version": ">= 1.0"}, {"required_providers": {}}],
  "variable": {"x": [{"type": "list(string)", "default": ["${path.module}"]}], "y": {}},
  "resource": {"terraform_data": {"x": {"depends_on": ["terraform_data.y"], "lifecycle": {"ignore_changes": "all"}}, "y": [{}]}},
  "locals": [{"a": "${var.y}"}, {"b": 1}]
}`}},
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, test := range refused {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems, notes := test.check(t)
			var got []string
			for _, p := range problems {
				got = append(got, p.Error())
			}
			if diff := cmp.Diff(strings.Split(test.want, "\n"), got); diff != "" {
				t.Error(diff)
			}
			if len(notes) > 0 {
				t.Errorf("got notes %q", notes)
			}
		})
	}
}

// TestShared checks that problems of one client are notes beside those of both.
func TestShared(t *testing.T) {
	t.Parallel()
	problems, notes := main("language {}\nvariable \"x\" {}\nvariable \"x\" {}\n").check(t)
	if len(problems) != 1 || problems[0].Line != 3 {
		t.Errorf("got problems %v, want one of line 3", problems)
	}
	if want := []string{"main.tf:1:1: Terraform has no block language (only Terraform refuses it)"}; !slices.Equal(notes, want) {
		t.Errorf("got notes %q, want %q", notes, want)
	}
}

// TestMany checks that many notes do not hide a problem.
func TestMany(t *testing.T) {
	t.Parallel()
	for _, block := range []string{"novelty {}\n", "language {}\n", "action \"a\" \"b\" {}\n"} {
		problems, _ := main(strings.Repeat(block, 200) + "variable \"x\" {\n  typ = string\n}\noutput \"x\" {}\n").check(t)
		has := func(line int) bool {
			return slices.ContainsFunc(problems, func(p *safehcl.Error) bool { return p.Line == line })
		}
		if !has(202) || !has(204) {
			t.Errorf("%s: no problem of lines 202 and 204 in %v", block, problems)
		}
	}
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	for name, test := range accepted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems, notes := test.check(t)
			for _, p := range problems {
				t.Errorf("refused: %v", p)
			}
			if diff := cmp.Diff(test.want, strings.Join(notes, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCorpus checks that nothing is refused in the valid examples of the clients.
func TestCorpus(t *testing.T) {
	t.Parallel()
	folders := make(map[string]files)
	isWanted := func(name string) bool { return configuration.IsName(path.Base(name)) }
	patterns := []string{"github.com/opentofu/opentofu@*", "github.com/hashicorp/terraform@*"}
	corpus.Each(t, patterns, isWanted, func(folder, name string, content []byte) {
		if !strings.Contains(name, "internal/configs/testdata/valid-") {
			return
		}
		dir := path.Join(folder, path.Dir(name))
		if path.Base(dir) == "valid-files" {
			dir = path.Join(folder, name) // each file is an example of its own
		}
		if folders[dir] == nil {
			folders[dir] = make(files)
		}
		folders[dir][path.Base(name)] = string(content)
	})
	for dir, folder := range folders {
		problems, _ := folder.check(t)
		for _, p := range problems {
			t.Errorf("%s: %v", dir, p)
		}
	}
}

// TestClients checks that the real clients refuse the same places of the same
// folders, and load the others.
func TestClients(t *testing.T) {
	t.Parallel()
	clients.Each(t, func(t *testing.T, c clients.Client) {
		load := func(t *testing.T, folder files) error {
			t.Helper()
			session := clients.Session{Client: c, Home: t.TempDir()}
			_, err := session.Run(t.Context(), folder.write(t), "init", "-backend=false", "-no-color")
			return err
		}
		t.Run("refused", func(t *testing.T) {
			t.Parallel()
			all := make(files) // one module calls all of them, because each run takes long
			cases := slices.Sorted(maps.Keys(refused))
			for i, name := range cases {
				dir := fmt.Sprintf("case%d", i)
				all["main.tf"] += fmt.Sprintf("module %q {\n  source = \"./%s\"\n}\n", dir, dir)
				for file, content := range refused[name].files {
					all[dir+"/"+file] = content
				}
			}
			err := load(t, all)
			if err == nil {
				t.Fatal("the client loads all of them")
			}
			for i, name := range cases {
				for line := range strings.SplitSeq(refused[name].want, "\n") {
					place := strings.SplitN(line, ":", 3)
					if !readBy(c, place[0], refused[name].files) {
						continue
					}
					want := fmt.Sprintf("on case%d/%s line %s", i, place[0], place[1])
					if !strings.Contains(err.Error(), want+",") && !strings.Contains(err.Error(), want+":") {
						t.Errorf("%s: the client does not refuse %s", name, line)
					}
				}
			}
			if t.Failed() {
				t.Log(err)
			}
		})
		for name, test := range accepted {
			if strings.Contains(test.sometimes, c.Name) {
				continue
			}
			t.Run("accepted/"+name, func(t *testing.T) {
				t.Parallel()
				want := test.by == "" || strings.Contains(test.by, c.Name)
				if err := load(t, test.files); (err == nil) != want {
					t.Errorf("got error %v", err)
				}
			})
		}
	})
}

// readBy reports whether a client reads a file of a folder.
func readBy(c clients.Client, name string, folder files) bool {
	if c.Name == "terraform" {
		return !strings.HasSuffix(name, ".tofu")
	}
	_, hidden := folder[configuration.Twin(name)]
	return !hidden
}
