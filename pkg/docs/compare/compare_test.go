package compare_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/compare"
)

// consequence is a mark with its first reason.
type consequence struct {
	kind   compare.Kind
	mark   compare.Mark
	reason string
}

// only returns the consequence of the only change in a section. It is empty if
// nothing has changed.
func only(t *testing.T, s compare.Section) (c consequence) {
	t.Helper()
	if len(s.Changes) > 1 {
		t.Fatalf("%d changes: %+v", len(s.Changes), s.Changes)
	}
	for _, change := range s.Changes {
		c = consequence{kind: change.Kind, mark: change.Mark}
		if len(change.Reasons) > 0 {
			c.reason = change.Reasons[0]
		}
	}
	return c
}

func diff(t *testing.T, want, got consequence) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.AllowUnexported(consequence{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestInputs(t *testing.T) {
	t.Parallel()
	input := func(change func(*docs.Input)) []docs.Input {
		i := docs.Input{Name: "x", Type: "string", TypeConstraint: json.RawMessage(`"string"`), Default: `"a"`}
		if change != nil {
			change(&i)
		}
		return []docs.Input{i}
	}
	required := input(func(i *docs.Input) { i.Required, i.Default = true, "" })
	plain := input(nil)
	for name, test := range map[string]struct {
		before, after []docs.Input
		want          consequence
	}{
		"same":               {before: plain, after: plain},
		"new":                {after: plain, want: consequence{compare.Added, "", ""}},
		"new and required":   {after: required, want: consequence{compare.Added, compare.Breaking, "it is required"}},
		"gone":               {before: plain, want: consequence{compare.Removed, compare.Breaking, "it was removed"}},
		"required":           {plain, required, consequence{compare.Changed, compare.Breaking, "it became required"}},
		"optional":           {required, plain, consequence{compare.Changed, "", "it became optional"}},
		"required as before": {before: required, after: required},
		"default": {
			plain, input(func(i *docs.Input) { i.Default = `"b"` }),
			consequence{compare.Changed, compare.ChangesPlans, "the default changed"},
		},
		"default with white space": {
			before: input(func(i *docs.Input) { i.Default = `{"a":1}` }),
			after:  input(func(i *docs.Input) { i.Default = "{ \"a\": 1 }\n" }),
		},
		"default that is not stored": {
			plain, input(func(i *docs.Input) { i.Default, i.Sensitive = "", true }),
			consequence{compare.Changed, "", "it became sensitive"},
		},
		"not null": {
			required, input(func(i *docs.Input) { i.NotNull, i.Required, i.Default = true, true, "" }),
			consequence{compare.Changed, compare.Breaking, "it became not null"},
		},
		"not null, with a default": {
			plain, input(func(i *docs.Input) { i.NotNull = true }),
			consequence{compare.Changed, compare.ChangesPlans, "it became not null, and null selects the default"},
		},
		"null": {
			input(func(i *docs.Input) { i.NotNull, i.Required, i.Default = true, true, "" }), required,
			consequence{compare.Changed, "", "it can be null"},
		},
		"null instead of the default": {
			input(func(i *docs.Input) { i.NotNull = true }), plain,
			consequence{compare.Changed, compare.ChangesPlans, "it can be null, and null no longer selects the default"},
		},
		"ephemeral": {
			plain, input(func(i *docs.Input) { i.Ephemeral = true }),
			consequence{compare.Changed, "", "it became ephemeral"},
		},
		"no longer ephemeral": {
			input(func(i *docs.Input) { i.Ephemeral = true }), plain,
			consequence{compare.Changed, compare.Breaking, "it no longer accepts ephemeral values"},
		},
		"another validation": {
			plain, input(func(i *docs.Input) { i.Validations = []string{"no"} }),
			consequence{compare.Changed, compare.Breaking, "it has 1 more validation"},
		},
		"another message": {
			input(func(i *docs.Input) { i.Validations = []string{"never"} }),
			input(func(i *docs.Input) { i.Validations = []string{"no"} }),
			consequence{compare.Changed, "", "the validations changed"},
		},
		"deprecated": {
			plain, input(func(i *docs.Input) { i.Deprecated = "use y" }),
			consequence{compare.Changed, "", "it is deprecated"},
		},
		"no longer deprecated": {
			input(func(i *docs.Input) { i.Deprecated = "use y" }), plain,
			consequence{compare.Changed, "", "it is no longer deprecated"},
		},
		"description": {
			plain, input(func(i *docs.Input) { i.Description = "the name" }),
			consequence{compare.Changed, "", "the description changed"},
		},
		"default and type": {
			plain, input(func(i *docs.Input) {
				i.Default, i.Type, i.TypeConstraint = `1`, "number", json.RawMessage(`"number"`)
			}),
			consequence{compare.Changed, compare.Breaking, "the type accepts less: string became number"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := compare.Folders(docs.Folder{Inputs: test.before}, docs.Folder{Inputs: test.after})
			diff(t, test.want, only(t, d.Inputs))
		})
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	type written struct{ text, constraint string }
	any, str := written{"any", `"dynamic"`}, written{"string", `"string"`}
	number, boolean := written{"number", `"number"`}, written{"bool", `"bool"`}
	object := written{"object({ a = string })", `["object",{"a":"string"}]`}
	optional := written{`object({ a = optional(string, "x") })`, `["object",{"a":"string"},["a"]]`}
	list := func(of written) written { return written{"list(" + of.text + ")", `["list",` + of.constraint + `]`} }
	set := func(of written) written { return written{"set(" + of.text + ")", `["set",` + of.constraint + `]`} }
	toMap := func(of written) written { return written{"map(" + of.text + ")", `["map",` + of.constraint + `]`} }
	const less = "the type accepts less: "
	breaking := func(reason string) consequence { return consequence{compare.Changed, compare.Breaking, reason} }
	plans := func(reason string) consequence { return consequence{compare.Changed, compare.ChangesPlans, reason} }
	more := consequence{compare.Changed, "", "the type accepts as much as before"}
	for name, test := range map[string]struct {
		before, after written
		want          consequence
	}{
		"any to string": {any, str, breaking(less + "any became string")},
		"string to any": {str, any, consequence{compare.Changed, "", "the type accepts any value"}},
		"mystery to any": {
			written{"mystery(1)", ""}, any, consequence{compare.Changed, "", "the type accepts any value"},
		},
		"number to string": {number, str, more},
		"bool to string":   {boolean, str, more},
		"string to number": {str, number, breaking(less + "string became number")},
		"number to bool":   {number, boolean, breaking(less + "number became bool")},
		"string to list":   {str, list(str), breaking(less + "string became list(string)")},
		"list to set":      {list(str), set(str), more},
		"set to list":      {set(str), list(str), more},
		"list to map":      {list(str), toMap(str), breaking(less + "list(string) became map(string)")},
		"elements": {
			list(written{"any", `"dynamic"`}), list(str), breaking(less + "any became string in its elements"),
		},
		"wider elements":     {list(number), list(str), more},
		"map to object":      {toMap(str), object, breaking(less + "map(string) became object")},
		"object to map":      {object, toMap(str), breaking(less + "object became map(string)")},
		"attribute":          {object, optional, more},
		"required attribute": {optional, object, breaking(less + "the attribute a became required")},
		"in a list":          {list(optional), list(object), breaking(less + "the attribute a became required")},
		"attribute's type": {
			object, written{"object({ a = number })", `["object",{"a":"number"}]`},
			breaking(less + "string became number in the attribute a"),
		},
		"new attribute": {
			object, written{"object({ a = string, b = string })", `["object",{"a":"string","b":"string"}]`},
			breaking(less + "the attribute b is required"),
		},
		"new optional attribute": {
			object,
			written{"object({ a = string, b = optional(string) })", `["object",{"a":"string","b":"string"},["b"]]`}, more,
		},
		"attribute is gone": {
			written{"object({ a = string, b = string })", `["object",{"a":"string","b":"string"}]`}, object,
			plans("the attribute b is ignored"),
		},
		"default of an attribute": {
			optional, written{`object({ a = optional(string, "y") })`, optional.constraint},
			plans("the default of the attribute a changed"),
		},
		"default of a nested attribute": {
			list(written{`object({ a = optional(object({ b = optional(number, 1) }), {}) })`, `["object",{}]`}),
			list(written{`object({ a = optional(object({ b = optional(number, 2) }), {}) })`, `["object",{}]`}),
			plans("the default of the attribute a.b changed"),
		},
		"first default": {
			written{`object({ a = optional(string) })`, optional.constraint}, optional,
			plans("the default of the attribute a changed"),
		},
		"white space and comments": {
			before: object,
			after:  written{"object({\n  # the name\n  a = string // of it\n  /* end */\n})", object.constraint},
		},
		"tuples": {
			written{"tuple([string, number])", `["tuple",["string","number"]]`},
			written{"tuple([string, string])", `["tuple",["string","string"]]`}, more,
		},
		"longer tuple": {
			written{"tuple([string])", `["tuple",["string"]]`},
			written{"tuple([string, string])", `["tuple",["string","string"]]`}, breaking(less + "a tuple has another length"),
		},
		"deep types": {
			written{"a", strings.Repeat(`["list",`, 200) + `"string"` + strings.Repeat("]", 200)},
			written{"b", strings.Repeat(`["list",`, 200) + `"string"` + strings.Repeat("]", 200)},
			breaking("the type changed and cannot be compared"),
		},
		"unknown type": {written{"string", ""}, number, breaking("the type changed and cannot be compared")},
		"unknown types": {
			written{"mystery(1)", ""}, written{"mystery(2)", ""}, breaking("the type changed and cannot be compared"),
		},
		"unreadable type":   {str, written{"any", ""}, breaking("the type changed and cannot be compared")},
		"same unknown type": {before: written{"mystery", ""}, after: written{"mystery", ""}},
		"constraint is new": {before: written{"string", ""}, after: str},
		"written differently": {
			written{"mystery(1)", `"string"`}, written{"mystery(2)", `"string"`},
			plans("the type is written differently"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := func(w written) docs.Folder {
				i := docs.Input{Name: "x", Type: w.text, Required: true}
				if w.constraint != "" {
					i.TypeConstraint = json.RawMessage(w.constraint)
				}
				return docs.Folder{Inputs: []docs.Input{i}}
			}
			diff(t, test.want, only(t, compare.Folders(folder(test.before), folder(test.after)).Inputs))
		})
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	plain := []docs.Output{{Name: "x"}}
	for name, test := range map[string]struct {
		before, after []docs.Output
		want          consequence
	}{
		"same": {before: plain, after: plain},
		"new":  {after: plain, want: consequence{compare.Added, "", ""}},
		"gone": {before: plain, want: consequence{compare.Removed, compare.Breaking, "it was removed"}},
		"sensitive": {
			plain, []docs.Output{{Name: "x", Sensitive: true}},
			consequence{compare.Changed, compare.Breaking, "it became sensitive"},
		},
		"ephemeral": {
			plain, []docs.Output{{Name: "x", Ephemeral: true}},
			consequence{compare.Changed, compare.Breaking, "it became ephemeral"},
		},
		"no longer sensitive": {
			[]docs.Output{{Name: "x", Sensitive: true}}, plain,
			consequence{compare.Changed, "", "it is no longer sensitive"},
		},
		"deprecated": {
			plain, []docs.Output{{Name: "x", Deprecated: "use y"}},
			consequence{compare.Changed, "", "it is deprecated"},
		},
		"description": {
			plain, []docs.Output{{Name: "x", Description: "the name"}},
			consequence{compare.Changed, "", "the description changed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := compare.Folders(docs.Folder{Outputs: test.before}, docs.Folder{Outputs: test.after})
			diff(t, test.want, only(t, d.Outputs))
		})
	}
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	needs := func(version string) docs.Folder { return docs.Folder{RequiredVersion: version} }
	uses := func(p docs.ProviderDependency) docs.Folder {
		p.Name = "aws"
		return docs.Folder{ProviderDependencies: []docs.ProviderDependency{p}}
	}
	breaking := func(reason string) consequence { return consequence{compare.Changed, compare.Breaking, reason} }
	for name, test := range map[string]struct {
		before, after docs.Folder
		want          consequence
	}{
		"same":       {before: needs(">= 1.5"), after: needs(">= 1.5")},
		"new client": {docs.Folder{}, needs(">= 1.5"), consequence{compare.Added, compare.Breaking, "needs OpenTofu or Terraform 1.5 or later"}},
		"no client":  {needs(">= 1.5"), docs.Folder{}, consequence{compare.Removed, "", ""}},
		"narrower":   {needs(">= 1.5"), needs(">= 1.6"), breaking("needs OpenTofu or Terraform 1.6 or later")},
		"wider":      {needs(">= 1.5"), needs(">= 1.3"), consequence{compare.Changed, "", "it accepts more versions"}},
		"equal": {
			needs("~> 1.5"), needs(">= 1.5.0, < 2.0.0"),
			consequence{compare.Changed, "", "the constraint is written differently"},
		},
		"new provider": {docs.Folder{}, uses(docs.ProviderDependency{}), consequence{compare.Added, "", "needs the provider aws, any version"}},
		"new provider with a version": {
			docs.Folder{}, uses(docs.ProviderDependency{Version: "~> 5.0"}),
			consequence{compare.Added, compare.Breaking, "needs the provider aws 5.0 or later, older than 6"},
		},
		"source": {
			uses(docs.ProviderDependency{Source: "hashicorp/aws"}), uses(docs.ProviderDependency{Source: "acme/aws"}),
			breaking("the source changed"),
		},
		"alias": {
			uses(docs.ProviderDependency{}), uses(docs.ProviderDependency{Aliases: []string{"aws.east"}}),
			breaking("callers must pass aws.east"),
		},
		"no alias": {
			uses(docs.ProviderDependency{Aliases: []string{"aws.east"}}), uses(docs.ProviderDependency{}),
			breaking("callers can no longer pass aws.east"),
		},
		"provider is gone": {uses(docs.ProviderDependency{}), docs.Folder{}, consequence{compare.Removed, "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			diff(t, test.want, only(t, compare.Folders(test.before, test.after).Requirements))
		})
	}
}

// Both the order of changes and the counts follow from the marks.
func TestOrder(t *testing.T) {
	t.Parallel()
	before := docs.Documentation{
		Root: docs.Folder{
			Inputs:        []docs.Input{{Name: "gone"}, {Name: "plans", Default: "1"}, {Name: "same"}, {Name: "text"}},
			Resources:     []docs.Resource{{Type: "aws_vpc", Name: "old"}, {Type: "aws_vpc", Name: "main"}},
			DataResources: []docs.Resource{{Type: "aws_vpc", Name: "main"}},
		},
		Submodules: []docs.Folder{{Path: "modules/a"}, {Path: "modules/b"}, {Path: "modules/c"}},
	}
	after := docs.Documentation{
		Root: docs.Folder{
			Inputs: []docs.Input{
				{Name: "fresh"}, {Name: "must", Required: true}, {Name: "plans", Default: "2"}, {Name: "same"},
				{Name: "text", Description: "it"},
			},
			Resources:          []docs.Resource{{Type: "aws_vpc", Name: "main"}},
			EphemeralResources: []docs.Resource{{Type: "aws_vpc", Name: "main"}},
		},
		Submodules: []docs.Folder{
			{Path: "modules/b", Inputs: []docs.Input{{Name: "x", Required: true}}}, {Path: "modules/c"}, {Path: "modules/d"},
		},
	}
	got := compare.Modules(before, after)
	change := func(name string, kind compare.Kind, mark compare.Mark, reasons ...string) compare.Change {
		return compare.Change{Name: name, Kind: kind, Mark: mark, Reasons: reasons}
	}
	want := compare.Difference{
		Breaking: 4, ChangedPlans: 1,
		Inputs: compare.Section{Unchanged: 1, Changes: []compare.Change{
			change("must", compare.Added, compare.Breaking, "it is required"),
			change("gone", compare.Removed, compare.Breaking, "it was removed"),
			change("plans", compare.Changed, compare.ChangesPlans, "the default changed"), change("fresh", compare.Added, ""),
			change("text", compare.Changed, "", "the description changed"),
		}},
		Outputs:      compare.Section{Changes: []compare.Change{}},
		Requirements: compare.Section{Changes: []compare.Change{}},
		Resources: compare.Section{Unchanged: 1, Changes: []compare.Change{
			change("ephemeral.aws_vpc.main", compare.Added, ""), change("aws_vpc.old", compare.Removed, ""),
			change("data.aws_vpc.main", compare.Removed, ""),
		}},
		Modules: compare.Section{Changes: []compare.Change{}},
		Submodules: compare.Section{Unchanged: 1, Changes: []compare.Change{
			change("modules/a", compare.Removed, compare.Breaking, "it was removed"),
			change("modules/b", compare.Changed, compare.Breaking, "1 breaking change"), change("modules/d", compare.Added, ""),
		}},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(compare.Change{}, "Fields"),
		cmpopts.IgnoreFields(compare.Difference{}, "Folders"), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestModules(t *testing.T) {
	t.Parallel()
	calls := func(source, version string) docs.Folder {
		return docs.Folder{Dependencies: []docs.Dependency{{Name: "logs", Source: source, Version: version}}}
	}
	for name, test := range map[string]struct {
		before, after docs.Folder
		want          consequence
	}{
		"same":    {before: calls("acme/logs/aws", "1.0"), after: calls("acme/logs/aws", "1.0")},
		"added":   {docs.Folder{}, calls("acme/logs/aws", "1.0"), consequence{compare.Added, "", ""}},
		"removed": {calls("acme/logs/aws", "1.0"), docs.Folder{}, consequence{compare.Removed, "", ""}},
		"source": {
			calls("acme/logs/aws", "1.0"), calls("other/logs/aws", "1.0"),
			consequence{compare.Changed, compare.ChangesPlans, "the source changed"},
		},
		"version": {
			calls("acme/logs/aws", "1.0"), calls("acme/logs/aws", "1.1"),
			consequence{compare.Changed, compare.ChangesPlans, "the version changed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			diff(t, test.want, only(t, compare.Folders(test.before, test.after).Modules))
		})
	}
}

// A change has all of its reasons, and a type has at most five.
func TestReasons(t *testing.T) {
	t.Parallel()
	input := func(text, constraint, value string) docs.Folder {
		return docs.Folder{Inputs: []docs.Input{{
			Name: "x", Type: text, TypeConstraint: json.RawMessage(constraint), Default: value,
		}}}
	}
	before := input(`object({ a = string, b = optional(string, "x"), c = bool })`,
		`["object",{"a":"string","b":"string","c":"bool"},["b"]]`, "1")
	for name, test := range map[string]struct {
		after docs.Folder
		want  []string
	}{
		"several": {
			input(`object({ a = number, b = optional(string, "y"), d = string })`,
				`["object",{"a":"number","b":"string","d":"string"},["b"]]`, "2"),
			[]string{
				"the type accepts less: string became number in the attribute a", "the attribute d is required",
				"the attribute c is ignored", "the default of the attribute b changed", "the default changed",
			},
		},
		"many": {
			input(`object({ d = string, e = string, f = string, g = string, h = string, i = string })`,
				`["object",{"d":"string","e":"string","f":"string","g":"string","h":"string","i":"string"}]`, "1"),
			[]string{
				"the type accepts less: the attribute d is required", "the attribute e is required",
				"the attribute f is required", "the attribute g is required", "the attribute h is required",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := compare.Folders(before, test.after).Inputs.Changes[0].Reasons
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// A change names the changed fields with both values.
func TestFields(t *testing.T) {
	t.Parallel()
	before := docs.Folder{Inputs: []docs.Input{{Name: "x", Type: "string", Required: true}}}
	after := docs.Folder{Inputs: []docs.Input{{Name: "x", Type: "string", Default: "1", Description: "it"}}}
	want := []compare.Field{{Name: "required", Before: "true", After: "false"}, {Name: "description", After: "it"}}
	if d := cmp.Diff(want, compare.Folders(before, after).Inputs.Changes[0].Fields); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A requirement that accepts less states what it needs. If that is all, the
// field need not be shown.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		before, after string
		stated        bool
		want          []string
	}{
		{">= 5.0", ">= 6.28", true, []string{"needs aws 6.28 or later"}},
		{">= 5.95, < 6.0.0", ">= 6.0", true, []string{"needs aws 6.0 or later"}},
		{"~> 5.0", "~> 6.0", true, []string{"needs aws 6.0 or later, older than 7"}},
		{"~> 5.0", "~> 5.31", true, []string{"needs aws 5.31 or later"}},
		{"~> 5.0", "~> 5.31.2", true, []string{"needs aws 5.31.2 or later", "no longer accepts aws 5.32 or later"}},
		{"~> 5", ">= 5.1, < 7", true, []string{"needs aws 5.1 or later, older than 7"}},
		{">= 5.0, < 7.0", ">= 6.0, < 7.0", true, []string{"needs aws 6.0 or later"}},
		{">= 5.0, < 8.0", ">= 5.0, < 7.0", true, []string{"no longer accepts aws 7"}},
		{">= 5.0, < 9.0", ">= 5.0, < 7.0", true, []string{"no longer accepts aws 7 or later"}},
		{">= 5.0", ">= 5.0, < 7.0", true, []string{"no longer accepts aws 7 or later"}},
		{">= 5.0, < 5.31", "~> 5.0, < 5.30", true, []string{"no longer accepts aws 5.30"}},
		{">= 5.0", ">= 5.0, <= 5.9.0", true, []string{"no longer accepts aws 5.9.1 or later"}},
		{">= 5.0", "~> 6.0", true, []string{"needs aws 6.0 or later", "no longer accepts aws 7 or later"}},
		{">= 5.0", ">= 5.0, != 5.3.1", true, []string{"no longer accepts aws 5.3.1"}},
		{">= 5.0, != 5.3.1", ">= 5.0, != 5.3.1, != 5.4.0", true, []string{"no longer accepts aws 5.4.0"}},
		{">= 5.0", ">= 6.0, < 7.0, != 6.2.0", true, []string{
			"needs aws 6.0 or later", "no longer accepts aws 7 or later", "no longer accepts aws 6.2.0",
		}},
		{"~> 5.0", "~> 6.0, != 6.1.0", true, []string{"needs aws 6.0 or later, older than 7, but not 6.1.0"}},
		{">= 5.0", ">= 5.0, != 5.0.0", true, []string{"needs aws 5.0.1 or later"}},
		{">= 5.0", "> 5.2", true, []string{"needs aws 5.2.1 or later"}},
		{">= 5.0", "5.31.0", true, []string{"needs aws exactly 5.31.0"}},
		{"5.31.0", "= 5.32.0", true, []string{"needs aws exactly 5.32.0"}},
		{"", "~> 5.0", true, []string{"needs aws 5.0 or later", "no longer accepts aws 6 or later"}},
		{">= 3.0, >= 5.0, < 9", ">= 4.0, >= 6.0, < 9", true, []string{"needs aws 6.0 or later"}},
		{">= v5.0.0", ">= v6.0.0", true, []string{"needs aws 6.0.0 or later"}},
		// These accept other versions besides, which both constraints show.
		{">= 5.0, < 8.0", ">= 4.0, < 7.0", false, []string{"no longer accepts aws 7"}},
		{"~> 6.0", "~> 5.0", false, []string{"no longer accepts aws 6"}},
		{">= 5.0, != 5.3.1", ">= 5.1", false, []string{"needs aws 5.1 or later"}},
		// These cannot be compared.
		{">= 5.0", ">= 6.0.0-beta1", false, []string{"it accepts other versions"}},
		{">= 6.0.0-beta1", ">= 6.0.0", false, []string{"it accepts other versions"}},
		{">= 5.0", "about 6", false, []string{"it accepts other versions"}},
		{">= 5.0", ">= 6.0, < 5.0", false, []string{"it accepts other versions"}},
		// These accept as much or more.
		{">= 5.0", ">= 4.0", false, []string{"it accepts more versions"}},
		{"~> 5.0", "", false, []string{"it accepts more versions"}},
		{"~> 5.1", ">= 5.1.0, < 6", false, []string{"the constraint is written differently"}},
	} {
		t.Run(test.before+" to "+test.after, func(t *testing.T) {
			t.Parallel()
			folder := func(version string) docs.Folder {
				return docs.Folder{ProviderDependencies: []docs.ProviderDependency{{Name: "aws", Version: version}}}
			}
			got := compare.Folders(folder(test.before), folder(test.after)).Requirements.Changes[0]
			if d := cmp.Diff(test.want, got.Reasons); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if got.Fields[0].Stated != test.stated {
				t.Errorf("the reasons state the field: %t", got.Fields[0].Stated)
			}
		})
	}
}

// A new requirement has no earlier one to compare with.
func TestNewRequirements(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"":                "needs the provider hashicorp/random, any version",
		">= 0":            "needs the provider hashicorp/random, any version",
		">= 3.1":          "needs the provider hashicorp/random 3.1 or later",
		"~> 3.1":          "needs the provider hashicorp/random 3.1 or later, older than 4",
		"< 4":             "needs the provider hashicorp/random older than 4",
		"!= 3.0.1":        "needs the provider hashicorp/random, but not 3.0.1",
		"3.1.0":           "needs the provider hashicorp/random exactly 3.1.0",
		">= 3.1.0-beta.1": `needs the provider hashicorp/random: ">= 3.1.0-beta.1"`,
	} {
		after := docs.Folder{ProviderDependencies: []docs.ProviderDependency{
			{Name: "random", Source: "hashicorp/random", Version: version},
		}}
		if d := cmp.Diff([]string{want}, compare.Folders(docs.Folder{}, after).Requirements.Changes[0].Reasons); d != "" {
			t.Errorf("%q (-want +got):\n%s", version, d)
		}
	}
}

// A requirement that changed in a submodule like in the root is only a change
// of the root.
func TestSameRequirements(t *testing.T) {
	t.Parallel()
	module := func(version, other string, inputs ...docs.Input) docs.Documentation {
		return docs.Documentation{Root: docs.Folder{RequiredVersion: version}, Submodules: []docs.Folder{
			{Path: "modules/a", RequiredVersion: version}, {Path: "modules/b", RequiredVersion: version, Inputs: inputs},
			{Path: "modules/c", RequiredVersion: other},
		}}
	}
	got := compare.Modules(module(">= 1.3", ">= 1.4"), module(">= 1.5", ">= 1.5", docs.Input{Name: "x", Required: true}))
	want := []compare.Change{
		{Name: "modules/b", Kind: compare.Changed, Mark: compare.Breaking, Reasons: []string{
			"1 breaking change", "requirements changed like those of the root",
		}},
		{Name: "modules/c", Kind: compare.Changed, Mark: compare.Breaking, Reasons: []string{"1 breaking change"}},
		{Name: "modules/a", Kind: compare.Changed, Reasons: []string{"requirements changed like those of the root"}},
	}
	if d := cmp.Diff(want, got.Submodules.Changes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got.Breaking != 3 {
		t.Errorf("%d breaking changes, want 3", got.Breaking)
	}
	for path, want := range map[string]int{"modules/a": 0, "modules/b": 0, "modules/c": 1} {
		if n := len(got.Folders[path].Requirements.Changes); n != want {
			t.Errorf("%s has %d changed requirements, want %d", path, n, want)
		}
	}
}

// An attribute with another type has another default, which is not a second
// fact.
func TestStatedOnce(t *testing.T) {
	t.Parallel()
	input := func(text, constraint string) docs.Folder {
		return docs.Folder{Inputs: []docs.Input{{Name: "x", Type: text, TypeConstraint: json.RawMessage(constraint), Required: true}}}
	}
	for name, test := range map[string]struct {
		before, after docs.Folder
		stated        bool
		want          []string
	}{
		"attribute": {
			input(`object({ a = optional(string, "x") })`, `["object",{"a":"string"},["a"]]`),
			input(`object({ a = optional(number, 1) })`, `["object",{"a":"number"},["a"]]`),
			false, []string{"the type accepts less: string became number in the attribute a"},
		},
		"type": {
			input("list(string)", `["list","string"]`), input("string", `"string"`),
			true, []string{"the type accepts less: list(string) became string"},
		},
		"type with attributes": {
			input("any", `"dynamic"`), input("object({ a = string })", `["object",{"a":"string"}]`),
			false, []string{"the type accepts less: any became object"},
		},
	} {
		got := compare.Folders(test.before, test.after).Inputs.Changes[0]
		if d := cmp.Diff(test.want, got.Reasons); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if got.Fields[0].Stated != test.stated {
			t.Errorf("%s: the reasons state the type: %t", name, got.Fields[0].Stated)
		}
	}
}
