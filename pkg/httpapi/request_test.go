package httpapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// wish is what these tests read.
type wish struct {
	Name  string  `json:"name"`
	Sizes []int64 `json:"sizes"`
	Word  word    `json:"word"`
}

// word is a value with a form of its own.
type word string

func (w *word) UnmarshalText(text []byte) error {
	if *w = word(text); strings.Contains(string(text), "!") {
		return fmt.Errorf("%w word %q", registry.ErrInvalid, text)
	}
	return nil
}

// post sends a body to an endpoint that reads it, and returns the status and what is answered.
func post(t testing.TB, body io.Reader, length int64, contentType ...string) (status int, answer string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", body)
	r.ContentLength = length
	r.Header["Content-Type"] = contentType
	w := httptest.NewRecorder()
	httpapi.Mux(httpapi.Endpoint{Route: httpapi.Route{Method: http.MethodPost, Path: "/x"}, Serve: func(w http.ResponseWriter, r *http.Request) error {
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

// A body is what an endpoint reads, or its sender is told what is wrong with it.
func TestReadJSON(t *testing.T) {
	t.Parallel()
	const good = `{"name":"a","sizes":[1,2],"word":"b"}`
	for body, want := range map[string]string{
		good: "", " " + good + " \r\n": "", "{}": "", good + strings.Repeat(" ", 100-len(good)): "",
		good + strings.Repeat(" ", 101-len(good)): "the body has more than 100 bytes", strings.Repeat("[", 1<<20): "the body has more than 100 bytes",
		"": "there is no body", " ": "there is no body", good[:20]: "ends within", good + "{}": "something behind", good + "x": "something behind", "{'name'}": "invalid JSON at byte 2", "name=a": "invalid JSON at byte",
		"\xef\xbb\xbf{}": "invalid JSON at byte", "{\"name\":\"\xff\"}": "not in UTF-8", "\x1f\x8b": "not in UTF-8", "null x": "something behind",
		`{"nam":"a"}`: `unknown: \"nam\"`, `{"name":1}`: `field \"name\" of the body cannot be a JSON number`, `{"sizes":["a"]}`: `field \"sizes\" of the body cannot be a JSON string`, `{"sizes":[1.5]}`: "number 1.5", `{"sizes":[1e99]}`: "number 1e99", `[1]`: "the body cannot be a JSON array", `"a"`: "cannot be a JSON string",
		`{"word":"b!"}`: "a value in the body is not what belongs there",
	} {
		for _, length := range []int64{int64(len(body)), -1} { // known and unknown
			status, answer := post(t, strings.NewReader(body), length, "application/json")
			if want == "" && status != 200 || want != "" && (status != 400 || !strings.Contains(answer, want)) || strings.Contains(answer, "wish") || strings.Contains(answer, "int64") {
				t.Errorf("%.60q: %d %s", body, status, answer)
			}
		}
	}
	for contentType, want := range map[string]int{
		"application/json": 200, "Application/JSON": 200, "application/json; charset=utf-8": 200, `application/json;charset="UTF-8"`: 200,
		"": 400, "text/plain": 400, "application/x-www-form-urlencoded": 400, "application/jsonp": 400, "application/json; charset=utf-16": 400, "application/json,application/json": 400, "*/*": 400, "application/json; charset": 400,
	} {
		if status, answer := post(t, strings.NewReader(good), -1, contentType); status != want || status == 400 && !strings.Contains(answer, "must be application/json") {
			t.Errorf("%q: %d %s", contentType, status, answer)
		}
	}
	if status, _ := post(t, strings.NewReader(good), -1); status != 200 {
		t.Errorf("no type: %d", status)
	}
	if status, _ := post(t, strings.NewReader(good), -1, "application/json", "text/plain"); status != 400 {
		t.Errorf("two types: %d", status)
	}
	if status, answer := post(t, iotest.ErrReader(errors.New(secret)), -1); status != 400 || !strings.Contains(answer, "cannot be read") || strings.Contains(answer, "bucket.example") {
		t.Errorf("a body that cannot be read: %d %s", status, answer)
	}
	if status, _ := post(t, iotest.ErrReader(errors.New("it was read")), 101); status != 400 {
		t.Errorf("%d", status)
	}
}

// Of a body without an end no more is read than may be.
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
		if status, answer := post(t, strings.NewReader(string(body)), int64(len(body)), contentType); status != 200 && status != 400 {
			t.Errorf("%d %s", status, answer)
		}
	})
}
