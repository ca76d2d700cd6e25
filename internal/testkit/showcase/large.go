package showcase

import (
	"fmt"
	"strings"
	"time"
)

// option is an input that a module has for each of its services.
type option struct{ name, typ, fallback, text string }

// options are inputs of all kinds. %s is the service.
var options = []option{
	{"name", "string", "-", "Name of the %s."},
	{"description", "string", "null", "Description of the %s that people read in the console."},
	{"enabled", "bool", "true", "Whether to create the %s."},
	{
		"size", "number", "30", "Size of the %s in GiB. A change replaces it. See " +
			"https://docs.aws.amazon.com/general/latest/gr/aws_service_limits.html for the limits.",
	},
	{"retention", "number", "365", "Days until the logs of the %s are deleted."},
	{"tags", "map(string)", "{}", "Tags of the %s, which replace `default_tags` of the same name."},
	{
		"policy", "any", `{ Version = "2012-10-17", Statement = [{ Effect = "Deny", Action = "*", Resource = "*" }] }`,
		"Policy of the %s.\n\nThe module adds a statement that denies requests without TLS.",
	},
	{
		"rules", "map(object({\n    cidr_blocks = optional(list(string), [])\n    description = string\n" +
			"    from_port = number\n    protocol = optional(string, \"tcp\") # or udp\n    to_port = number\n  }))", "{}",
		"Rules that allow traffic to the %s, by name.",
	},
	{"logging", "bool", "true", "Whether the %s writes logs."},
	{
		"encryption", "object({\n    key_arn = optional(string)\n    algorithm = optional(string, \"aws:kms\")\n  })",
		"null", "Encryption of the %s with a key of your own. `null` means the account's key.",
	},
	{"replicas", "number", "2", "Number of copies of the %s in other zones."},
	{"schedule", "string", `"cron(0 3 * * ? *)"`, "Schedule of backups of the %s, as a cron expression in UTC."},
	{"timeout", "number", "null", "Seconds to wait for the %s."},
	{"limits", "map(number)", "{ burst = 500, rate = 100 }", "Limits of requests to the %s."},
	{"owners", "list(string)", "[]", "Teams that own the %s."},
	{"alerts", "set(string)", `["capacity", "errors", "latency"]`, "Alarms of the %s to create."},
	{"role_arn", "string", "null", longText},
}

// longText is as long as the longest descriptions of well-known modules.
var longText = "Role that manages the %s. The module creates a role if this is `null`. " + strings.Repeat(
	"The role needs to trust the service, to write logs, and to read the key. ", 12)

// addOptions adds the inputs of a service from one to another to a file.
func (s *spec) addOptions(file, service string, from, to int) {
	out := s.file(file)
	for i := from; i < to; i++ {
		o := options[i%len(options)]
		if i >= len(options) {
			o.name += fmt.Sprintf("_%d", i/len(options)+1)
		}
		fmt.Fprintf(out, "variable \"%s_%s\" {\n  type = %s\n", service, o.name, o.typ)
		if o.fallback != "-" {
			fmt.Fprintf(out, "  default = %s\n", o.fallback)
		}
		fmt.Fprintf(out, "  description = %q\n}\n\n", fmt.Sprintf(o.text, strings.TrimPrefix(service, "cluster_")))
	}
}

// file returns the text of a file.
func (s *spec) file(name string) *strings.Builder {
	if s.files[name] == nil {
		s.files[name] = new(strings.Builder)
	}
	return s.files[name]
}

// groupsOf236 are the groups of the inputs of [large], with the names of services.
const groupsOf236 = "Network:network, Subnets:subnet, NAT gateways:gateway, Endpoints:endpoint, Buckets:bucket, " +
	"Tables:table, Queues:queue, Topics:topic, Clusters:cluster, IAM roles:role, Keys:key, Secrets:secret, " +
	"DNS zones:zone, Backups:backup"

// large returns a module with 236 inputs in 14 groups, of which some have files of
// their own.
func large() *spec {
	s := newSpec("platform/everything/aws")
	s.description = "Every option of the landing zone in one module."
	s.versions = []version{{"1.0.0", time.Date(2026, 9, 9, 9, 0, 0, 0, time.UTC), "ci"}}
	left := 236
	for i, group := range strings.Split(groupsOf236, ", ") {
		heading, service, _ := strings.Cut(group, ":")
		file := "variables.tf"
		if i > 10 {
			file = "variables-" + service + ".tf"
		}
		line := strings.Repeat("#", 80)
		fmt.Fprintf(s.file(file), "%s\n# %s\n%[1]s\n\n", line, heading)
		switch service {
		case "cluster": // a type of 120 lines
			fmt.Fprint(s.file(file), "variable \"cluster_settings\" {\n  type = object({\n")
			for i := range 118 {
				fmt.Fprintf(s.file(file), "    setting_%03d = optional(number, %d)\n", i+1, i*10)
			}
			fmt.Fprint(s.file(file), "  })\n  default = {}\n  description = \"Settings of the cluster.\"\n}\n\n")
			left--
		case "secret":
			fmt.Fprint(s.file(file), "variable \"secret_value\" {\n  type = string\n  sensitive = true\n"+
				"  default = null\n  description = \"First value of the secret.\"\n}\n\n")
			left--
		}
		n := min(left, len(options))
		s.addOptions(file, service, 0, n)
		left -= n
		_ = s.add("out", service+"_arn | ARN of the "+service+".")
		_ = s.add("resource", "aws_"+service+".this")
	}
	return s
}

// renamed returns two versions of a module. The later one has another name for 39 of
// its inputs, adds one, removes one, and needs newer clients and providers.
func renamed() []*spec {
	var both []*spec
	for i, v := range []version{
		{"20.37.2", time.Date(2026, 8, 5, 9, 30, 0, 0, time.UTC), "token"},
		{"21.0.0", time.Date(2026, 10, 30, 15, 10, 0, 0, time.UTC), "ci"},
	} {
		s := newSpec("platform/cluster/aws")
		s.description = "A Kubernetes cluster with its roles, keys, logs and node groups."
		s.versions = []version{v}
		prefix := []string{"cluster_", ""}[i]
		s.addOptions("variables.tf", prefix+"endpoint", 0, 13)
		s.addOptions("variables.tf", prefix+"security_group", 0, 13)
		s.addOptions("variables.tf", prefix+"encryption_key", 0, 13)
		s.addOptions("variables.tf", "node_group", 0, len(options))
		_ = s.add("out", "cluster_arn | ARN of the cluster.")
		_ = s.add("resource", "aws_eks_cluster.this")
		fmt.Fprintf(s.file("variables-removed.tf"), "variable %q {\n  default = null\n}\n",
			[]string{"create_aws_auth_configmap", "control_plane_scaling"}[i])
		fmt.Fprintf(s.file("versions.tf"), "terraform {\n  required_version = %q\n  required_providers {\n    aws = {\n"+
			"      source  = \"hashicorp/aws\"\n      version = %q\n    }\n  }\n}\n",
			[]string{">= 1.3.2", ">= 1.5.7"}[i], []string{">= 5.95, < 6.0", ">= 6.0"}[i])
		if i == 1 {
			s.file("CHANGELOG.md").WriteString(changelogOf21)
		}
		both = append(both, s)
	}
	return both
}

const changelogOf21 = `# Changelog

## [21.0.0] - 2026-10-30

### Breaking

- Inputs that began with ` + "`cluster_`" + ` have names without it.
- The module needs version 6 of the provider, and OpenTofu or Terraform 1.5.7.
- ` + "`create_aws_auth_configmap`" + ` is gone. Use access entries.

### Added

- ` + "`control_plane_scaling`" + ` chooses the capacity of the control plane.

## [20.37.2] - 2026-08-05

### Fixed

- Node groups wait for the network.
`

// many returns a module with 4,012 inputs in itself and in 59 submodules.
func many() *spec {
	s := newSpec("platform/accounts/aws")
	s.description = "All that an account of the organization begins with, and each part of it as a submodule."
	s.versions = []version{{"2.3.0", time.Date(2026, 10, 28, 12, 0, 0, 0, time.UTC), "ci"}}
	var parts []string
	for _, subject := range strings.Fields("network storage compute database messaging identity billing audit edge " +
		"analytics registry delivery") {
		for _, what := range strings.Fields("baseline alarms policies roles backups") {
			parts = append(parts, subject+"-"+what)
		}
	}
	for _, part := range parts[1:] {
		service := strings.ReplaceAll(part, "-", "_")
		s.addOptions("variables.tf", service, 1, 17)
		s.addOptions("modules/"+part+"/variables.tf", service, 0, 52)
	}
	return s
}

// rootless returns a module that has only submodules.
func rootless() *spec {
	s := newSpec("security/iam/aws")
	s.description = "Roles, groups and policies, each as a submodule."
	s.versions = []version{{"6.2.1", time.Date(2026, 10, 1, 7, 40, 0, 0, time.UTC), "ci"}}
	clear(s.files)
	for _, part := range strings.Fields("account group policy role role-for-service-accounts user") {
		s.addOptions("modules/"+part+"/main.tf", strings.ReplaceAll(part, "-", "_"), 0, 6)
		fmt.Fprintf(s.file("modules/"+part+"/main.tf"), "resource \"aws_iam_%s\" \"this\" {}\n",
			strings.Split(part, "-")[0])
	}
	return s
}
