package lambda

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
)

// A function receives the body as sent, as text or in base64, depending on its
// type.
func TestEvent(t *testing.T) {
	t.Parallel()
	const text = "{\"name\":\"\u00e4\"}\n"
	for contentType, asText := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "Application/JSON;charset=UTF-8": true,
		"application/xml": true, "application/javascript": true, "text/plain": true, "text/html": true,
		"": false, "application/octet-stream": false, "application/x-www-form-urlencoded": false,
		"text/plain; charset=iso-8859-1": false, "application/vnd.api+json": false, "nonsense": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/publish", strings.NewReader(text))
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		e, err := Event(r, "$default")
		if err != nil {
			t.Fatal(err)
		}
		// Lambda sends the event as JSON.
		payload, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var got events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(payload, &got); err != nil {
			t.Fatal(err)
		}
		want := text
		if !asText {
			want = base64.StdEncoding.EncodeToString([]byte(text))
		}
		if got.Body != want || got.IsBase64Encoded == asText || got.Headers["content-type"] != contentType ||
			got.RequestContext.HTTP.Method != http.MethodPost {
			t.Errorf("%q: %+v", contentType, got)
		}
	}
}

// Cookies are a list, and no header.
func TestEventCookies(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header["Cookie"] = []string{"a=1; b=2", "c=3"}
	e, err := Event(r, "$default")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(e.Cookies, ","); got != "a=1,b=2,c=3" {
		t.Errorf("cookies %s", got)
	}
	if header, found := e.Headers["cookie"]; found {
		t.Errorf("the header %q", header)
	}
}

// A body is either passed completely or rejected.
func TestEventBounds(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]error{0: nil, maxBody: nil, maxBody + 1: errTooLarge} {
		e, err := Event(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/",
			strings.NewReader(strings.Repeat("a", length))), "$default")
		if !errors.Is(err, want) || err == nil &&
			(base64.StdEncoding.DecodedLen(len(e.Body))-length > 2 || e.IsBase64Encoded != (length > 0)) {
			t.Errorf("%d bytes: %v, %d of them", length, err, len(e.Body))
		}
	}
	g := &Gateway{routes: map[string]Target{"POST /": &Function{}}, asked: make(map[string]bool)}
	w := httptest.NewRecorder()
	if g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/",
		strings.NewReader(strings.Repeat("a", maxBody+1)))); w.Code != http.StatusRequestEntityTooLarge {
		t.Error(w.Code)
	}
}

// If a function exceeds the gateway's timeout, the response is 503. If it
// exceeds its own timeout, the response is 500.
func TestGatewayGivesUp(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]string{FunctionTimeout: `500 {"message":"Internal Server Error"}`,
		15 * time.Minute: `503 {"message":"Service Unavailable"}`} {
		synctest.Test(t, func(t *testing.T) {
			f := &Function{name: "slow", timeout: timeout, events: make(chan invocation), ended: make(chan struct{}),
				waiting: make(map[string]chan result)}
			go func() { <-f.events }()
			g := &Gateway{routes: map[string]Target{"POST /": f}, asked: make(map[string]bool)}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
			if got := fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String())); got != want ||
				w.Header().Get("Content-Type") != "application/json" || len(g.Failures()) != 1 {
				t.Errorf("%s, %v, not %s", got, w.Header(), want)
			}
		})
	}
}
