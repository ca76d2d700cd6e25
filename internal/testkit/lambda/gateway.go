package lambda

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
)

// Gateway is an API Gateway HTTP API. It is an HTTPS server that converts
// requests to events of format 2.0, and sends them to functions. Its routes are
// such as ANY /v1/modules/{namespace}/{name}/{system}/versions, or $default.
type Gateway struct {
	// Host is an address with a port.
	Host string

	server   *httptest.Server
	routes   map[string]Target
	throttle *Throttle

	mu       sync.Mutex
	requests []string
	failures []error
	asked    map[string]bool
}

// Target handles the events of a route. It is a [Function] or a [Pool].
type Target interface {
	Invoke(ctx context.Context, event any) ([]byte, error)
}

// StartGateway starts a gateway with functions by route key. The caller closes
// it.
func StartGateway(routes map[string]Target) *Gateway { return StartThrottledGateway(routes, nil) }

// StartThrottledGateway is like [StartGateway] with a throttle.
func StartThrottledGateway(routes map[string]Target, throttle *Throttle) *Gateway {
	g := &Gateway{routes: routes, throttle: throttle, asked: make(map[string]bool)}
	g.server = httptest.NewTLSServer(g)
	g.Host = g.server.Listener.Addr().String()
	return g
}

// Close stops the gateway, but not its functions.
func (g *Gateway) Close() { g.server.Close() }

// WriteCA writes the gateway's certificate to a file.
func (g *Gateway) WriteCA(path string) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw}),
		0o600)
}

// Failures returns the errors of functions, each of which caused a 5xx
// response.
func (g *Gateway) Failures() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.failures)
}

// Unasked returns the routes that no request has used.
func (g *Gateway) Unasked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var unasked []string
	for key := range g.routes {
		if !g.asked[key] {
			unasked = append(unasked, key)
		}
	}
	slices.Sort(unasked)
	return unasked
}

// Requests returns the methods and the route keys of all requests, in their order.
func (g *Gateway) Requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.requests)
}

// Client returns an HTTP client that trusts the gateway.
func (g *Gateway) Client() *http.Client { return g.server.Client() }

// ServeHTTP sends one request to a function.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	routeKey, function := g.route(r)
	g.mu.Lock()
	g.asked[routeKey] = true
	g.requests = append(g.requests, r.Method+" "+routeKey)
	g.mu.Unlock()
	switch {
	case function == nil:
		refuse(w, http.StatusNotFound)
		return
	case g.throttle != nil && !g.throttle.Take(routeKey):
		refuse(w, http.StatusTooManyRequests)
		return
	}
	event, err := Event(r, routeKey)
	switch {
	case errors.Is(err, errTooLarge):
		refuse(w, http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		refuse(w, http.StatusBadRequest)
		return
	}
	payload, err := function.Invoke(r.Context(), event)
	var response events.APIGatewayV2HTTPResponse
	if err == nil {
		err = json.Unmarshal(payload, &response)
	}
	body := []byte(response.Body)
	if err == nil && response.IsBase64Encoded {
		body, err = base64.StdEncoding.DecodeString(response.Body)
	}
	if err != nil {
		g.mu.Lock()
		g.failures = append(g.failures, err)
		g.mu.Unlock()
		if errors.Is(err, errGoesOn) || errors.Is(err, errConcurrency) {
			refuse(w, http.StatusServiceUnavailable)
			return
		}
		refuse(w, http.StatusInternalServerError)
		return
	}
	for name, value := range response.Headers {
		w.Header().Set(name, value)
	}
	for _, cookie := range response.Cookies {
		w.Header().Add("Set-Cookie", cookie)
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(body)
}

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": http.StatusText(status)})
}

func (g *Gateway) route(r *http.Request) (key string, f Target) {
	key = Route(slices.Sorted(maps.Keys(g.routes)), r.Method, r.URL.Path)
	return key, g.routes[key]
}

// Route returns the key of the route that API Gateway chooses for a request: the
// most specific one that matches its decoded path. A full match is chosen before a
// tree, and $default if no other matches.
//
// Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-routes.html.
func Route(keys []string, method, path string) string {
	best, chosen := -1, "$default"
	for _, key := range keys {
		want, pattern, _ := strings.Cut(key, " ")
		if want != "ANY" && want != method {
			continue
		}
		literal, ok := matches(pattern, path)
		if !strings.HasSuffix(pattern, "+}") {
			literal += len(path) // more than any tree can have
		}
		if ok && literal > best {
			best, chosen = literal, key
		}
	}
	return chosen
}

func matches(pattern, path string) (literal int, ok bool) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, part := range want {
		switch {
		case strings.HasSuffix(part, "+}"):
			return literal, i < len(got) && got[i] != ""
		case i >= len(got):
			return 0, false
		case strings.HasPrefix(part, "{"):
			if got[i] == "" {
				return 0, false
			}
		case part != got[i]:
			return 0, false
		default:
			literal++
		}
	}
	return literal, len(want) == len(got)
}

// maxBody is the maximum size of a request's body, in bytes.
const maxBody = 10 << 20

var errTooLarge = errors.New("the body is too large")

// isText reports whether API Gateway passes bodies of a type unchanged. It
// encodes others in base64, including forms and bodies without a type. AWS does
// not document the types; authors of emulators have observed them.
//
// Sources: https://github.com/ministackorg/ministack/pull/766; https://github.com/floci-io/floci/pull/2203.
func isText(contentType string) bool {
	name, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	if charset, given := params["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	return strings.HasPrefix(name, "text/") || name == "application/json" || name == "application/xml" ||
		name == "application/javascript"
}

// Event returns API Gateway's event for a request. The path is decoded. Header
// names are in lower case, and repeated headers are joined by commas. Cookies
// are a list of their own, and no header. The body is text or base64, depending
// on its type.
//
// Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html.
func Event(r *http.Request, routeKey string) (events.APIGatewayV2HTTPRequest, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return events.APIGatewayV2HTTPRequest{}, err
	}
	if len(body) > maxBody {
		return events.APIGatewayV2HTTPRequest{}, errTooLarge
	}
	headers := map[string]string{"host": r.Host}
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	var cookies []string
	for _, header := range r.Header.Values("Cookie") {
		cookies = append(cookies, strings.Split(header, "; ")...)
	}
	delete(headers, "cookie")
	ip, _, _ := strings.Cut(r.RemoteAddr, ":")
	now := time.Now()
	event := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: routeKey, RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery, Headers: headers,
		Cookies: cookies,
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: routeKey, AccountID: "000000000000", Stage: "$default", RequestID: "rehearsal", APIID: "rehearsal",
			DomainName: r.Host, Time: now.Format("02/Jan/2006:15:04:05 -0700"), TimeEpoch: now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method: r.Method, Path: r.URL.Path, Protocol: r.Proto, SourceIP: ip, UserAgent: r.UserAgent(),
			},
		},
	}
	switch {
	case isText(headers["content-type"]):
		event.Body = string(body)
	case len(body) > 0:
		event.Body, event.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return event, nil
}
