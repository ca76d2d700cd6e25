package lambda

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
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

// Gateway is an API Gateway HTTP API: an HTTPS server that turns requests into events of format 2.0, as AWS does, and
// hands them to functions by routes such as ANY /v1/modules/{namespace}/{name}/{system}/versions, or $default.
type Gateway struct {
	// Host is an address and a port.
	Host string

	server *httptest.Server
	routes map[string]*Function

	mu       sync.Mutex
	failures []error
	stray    []string
	asked    map[string]bool
}

// StartGateway starts a gateway with functions by their route keys.
func StartGateway(routes map[string]*Function) *Gateway {
	g := &Gateway{routes: routes, asked: make(map[string]bool)}
	g.server = httptest.NewTLSServer(g)
	g.Host = g.server.Listener.Addr().String()
	return g
}

// Close ends the gateway, but not its functions.
func (g *Gateway) Close() { g.server.Close() }

// WriteCA writes the certificate that clients must trust to a file.
func (g *Gateway) WriteCA(path string) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw}), 0o600)
}

// Failures are why functions have not answered, each of which was a 5xx.
func (g *Gateway) Failures() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.failures)
}

// Stray are the requests for which there was no route, and which went to $default.
func (g *Gateway) Stray() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.stray)
}

// Unasked are the routes that no request has taken.
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

// Client trusts the gateway.
func (g *Gateway) Client() *http.Client { return g.server.Client() }

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	routeKey, function := g.route(r)
	g.mu.Lock()
	g.asked[routeKey] = true
	if routeKey == "$default" {
		g.stray = append(g.stray, r.Method+" "+r.URL.Path)
	}
	g.mu.Unlock()
	if function == nil {
		refuse(w, http.StatusNotFound)
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
		if errors.Is(err, errGoesOn) {
			refuse(w, http.StatusServiceUnavailable)
			return
		}
		refuse(w, http.StatusInternalServerError)
		return
	}
	for name, value := range response.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(body)
}

// refuse answers in place of a function.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": http.StatusText(status)})
}

// route finds the most specific route: the one with the most literal parts.
func (g *Gateway) route(r *http.Request) (key string, f *Function) {
	best := -1
	for candidate, function := range g.routes {
		method, path, _ := strings.Cut(candidate, " ")
		if method != "ANY" && method != r.Method {
			continue
		}
		if literal, ok := matches(path, r.URL.Path); ok && literal > best {
			best, key, f = literal, candidate, function
		}
	}
	if f == nil {
		return "$default", g.routes["$default"]
	}
	return key, f
}

func matches(pattern, path string) (literal int, ok bool) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, part := range want {
		switch {
		case strings.HasSuffix(part, "+}") && i < len(got):
			return literal, true
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

// maxBody bounds the body of a request, in bytes.
const maxBody = 10 << 20

var errTooLarge = errors.New("the body is too large")

// isText says whether API Gateway hands over a body of a type as it is. Others are in base64, forms and what has no type
// among them. AWS does not say which are which; these were seen by the authors of its emulators.
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
	return strings.HasPrefix(name, "text/") || name == "application/json" || name == "application/xml" || name == "application/javascript"
}

// Event is what API Gateway makes of a request: its path is decoded, its headers are in lower case, those that come more
// than once are joined by commas, and its body is text or, where it is of another type, in base64.
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
	ip, _, _ := strings.Cut(r.RemoteAddr, ":")
	now := time.Now()
	event := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: routeKey, RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery, Headers: headers,
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
