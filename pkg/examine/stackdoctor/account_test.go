package stackdoctor_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// Do answers the requests to all services except DynamoDB and S3.
func (a *account) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, _ := url.ParseQuery(string(body)) // or JSON
	service, _, _ := strings.Cut(r.URL.Host, ".")
	action := form.Get("Action")
	switch {
	case service == "monitoring":
		service = "cloudwatch"
	case service == "apigateway":
		action = r.Method + " " + r.URL.EscapedPath()
	case service == "lambda":
		action = map[string]string{
			"configuration": "GetFunctionConfiguration", "concurrency": "GetFunctionConcurrency",
			"account-settings": "GetAccountSettings",
		}[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
	case action == "":
		_, action, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	}
	isXML := form.Has("Action")
	err = a.fails[service+":"+action]
	var result any
	if err == nil {
		if isXML {
			result, err = a.query(action, form)
		} else {
			result, err = a.json(action, r.URL, body)
		}
	}
	failed, isFailure := errors.AsType[smithy.APIError](err)
	if err != nil && !isFailure {
		return nil, err
	}
	var text bytes.Buffer
	response := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: io.NopCloser(&text)}
	if isFailure {
		response.StatusCode = http.StatusBadRequest
		result = object{"__type": failed.ErrorCode(), "message": failed.ErrorMessage()}
	}
	switch {
	case isXML && isFailure:
		_, err = fmt.Fprintf(&text, "<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>",
			failed.ErrorCode(), failed.ErrorMessage())
	case isXML:
		fmt.Fprintf(&text, "<%sResponse>", action)
		err = xml.NewEncoder(&text).EncodeElement(result, xml.StartElement{Name: xml.Name{Local: action + "Result"}})
		fmt.Fprintf(&text, "</%sResponse>", action)
	default:
		err = json.NewEncoder(&text).Encode(result)
	}
	return response, err
}

// query returns the result of an operation of a Query API.
func (a *account) query(action string, form url.Values) (any, error) {
	switch action {
	case "DescribeStacks":
		if name := form.Get("StackName"); name != "larder" {
			return nil, apiError("ValidationError", "Stack with id "+name+" does not exist")
		}
		type output struct{ OutputKey, OutputValue string }
		stack := struct {
			signedcall.Stack
			Values []output `xml:"Outputs>member"`
		}{Stack: a.stack}
		for key, value := range a.stack.Outputs {
			stack.Values = append(stack.Values, output{key, value})
		}
		return struct {
			Stack any `xml:"Stacks>member"`
		}{stack}, nil
	case "GetTemplate":
		text, err := json.Marshal(object{"Resources": a.template})
		return struct{ TemplateBody string }{string(text)}, err
	case "ListStackResources":
		return a.resources(form.Get("NextToken")), nil
	case "DescribeAlarms":
		var alarms []signedcall.Alarm
		for key, values := range form {
			if alarm, there := a.alarms[values[0]]; there && strings.HasPrefix(key, "AlarmNames.member.") {
				alarms = append(alarms, alarm)
			}
		}
		return struct {
			Alarms []signedcall.Alarm `xml:"MetricAlarms>member"`
		}{alarms}, nil
	case "ListSubscriptionsByTopic":
		if a.topic == nil {
			return nil, apiError("NotFound", "Topic does not exist")
		}
		return struct {
			Subscriptions []signedcall.Subscription `xml:"Subscriptions>member"`
		}{a.topic}, nil
	}
	return nil, apiError("InvalidAction", "there is no action "+action)
}

// resources returns a page of five resources of the stack.
func (a *account) resources(after string) any {
	var page struct {
		Resources []signedcall.StackResource `xml:"StackResourceSummaries>member"`
		NextToken string                     `xml:",omitempty"`
	}
	for _, logical := range sorted(a.names) {
		if logical <= after {
			continue
		}
		if len(page.Resources) == 5 {
			page.NextToken = page.Resources[4].Logical
			break
		}
		page.Resources = append(page.Resources, signedcall.StackResource{Logical: logical, Physical: a.names[logical]})
	}
	return page
}

// json returns the result of an operation of another API.
func (a *account) json(action string, u *url.URL, body []byte) (any, error) {
	path := strings.Split(u.EscapedPath(), "/")
	switch action {
	case "DescribeKey", "GetKeyPolicy":
		var in struct{ KeyID string }
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, err
		}
		if a.keys[in.KeyID] == nil {
			return nil, apiError("NotFoundException", "Key "+in.KeyID+" does not exist")
		}
		return object{"KeyMetadata": a.keys[in.KeyID], "Policy": a.keyPolicy}, nil
	case "GetFunctionConfiguration":
		if f := a.functions[path[3]]; f != nil {
			return f, nil
		}
		return nil, apiError("ResourceNotFoundException", "Function not found: "+path[3])
	case "GetFunctionConcurrency":
		if reserved := a.reserved[path[3]]; reserved > 0 {
			return object{"ReservedConcurrentExecutions": reserved}, nil
		}
		return object{}, nil
	case "GetAccountSettings":
		return object{"AccountLimit": object{"ConcurrentExecutions": a.concurrency}}, nil
	case "DescribeCertificate":
		if a.cert == nil {
			return nil, apiError("ResourceNotFoundException", "Could not find certificate "+certificate)
		}
		return object{"Certificate": a.cert}, nil
	case "GET /account":
		return a.api.Account, nil
	case "GET /v2/apis/a1b2c3/stages/%24default":
		return a.api.Stage, nil
	case "GET /v2/apis/a1b2c3/routes":
		return page(a.api.Routes, "routeKey", "target", u.Query().Get("nextToken")), nil
	case "GET /v2/apis/a1b2c3/integrations":
		return page(a.api.Integrations, "integrationId", "integrationUri", u.Query().Get("nextToken")), nil
	}
	return nil, apiError("NotFoundException", "Invalid API identifier specified")
}

// page returns a page of one item in a list of API Gateway.
func page(all map[string]string, key, value, token string) object {
	names := sorted(all)
	for i, name := range names {
		if token != "" && token != name[strings.LastIndex(name, "/")+1:] {
			continue
		}
		out := object{"items": []any{object{key: name, value: all[name]}}}
		if i+1 < len(names) {
			out["nextToken"] = names[i+1][strings.LastIndex(names[i+1], "/")+1:]
		}
		return out
	}
	return object{}
}
