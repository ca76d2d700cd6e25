package extract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
)

// shown is the output of tofu show -module. It has all fields that OpenTofu
// prints for the modules of this test. Decoding fails on any other field, so
// that none is overlooked.
type shown struct {
	ProviderConfig map[string]struct {
		Name              string `json:"name"`
		FullName          string `json:"full_name"`
		Alias             string `json:"alias"`
		VersionConstraint string `json:"version_constraint"`
	} `json:"provider_config"`
	RootModule struct {
		Variables map[string]struct {
			Type        json.RawMessage `json:"type"`
			Default     json.RawMessage `json:"default"`
			Description string          `json:"description"`
			Required    bool            `json:"required"`
			Sensitive   bool            `json:"sensitive"`
			Ephemeral   bool            `json:"ephemeral"`
			Deprecated  string          `json:"deprecated"`
		} `json:"variables"`
		Outputs map[string]struct {
			Description string   `json:"description"`
			Sensitive   bool     `json:"sensitive"`
			Ephemeral   bool     `json:"ephemeral"`
			Deprecated  string   `json:"deprecated"`
			DependsOn   []string `json:"depends_on"`
		} `json:"outputs"`
		Resources []struct {
			Address           string          `json:"address"`
			Mode              string          `json:"mode"`
			Type              string          `json:"type"`
			Name              string          `json:"name"`
			ProviderConfigKey string          `json:"provider_config_key"`
			Provisioners      json.RawMessage `json:"provisioners"`
			DependsOn         []string        `json:"depends_on"`
		} `json:"resources"`
		ModuleCalls map[string]struct {
			Source            string   `json:"source"`
			VersionConstraint string   `json:"version_constraint"`
			DependsOn         []string `json:"depends_on"`
		} `json:"module_calls"`
	} `json:"root_module"`
}

// Differences between the output of OpenTofu and documentation:
//
//	tofu show                              documentation
//	version_constraint                     as written, without ".0" and in the written order
//	provider_config, one for each alias    one for each local name, with the constraint of all
//	provider_config.TYPE                   missing: OpenTofu adds it if the local name differs
//	provider_config.KEY.full_name          without a default host, as written
//	provider_config.KEY.alias              only configuration_aliases, which callers pass
//	variables.NAME.default, sensitive      never stored
//	variables.NAME.default, large numbers  all digits; OpenTofu rounds them
//	variables.NAME.sensitive               true if any block of the variable makes it so
//	resources.provider_config_key          missing: the providers are listed once
//	resources.address                      made of the type and the name
//	resources.provisioners, depends_on     missing: they do not describe an interface
//	outputs, module_calls: depends_on      missing for the same reason

// show writes a module to a folder, and returns what OpenTofu shows of it.
func show(t *testing.T, tofu string, files map[string]string) shown {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), tofu, "show", "-json", "-module="+dir)
	cmd.Env = []string{"HOME=" + dir, "CHECKPOINT_DISABLE=1"}
	cmd.Dir = dir
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v:\n%s%s", err, out, failure.Bytes())
	}
	var got shown
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return got
}

// TestAgainstOpenTofu compares the documentation of modules with what OpenTofu
// shows of them.
func TestAgainstOpenTofu(t *testing.T) {
	t.Parallel()
	program := clients.OpenTofu(t).Path
	for _, test := range modules {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := show(t, program, test.files)
			d := extracted(t, test.files)
			if len(d.Notes) > 0 {
				t.Errorf("got notes %q", d.Notes)
			}
			compareInputs(t, want, d.Root)
			compareOutputs(t, want, d.Root)
			compareResources(t, want, d.Root)
			compareDependencies(t, want, d.Root)
			compareProviders(t, want, d.Root)
		})
	}
}

// anyPlace ignores places, which OpenTofu does not show.
var anyPlace = cmpopts.IgnoreTypes(docs.Place{})

// extracted returns the documentation of files, which can be decoded after it
// was encoded.
func extracted(t testing.TB, files map[string]string) docs.Documentation {
	t.Helper()
	content := make(map[string][]byte)
	for name, text := range files {
		content[name] = []byte(text)
	}
	return extractedBytes(t, content)
}

func extractedBytes(t testing.TB, files map[string][]byte) docs.Documentation {
	t.Helper()
	d, err := extract.Extract(context.Background(), "vpc", files, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := docs.Encode(d); err != nil {
		t.Error(err)
	}
	return d
}

func compareInputs(t *testing.T, want shown, got docs.Folder) {
	t.Helper()
	var names []string
	for _, in := range got.Inputs {
		names = append(names, in.Name)
		v, found := want.RootModule.Variables[in.Name]
		if !found {
			t.Errorf("OpenTofu does not show variable %s", in.Name)
			continue
		}
		if in.Sensitive {
			v.Default = nil
		}
		if v.Type == nil { // OpenTofu does not show the type any
			v.Type = json.RawMessage(`"dynamic"`)
		}
		if want, got := value(t, v.Type), value(t, in.TypeConstraint); !cmp.Equal(want, got) {
			t.Errorf("%s: type (-tofu +documentation):\n%s", in.Name, cmp.Diff(want, got))
		}
		if want, got := value(t, v.Default), value(t, []byte(in.Default)); !cmp.Equal(want, got) {
			t.Errorf("%s: default (-tofu +documentation):\n%s", in.Name, cmp.Diff(want, got))
		}
		expected := docs.Input{
			Name: in.Name, Description: v.Description, Required: v.Required, Sensitive: v.Sensitive,
			Ephemeral: v.Ephemeral, Deprecated: v.Deprecated,
			// OpenTofu does not show these fields.
			Type: in.Type, TypeHTML: in.TypeHTML, DefaultHTML: in.DefaultHTML, NotNull: in.NotNull,
			Validations: in.Validations,
			// These fields are compared above.
			TypeConstraint: in.TypeConstraint, Default: in.Default,
		}
		if diff := cmp.Diff(expected, in, anyPlace); diff != "" {
			t.Errorf("%s (-tofu +documentation):\n%s", in.Name, diff)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want.RootModule.Variables)), names); diff != "" {
		t.Errorf("names of inputs (-tofu +documentation):\n%s", diff)
	}
}

// value decodes JSON. OpenTofu rounds numbers, so both sides are rounded.
func value(t *testing.T, text []byte) any {
	t.Helper()
	if len(text) == 0 {
		return "missing"
	}
	var decoded any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&decoded); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return rounded(decoded)
}

func rounded(decoded any) any {
	switch v := decoded.(type) {
	case json.Number:
		number, _, err := big.ParseFloat(string(v), 10, 512, big.ToNearestEven)
		if err != nil {
			return err
		}
		near, _ := number.Float64()
		return near
	case []any:
		for i := range v {
			v[i] = rounded(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = rounded(v[name])
		}
	}
	return decoded
}

func compareOutputs(t *testing.T, want shown, got docs.Folder) {
	t.Helper()
	expected := []docs.Output{}
	for _, name := range slices.Sorted(maps.Keys(want.RootModule.Outputs)) {
		o := want.RootModule.Outputs[name]
		expected = append(expected, docs.Output{
			Name: name, Description: o.Description, Sensitive: o.Sensitive, Ephemeral: o.Ephemeral, Deprecated: o.Deprecated,
		})
	}
	if diff := cmp.Diff(expected, got.Outputs, anyPlace); diff != "" {
		t.Errorf("outputs (-tofu +documentation):\n%s", diff)
	}
}

func compareResources(t *testing.T, want shown, got docs.Folder) {
	t.Helper()
	var expected, found []string
	for _, r := range want.RootModule.Resources {
		expected = append(expected, r.Mode+" "+r.Type+" "+r.Name)
	}
	for mode, resources := range map[string][]docs.Resource{
		"managed": got.Resources, "data": got.DataResources, "ephemeral": got.EphemeralResources,
	} {
		for _, r := range resources {
			found = append(found, mode+" "+r.Type+" "+r.Name)
		}
	}
	slices.Sort(expected)
	slices.Sort(found)
	if diff := cmp.Diff(expected, found); diff != "" {
		t.Errorf("resources (-tofu +documentation):\n%s", diff)
	}
}

func compareDependencies(t *testing.T, want shown, got docs.Folder) {
	t.Helper()
	expected := []docs.Dependency{}
	for _, name := range slices.Sorted(maps.Keys(want.RootModule.ModuleCalls)) {
		m := want.RootModule.ModuleCalls[name]
		expected = append(expected, docs.Dependency{Name: name, Source: m.Source, Version: m.VersionConstraint})
	}
	if diff := cmp.Diff(expected, got.Dependencies, anyPlace); diff != "" {
		t.Errorf("module calls (-tofu +documentation):\n%s", diff)
	}
}

// provider is what both sides have of a provider. constraints are sorted, with
// the zeros that OpenTofu adds.
type provider struct {
	FullName    string
	Constraints []string
}

func compareProviders(t *testing.T, want shown, got docs.Folder) {
	t.Helper()
	expected, found := make(map[string]provider), make(map[string]provider)
	for _, p := range want.ProviderConfig {
		merged := expected[p.Name]
		merged.FullName = p.FullName
		merged.Constraints = normalized(append(merged.Constraints, p.VersionConstraint)...)
		expected[p.Name] = merged
	}
	for _, p := range got.ProviderDependencies {
		name := strings.ToLower(p.Source)
		if strings.Count(name, "/") == 1 {
			name = "registry.opentofu.org/" + name
		}
		found[p.Name] = provider{FullName: name, Constraints: normalized(p.Version)}
	}
	for name, p := range expected {
		_, isLocal := found[name]
		isOther := func(other provider) bool { return other.FullName == p.FullName }
		if !isLocal && slices.ContainsFunc(slices.Collect(maps.Values(found)), isOther) {
			delete(expected, name)
		}
	}
	if diff := cmp.Diff(expected, found); diff != "" {
		t.Errorf("providers (-tofu +documentation):\n%s", diff)
	}
}

// normalized returns the distinct parts of version constraints in OpenTofu's
// form, sorted.
func normalized(constraints ...string) (all []string) {
	for _, constraint := range constraints {
		for part := range strings.SplitSeq(constraint, ",") {
			part = strings.TrimLeft(strings.ReplaceAll(part, " ", ""), "=")
			if part == "" {
				continue
			}
			for !strings.HasPrefix(part, "~>") && strings.Count(part, ".") < 2 {
				part += ".0"
			}
			all = append(all, part)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
