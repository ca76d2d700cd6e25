package compare_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/compare"
)

// inputs returns a folder with inputs of one type and default. A name can have
// a description after a colon.
func inputs(names ...string) (f docs.Folder) {
	for _, name := range names {
		name, description, _ := strings.Cut(name, ":")
		f.Inputs = append(f.Inputs, docs.Input{
			Name: name, Description: description, Type: "string", TypeConstraint: json.RawMessage(`"string"`), Default: "null",
		})
	}
	return f
}

// pairs returns the renamed entries of a section, such as "a to b".
func pairs(s compare.Section) (all []string) {
	for _, c := range s.Changes {
		if c.Kind == compare.PerhapsRenamed {
			all = append(all, c.Name+" to "+c.NewName)
		}
	}
	return all
}

// The names are those of well-known modules.
func TestRenamedNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		removed, added []string
		want           []string
	}{
		"prefix":         {[]string{"cluster_name"}, []string{"name"}, []string{"cluster_name to name"}},
		"suffix":         {[]string{"user_data_base64"}, []string{"user_data"}, []string{"user_data_base64 to user_data"}},
		"middle":         {[]string{"create_cluster_tags"}, []string{"create_tags"}, []string{"create_cluster_tags to create_tags"}},
		"order of words": {[]string{"cluster_create_group"}, []string{"create_cluster_group"}, []string{"cluster_create_group to create_cluster_group"}},
		"longer":         {[]string{"launch_template"}, []string{"launch_template_id"}, []string{"launch_template to launch_template_id"}},
		"any tags":       {[]string{"tags"}, []string{"irsa_tags"}, nil},
		"same tags":      {[]string{"tags:of it"}, []string{"irsa_tags:of it"}, []string{"tags to irsa_tags"}},
		"too many words": {[]string{"primary_cluster_name"}, []string{"name"}, nil},
		"plural":         {[]string{"create_record"}, []string{"create_records"}, []string{"create_record to create_records"}},
		"swapped":        {[]string{"destination_sevrer"}, []string{"destination_server"}, []string{"destination_sevrer to destination_server"}},
		"typing error":   {[]string{"argo_destionation"}, []string{"argo_destination"}, []string{"argo_destionation to argo_destination"}},
		"underscores":    {[]string{"use_nameprefix"}, []string{"use_name_prefix"}, []string{"use_nameprefix to use_name_prefix"}},
		"camel case":     {[]string{"stop_timeout"}, []string{"stopTimeout"}, []string{"stop_timeout to stopTimeout"}},
		"other word":     {[]string{"cluster_version"}, []string{"kubernetes_version"}, nil},
		"same description": {
			[]string{"cluster_version:The version."}, []string{"kubernetes_version:The version."},
			[]string{"cluster_version to kubernetes_version"},
		},
		"only the description": {[]string{"a:The version."}, []string{"b:The version."}, nil},
		"least and most":       {[]string{"min_size"}, []string{"max_size"}, nil},
		"opposite words":       {[]string{"min_size:The size."}, []string{"max_size:The size."}, nil},
		"opposite rules":       {[]string{"node_egress_rules:Rules."}, []string{"ingress_rules:Rules."}, nil},
		"the same word twice":  {[]string{"max_size_min:It."}, []string{"size_min:It."}, []string{"max_size_min to size_min"}},
		"numbers":              {[]string{"service_ipv4"}, []string{"service_ipv6"}, nil},
		"short words":          {[]string{"allow_in"}, []string{"allow_on"}, nil},
		"several": {
			[]string{"cluster_security_group_name", "cluster_name"}, []string{"name", "security_group_name"},
			[]string{"cluster_name to name", "cluster_security_group_name to security_group_name"},
		},
		"ambiguous old names": {[]string{"private_subnets", "public_subnets"}, []string{"subnets"}, nil},
		"ambiguous new names": {[]string{"load_balancer"}, []string{"load_balancer_a", "load_balancer_b"}, nil},
		"decided by the description": {
			[]string{"load_balancer:it"}, []string{"load_balancer_a:it", "load_balancer_b"}, []string{"load_balancer to load_balancer_a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := compare.Folders(inputs(test.removed...), inputs(test.added...))
			if diff := cmp.Diff(test.want, pairs(d.Inputs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d.Breaking != len(test.removed) {
				t.Errorf("%d breaking changes, want %d", d.Breaking, len(test.removed))
			}
			if rows := len(test.removed) + len(test.added) - len(test.want); len(d.Inputs.Changes) != rows {
				t.Errorf("%d changes, want %d", len(d.Inputs.Changes), rows)
			}
		})
	}
}

// Inputs with another type or default are other inputs.
func TestRenamedInputs(t *testing.T) {
	t.Parallel()
	before := docs.Input{Name: "cluster_name", Type: "string", TypeConstraint: json.RawMessage(`"string"`), Default: "null"}
	for name, test := range map[string]struct {
		edit func(before, after *docs.Input)
		want bool
	}{
		"same":        {func(_, _ *docs.Input) {}, true},
		"type":        {func(_, after *docs.Input) { after.Type, after.TypeConstraint = "number", json.RawMessage(`"number"`) }, false},
		"white space": {func(_, after *docs.Input) { after.Type = " string # it" }, true},
		"default":     {func(_, after *docs.Input) { after.Default = `""` }, false},
		"required":    {func(_, after *docs.Input) { after.Default, after.Required = "", true }, false},
		"both required": {func(before, after *docs.Input) {
			before.Default, before.Required, after.Default, after.Required = "", true, "", true
		}, true},
		"sensitive": {func(_, after *docs.Input) { after.Sensitive = true }, false},
		"default that is not stored": {func(before, after *docs.Input) {
			before.Default, before.Sensitive, after.Default, after.Sensitive = "", true, "", true
		}, false},
	} {
		was, is := before, before
		is.Name = "name"
		test.edit(&was, &is)
		d := compare.Folders(docs.Folder{Inputs: []docs.Input{was}}, docs.Folder{Inputs: []docs.Input{is}})
		if got := len(pairs(d.Inputs)) == 1; got != test.want {
			t.Errorf("%s: it is a pair: %t, want %t", name, got, test.want)
		}
	}
}

// A renamed entry has its other changes too.
func TestRenamedAndChanged(t *testing.T) {
	t.Parallel()
	before, after := inputs("cluster_name:old"), inputs("name:new")
	after.Inputs[0].Validations = []string{"no"}
	want := []compare.Change{{
		Name: "cluster_name", Kind: compare.PerhapsRenamed, NewName: "name", Mark: compare.Breaking,
		Reasons: []string{"perhaps renamed to name", "it has 1 more validation", "the description changed"},
		Fields:  []compare.Field{{Name: "validations", After: "no"}, {Name: "description", Before: "old", After: "new"}},
	}}
	if diff := cmp.Diff(want, compare.Folders(before, after).Inputs.Changes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRenamedOutputsAndResources(t *testing.T) {
	t.Parallel()
	before := docs.Folder{
		Outputs:   []docs.Output{{Name: "this_arn"}, {Name: "role_id"}, {Name: "db_password"}},
		Resources: []docs.Resource{{Type: "aws_vpc", Name: "main_vpc"}, {Type: "aws_eip", Name: "nat_ips"}},
	}
	after := docs.Folder{
		Outputs:   []docs.Output{{Name: "arn"}, {Name: "node_role_id"}, {Name: "password", Sensitive: true}},
		Resources: []docs.Resource{{Type: "aws_vpc", Name: "vpc"}, {Type: "aws_nat_gateway", Name: "nat"}},
	}
	d := compare.Folders(before, after)
	if diff := cmp.Diff([]string{"this_arn to arn"}, pairs(d.Outputs)); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"aws_vpc.main_vpc to aws_vpc.vpc"}, pairs(d.Resources)); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	for _, c := range d.Resources.Changes {
		if c.Mark != "" {
			t.Errorf("the resource %s has the mark %s", c.Name, c.Mark)
		}
	}
}

// A comparison with very many candidates lists them without pairs.
func TestTooManyRenamed(t *testing.T) {
	t.Parallel()
	var removed, added []string
	for i := range 400 {
		removed, added = append(removed, fmt.Sprintf("old_name%d", i)), append(added, fmt.Sprintf("name%d", i))
	}
	for n, want := range map[int]int{300: 300, 400: 0} {
		if got := len(pairs(compare.Folders(inputs(removed[:n]...), inputs(added[:n]...)).Inputs)); got != want {
			t.Errorf("%d pairs of %d inputs, want %d", got, n, want)
		}
	}
}
