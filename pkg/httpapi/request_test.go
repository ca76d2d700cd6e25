package httpapi_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// wish is the value that these tests read.
type wish struct {
	Name  string  `json:"name"`
	Sizes []int64 `json:"sizes"`
	Word  word    `json:"word"`
}

// word is a value with a custom encoding.
type word string

func (w *word) UnmarshalText(text []byte) error {
	if *w = word(text); strings.Contains(string(text), "!") {
		return fmt.Errorf("%w word %q", registry.ErrInvalid, text)
	}
	return nil
}

// post sends a body to an endpoint that reads it, and returns the status and
// the response.
func post(t testing.TB, body io.Reader, length int64, contentType ...string) (status int, answer string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", body)
	r.ContentLength = length
	r.Header["Content-Type"] = contentType
	w := httptest.NewRecorder()
	httpapi.Mux(httpapi.Endpoint{Route: httpapi.Route{
		Method: http.MethodPost, Path: "/x",
	}, Serve: func(w http.ResponseWriter, r *http.Request) error {
		var got wish
		if err := httpapi.ReadJSON(r, 100, &got); err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%v", err)
			}
			if len(err.Error()) > 500 {
				t.Errorf("%d bytes for the log", len(err.Error()))
			}
			return err
		}
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, got)
		return nil
	}}).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// ReadJSON accepts valid bodies, and returns a text about any other.
func TestReadJSON(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const good = `{"name":"a","sizes":[1,2],"word":"b"}`
	for name, test := range map[string]struct {
		body   string
		status int
	}{
		"good":                          {good, 200},
		"spaces around it":              {" " + good + " \r\n", 200},
		"no fields":                     {"{}", 200},
		"the maximum length":            {good + strings.Repeat(" ", 100-len(good)), 200},
		"a byte too long":               {good + strings.Repeat(" ", 101-len(good)), 400},
		"far too long":                  {strings.Repeat("[", 1<<20), 400},
		"empty":                         {"", 400},
		"blank":                         {" ", 400},
		"incomplete":                    {good[:20], 400},
		"another value":                 {good + "{}", 400},
		"text after it":                 {good + "x", 400},
		"text after null":               {"null x", 400},
		"single quotes":                 {"{'name'}", 400},
		"a form":                        {"name=a", 400},
		"a byte order mark":             {"\xef\xbb\xbf{}", 400},
		"invalid UTF-8":                 {"{\"name\":\"\xff\"}", 400},
		"compressed":                    {"\x1f\x8b", 400},
		"an unknown field":              {`{"nam":"a"}`, 400},
		"a number for a text":           {`{"name":1}`, 400},
		"a text in a list":              {`{"sizes":["a"]}`, 400},
		"a fraction":                    {`{"sizes":[1.5]}`, 400},
		"a large number":                {`{"sizes":[1e99]}`, 400},
		"a list":                        {`[1]`, 400},
		"a text":                        {`"a"`, 400},
		"a value with its own encoding": {`{"word":"b!"}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, length := range []int64{int64(len(test.body)), -1} { // known and unknown
				status, answer := post(t, strings.NewReader(test.body), length, "application/json")
				if status != test.status {
					t.Errorf("status %d, want %d", status, test.status)
				}
				for _, never := range []string{"wish", "int64"} {
					if strings.Contains(answer, never) {
						t.Errorf("%s has %q in it", answer, never)
					}
				}
				if status != http.StatusOK {
					texts.Text(t, answer)
				}
			}
		})
	}
	contentTypes := make(map[string]string)
	for contentType, want := range map[string]int{
		"application/json": 200, "Application/JSON": 200, "application/json; charset=utf-8": 200,
		`application/json;charset="UTF-8"`: 200,
		"":                                 400, "text/plain": 400, "application/x-www-form-urlencoded": 400,
		"application/jsonp":                400,
		"application/json; charset=utf-16": 400, "application/json,application/json": 400, "*/*": 400,
		"application/json; charset": 400,
	} {
		status, answer := post(t, strings.NewReader(good), -1, contentType)
		if status != want {
			t.Errorf("%q: status %d, want %d: %s", contentType, status, want, answer)
		}
		if status == http.StatusBadRequest {
			contentTypes[contentType] = answer
		}
	}
	for _, contentType := range slices.Sorted(maps.Keys(contentTypes)) {
		texts.Text(t, fmt.Sprintf("Content-Type %q: %s", contentType, contentTypes[contentType]))
	}
	if status, _ := post(t, strings.NewReader(good), -1); status != 200 {
		t.Errorf("no Content-Type: status %d, want 200", status)
	}
	if status, _ := post(t, strings.NewReader(good), -1, "application/json", "text/plain"); status != 400 {
		t.Errorf("two Content-Types: status %d, want 400", status)
	}
	status, answer := post(t, iotest.ErrReader(errors.New(secret)), -1)
	if status != 400 {
		t.Errorf("an unreadable body: status %d, want 400", status)
	}
	if strings.Contains(answer, "bucket.example") {
		t.Errorf("an unreadable body: the response has the cause: %s", answer)
	}
	texts.Text(t, "an unreadable body: "+answer)
	status, answer = post(t, iotest.ErrReader(errors.New("it was read")), 101)
	if status != 400 {
		t.Errorf("a long body: status %d, want 400", status)
	}
	texts.Text(t, "a long body: "+answer)
}

// ReadJSON reads at most the limit of an endless body.
func TestReadJSONIsBounded(t *testing.T) {
	t.Parallel()
	endless := &endless{}
	if status, _ := post(t, endless, -1); status != 400 || endless.read > 1<<10 {
		t.Errorf("%d, %d bytes read", status, endless.read)
	}
}

type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return copy(b, strings.Repeat(" ", len(b))), nil
}

func FuzzReadJSON(f *testing.F) {
	f.Add([]byte(`{"name":"a","sizes":[1,2],"word":"b"}`), "application/json")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		if status, answer := post(t, strings.NewReader(string(body)), int64(len(body)), contentType); status != 200 &&
			status != 400 {
			t.Errorf("%d %s", status, answer)
		}
	})
}
