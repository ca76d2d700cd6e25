package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/files/jsonfile"
)

// An error in a file has its line and column.
func TestSettingsFile(t *testing.T) {
	t.Parallel()
	const issuer = `{"access": {"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"],
  "rules": [{"claims": {"group": "a"}, "scopes": ["read:**"]}]}]}}`
	texts := golden.New(t)
	for name, test := range map[string]struct{ text, position string }{
		"nothing":           {"", "1:1"},
		"half a file":       {"{\n  \"memory\": 512,\n", "3:1"},
		"a comma too many":  {"{\n  \"memory\": 512,\n}\n", "3:1"},
		"a comment":         {"{\n  // memory\n}", "2:3"},
		"something behind":  {"{}\n{}", "2:1"},
		"garbage behind":    {"{\"memory\": 512} x", "1:17"},
		"a list":            {" []", "1:2"},
		"a key misspelt":    {"{\n  \"alarms\": true,\n  \"alarmMail\": \"a@example.com\"\n}", "3:3"},
		"a key of another":  {`{"region": "eu-central-1"}`, "1:2"},
		"a key in capitals": {`{"Memory": 512}`, "1:2"},
		"a key twice":       {"{\"memory\": 512,\n\"memory\": 256}", "2:1"},
		"a text":            {`{"memory": "512"}`, "1:12"},
		"a fraction":        {`{"memory": 512.5}`, "1:12"},
		"too small":         {`{"memory": 1}`, "1:12"},
		"a number":          {`{"alarms": 1}`, "1:12"},
		"null":              {`{"alarms": null}`, "1:12"},
		"a name for text":   {`{"stackName": ["larder"]}`, "1:15"},
		"text for access":   {`{"access": "{}"}`, "1:12"},
		"a key in access":   {strings.Replace(issuer, "audiences", "audience", 1), "1:61"},
		"a key in a rule":   {strings.Replace(issuer, "scopes", "scope", 1), "2:40"},
		"a list of claims":  {strings.Replace(issuer, `{"group": "a"}`, `["a"]`, 1), "2:24"},
		"a claim twice":     {strings.Replace(issuer, `"a"}`, `"a", "group": "b"}`, 1), "2:39"},
		"a scope":           {strings.Replace(issuer, "read:**", "write:**", 1), "2:51"},
		"no rules":          {strings.Replace(issuer, `"read:**"`, "", 1), "2:50"},
		"the first of two":  {"{\"memory\": 1,\n\"alarms\": 1}", "1:12"},
		"a copy of nothing": {`{"tableName": "abc", "readOnly": true}`, "1:34"},
		"two that disagree": {"{\n\"alarms\": true,\n\"metrics\": false}", "3:12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := parseFile("settings.json", []byte(test.text))
			if err == nil {
				_, err = parseSettings(file, "")
			}
			if err == nil || !strings.Contains(err.Error(), " settings.json:"+test.position+": ") {
				t.Fatalf("error is %v, want one at %s", err, test.position)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error has several lines: %v", err)
			}
			texts.Error(t, err)
		})
	}
	for _, good := range []string{"{}", issuer, `{"$schema": "./settings.schema.json", "memory": 512}`} {
		file, err := parseFile("settings.json", []byte(good))
		if err == nil {
			_, err = parseSettings(file, "")
		}
		if err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

// FuzzSettings checks that no file causes a panic.
func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"memory": 512, "access": {"public": ["modules/**"]}}`))
	f.Add([]byte(`{"cognito": {"domainPrefix": "a", "rules": [{"claims": {"a": "b"}, "scopes": ["read:**"]}]}}`))
	f.Add([]byte("{\"a\": [\n{}, [], 1e9, null, \"\\u0000\"]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := parseFile("settings.json", text)
		if err != nil {
			return
		}
		if _, err := parseSettings(file, ""); err != nil && !strings.Contains(err.Error(), " settings.json:") {
			t.Errorf("error without a position: %v", err)
		}
	})
}

// schemaOf returns the JSON schema of a Go type.
func schemaOf(t *testing.T, of reflect.Type) map[string]any {
	t.Helper()
	if reflect.PointerTo(of).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return map[string]any{"type": "string"}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return schemaOf(t, of.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t, of.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t, of.Elem())}
	case reflect.Struct:
		properties, required := make(map[string]any), []string{}
		for i := range of.NumField() {
			name, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			properties[name] = schemaOf(t, of.Field(i).Type)
			if options == "" {
				required = append(required, name)
			}
		}
		schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			schema["required"] = required
		}
		return schema
	}
	t.Fatalf("%s has no schema", of)
	return nil
}

// at returns the object at a path of a schema.
func at(t *testing.T, schema any, path ...string) map[string]any {
	t.Helper()
	object, ok := schema.(map[string]any)
	for _, name := range path {
		if !ok {
			break
		}
		object, ok = object[name].(map[string]any)
	}
	if !ok {
		t.Fatalf("the schema has no object at %q", path)
	}
	return object
}

// settings.schema.json describes the settings.
// Windows adds a byte order mark.
func TestSettingsFileEncodings(t *testing.T) {
	t.Parallel()
	if _, err := parseFile("settings.json", []byte("\ufeff{}")); err != nil {
		t.Error(err)
	}
	_, err := parseFile("settings.json", []byte("{\xe9}"))
	if err == nil || err.Error() != "cannot read settings.json: line 1 is not UTF-8" {
		t.Errorf("another encoding: %v", err)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	properties := make(map[string]any)
	for _, s := range defaultSettings().keys() {
		into := reflect.ValueOf(s.into).Elem()
		property := schemaOf(t, into.Type())
		property["description"] = s.about
		if s.pattern != nil {
			property["pattern"] = s.pattern.String()
		}
		if s.high > 0 {
			property["minimum"], property["maximum"] = s.low, s.high
		}
		if s.oneOf != nil {
			property["enum"] = s.oneOf
		}
		switch into.Kind() {
		case reflect.Bool, reflect.Int, reflect.String:
			if !into.IsZero() || into.Kind() == reflect.Bool {
				property["default"] = into.Interface()
			}
		}
		properties[s.key] = property
	}
	// Only a registry on one machine can read a file.
	web := at(t, properties["access"], "properties", "login", "properties", "web", "properties")
	delete(web, "secretFile")
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Settings of a Larder stack",
		"type":       "object",
		"properties": properties, "additionalProperties": false,
	}); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "settings.schema.json", got.Bytes())
}

// docs/deploy-aws.md has a table row for each setting.
func TestSettingsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/deploy-aws.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for row := range strings.Lines(string(page)) {
		if cells := strings.Split(row, "|"); len(cells) > 3 {
			for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				documented = append(documented, key[1])
			}
		}
	}
	options := company()
	for _, s := range defaultSettings().keys() {
		if s.key != "$schema" && !slices.Contains(documented, s.key) {
			t.Errorf("docs/deploy-aws.md has no row for %s", s.key)
		}
		usual := reflect.ValueOf(s.into).Elem().IsZero() && s.key != "cognito" && s.key != "alarms" && s.key != "dashboard"
		if _, ok := options[s.key]; ok && usual && !regexp.MustCompile(`costs? (nothing|\$)`).MatchString(s.about) &&
			s.key != "certificateArn" && s.key != "hostedZoneName" {
			t.Errorf("the description of %s has no price: %s", s.key, s.about)
		}
	}
}

// NamesStack is true only if the file has stackName.
func TestNamesStack(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": false, `{"memory": 512}`: false, `{"stackName": "larder"}`: true} {
		var file *jsonfile.File
		if text != "" {
			var err error
			if file, err = parseFile("settings.json", []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := parseSettings(file, "")
		if err != nil {
			t.Fatal(err)
		}
		if got.NamesStack != want || got.StackName != "larder" {
			t.Errorf("%s: %s, NamesStack %v", text, got.StackName, got.NamesStack)
		}
	}
}
