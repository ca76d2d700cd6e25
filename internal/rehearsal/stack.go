package rehearsal

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/larder-registry/larder/internal/testkit/cloudformation"
	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/iam"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/settings"
)

// Stack is a deployed registry as AWS describes it.
type Stack struct {
	Account, Region string
	// Outputs are the stack's outputs, by name.
	Outputs map[string]string
	// Functions are the functions, by their names within the stack.
	Functions map[string]*StackFunction
	// Routes are the names of the gateway's functions, by route key.
	Routes map[string]string
	// OperatorPolicy is the document of the policy for publishing with AWS
	// credentials.
	OperatorPolicy string
	// WithdrawPolicy is the document of the policy for withdrawing versions.
	WithdrawPolicy string
	// Alarms are the alarms of the template. An emulator of CloudFormation may
	// create none.
	Alarms cloudwatch.Alarms
	// API is the API of the template.
	API *API

	updated string
}

// StackFunction is a function of a stack.
type StackFunction struct {
	// Name is its name in Lambda.
	Name string
	// Environment has the variables that the stack sets.
	Environment map[string]string
	// Policies are the documents of its role, and Boundary is the one that bounds
	// them. It is empty if there is none.
	Policies []string
	Boundary string
	// LogGroup is the ARN of its log group.
	LogGroup string
	// Timeout and MemoryMiB are its limits.
	Timeout   time.Duration
	MemoryMiB int
	// Code is the deployed zip file.
	Code []byte
	// Failures is the ARN of the queue for the asynchronous requests that fail,
	// and Nightly is the event of the rule that invokes the function. Both are
	// empty if there are none.
	Failures, Nightly string
	// Subscribed has the filter patterns of the log groups whose lines invoke
	// the function, by their names.
	Subscribed map[string]string
}

// template is a deployed CloudFormation template. It has the resources that an
// emulator without API Gateway cannot describe.
type template struct {
	cloudformation.Template
}

// Inspect reads a deployed stack. It returns an error if there is none.
func Inspect(ctx context.Context, account aws.Config, name string) (*Stack, error) {
	described, err := signedcall.DescribeStack(ctx, account, name)
	if err != nil {
		return nil, err
	}
	id, err := arn.Parse(described.ID)
	if err != nil {
		return nil, err
	}
	s := &Stack{Account: id.AccountID, Region: id.Region, Outputs: described.Outputs,
		Functions: make(map[string]*StackFunction), Routes: make(map[string]string)}
	s.updated = fmt.Sprint(described.Created, described.Updated)
	t, err := readTemplate(ctx, account, name, id)
	if err != nil {
		return nil, err
	}
	for logical, r := range t.Resources {
		if r.Type == "AWS::IAM::Policy" {
			return nil, fmt.Errorf("policy %s: the rehearsal evaluates only the inline policies of roles",
				logical)
		}
		if r.Type != "AWS::Lambda::Function" {
			continue
		}
		if s.Functions[FunctionName(logical)], err = t.function(ctx, account, logical); err != nil {
			return nil, fmt.Errorf("function %s: %w", FunctionName(logical), err)
		}
	}
	for _, logical := range slices.Sorted(maps.Keys(t.Resources)) {
		if t.Resources[logical].Type == "AWS::CloudWatch::Alarm" {
			s.Alarms = append(s.Alarms, t.alarm(logical))
		}
	}
	for logical, r := range t.Resources {
		if r.Type != "AWS::IAM::ManagedPolicy" {
			continue
		}
		for output, document := range map[string]*string{settings.OutputOperatorPolicy: &s.OperatorPolicy,
			settings.OutputWithdrawPolicy: &s.WithdrawPolicy} {
			if t.Physical[logical] != s.Outputs[output] {
				continue
			}
			if *document, err = t.document(r.Properties["PolicyDocument"]); err != nil {
				return nil, fmt.Errorf("policy %s: %w", logical, err)
			}
		}
	}
	if s.API, err = t.api(); err != nil {
		return nil, err
	}
	return s, t.routes(s.Routes)
}

// template reads the template of the deployed stack.
func (d *deployment) template(ctx context.Context) (template, error) {
	described, err := signedcall.DescribeStack(ctx, d.Account, StackName)
	if err != nil {
		return template{}, fmt.Errorf("cannot read stack %s after its deploy: %w", StackName, err)
	}
	id, err := arn.Parse(described.ID)
	if err != nil {
		return template{}, err
	}
	return readTemplate(ctx, d.Account, StackName, id)
}

// readTemplate reads the template and the physical IDs of a deployed stack.
func readTemplate(ctx context.Context, account aws.Config, name string, id arn.ARN) (template, error) {
	t := template{cloudformation.Template{Account: id.AccountID, Region: id.Region, Physical: make(map[string]string)}}
	resources, err := signedcall.ListStackResources(ctx, account, name)
	if err != nil {
		return template{}, err
	}
	for _, r := range resources {
		t.Physical[r.Logical] = r.Physical
	}
	text, err := signedcall.GetTemplate(ctx, account, name)
	if err != nil {
		return template{}, err
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return template{}, fmt.Errorf("cannot read the template of stack %s: %w", name, err)
	}
	for logical, r := range t.Resources {
		if t.Physical[logical] == "" && strings.HasPrefix(r.Type, "AWS::ApiGatewayV2::") { // moto creates none
			t.Physical[logical] = strings.ToLower(logical)
		}
	}
	return t, nil
}

// logs returns commands that print the logs of functions in AWS.
func (s *Stack) logs() string {
	var groups []string
	for _, f := range s.Functions {
		groups = append(groups, "aws logs tail --since 10m "+f.LogGroup[strings.LastIndex(f.LogGroup, ":")+1:])
	}
	slices.Sort(groups)
	return strings.Join(groups, "; ")
}

// hash matches the suffix that the CDK appends to logical IDs.
var hash = regexp.MustCompile(`[0-9A-F]{8}$`)

// FunctionName returns the name of a function from its logical ID in a
// template.
func FunctionName(logical string) string { return hash.ReplaceAllString(logical, "") }

func (t template) function(ctx context.Context, account aws.Config, logical string) (*StackFunction, error) {
	properties := t.Resources[logical].Properties
	if properties["Runtime"] != "provided.al2023" || properties["Handler"] != "bootstrap" {
		return nil, fmt.Errorf("its runtime is %v with handler %v", properties["Runtime"], properties["Handler"])
	}
	deployed, err := signedcall.GetFunctionConfiguration(ctx, account, t.Physical[logical])
	if err != nil {
		return nil, err
	}
	f := &StackFunction{Name: t.Physical[logical], Timeout: time.Duration(deployed.Timeout) * time.Second,
		MemoryMiB: deployed.MemorySize}
	if deployed.Environment != nil {
		f.Environment = deployed.Environment.Variables
	}
	role := t.Resources[reference(properties["Role"])].Properties
	if role["ManagedPolicyArns"] != nil {
		return nil, fmt.Errorf("its role has managed policies, which allow too much: %v",
			role["ManagedPolicyArns"])
	}
	inline, _ := role["Policies"].([]any)
	for _, policy := range inline {
		p, _ := policy.(map[string]any)
		document, err := t.document(p["PolicyDocument"])
		if err != nil {
			return nil, err
		}
		f.Policies = append(f.Policies, document)
	}
	if boundary, ok := t.Resolve(role["PermissionsBoundary"]).(string); ok {
		if f.Boundary, err = managedPolicy(ctx, account, boundary); err != nil {
			return nil, err
		}
	}
	logging, _ := properties["LoggingConfig"].(map[string]any)
	f.LogGroup = "arn:aws:logs:" + t.Region + ":" + t.Account + ":log-group:" +
		fmt.Sprint(t.Resolve(logging["LogGroup"]))

	if err := t.events(logical, f); err != nil {
		return nil, err
	}

	code, _ := t.Resolve(properties["Code"]).(map[string]any)
	client := s3.NewFromConfig(account, func(o *s3.Options) { o.UsePathStyle = true })
	object, err := client.GetObject(ctx,
		&s3.GetObjectInput{Bucket: aws.String(fmt.Sprint(code["S3Bucket"])),
			Key: aws.String(fmt.Sprint(code["S3Key"]))})
	if err != nil {
		return nil, err
	}
	defer object.Body.Close()
	if f.Code, err = io.ReadAll(io.LimitReader(object.Body, 100<<20)); err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(f.Code); base64.StdEncoding.EncodeToString(sum[:]) != deployed.CodeSha256 {
		return nil, errors.New("the function's code differs from the template's code")
	}
	return f, nil
}

// events reads how a function is invoked other than by the gateway. It returns an
// error if EventBridge or CloudWatch has no permission for that.
func (t template) events(function string, f *StackFunction) error {
	for logical, r := range t.Resources {
		switch r.Type {
		case "AWS::Lambda::EventInvokeConfig":
			if reference(r.Properties["FunctionName"]) == function {
				f.Failures = t.ARN(reference(r.Properties["DestinationConfig"]))
			}
		case "AWS::Logs::SubscriptionFilter":
			if reference(r.Properties["DestinationArn"]) != function {
				continue
			}
			group := reference(r.Properties["LogGroupName"])
			if !t.permits("logs.amazonaws.com", function, group) {
				return fmt.Errorf("the log group %s has no permission to invoke it", group)
			}
			if f.Subscribed == nil {
				f.Subscribed = make(map[string]string)
			}
			f.Subscribed[t.Physical[group]] = fmt.Sprint(r.Properties["FilterPattern"])
		case "AWS::Events::Rule":
			targets, _ := r.Properties["Targets"].([]any)
			for _, target := range targets {
				properties, _ := target.(map[string]any)
				if reference(properties["Arn"]) != function {
					continue
				}
				if !t.permits("events.amazonaws.com", function, logical) {
					return fmt.Errorf("the rule %s has no permission to invoke it", logical)
				}
				f.Nightly = fmt.Sprint(properties["Input"])
			}
		}
	}
	return nil
}

// permits reports whether a permission lets a resource of a service invoke a
// function.
func (t template) permits(service, function, resource string) bool {
	for _, r := range t.Resources {
		if r.Type == "AWS::Lambda::Permission" && reference(r.Properties["FunctionName"]) == function &&
			r.Properties["Principal"] == service && reference(r.Properties["SourceArn"]) == resource {
			return true
		}
	}
	return false
}

func (t template) alarm(logical string) cloudwatch.Alarm {
	p := t.Resources[logical].Properties
	a := cloudwatch.Alarm{Name: fmt.Sprint(t.Resolve(p["AlarmName"])), Enabled: p["ActionsEnabled"] != false}
	actions, _ := t.Resolve(p["AlarmActions"]).([]any)
	for _, action := range actions {
		a.Actions = append(a.Actions, fmt.Sprint(action))
	}
	return a
}

func (t template) document(value any) (string, error) {
	text, err := json.Marshal(t.Resolve(value))
	return string(text), err
}

// Unpack writes the function's binary to a folder and returns its path. It
// returns an error unless the binary is executable for everyone, like in
// Lambda.
func (f *StackFunction) Unpack(dir string) (string, error) {
	z, err := zip.NewReader(bytes.NewReader(f.Code), int64(len(f.Code)))
	if err != nil {
		return "", err
	}
	in, err := z.Open("bootstrap")
	if err != nil {
		return "", err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o111 != 0o111 {
		return "", fmt.Errorf("cannot run bootstrap in Lambda: its mode is %s", info.Mode())
	}
	binary, err := io.ReadAll(io.LimitReader(in, 200<<20))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "bootstrap")
	return path, os.WriteFile(path, binary, 0o700)
}

// reference returns the name of the first resource that a template's value
// refers to.
func reference(value any) string {
	switch v := value.(type) {
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok {
			return ref
		}
		if get, ok := v["Fn::GetAtt"].([]any); ok && len(get) > 0 {
			return fmt.Sprint(get[0])
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if found := reference(v[key]); found != "" {
				return found
			}
		}
	case []any:
		for _, part := range v {
			if found := reference(part); found != "" {
				return found
			}
		}
	}
	return ""
}

// routes adds the function of each route to out. It returns an error unless the
// gateway may invoke the function.
func (t template) routes(out map[string]string) error {
	stages := 0
	for _, r := range t.Resources {
		if r.Type == "AWS::ApiGatewayV2::Stage" && r.Properties["StageName"] == "$default" &&
			r.Properties["AutoDeploy"] == true {
			stages++
		}
	}
	if stages != 1 {
		return fmt.Errorf("the gateway has %d default stages, want 1", stages)
	}
	for _, r := range t.Resources {
		if r.Type != "AWS::ApiGatewayV2::Route" {
			continue
		}
		key := fmt.Sprint(r.Properties["RouteKey"])
		integration := t.Resources[reference(r.Properties["Target"])]
		if version := integration.Properties["PayloadFormatVersion"]; version != "2.0" {
			return fmt.Errorf("route %s: events have format %v, but functions need 2.0", key, version)
		}
		function := reference(integration.Properties["IntegrationUri"])
		if !t.invocable(function, key) {
			return fmt.Errorf("route %s: the gateway has no permission to invoke function %s for it", key,
				FunctionName(function))
		}
		out[key] = FunctionName(function)
	}
	return nil
}

// invocable reports whether a permission lets the gateway invoke a function for
// a route, with any stage and method. The permission is for one route, or for all
// routes with a path, in the CDK's forms.
func (t template) invocable(function, routeKey string) bool {
	_, path, _ := strings.Cut(routeKey, " ") // none for $default
	for _, r := range t.Resources {
		if r.Type != "AWS::Lambda::Permission" || reference(r.Properties["FunctionName"]) != function ||
			r.Properties["Principal"] != "apigateway.amazonaws.com" {
			continue
		}
		source := fmt.Sprint(t.Resolve(r.Properties["SourceArn"]))
		if strings.HasSuffix(source, "/*/*"+path) || path != "" && strings.HasSuffix(source, "/*/*/*") {
			return true
		}
	}
	return false
}

// Roles returns the roles of the functions by name, a role with the operator's
// policy, and a role with the withdraw policy.
func (s *Stack) Roles() (functions map[string]*iam.Role, operator, withdraw *iam.Role, err error) {
	functions = make(map[string]*iam.Role)
	for name, f := range s.Functions {
		if functions[name], err = iam.NewRole(f.Policies...); err != nil {
			return nil, nil, nil, fmt.Errorf("cannot read the role of function %s: %w", name, err)
		}
		if f.Boundary == "" {
			continue
		}
		boundary, err := iam.NewRole(f.Boundary)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("cannot read the boundary of function %s: %w", name, err)
		}
		functions[name].Bound(boundary)
	}
	if operator, err = iam.NewRole(s.OperatorPolicy); err != nil {
		return nil, nil, nil, fmt.Errorf("cannot read the operator's policy: %w", err)
	}
	if withdraw, err = iam.NewRole(s.WithdrawPolicy); err != nil {
		return nil, nil, nil, fmt.Errorf("cannot read the withdraw policy: %w", err)
	}
	return functions, operator, withdraw, nil
}

// Changes returns the differences from another state of the same stack.
func (s *Stack) Changes(other *Stack) []string {
	var changes []string
	if s.updated != other.updated {
		changes = append(changes, "the stack was updated")
	}
	if !maps.Equal(s.Outputs, other.Outputs) {
		changes = append(changes, fmt.Sprintf("the outputs differ: %v and %v", s.Outputs, other.Outputs))
	}
	if !maps.Equal(s.Routes, other.Routes) || s.OperatorPolicy != other.OperatorPolicy ||
		s.WithdrawPolicy != other.WithdrawPolicy || len(s.Functions) != len(other.Functions) {
		changes = append(changes, "routes, functions or the operators' policies have changed")
	}
	if !reflect.DeepEqual(s.Alarms, other.Alarms) {
		changes = append(changes, "the alarms have changed")
	}
	for name, f := range s.Functions {
		if o := other.Functions[name]; o == nil || f.LogGroup != o.LogGroup || f.Timeout != o.Timeout ||
			f.MemoryMiB != o.MemoryMiB || f.Failures != o.Failures || f.Nightly != o.Nightly ||
			!bytes.Equal(f.Code, o.Code) || !maps.Equal(f.Environment, o.Environment) ||
			!slices.Equal(f.Policies, o.Policies) || f.Boundary != o.Boundary {
			changes = append(changes, "function "+name+" has changed")
		}
	}
	slices.Sort(changes)
	return changes
}
