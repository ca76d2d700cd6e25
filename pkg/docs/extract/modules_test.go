package extract_test

// module is the configuration of a module for tests.
type module struct {
	name  string
	files map[string]string
}

// native returns the files of a module with one file.
func native(source string) map[string]string { return map[string]string{"main.tf": source} }

// inJSON is like native for HCL's JSON syntax.
func inJSON(source string) map[string]string { return map[string]string{"main.tf.json": source} }

// modules have each construct that documentation describes.
var modules = []module{
	{"variable without arguments", native(`variable "a" {}`)},
	{"variable with all arguments", native(`
variable "a" {
  type        = list(string)
  default     = ["x"]
  description = "An input"
  sensitive   = false
  ephemeral   = true
  nullable    = false
  deprecated  = "Use b."
  validation {
    condition     = length(var.a) > 0
    error_message = "a must not be empty"
  }
}`)},
	{"primitive types", native(`
variable "s" { type = string }
variable "n" { type = number }
variable "b" { type = bool }
variable "a" { type = any }`)},
	{"collection types", native(`
variable "l" { type = list(map(set(number))) }
variable "t" { type = tuple([string, list(bool), object({})]) }
variable "o" { type = object({ a = string, b = object({ c = any }) }) }`)},
	{"short forms of types", native(`
variable "l" { type = list }
variable "m" {
  type    = map
  default = { a = 1, b = "c" }
}`)},
	{"optional attributes", native(`
variable "o" {
  type = object({
    a = optional(string, "x") # a comment
    b = optional(list(number), [1, 2])
    c = optional(bool)
    d = string
  })
  default = { d = "y" }
}`)},
	{"nested optional attributes", native(`
variable "o" {
  type = map(object({
    a = optional(object({ b = optional(string, "x"), c = optional(number) }), {})
  }))
  default = { k = {}, l = { a = { b = "z" } }, m = { a = null } }
}`)},
	{"optional attributes in lists and tuples", native(`
variable "l" {
  type    = list(object({ a = optional(number, 1.5) }))
  default = [{}, { a = 2 }]
}
variable "t" {
  type    = tuple([object({ a = optional(string, "x") }), set(object({ b = optional(bool, true) }))])
  default = [{}, [{}]]
}`)},
	{"sets with null", native(`
variable "a" {
  type    = set(string)
  default = ["x", null]
}
variable "b" {
  type    = map(set(number))
  default = { k = [null] }
}`)},
	{"empty and other lists of any", native(`
variable "a" {
  type    = map(list(object({ b = optional(any) })))
  default = { c = [], d = [{ b = 1 }] }
}
variable "e" {
  type    = list(set(object({ b = any })))
  default = [[], [{ b = "x" }]]
}`)},
	{"keys in parentheses", native(`
variable "a" {
  type    = map(string)
  default = { ("b") = "x", (1) = "y", (1 + 1) = "z" }
}`)},
	{"default is null", native(`
variable "a" { default = null }
variable "b" {
  type    = object({ a = optional(string, "x") })
  default = null
}`)},
	{"default is converted", native(`
variable "a" {
  type    = string
  default = 5
}
variable "b" {
  type    = number
  default = "7"
}
variable "c" {
  type    = bool
  default = "true"
}
variable "d" {
  type    = list(string)
  default = [1, true, "x"]
}
variable "e" {
  type    = set(string)
  default = ["b", "a", "b"]
}
variable "f" {
  type    = map(string)
  default = { a = 1 }
}`)},
	{"default drops attributes", native(`
variable "a" {
  type    = object({ b = string })
  default = { b = "x", c = "y" }
}`)},
	{"default without a type", native(`
variable "a" { default = { b = [1, "c", { d = true }], "e f" = {} } }
variable "b" { default = [] }
variable "c" { default = "" }
variable "d" { default = false }`)},
	{"default of lists with any", native(`
variable "a" {
  type    = list(any)
  default = [1, "b"]
}
variable "b" {
  type    = map(any)
  default = { c = { d = 1 }, e = { d = 2 } }
}
variable "c" {
  type    = list(any)
  default = []
}`)},
	{"arithmetic", native(`
variable "a" { default = 60 * 60 * 24 }
variable "b" { default = -1 }
variable "c" { default = (1 + 2) / 4 }
variable "d" { default = -(2 - 3.5) }`)},
	{"large and small numbers", native(`
variable "a" { default = 123456789012345678901234567890.5 }
variable "b" { default = 1e100 }
variable "c" { default = 0.000000000000000000001 }
variable "d" { default = -9223372036854775809 }
variable "e" { default = 1E-7 }`)},
	{"strings", native(`
variable "a" { default = "é ü \u00e9 \U0001F600 \" \\ \n \t $${x} %%{y}" }
variable "b" { default = "<script>&amp;" }
variable "c" { default = "  " }
variable "名前" { default = "値" }`)},
	{"heredocs", native(
		"variable \"a\" {\n  description = <<EOT\nOne\n  Two\nEOT\n  default = <<-EOT\n    x\n      y\n  EOT\n}\n" +
			"output \"o\" {\n  value = 1\n  description = <<-EOT\n    z\n  EOT\n}\n")},
	{"lines end with CR LF", native("variable \"a\" {\r\n  type = object({\r\n    b = string\r\n  })\r\n" +
		"  description = <<EOT\r\nx\r\nEOT\r\n}\r\n")},
	{"descriptions are converted", native(`
variable "a" { description = 5 }
output "b" {
  value       = 1
  description = true
}`)},
	{"bools in quotes", native(`
variable "a" {
  sensitive = "true"
  ephemeral = "true"
}
variable "b" { sensitive = "false" }
output "o" {
  value     = 1
  sensitive = "true"
}`)},
	{"outputs", native(`
output "a" { value = 1 }
output "b" {
  value       = sensitive("x")
  description = "An output"
  sensitive   = true
  deprecated  = "Use a."
  depends_on  = [terraform_data.x]
  precondition {
    condition     = terraform_data.x.id != ""
    error_message = "no"
  }
}
output "c" {
  value     = null
  ephemeral = true
}
resource "terraform_data" "x" {}`)},
	{"resources", native(`
resource "aws_vpc" "b" {}
resource "aws_vpc" "a" {
  for_each = toset(["x"])
  lifecycle { create_before_destroy = true }
  depends_on = [data.aws_ami.a]
  provisioner "local-exec" { command = "true" }
}
resource "random_pet" "a" {
  count = 2
  dynamic "x" {
    for_each = []
    content {}
  }
}
data "aws_ami" "a" {}
ephemeral "random_password" "p" {}`)},
	{"type of a resource without a name after the provider", native(`
resource "http" "a" {}
data "external" "b" {}`)},
	{"provider of a resource", native(`
terraform {
  required_providers {
    east = { source = "acme/aws" }
  }
}
resource "aws_vpc" "a" { provider = east }
resource "aws_vpc" "b" { provider = west.alias }
data "aws_ami" "c" { provider = "quoted.alias" }
provider "west" { alias = "alias" }
provider "quoted" { alias = "alias" }`)},
	{"provider with an instance key", native(`
locals { regions = toset(["a", "b"]) }
provider "aws" {
  alias    = "by_region"
  for_each = local.regions
}
resource "aws_vpc" "a" {
  for_each = local.regions
  provider = aws.by_region[each.key]
}`)},
	{"data in a check", native(`
check "c" {
  data "http" "x" {
    url = "https://example.com"
  }
  assert {
    condition     = data.http.x.status_code == 200
    error_message = "no"
  }
}`)},
	{"module calls", map[string]string{
		"main.tf": `
module "local" { source = "./modules/a" }
module "registry" {
  source  = "hashicorp/consul/aws"
  version = "0.1.0"
  count   = 2
}
module "git" {
  source     = "git::https://example.com/vpc.git//x?ref=v1.2.0"
  depends_on = [module.local]
  providers  = { aws = aws.west }
}
provider "aws" { alias = "west" }`,
		"modules/a/main.tf": `variable "x" { default = 1 }`,
	}},
	{"required providers", native(`
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source                = "hashicorp/aws"
      version               = ">= 5.0, < 6.0.0"
      configuration_aliases = [aws.west, aws.east]
    }
    old     = "~> 1.0"
    named   = { source = "Acme/Inventory" }
    hosted  = { source = "registry.example.com/acme/x", version = "!= 1.2.3" }
    short   = { source = "random" }
    version = { version = "1.2.3" }
    empty   = {}
  }
}`)},
	{"provider blocks", native(`
provider "aws" {
  region  = "eu-west-1"
  version = "~> 3.1"
}
provider "google" {}
provider "google" { alias = "b" }`)},
	{"built-in provider", native(`
resource "terraform_data" "a" {}
data "terraform_remote_state" "b" { backend = "local" }`)},
	{"blocks that are not documented", native(`
locals { a = 1 }
moved {
  from = terraform_data.a
  to   = terraform_data.b
}
removed { from = terraform_data.c }
import {
  to = terraform_data.b
  id = "x"
}
resource "terraform_data" "b" {}
terraform {
  backend "local" {}
}`)},
	{"several files", map[string]string{
		"a.tf": `variable "a" {}`, "b.tf": `variable "b" {}`, "c.tf.json": `{"variable": {"c": {}}}`,
		"d.tofu": `variable "d" {}`, "e.tofu.json": `{"variable": {"e": {}}}`, ".hidden.tf": "invalid {",
		"README.md": "# A", "x.tfvars": "a = 1",
	}},
	{"OpenTofu's file wins", map[string]string{
		"a.tf": `variable "a" { default = 1 }`, "a.tofu": `variable "a" { default = 2 }`,
		"b.tf.json": `{"variable": {"b": {"default": 1}}}`, "b.tofu.json": `{"variable": {"b": {"default": 2}}}`,
		"c.tf": `variable "c" {}`, "c.tofu.json": `{"variable": {"d": {}}}`,
	}},
	{"JSON", inJSON(`{
  "//": "a comment",
  "terraform": {"required_providers": {"aws": {"source": "hashicorp/aws", "version": "~> 5.0"}, "old": "1.0.0"}},
  "provider": {"aws": [{"region": "a"}, {"alias": "west"}]},
  "variable": {
    "a": {"type": "list(object({b=optional(string, \"x\")}))", "default": [{}], "description": "${not} a template"},
    "c": {"type": "string", "default": null, "sensitive": true},
    "d": {"default": {"e": [1, 2.5, "f"], "${g}": true}},
    "e": [{"type": "map"}],
    "f": {"type": "any", "default": 12345678901234567890123}
  },
  "output": {"o": {"value": "${var.a}", "description": "An output", "sensitive": "true"}},
  "resource": {"aws_vpc": {"a": {"provider": "aws.west"}, "b": [{}]}},
  "data": [{"aws_ami": {"c": {}}}],
  "ephemeral": {"random_password": {"p": {}}},
  "module": {"m": {"source": "hashicorp/consul/aws", "version": ">= 1.0"}}
}`)},
	{"JSON with lists of blocks", inJSON(
		`{"variable": [{"a": {"type": "number"}}, {"b": {}}], "output": [{"o": {"value": 1}}]}`)},
	{"override of a variable", map[string]string{
		"main.tf": "variable \"a\" {\n type = string\n default = 1\n description = \"x\"\n}\n" +
			`variable "b" { default = 1 }`,
		"override.tf": `variable "a" {` + "\n description = \"y\"\n default = 2\n}\n" + `variable "b" { type = string }`,
	}},
	{"two overrides of a variable", map[string]string{
		"main.tf":       `variable "a" { type = number }`,
		"a_override.tf": `variable "a" { default = "1" }`,
		"b_override.tf": `variable "a" { type = any }`,
	}},
	{"override of a type with optional attributes", map[string]string{
		"main.tf":           `variable "a" {` + "\n type = map(string)\n default = {}\n}\n",
		"types_override.tf": `variable "a" { type = object({ b = optional(string, "x") }) }`,
	}},
	{"override of a default with optional attributes", map[string]string{
		"main.tf":       "variable \"a\" {\n type = object({ b = optional(string, \"x\") })\n default = { b = \"z\" }\n}\n",
		"override.tofu": `variable "a" { default = {} }`,
	}},
	{"override makes a variable sensitive", map[string]string{
		"main.tf": `variable "a" { default = "secret" }`, "a_override.tf.json": `{"variable": {"a": {"sensitive": true}}}`,
	}},
	{"override of everything else", map[string]string{
		"main.tf": `
terraform {
  required_providers {
    aws  = { source = "hashicorp/aws", version = "5.0.0" }
    same = { source = "acme/same" }
  }
}
output "o" {
  value       = 1
  description = "x"
}
module "m" {
  source  = "hashicorp/consul/aws"
  version = "1.0.0"
}
resource "aws_vpc" "a" {}
data "aws_ami" "b" {}
provider "aws" { region = "x" }`,
		"override.tf": `
terraform {
  required_providers {
    aws = { source = "acme/aws" }
    new = { source = "acme/new" }
  }
}
output "o" {
  description = "y"
  sensitive   = true
  deprecated  = "z"
}
module "m" { version = "2.0.0" }
resource "aws_vpc" "a" { provider = other }
data "aws_ami" "b" { provider = new }
provider "extra" { region = "y" }`,
	}},
	{"two override files", map[string]string{
		"main.tf": `variable "a" { default = 1 }`, "a_override.tf": `variable "a" { default = 2 }`,
		"b_override.tf": `variable "a" { default = 3 }`, "override.tf.json": `{"variable": {"a": {"description": "x"}}}`,
	}},
	{"only an override file of a provider", map[string]string{"override.tf": `provider "aws" { region = "x" }`}},
	{"names with dashes", native(`
variable "a-b" {}
output "c-d" { value = 1 }
resource "a_b" "e-f" { provider = g-h }`)},
	{"comments", native("# a\n// b\n/* c */ variable \"a\" { # d\n  type = /* e */ string // f\n}\n")},
	{"byte order mark", native("\uFEFFvariable \"a\" {}\n")},
	{"no configuration that is documented", native("locals { a = 1 }\n")},
}
