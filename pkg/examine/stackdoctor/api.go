package stackdoctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// api compares the throttle and the routes of the API with the stack's
// template.
func (e *examination) api(ctx context.Context) {
	if e.template == nil {
		return
	}
	logical, _ := e.template.one("AWS::ApiGatewayV2::Api")
	path := "/v2/apis/" + e.template.names[logical]
	e.throttle(ctx, path)
	e.routes(ctx, path)
}

// apiFailed adds the step for a call that failed. Without the API nothing works.
func (e *examination) apiFailed(c call, err error) {
	if code(err) == "NotFoundException" {
		e.wrong(c.step, c.String(), "it does not exist: "+c.resource, revert)
		return
	}
	e.failed(c, err)
}

// limits are the limits of a throttle. In the template they have upper case
// names, which [json.Unmarshal] accepts.
type limits struct {
	ThrottlingRateLimit  float64
	ThrottlingBurstLimit int
}

func (l limits) String() string {
	if l == (limits{}) {
		return "none"
	}
	return fmt.Sprintf("%g requests a second and %d at once", l.ThrottlingRateLimit, l.ThrottlingBurstLimit)
}

// stage has the throttle of a stage, by default and by route.
type stage struct {
	DefaultRouteSettings limits
	RouteSettings        map[string]limits
}

// all returns the limits by the names of what they limit.
func (s stage) all() map[string]limits {
	all := map[string]limits{"all other routes": s.DefaultRouteSettings}
	maps.Copy(all, s.RouteSettings)
	return all
}

func (t *template) deployedStage() (s stage) {
	_, r := t.one("AWS::ApiGatewayV2::Stage")
	text, _ := json.Marshal(r.Properties) // it was JSON
	_ = json.Unmarshal(text, &s)          // what is not a number stays 0
	return s
}

func (e *examination) throttle(ctx context.Context, path string) {
	c := call{"throttle", "apigateway:GET", path + "/stages/$default"}
	var is stage
	if err := e.gateway(ctx, "GetStage", path+"/stages/"+url.QueryEscape("$default"), &is); err != nil {
		e.apiFailed(c, err)
		return
	}
	has, want := is.all(), e.template.deployedStage().all()
	both := maps.Clone(has)
	maps.Copy(both, want)
	wrong := false
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if has[name] != want[name] {
			wrong = true
			e.wrong(c.step, c.String(),
				fmt.Sprintf("the limit of %s is %s, but the stack's template has %s", name, has[name], want[name]), revert)
		}
	}
	if !wrong {
		e.ok(c.step, "the limits are those of the stack's template")
	}
}

// referenced matches the logical ID in a target of the template.
var referenced = regexp.MustCompile(`"Ref":"([^"]+)"`)

// deployedRoutes returns the ARNs of the template's functions by route. An ARN is
// empty if it cannot be resolved.
func (t *template) deployedRoutes() map[string]string {
	routes := make(map[string]string)
	for _, r := range t.all("AWS::ApiGatewayV2::Route") {
		key, _ := t.text(r.at("RouteKey"))
		target, _ := json.Marshal(r.at("Target")) // it was JSON
		routes[key] = ""
		if match := referenced.FindSubmatch(target); match != nil {
			if arn, known := t.text(t.Resources[string(match[1])].at("IntegrationUri")); known {
				routes[key] = arn
			}
		}
	}
	return routes
}

func (e *examination) routes(ctx context.Context, path string) {
	c := call{"routes", "apigateway:GET", path + "/routes"}
	routes, err := items[struct{ RouteKey, Target string }](ctx, e, "GetRoutes", path+"/routes")
	if err != nil {
		e.apiFailed(c, err)
		return
	}
	c.resource = path + "/integrations"
	integrations, err := items[struct{ IntegrationID, IntegrationURI string }](ctx, e, "GetIntegrations",
		path+"/integrations")
	if err != nil {
		e.apiFailed(c, err)
		return
	}
	c.resource = path + "/routes"
	functions := make(map[string]string)
	for _, i := range integrations {
		functions["integrations/"+i.IntegrationID] = i.IntegrationURI
	}
	has, want := make(map[string]string), e.template.deployedRoutes()
	for _, r := range routes {
		has[r.RouteKey] = functions[r.Target]
	}
	both := maps.Clone(has)
	maps.Copy(both, want)
	wrong := false
	for _, key := range slices.Sorted(maps.Keys(both)) {
		function, exists := has[key]
		deployed, inTemplate := want[key]
		var problem string
		switch {
		case !exists:
			problem = "it does not exist"
		case !inTemplate:
			problem = "it is not in the stack's template"
		case deployed != "" && !invokes(function, deployed):
			problem = fmt.Sprintf("it leads to %s, but the stack's template has %s", cmp.Or(function, "nothing"), deployed)
		default:
			continue
		}
		wrong = true
		e.wrong("route "+key, c.String(), problem, revert)
	}
	if !wrong {
		e.ok(c.step, fmt.Sprintf("all %d routes lead to the functions of the stack's template", len(want)))
	}
}

// invokes reports whether the URI of an integration is for a function. It can
// have the function's ARN in a path.
func invokes(uri, arn string) bool {
	return uri == arn || strings.HasSuffix(uri, ":lambda:path/2015-03-31/functions/"+arn+"/invocations")
}

func (e *examination) gateway(ctx context.Context, operation, path string, document any) error {
	return signedcall.REST(ctx, e.Services.Config, signedcall.APIGateway, operation, http.MethodGet, path, nil, document)
}

// items returns the items of a list in API Gateway.
func items[T any](ctx context.Context, e *examination, operation, path string) (all []T, err error) {
	for query := ""; ; {
		var page struct {
			Items     []T
			NextToken string
		}
		if err := e.gateway(ctx, operation, path+query, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextToken == "" {
			return all, nil
		}
		query = "?nextToken=" + url.QueryEscape(page.NextToken)
	}
}
