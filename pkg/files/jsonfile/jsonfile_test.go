package jsonfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/files/jsonfile"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// word is a text of letters.
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

// Each error has the line and the column of the mistake.
func TestErrors(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	long := strings.Repeat("x", 64<<10)
	for name, test := range map[string]struct {
		text         string
		line, column int
		path         string // the value that the error names
	}{
		"nothing":               {" \n", 2, 1, ""},
		"no object":             {"\n 1", 2, 2, ""},
		"two objects":           {"{}\n{}", 2, 1, ""},
		"no end":                {"{\n\"shelves\": [{},\n", 3, 1, ""},
		"no end of a string":    {"{\"name\": \"cell", 1, 15, ""},
		"half a string":         {"\"cell", 1, 6, ""},
		"comma in an object":    {"{\"open\": true,\n }", 2, 2, ""},
		"comma in a list":       {`{"shelves": [{}, ]}`, 1, 18, ""},
		"a comment":             {"{\n// x\n}", 2, 1, ""},
		"unknown field":         {`{"rooms": 1}`, 1, 2, `"rooms"`},
		"in capitals":           {`{"Name": "x"}`, 1, 2, `"Name"`},
		"a field of a field":    {`{"spare": {"jar": 1}}`, 1, 12, `spare: unknown field "jar"`},
		"twice":                 {"{\"name\": \"a\",\n  \"name\": \"b\"}", 2, 3, "name"},
		"twice in a map":        {`{"labels": {"a": "b", "a": "b"}}`, 1, 23, "labels.a"},
		"a key with an escape":  {`{"labels": {"\u001b[31m": 1}}`, 1, 27, `labels."\x1b[31m"`},
		"an escape twice":       {`{"labels": {"\u001b": "", "\u001b": ""}}`, 1, 27, `labels."\x1b"`},
		"a long key":            {`{"labels": {"` + long + `": 1}}`, 1, 65553, `labels."` + long[:100] + `": `},
		"a right-to-left value": {"{\"name\": [\"\u202e\"]}", 1, 10, `name: ["\u202e"]`},
		"no string":             {`{"name": 1}`, 1, 10, "name"},
		"no list":               {`{"shelves": {}}`, 1, 13, "shelves"},
		"no list of words":      {`{"spare": {"kinds": "fig"}}`, 1, 21, "spare.kinds"},
		"no list of lists":      {`{"spare": {"notes": 1}}`, 1, 21, "spare.notes"},
		"no number":             {`{"spare": {"jars": 1.5}}`, 1, 20, "spare.jars"},
		"no object in a map":    {`{"labels": ["a"]}`, 1, 12, "labels"},
		"null":                  {`{"spare": null}`, 1, 11, "spare"},
		"not a boolean":         {`{"open": 0}`, 1, 10, "open"},
		"a word":                {`{"shelves": [{}, {"kinds": ["a", "a1"]}]}`, 1, 34, "shelves[1].kinds[1]: it has digits"},
		"a long value":          {`{"open": "` + long[:100] + `"}`, 1, 10, "open"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read("pantry.json", test.text)
			if !errors.Is(err, errs.ErrInvalid) {
				t.Fatalf("%v is not errs.ErrInvalid", err)
			}
			if want := fmt.Sprintf("pantry.json:%d:%d: ", test.line, test.column); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want the place %s", err, want)
			}
			if !strings.Contains(err.Error(), test.path) {
				t.Errorf("%v, want an error with %s", err, test.path)
			}
			if len(err.Error()) > 300 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			texts.Error(t, err)
		})
	}
	t.Run("without a file", func(t *testing.T) {
		_, err := read("", "{\n\"name\": 1}")
		want := &jsonfile.Error{Line: 2, Column: 9}
		got, ok := errors.AsType[*jsonfile.Error](err)
		if !ok {
			t.Fatalf("%v is not a jsonfile.Error", err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(jsonfile.Error{}, "Text")); diff != "" {
			t.Errorf("the place (-want +got):\n%s", diff)
		}
		texts.Error(t, err)
	})
}

// Find returns the value at a path, or the nearest existing value above it.
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
		_, err := read("a", text)
		if err == nil {
			return
		}
		if !strings.HasPrefix(err.Error(), "a:") {
			t.Errorf("%v, want an error with the name a", err)
		}
		if !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%v is not errs.ErrInvalid", err)
		}
	})
}
