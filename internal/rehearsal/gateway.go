package rehearsal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// API is an API of API Gateway, which the emulator does not create. It answers
// the requests that read it, and those for the account's limits.
type API struct {
	// ID is its physical ID, and Logical its logical one.
	ID, Logical string
	// Stage has the throttle of its stage.
	Stage APIStage
	// Routes are the targets of routes by key, and Integrations are the URIs of
	// integrations by ID.
	Routes, Integrations map[string]string
}

// APIStage has the throttle of a stage, by default and by route.
type APIStage struct {
	DefaultRouteSettings APILimits            `json:"defaultRouteSettings"`
	RouteSettings        map[string]APILimits `json:"routeSettings"`
}

// APILimits are the limits of a throttle.
type APILimits struct {
	ThrottlingRateLimit  float64 `json:"throttlingRateLimit"`
	ThrottlingBurstLimit int     `json:"throttlingBurstLimit"`
}

const apiType = "AWS::ApiGatewayV2::Api"

func (t template) api() (*API, error) {
	a := &API{Routes: make(map[string]string), Integrations: make(map[string]string)}
	for logical, r := range t.Resources {
		switch r.Type {
		case apiType:
			a.Logical, a.ID = logical, t.Physical[logical]
		case "AWS::ApiGatewayV2::Integration":
			a.Integrations[t.Physical[logical]] = fmt.Sprint(t.Resolve(r.Properties["IntegrationUri"]))
		case "AWS::ApiGatewayV2::Route":
			a.Routes[fmt.Sprint(r.Properties["RouteKey"])] = fmt.Sprint(t.Resolve(r.Properties["Target"]))
		case "AWS::ApiGatewayV2::Stage":
			for property, into := range map[string]any{
				"DefaultRouteSettings": &a.Stage.DefaultRouteSettings, "RouteSettings": &a.Stage.RouteSettings,
			} {
				if err := decode(r.Properties[property], into); err != nil {
					return nil, fmt.Errorf("%s of %s: %w", property, logical, err)
				}
			}
		}
	}
	return a, nil
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list := func(all map[string]string, key, value string) any {
		items := []map[string]string{}
		for name, is := range all {
			items = append(items, map[string]string{key: name, value: is})
		}
		return map[string]any{"items": items}
	}
	path := "/v2/apis/" + a.ID
	var document any
	switch r.URL.Path {
	case "/account":
		document = map[string]any{"throttleSettings": map[string]any{"rateLimit": 10_000, "burstLimit": 5_000}}
	case path + "/stages/$default":
		document = a.Stage
	case path + "/routes":
		document = list(a.Routes, "routeKey", "target")
	case path + "/integrations":
		document = list(a.Integrations, "integrationId", "integrationUri")
	default:
		w.Header().Set("X-Amzn-Errortype", "NotFoundException")
		w.WriteHeader(http.StatusNotFound)
	}
	_ = json.NewEncoder(w).Encode(document)
}

// addTo adds the API to a response that lists the resources of its stack.
func (a *API) addTo(response *http.Response) error {
	if _, service := signer(response.Request); service != "cloudformation" {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	const end = "</StackResourceSummaries>"
	member := fmt.Sprintf("<member><LogicalResourceId>%s</LogicalResourceId><PhysicalResourceId>%s</PhysicalResourceId>"+
		"<ResourceType>%s</ResourceType></member>", a.Logical, a.ID, apiType)
	text := strings.Replace(string(body), end, member+end, 1)
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader([]byte(text))), int64(len(text))
	response.Header.Del("Content-Length")
	return nil
}
