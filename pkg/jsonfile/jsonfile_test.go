package jsonfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/jsonfile"
	"github.com/larder-registry/larder/pkg/registry/core"
)

// word reads a text of letters.
type word string

func (w *word) UnmarshalText(text []byte) error {
	if strings.ContainsAny(string(text), "0123456789") {
		return errors.New("it has digits")
	}
	*w = word(text)
	return nil
}

type pantry struct {
	Name    string            `json:"name"`
	Shelves []shelf           `json:"shelves,omitempty"`
	Labels  map[string]string `json:"labels"`
	Spare   *shelf            `json:"spare"`
	Open    bool              `json:"open"`
}

type shelf struct {
	Jars  int      `json:"jars"`
	Kinds []word   `json:"kinds"`
	Notes [][]bool `json:"notes"`
}

func read(name, text string) (pantry, error) {
	var p pantry
	file, err := jsonfile.Parse(name, []byte(text))
	if err != nil {
		return p, err
	}
	if fault := file.Object.Fill("", &p); fault != nil {
		return p, file.Error(*fault)
	}
	return p, nil
}

func TestFill(t *testing.T) {
	t.Parallel()
	got, err := read("pantry.json", `{
  "name": "cellar", "open": true, "labels": {"a": "b", "": "c"}, "spare": {"jars": -2},
  "shelves": [{"jars": 3, "kinds": ["fig", "pl\u0075m"]}, {"notes": [[true], []]}, {}]
}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := pantry{
		Name: "cellar", Open: true, Labels: map[string]string{"a": "b", "": "c"}, Spare: &shelf{Jars: -2},
		Shelves: []shelf{{Jars: 3, Kinds: []word{"fig", "plum"}}, {Notes: [][]bool{{true}, nil}}, {}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Each error names the line and the column of the mistake, in plain words.
func TestErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"nothing":              {" \n", "2:1: the file is empty"},
		"no object":            {"\n 1", "2:2: the file is not one JSON object"},
		"two objects":          {"{}\n{}", "2:1: invalid JSON: there is more after the end of its value"},
		"no end":               {"{\n\"shelves\": [{},\n", "3:1: the file ends before the [ of line 2, column 12 is closed"},
		"no end of a text":     {"{\"name\": \"cell", "1:15: the file ends before the { of line 1, column 1 is closed"},
		"half a text":          {"\"cell", "1:6: the file ends within a value"},
		"comma in an object":   {"{\"open\": true,\n }", "2:2: invalid JSON: there is a comma before this }"},
		"comma in a list":      {`{"shelves": [{}, ]}`, "1:18: invalid JSON: there is a comma before this ]"},
		"a comment":            {"{\n// x\n}", "2:1: invalid JSON: invalid character '/'"},
		"another field":        {`{"rooms": 1}`, `1:2: unknown field "rooms" (there are labels, name, open, shelves, spare)`},
		"in capitals":          {`{"Name": "x"}`, `1:2: unknown field "Name" (did you mean "name"?)`},
		"a field of a field":   {`{"spare": {"jar": 1}}`, `1:12: spare: unknown field "jar" (did you mean "jars"?)`},
		"twice":                {"{\"name\": \"a\",\n  \"name\": \"b\"}", "2:3: name is there twice"},
		"twice in a map":       {`{"labels": {"a": "b", "a": "b"}}`, "1:23: labels.a is there twice"},
		"a key with an escape": {`{"labels": {"\u001b[31m": 1}}`, `1:27: labels."\x1b[31m": 1 is not a string`},
		"an escape twice":      {`{"labels": {"\u001b": "", "\u001b": ""}}`, `1:27: labels."\x1b" is there twice`},
		"a long key":           {`{"labels": {"` + strings.Repeat("x", 64<<10) + `": 1}}`, `1:65553: labels."` + strings.Repeat("x", 100) + `": 1 is not a string`},
		"a value that turns":   {"{\"name\": [\"\u202e\"]}", `1:10: name: ["\u202e"] is not a string`},
		"no text":              {`{"name": 1}`, `1:10: name: 1 is not a string`},
		"no list":              {`{"shelves": {}}`, `1:13: shelves: {} is not a list of objects`},
		"no list of words":     {`{"spare": {"kinds": "fig"}}`, `1:21: spare.kinds: "fig" is not a list of strings, such as ["one", "two"]`},
		"no list of lists":     {`{"spare": {"notes": 1}}`, `1:21: spare.notes: 1 is not a list of lists of true or false`},
		"no number":            {`{"spare": {"jars": 1.5}}`, `1:20: spare.jars: 1.5 is not a whole number`},
		"no object in a map":   {`{"labels": ["a"]}`, `1:12: labels: ["a"] is not an object`},
		"null":                 {`{"spare": null}`, `1:11: spare: null is not an object`},
		"neither":              {`{"open": 0}`, `1:10: open: 0 is not true or false`},
		"a word":               {`{"shelves": [{}, {"kinds": ["a", "a1"]}]}`, `1:34: shelves[1].kinds[1]: it has digits`},
		"a long value":         {`{"open": "` + strings.Repeat("x", 100) + `"}`, `1:10: open: this value is not true or false`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read("pantry.json", test.text)
			if !errors.Is(err, core.ErrInvalid) {
				t.Fatalf("%v is not core.ErrInvalid", err)
			}
			if want := "pantry.json:" + test.want; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
	_, err := read("", "{\n\"name\": 1}")
	if err == nil || err.Error() != "line 2, column 9: name: 1 is not a string" {
		t.Errorf("without a file: %v", err)
	}
}

// A path leads to a value, or as near to it as there is something.
func TestFind(t *testing.T) {
	t.Parallel()
	file, err := jsonfile.Parse("", []byte(`{"a": [{"b": 1}, {"b": 2}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string][]any{
		"2":                           {"a", 1, "b"},
		`{"b": 2}`:                    {"a", 1, "c"},
		`[{"b": 1}, {"b": 2}]`:        {"a", 2, "b"},
		`{"a": [{"b": 1}, {"b": 2}]}`: {"x", 1},
	} {
		if got := file.Object.Find(path...); string(got.Raw) != want {
			t.Errorf("%v: %s, want %s", path, got.Raw, want)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add("{\"shelves\": [{\"jars\": 3, \"kinds\": [\"fig\"]}],\n\"labels\": {\"a\": \"b\"}}")
	f.Add("{\"spare\": [\n{}, [], 1e9, null, \"\\u0000\"]")
	f.Add(`{"name": 1,]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := read("a", text); err != nil && (!strings.HasPrefix(err.Error(), "a:") || !errors.Is(err, core.ErrInvalid)) {
			t.Error(err)
		}
	})
}
