package configuration

import (
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// body describes what may be in a block.
type body struct {
	// arguments and blocks are those of the clients themselves.
	arguments map[string]argument
	blocks    map[string]block
	// open is set if there can be other arguments and blocks, which are those of
	// a provider, a provisioner or another module.
	open bool
}

type argument struct {
	// by is the set of clients that have it.
	by clients
	// required is set if it may only be missing in an override file. static is
	// set if it can have neither references nor function calls.
	required, static bool
	// reserved is set if clients refuse it, in a body that is open.
	reserved bool
}

type block struct {
	// by is the set of clients that have it. Only blocks that both have are read.
	by     clients
	labels []string
	body   *body
	// once is set if there can be one. reserved is set if clients refuse it.
	once, reserved bool
}

// of returns arguments that both clients have.
func of(names ...string) map[string]argument {
	all := make(map[string]argument)
	for _, name := range names {
		all[name] = argument{by: both}
	}
	return all
}

// with returns arguments or blocks, and others in addition.
func with[T any](all, others map[string]T) map[string]T {
	all = maps.Clone(all)
	maps.Copy(all, others)
	return all
}

var (
	required = argument{by: both, required: true}
	static   = argument{by: both, static: true}
	reserved = argument{by: both, reserved: true}

	anything = &body{open: true}
	escape   = block{by: both, body: anything, once: true}
	refused  = block{by: both, body: anything, reserved: true}
)

// The bodies of blocks, as OpenTofu 1.13 and Terraform 1.16 read them. Sources:
// internal/configs in both.
var (
	rule = &body{arguments: map[string]argument{"condition": required, "error_message": required}}

	variable = &body{
		arguments: with(of("type", "const"), map[string]argument{
			"default": static, "description": static, "sensitive": static,
			"ephemeral": static, "nullable": static, "deprecated": static,
		}),
		blocks: map[string]block{"validation": {by: both, body: rule}},
	}
	output = &body{
		arguments: with(of("depends_on"), map[string]argument{
			"value": required, "type": {by: terraform}, "description": static, "sensitive": static,
			"ephemeral": static, "deprecated": static,
		}),
		blocks: map[string]block{"precondition": {by: both, body: rule}, "postcondition": refused},
	}
	module = &body{
		arguments: with(of("version", "count", "for_each", "depends_on", "providers"),
			map[string]argument{"source": required}),
		blocks: map[string]block{
			"_": escape, "lifecycle": {by: openTofu}, "locals": refused,
			"provider": {by: both, labels: []string{"type"}, body: anything, reserved: true},
		},
		open: true,
	}
	provisioner = &body{
		arguments: of("when", "on_failure"),
		blocks: map[string]block{
			"_": escape, "connection": {by: both, body: anything, once: true}, "lifecycle": refused,
		},
		open: true,
	}
	conditions = map[string]block{"precondition": {by: both, body: rule}, "postcondition": {by: both, body: rule}}
	resource   = &body{
		arguments: of("count", "for_each", "provider", "depends_on"),
		blocks: map[string]block{
			"_": escape, "locals": refused, "connection": {by: both, body: anything, once: true},
			"provisioner": {by: both, labels: []string{"type"}, body: provisioner},
			"lifecycle": {by: both, once: true, body: &body{
				arguments: with(of("create_before_destroy", "prevent_destroy", "ignore_changes", "replace_triggered_by", "destroy"),
					map[string]argument{"enabled": {by: openTofu}}),
				blocks: with(conditions, map[string]block{"action_trigger": {by: terraform}}),
			}},
		},
		open: true,
	}
	data = &body{
		arguments: of("count", "for_each", "provider", "depends_on"),
		blocks: map[string]block{
			"_": escape, "locals": refused,
			"lifecycle": {by: both, once: true, body: &body{
				arguments: map[string]argument{"enabled": {by: openTofu}}, blocks: conditions,
			}},
		},
		open: true,
	}
	dataInCheck = &body{
		arguments: with(of("provider", "depends_on"), map[string]argument{"count": reserved, "for_each": reserved}),
		blocks:    map[string]block{"_": escape, "locals": refused, "lifecycle": refused},
		open:      true,
	}
	provider = &body{
		arguments: with(of("version"), map[string]argument{
			"alias": static, "for_each": {by: openTofu}, "count": reserved, "depends_on": reserved, "source": reserved,
		}),
		blocks: map[string]block{"_": escape, "lifecycle": refused, "locals": refused},
		open:   true,
	}
	settings = &body{
		arguments: with(of("required_version", "language"), map[string]argument{"experiments": {by: openTofu}}),
		blocks: map[string]block{
			"backend":            {by: both, labels: []string{"type"}, body: anything},
			"cloud":              {by: both, body: anything},
			"required_providers": {by: both, body: anything},
			"provider_meta":      {by: both, labels: []string{"provider"}, body: anything},
			"encryption":         {by: openTofu},
			"state_store":        {by: terraform},
		},
	}
	moved       = &body{arguments: map[string]argument{"from": required, "to": required}}
	importBlock = &body{arguments: with(of("id", "identity", "for_each", "provider"), map[string]argument{"to": required})}
	removed     = &body{
		arguments: map[string]argument{"from": required},
		blocks: map[string]block{
			"lifecycle":   {by: both, body: &body{arguments: of("destroy")}},
			"connection":  {by: terraform},
			"provisioner": {by: both, labels: []string{"type"}, body: provisioner},
		},
	}
	checkBlock = &body{blocks: map[string]block{
		"data":   {by: both, labels: []string{"type", "name"}, body: dataInCheck, once: true},
		"assert": {by: both, body: rule},
	}}

	file = &body{blocks: map[string]block{
		"terraform": {by: both, body: settings},
		"locals":    {by: both, body: anything},
		"variable":  {by: both, labels: []string{"name"}, body: variable},
		"output":    {by: both, labels: []string{"name"}, body: output},
		"module":    {by: both, labels: []string{"name"}, body: module},
		"provider":  {by: both, labels: []string{"name"}, body: provider},
		"resource":  {by: both, labels: []string{"type", "name"}, body: resource},
		"data":      {by: both, labels: []string{"type", "name"}, body: data},
		"ephemeral": {by: both, labels: []string{"type", "name"}, body: data},
		"check":     {by: both, labels: []string{"name"}, body: checkBlock},
		"moved":     {by: both, body: moved},
		"import":    {by: both, body: importBlock},
		"removed":   {by: both, body: removed},
		"language":  {by: openTofu},
		"symbols":   {by: openTofu},
		"action":    {by: terraform},
		// Clients know it only to refuse it outside of a terraform block.
		"required_providers": {by: both, body: anything},
	}}
)

// reservedVariables are the names of variables that a module block could not set.
var reservedVariables = []string{
	"source", "version", "count", "for_each", "depends_on", "providers", "lifecycle", "locals", "provider", "_",
}

// schemas are what HCL reads of each body.
var schemas = addSchemas(make(map[*body]*hcl.BodySchema), file)

func addSchemas(all map[*body]*hcl.BodySchema, b *body) map[*body]*hcl.BodySchema {
	if b == nil || all[b] != nil {
		return all
	}
	schema := new(hcl.BodySchema)
	all[b] = schema
	for _, name := range slices.Sorted(maps.Keys(b.arguments)) {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(b.blocks)) {
		if known := b.blocks[name]; known.by == both {
			schema.Blocks = append(schema.Blocks, hcl.BlockHeaderSchema{Type: name, LabelNames: known.labels})
			addSchemas(all, known.body)
		}
	}
	return all
}
