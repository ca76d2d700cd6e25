package modulehosts

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// worldModule is a module of [World].
type worldModule struct {
	// Module has what differs from the usual, except for the files.
	Module
	// versions are separated by spaces, and v is the prefix of their tags.
	versions string
	v        string
	// folders are the modules that each folder calls, separated by commas. A
	// source is followed by a version constraint.
	folders map[string]string
}

var world = []worldModule{
	{
		Module: Module{Address: "terraform-aws-modules/vpc/aws", Annotated: true}, versions: "5.0.0 5.8.1 6.0.1", v: "v",
		folders: map[string]string{"": "./modules/flow-log", "modules/flow-log": "", "modules/vpc-endpoints": ""},
	}, {
		Module: Module{Address: "terraform-aws-modules/security-group/aws", ByCommit: true}, versions: "5.1.2", v: "v",
		folders: map[string]string{"": "", "modules/http-80": "../../", "modules/ssh": "../../"},
	}, {
		Module: Module{Address: "terraform-aws-modules/kms/aws"}, versions: "2.1.0 2.2.1 3.0.0", v: "v",
		folders: map[string]string{"": ""},
	}, {
		Module: Module{Address: "terraform-aws-modules/eks/aws", ByCommit: true}, versions: "20.8.5", v: "v",
		folders: map[string]string{
			"": "terraform-aws-modules/kms/aws ~> 2.1, ./modules/eks-managed-node-group", "modules/_user_data": "",
			"modules/eks-managed-node-group": "../_user_data",
		},
	}, {
		Module: Module{Address: "terraform-aws-modules/lambda/aws", Annotated: true}, versions: "6.8.0 7.2.6", v: "v",
		folders: map[string]string{"": "", "modules/alias": ""},
	}, {
		Module: Module{Address: "terraform-aws-modules/notify-slack/aws"}, versions: "6.4.0", v: "v",
		folders: map[string]string{"": "terraform-aws-modules/lambda/aws 6.8.0"},
	}, {
		// Like the original, it has no configuration in its root.
		Module: Module{Address: "terraform-aws-modules/iam/aws"}, versions: "5.39.1", v: "v",
		folders: map[string]string{"modules/iam-policy": "", "modules/iam-role-for-service-accounts-eks": ""},
	}, {
		Module: Module{Address: "cloudposse/label/null"}, versions: "0.24.1 0.25.0",
		folders: map[string]string{"": "", "modules/descriptors": ""},
	}, {
		Module: Module{Address: "cloudposse/utils/aws", ByCommit: true}, versions: "1.4.0",
		folders: map[string]string{"": ""},
	}, {
		Module: Module{Address: "cloudposse/dynamic-subnets/aws"}, versions: "2.4.2",
		folders: map[string]string{"": "cloudposse/label/null 0.25.0, cloudposse/utils/aws 1.4.0"},
	}, {
		Module: Module{Address: "cloudposse/iam-s3-user/aws", Annotated: true}, versions: "1.2.1",
		folders: map[string]string{"": "cloudposse/label/null 0.25.0"},
	}, {
		Module: Module{Address: "cloudposse/s3-bucket/aws"}, versions: "4.2.0", // nests three deep
		folders: map[string]string{"": "cloudposse/label/null 0.25.0, cloudposse/iam-s3-user/aws >= 1.0.0"},
	}, {
		Module: Module{Address: "Azure/avm-utl-interfaces/azure"}, versions: "0.2.0", v: "v",
		folders: map[string]string{"": ""},
	}, {
		Module: Module{Address: "Azure/avm-res-network-virtualnetwork/azurerm", ByCommit: true}, versions: "0.8.1", v: "v",
		folders: map[string]string{
			"": "Azure/avm-utl-interfaces/azure 0.2.0, ./modules/subnet", "modules/subnet": "",
			"modules/peering": "../subnet",
		},
	}, {
		Module: Module{Address: "terraform-google-modules/gcloud/google"}, versions: "3.4.1 3.5.0", v: "v",
		folders: map[string]string{"": "", "modules/kubectl-wrapper": "../../"},
	}, {
		Module: Module{Address: "terraform-google-modules/kubernetes-engine/google"}, versions: "30.2.0", v: "v",
		folders: map[string]string{
			"": "terraform-google-modules/gcloud/google//modules/kubectl-wrapper ~> 3.4", "modules/auth": "",
		},
	}, {
		Module: Module{
			Address: "harbor-platform/bastion/aws", Folder: "aws/bastion",
			Forge: GitLab, Repository: "harbor-platform/terraform/modules",
		},
		versions: "1.0.0 1.1.0", v: "bastion-",
		folders: map[string]string{"aws/bastion": "terraform-aws-modules/security-group/aws//modules/ssh ~> 5.1"},
	}, {
		Module:   Module{Address: "quayside/queue/aws", Forge: Bitbucket, Annotated: true},
		versions: "2.0.3", v: "v", folders: map[string]string{"": "cloudposse/label/null 0.25.0"},
	}, {
		Module: Module{
			Address: "Lantern/dns/hetzner", Annotated: true, Forge: Codeberg, Repository: "Lantern/Terraform-Hetzner-DNS",
		},
		versions: "0.3.0", v: "v", folders: map[string]string{"": "./modules/record", "modules/record": ""},
	},
}

// World returns modules like well-known ones, at all forges. Many nest others by
// short sources and by paths. None needs a provider. Tests can change them before
// they add them.
func World() (modules []Module) {
	published := time.Date(2024, 1, 15, 9, 30, 0, 0, time.UTC)
	for _, w := range world {
		for _, version := range strings.Fields(w.versions) {
			m := w.Module
			m.Version, m.Tag, m.Published = version, w.v+version, published
			m.Files = map[string]string{
				"README.md":       "# " + m.Address + "\n\nCreates what its name promises.\n",
				"LICENSE":         "Apache License\nVersion 2.0, January 2004\n",
				"CHANGELOG.md":    "## " + version + "\n\n* Fix the tags.\n",
				".gitignore":      ".terraform/\n*.tfstate\n",
				"scripts/docs.sh": "#!/bin/sh\nterraform-docs .\n",
			}
			for folder, calls := range w.folders {
				maps.Copy(m.Files, configuration(m, folder, calls))
			}
			modules = append(modules, m)
			published = published.AddDate(0, 0, 9)
		}
	}
	return modules
}

// World adds the modules of [World], and returns their addresses.
func (h *Hosts) World() (addresses []string) {
	h.t.Helper()
	return h.Add(World()...)
}

// configuration returns the files of a folder that calls modules.
func configuration(m Module, folder, calls string) map[string]string {
	title := path.Base(cmp.Or(folder, path.Dir(m.Address)))
	main := fmt.Sprintf(`locals {
  tags = merge({ module = %q, version = %q }, var.tags)
}

resource "terraform_data" "this" {
  count = var.create ? 1 : 0

  input = { name = var.name, tags = local.tags }
}
`, title, m.Version)
	for _, call := range slices.DeleteFunc(strings.Split(calls, ", "), func(s string) bool { return s == "" }) {
		source, constraint, _ := strings.Cut(call, " ")
		label := path.Base(source)
		if parts := strings.Split(source, "/"); len(parts) == 3 && parts[0] != "." && parts[0] != ".." {
			label = parts[1]
		} else if strings.Trim(source, "./") == "" {
			label = "root"
		}
		main += fmt.Sprintf("\nmodule %q {\n  source = %q\n", label, source)
		if constraint != "" {
			main += fmt.Sprintf("  version = %q\n", constraint)
		}
		main += "\n  create = var.create\n  name   = var.name\n  tags   = local.tags\n}\n"
	}
	return map[string]string{
		path.Join(folder, "main.tf"): main,
		path.Join(folder, "variables.tf"): `variable "create" {
  description = "Whether to create resources"
  type        = bool
  default     = true
}

variable "name" {
  description = "Name of all resources"
  type        = string
  default     = "` + title + `"
}

variable "tags" {
  description = "Tags of all resources"
  type        = map(string)
  default     = {}
}
`,
		path.Join(folder, "outputs.tf"): `output "id" {
  description = "The ID"
  value       = try(terraform_data.this[0].id, null)
}
`,
		path.Join(folder, "versions.tf"): "terraform {\n  required_version = \">= 1.3\"\n}\n",
	}
}
