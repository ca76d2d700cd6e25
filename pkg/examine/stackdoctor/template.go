package stackdoctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/larder-registry/larder/pkg/cloud/partition"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// template is the deployed template of a stack.
type template struct {
	// Resources are by logical ID.
	Resources map[string]resource
	// names are the physical IDs of the resources, by logical ID.
	names map[string]string
	// stack is the ARN of the stack.
	stack awsarn.ARN
}

type resource struct {
	Type       string
	Properties map[string]any
}

// readTemplate reads the template and the resources of the stack. The
// functions' settings, the API and the account's throttle are compared with
// them.
func (e *examination) readTemplate(ctx context.Context) {
	t := &template{names: make(map[string]string), stack: e.arn}
	c := call{"template", "cloudformation:GetTemplate", e.Stack}
	text, err := signedcall.GetTemplate(ctx, e.Services.Config, e.Stack)
	if err == nil {
		err = json.Unmarshal(text, t)
	}
	if err != nil {
		e.failed(c, err)
		return
	}
	c.action = "cloudformation:ListStackResources"
	resources, err := signedcall.ListStackResources(ctx, e.Services.Config, e.Stack)
	if err != nil {
		e.failed(c, err)
		return
	}
	for _, r := range resources {
		t.names[r.Logical] = r.Physical
	}
	e.template = t
}

func (t *template) all(kind string) map[string]resource {
	found := make(map[string]resource)
	for logical, r := range t.Resources {
		if r.Type == kind {
			found[logical] = r
		}
	}
	return found
}

// one returns the logical ID and the resource of a type of which the stack has
// one.
func (t *template) one(kind string) (logical string, r resource) {
	for logical, r = range t.all(kind) {
	}
	return logical, r
}

func (t *template) function(name string) (r resource, found bool) {
	for logical, r := range t.all("AWS::Lambda::Function") {
		if t.names[logical] == name {
			return r, true
		}
	}
	return resource{}, false
}

// at returns a property by its path, or nil.
func (r resource) at(path ...string) (value any) {
	value = r.Properties
	for _, name := range path {
		properties, _ := value.(map[string]any)
		value = properties[name]
	}
	return value
}

// text returns a property as text. A list has commas, and a missing property is
// empty. ok is false if a part of it cannot be resolved.
func (t *template) text(property any) (text string, ok bool) {
	switch v := property.(type) {
	case nil:
		return "", true
	case []any:
		return t.join(",", v)
	case map[string]any:
		if len(v) == 1 {
			for function, arguments := range v {
				return t.call(function, arguments)
			}
		}
		return "", false
	}
	return fmt.Sprint(property), true
}

func (t *template) join(separator string, values []any) (string, bool) {
	var parts []string
	for _, value := range values {
		part, ok := t.text(value)
		if !ok {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, separator), true
}

// variable matches a variable of Fn::Sub.
var variable = regexp.MustCompile(`\$\{([A-Za-z0-9:.]+)\}`)

// call returns the result of one of CloudFormation's functions.
func (t *template) call(function string, arguments any) (text string, ok bool) {
	list, _ := arguments.([]any)
	switch name, isText := arguments.(string); {
	case function == "Ref" && isText:
		return t.reference(name)
	case function == "Fn::GetAtt" && len(list) == 2:
		return t.attribute(fmt.Sprint(list[0]), fmt.Sprint(list[1]))
	case function == "Fn::Join" && len(list) == 2:
		if values, isList := list[1].([]any); isList {
			return t.join(fmt.Sprint(list[0]), values)
		}
	case function == "Fn::Sub" && isText:
		ok = true
		text = variable.ReplaceAllStringFunc(name, func(match string) string {
			value, known := t.reference(match[2 : len(match)-1])
			ok = ok && known
			return value
		})
	}
	return text, ok
}

func (t *template) reference(name string) (string, bool) {
	switch name {
	case "AWS::AccountId":
		return t.stack.AccountID, true
	case "AWS::Region":
		return t.stack.Region, true
	case "AWS::Partition":
		return t.stack.Partition, true
	}
	physical := t.names[name]
	return physical, physical != ""
}

// attribute returns an attribute of a resource. It supports those that settings
// of functions and routes have.
func (t *template) attribute(logical, name string) (string, bool) {
	physical, ok := t.reference(logical)
	arn := t.stack
	switch t.Resources[logical].Type + "." + name {
	case "AWS::IAM::Role.Arn":
		path, _ := t.Resources[logical].at("Path").(string)
		arn.Service, arn.Region, arn.Resource = "iam", "", "role"+cmp.Or(path, "/")+physical
	case "AWS::Lambda::Function.Arn":
		arn.Service, arn.Resource = "lambda", "function:"+physical
	case "AWS::Cognito::UserPool.ProviderURL":
		// It is the issuer of the pool's tokens.
		return "https://" + partition.Host("cognito-idp", arn.Region) + "/" + physical, ok
	default:
		return "", false
	}
	return arn.String(), ok
}
