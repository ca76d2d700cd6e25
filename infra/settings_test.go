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

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/jsonfile"
)

// What is wrong in a file is found with its line and column.
func TestSettingsFile(t *testing.T) {
	t.Parallel()
	const issuer = `{"access": {"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"],
  "rules": [{"claims": {"group": "a"}, "scopes": ["read:**"]}]}]}}`
	for name, test := range map[string]struct{ text, want string }{
		"nothing": {"", "settings.json:1:1: the file is empty"},
		"half a file": {"{\n  \"memory\": 512,\n",
			"settings.json:3:1: the file ends before the { of line 1, column 1 is closed"},
		"a comma too many": {"{\n  \"memory\": 512,\n}\n", "settings.json:3:1: invalid JSON: there is a comma before this }"},
		"a comment":        {"{\n  // memory\n}", "settings.json:2:3: invalid JSON: invalid character '/'"},
		"something behind": {"{}\n{}", "settings.json:2:1: invalid JSON: there is more after the end of its value"},
		"garbage behind": {"{\"memory\": 512} x",
			"settings.json:1:17: invalid JSON: there is more after the end of its value"},
		"a list": {" []", "settings.json:1:2: the file is not one JSON object"},
		"a key misspelt": {"{\n  \"alarms\": true,\n  \"alarmMail\": \"a@example.com\"\n}",
			`settings.json:3:3: unknown setting "alarmMail" (did you mean "alarmEmail"?)`},
		"a key of another": {`{"region": "eu-central-1"}`,
			`settings.json:1:2: unknown setting "region" (there are $schema, access, accessLog,`},
		"a key in capitals": {`{"Memory": 512}`,
			`settings.json:1:2: unknown setting "Memory" (did you mean "memory"?)`},
		"a key twice": {"{\"memory\": 512,\n\"memory\": 256}", "settings.json:2:1: memory is there twice"},
		"a text": {`{"memory": "512"}`,
			`settings.json:1:12: memory: "512" is not a whole number from 128 to 10240`},
		"a fraction": {`{"memory": 512.5}`,
			"settings.json:1:12: memory: 512.5 is not a whole number from 128 to 10240"},
		"too small":       {`{"memory": 1}`, "settings.json:1:12: memory: 1 is not a whole number from 128 to 10240"},
		"a number":        {`{"alarms": 1}`, "settings.json:1:12: alarms: 1 is not true or false"},
		"null":            {`{"alarms": null}`, "settings.json:1:12: alarms: null is not true or false"},
		"a name for text": {`{"stackName": ["larder"]}`, `settings.json:1:15: stackName: ["larder"] is not a string`},
		"text for access": {`{"access": "{}"}`, `settings.json:1:12: access: "{}" is not an object`},
		"a key in access": {strings.Replace(issuer, "audiences", "audience", 1),
			`settings.json:1:61: access.issuers[0]: unknown field "audience" (did you mean "audiences"?)`},
		"a key in a rule": {strings.Replace(issuer, "scopes", "scope", 1),
			`settings.json:2:40: access.issuers[0].rules[0]: unknown field "scope" (did you mean "scopes"?)`},
		"a list of claims": {strings.Replace(issuer, `{"group": "a"}`, `["a"]`, 1),
			`settings.json:2:24: access.issuers[0].rules[0].claims: ["a"] is not an object`},
		"a claim twice": {strings.Replace(issuer, `"a"}`, `"a", "group": "b"}`, 1),
			`settings.json:2:39: access.issuers[0].rules[0].claims.group is there twice`},
		"a scope": {strings.Replace(issuer, "read:**", "write:**", 1),
			`settings.json:2:51: access.issuers[0].rules[0].scopes[0]: invalid scope "write:**"`},
		"no rules":         {strings.Replace(issuer, `"read:**"`, "", 1), `settings.json:2:50: access: issuer "https://a.example.com": rule 1: `},
		"the first of two": {"{\"memory\": 1,\n\"alarms\": 1}", "settings.json:1:12: memory"},
		"two that disagree": {"{\n\"alarms\": true,\n\"metrics\": false}",
			"settings.json:3:12: metrics: alarms and the dashboard need"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := parseFile("settings.json", []byte(test.text))
			if err == nil {
				_, err = parseSettings(file, "")
			}
			if err == nil || !strings.HasPrefix(err.Error(), "cannot read the settings: "+test.want) {
				t.Fatalf("%v, want %s", err, test.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("it is not one line: %v", err)
			}
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

// FuzzSettings holds that no file ends the program.
func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"memory": 512, "access": {"public": ["modules/**"]}}`))
	f.Add([]byte(`{"cognito": {"domainPrefix": "a", "rules": [{"claims": {"a": "b"}, "scopes": ["read:**"]}]}}`))
	f.Add([]byte("{\"a\": [\n{}, [], 1e9, null, \"\\u0000\"]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := parseFile("settings.json", text)
		if err != nil {
			return
		}
		if _, err := parseSettings(file, ""); err != nil && !strings.HasPrefix(err.Error(),
			"cannot read the settings: settings.json:") {
			t.Error(err)
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

// The schema is that of the settings that there are.
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
	const schema = "settings.schema.json"
	if *update {
		if err := os.WriteFile(schema, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(schema)
	if diff := cmp.Diff(string(want), got.String()); diff != "" || err != nil {
		t.Errorf("write it anew with -update: %v\n%s", err, diff)
	}
}

// The page about deploying names each setting.
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
	for _, s := range defaultSettings().keys() {
		if s.key != "$schema" && !slices.Contains(documented, s.key) {
			t.Errorf("no row of a table has %s", s.key)
		}
	}
}

// A stack is named only by a file that has stackName.
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
			t.Errorf("%s: %s, named: %v", text, got.StackName, got.NamesStack)
		}
	}
}
