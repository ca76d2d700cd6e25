// Package cloudformation resolves templates, and lists the AWS calls that
// CloudFormation makes for their resources.
package cloudformation

import (
	"fmt"
	"regexp"
	"strings"
)

// Template is the template of a stack in the partition aws.
type Template struct {
	Resources map[string]Resource

	// Account and Region are those of the stack. Physical has the physical IDs of
	// the resources by logical ID.
	Account  string            `json:"-"`
	Region   string            `json:"-"`
	Physical map[string]string `json:"-"`
}

// Resource is a resource of a template.
type Resource struct {
	Type           string
	Properties     map[string]any
	DeletionPolicy string
}

// variable matches a variable of Fn::Sub.
var variable = regexp.MustCompile(`\$\{([A-Za-z0-9:.]+)\}`)

// Resolve replaces the references in a template's value with the resources'
// names.
func (t Template) Resolve(value any) any {
	switch v := value.(type) {
	case []any:
		out := make([]any, len(v))
		for i, part := range v {
			out[i] = t.Resolve(part)
		}
		return out
	case map[string]any:
		if name, ok := v["Ref"].(string); ok {
			return t.name(name)
		}
		if text, ok := v["Fn::Sub"].(string); ok {
			return variable.ReplaceAllStringFunc(text, func(s string) string { return t.name(s[2 : len(s)-1]) })
		}
		if join, ok := v["Fn::Join"].([]any); ok && len(join) == 2 {
			var parts []string
			list, _ := t.Resolve(join[1]).([]any)
			for _, part := range list {
				parts = append(parts, fmt.Sprint(part))
			}
			return strings.Join(parts, fmt.Sprint(join[0]))
		}
		if get, ok := v["Fn::GetAtt"].([]any); ok && len(get) == 2 && get[1] == "Arn" {
			return t.ARN(fmt.Sprint(get[0]))
		}
		out := make(map[string]any, len(v))
		for key, part := range v {
			out[key] = t.Resolve(part)
		}
		return out
	}
	return value
}

func (t Template) name(ref string) string {
	if pseudo, ok := map[string]string{"AWS::AccountId": t.Account, "AWS::Region": t.Region, "AWS::Partition": "aws",
		"AWS::URLSuffix": "amazonaws.com"}[ref]; ok {
		return pseudo
	}
	return t.Physical[ref]
}

// ARN returns the ARN of a resource by its logical ID. For other types than
// those of the stack's policies, it returns text that matches nothing.
func (t Template) ARN(ref string) string {
	local := t.Region + ":" + t.Account + ":"
	switch r := t.Resources[ref]; r.Type {
	case "AWS::DynamoDB::Table":
		return "arn:aws:dynamodb:" + local + "table/" + t.Physical[ref]
	case "AWS::S3::Bucket":
		return "arn:aws:s3:::" + t.Physical[ref]
	case "AWS::Logs::LogGroup":
		return "arn:aws:logs:" + local + "log-group:" + t.Physical[ref] + ":*"
	case "AWS::Lambda::Function":
		return "arn:aws:lambda:" + local + "function:" + t.Physical[ref]
	case "AWS::IAM::Role":
		return "arn:aws:iam::" + t.Account + ":role" + path(r.Properties) + t.Physical[ref]
	case "AWS::SQS::Queue": // its physical ID is a URL
		return "arn:aws:sqs:" + local + lastPart(t.Physical[ref])
	}
	return "arn of " + ref
}

// path returns the IAM path of a role.
func path(properties map[string]any) string {
	if path, ok := properties["Path"].(string); ok {
		return path
	}
	return "/"
}

// lastPart returns the name of a queue from its URL. It returns other text
// unchanged.
func lastPart(s string) string {
	if strings.HasPrefix(s, "http") {
		return s[strings.LastIndex(s, "/")+1:]
	}
	return s
}
