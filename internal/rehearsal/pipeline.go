package rehearsal

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/larder-registry/larder/internal/testkit/iam"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// The names in the account of a company, which docs/company-account.md describes.
const (
	qualifier    = "rehearsal"
	toolkit      = "CDKToolkit-" + qualifier
	boundaryName = "boundary-of-" + StackName
	pipelineRole = "pipeline-of-" + StackName
)

// deploymentPolicies are the policies of CloudFormation's execution role: their
// files, and their names in the account.
var deploymentPolicies = map[string]string{
	"deployment": "deployment-of-" + StackName, "deployment-options": "deployment-options-of-" + StackName,
	"deployment-domain": "deployment-domain-of-" + StackName, "deployment-users": "deployment-users-of-" + StackName,
}

// pipeline deploys like a CI job that may only assume the CDK's roles.
type pipeline struct {
	// account denies what these roles do not allow.
	account *Account
	// env has the credentials of the job.
	env []string
	// settings are the settings of the company.
	settings map[string]any
	// execution is CloudFormation's role.
	execution *iam.Role
}

// companyPath begins the names of log groups, and is the path of the roles. It is
// empty if an older stack is updated, whose resources moto cannot replace or tag.
func (d *deployment) companyPath() string {
	if d.Older != "" {
		return ""
	}
	return "/rehearsal/"
}

// preparePipeline prepares an emulator as the administrator of a company does. It
// creates the policies and the pipeline's role, and bootstraps the CDK with these
// policies.
func (d *deployment) preparePipeline(ctx context.Context) (*pipeline, error) {
	id, err := d.caller(ctx)
	if err != nil {
		return nil, err
	}
	values, err := d.policyValues(id)
	if err != nil {
		return nil, err
	}
	client := awsiam.NewFromConfig(d.Account)
	var execution []string
	for file, name := range deploymentPolicies {
		created, err := d.createPolicy(ctx, id, values, file, name)
		if err != nil {
			return nil, err
		}
		execution = append(execution, created)
	}
	boundary, err := d.createPolicy(ctx, id, values, "boundary", boundaryName)
	if err != nil {
		return nil, err
	}
	slices.Sort(execution)
	if err := d.cdk(ctx, cdkApp{folder: d.scratch}, "bootstrap", "aws://"+id+"/"+d.Account.Region, "--qualifier", qualifier,
		"--toolkit-stack-name", toolkit, "--cloudformation-execution-policies", strings.Join(execution, ",")); err != nil {
		return nil, err
	}
	for role, file := range map[string]string{
		d.cdkRole("deploy", id): "deploy-role", d.cdkRole("lookup", id): "lookup-role", pipelineRole: "pipeline",
	} {
		if role == pipelineRole {
			if err := d.createRole(ctx, id, role); err != nil {
				return nil, err
			}
		}
		document, err := d.policy(ctx, values, file)
		if err != nil {
			return nil, err
		}
		if _, err := client.PutRolePolicy(ctx,
			&awsiam.PutRolePolicyInput{RoleName: &role, PolicyName: &file, PolicyDocument: &document}); err != nil {
			return nil, fmt.Errorf("cannot give role %s the policy %s: %w", role, file, err)
		}
	}
	p, err := d.startPipeline(ctx, id)
	if err == nil {
		p.settings = map[string]any{
			"bootstrapQualifier": qualifier, "permissionsBoundary": boundary, "alarmEmail": alarmEmail,
		}
		if d.key != "" {
			p.settings["kmsKeyArn"] = d.key
		}
		if path := d.companyPath(); path != "" {
			p.settings["rolePath"], p.settings["logGroupPrefix"] = path, path
			p.settings["tags"] = map[string]string{"owner": "rehearsal"}
		}
	}
	return p, err
}

// cdkRole returns the name of one of the roles of the CDK, such as deploy.
func (d *deployment) cdkRole(kind, id string) string {
	return "cdk-" + qualifier + "-" + kind + "-role-" + id + "-" + d.Account.Region
}

// policyValues writes the values of the policies to a file, like an administrator
// who edits a copy of values.sed. It returns the path of the file.
func (d *deployment) policyValues(id string) (string, error) {
	text, err := os.ReadFile(filepath.Join(d.Checkout, "infra", "policies", "values.sed"))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"ACCOUNT": id, "REGION": d.Account.Region, "STACK": StackName, "BUCKET": StackName, "QUALIFIER": qualifier,
		"BOUNDARY": boundaryName, "PATH": strings.TrimPrefix(d.companyPath(), "/"), "LOGS": d.companyPath(),
		"KEY": cmp.Or(d.key[strings.LastIndex(d.key, "/")+1:], "none"),
	} {
		line := regexp.MustCompile(`(?m)^s\|` + name + `\|.*\|g$`)
		if !line.Match(text) {
			return "", fmt.Errorf("values.sed has no line for %s", name)
		}
		text = line.ReplaceAll(text, []byte("s|"+name+"|"+value+"|g"))
	}
	path := filepath.Join(d.scratch, "values.sed")
	return path, os.WriteFile(path, text, 0o600)
}

// policy returns a document of infra/policies with values.
func (d *deployment) policy(ctx context.Context, values, name string) (string, error) {
	return d.run(ctx, filepath.Join(d.Checkout, "infra", "policies"), nil, "sed", "-f", values, name+".json")
}

// createPolicy creates a managed policy, and returns its ARN. It replaces the one
// of another rehearsal in the same emulator.
func (d *deployment) createPolicy(ctx context.Context, id, values, file, name string) (string, error) {
	document, err := d.policy(ctx, values, file)
	if err != nil {
		return "", err
	}
	client := awsiam.NewFromConfig(d.Account)
	old := &awsiam.DeletePolicyInput{PolicyArn: aws.String(d.arns(id) + "policy/" + name)}
	var missing *iamtypes.NoSuchEntityException
	if _, err := client.DeletePolicy(ctx, old); err != nil && !errors.As(err, &missing) {
		return "", fmt.Errorf("cannot replace policy %s: %w", name, err)
	}
	created, err := client.CreatePolicy(ctx, &awsiam.CreatePolicyInput{PolicyName: &name, PolicyDocument: &document})
	if err != nil {
		return "", fmt.Errorf("cannot create policy %s: %w", name, err)
	}
	return aws.ToString(created.Policy.Arn), nil
}

// startPipeline assumes the pipeline's role. A proxy evaluates the policies of
// this role, and of those that it assumes.
func (d *deployment) startPipeline(ctx context.Context, id string) (*pipeline, error) {
	credentials, err := d.sessionOf(ctx, id, pipelineRole)
	if err != nil {
		return nil, err
	}
	own, err := d.roleOf(ctx, pipelineRole)
	if err != nil {
		return nil, err
	}
	p := &pipeline{}
	if p.execution, err = d.executionRole(ctx); err != nil {
		return nil, err
	}
	if p.account, err = StartAccount(ctx, d.Endpoint, id, d.Account.Region); err != nil {
		return nil, err
	}
	p.account.Assumable = make(map[string]*iam.Role)
	for kind, managed := range managedPolicies {
		name := d.cdkRole(kind, id)
		if p.account.Assumable[name], err = d.roleOf(ctx, name, managed...); err != nil {
			p.account.Close()
			return nil, err
		}
	}
	p.account.Admit(credentials.AccessKeyID, "the pipeline", own)
	p.env = append(variables(credentials), "AWS_ENDPOINT_URL="+p.account.URL)
	return p, nil
}

// managedPolicies are the parts that a deploy can need of the policies of AWS
// that the CDK gives its roles. Emulators have no such policies.
var managedPolicies = map[string][]string{
	"deploy": {`{"Statement": [{"Effect": "Allow", "Action": ["cloudformation:Describe*", "cloudformation:Get*",
		"cloudformation:List*", "cloudformation:ValidateTemplate"], "Resource": "*"}]}`},
	"lookup": {`{"Statement": [{"Effect": "Allow", "Action": ["cloudformation:Describe*", "cloudformation:Get*",
		"cloudformation:List*", "apigateway:GET", "lambda:GetAccountSettings", "dynamodb:DescribeTable", "s3:ListBucket",
		"s3:GetEncryptionConfiguration", "kms:DescribeKey", "kms:GetKeyPolicy"], "Resource": "*"}]}`},
	"file-publishing": nil,
}

// roleOf returns a role with its inline policies, and with other ones.
func (d *deployment) roleOf(ctx context.Context, name string, others ...string) (*iam.Role, error) {
	client := awsiam.NewFromConfig(d.Account)
	listed, err := client.ListRolePolicies(ctx, &awsiam.ListRolePoliciesInput{RoleName: &name})
	if err != nil {
		return nil, fmt.Errorf("cannot list the policies of role %s: %w", name, err)
	}
	documents := slices.Clone(others)
	for _, policy := range listed.PolicyNames {
		got, err := client.GetRolePolicy(ctx, &awsiam.GetRolePolicyInput{RoleName: &name, PolicyName: &policy})
		if err != nil {
			return nil, fmt.Errorf("cannot read policy %s of role %s: %w", policy, name, err)
		}
		document, err := url.QueryUnescape(aws.ToString(got.PolicyDocument))
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	role, err := iam.NewRole(documents...)
	if err != nil {
		return nil, fmt.Errorf("cannot read role %s: %w", name, err)
	}
	return role, nil
}

// executionRole returns CloudFormation's role with the policies of the bootstrap,
// which moto does not attach to it.
func (d *deployment) executionRole(ctx context.Context) (*iam.Role, error) {
	var out struct {
		Parameters []struct{ ParameterKey, ParameterValue string } `xml:"DescribeStacksResult>Stacks>member>Parameters>member"`
	}
	if err := signedcall.Query(ctx, d.Account, signedcall.CloudFormation, "DescribeStacks",
		url.Values{"StackName": {toolkit}}, &out); err != nil {
		return nil, err
	}
	var documents []string
	for _, p := range out.Parameters {
		if p.ParameterKey != "CloudFormationExecutionPolicies" {
			continue
		}
		for _, policy := range listedARN.FindAllString(p.ParameterValue, -1) {
			document, err := managedPolicy(ctx, d.Account, policy)
			if err != nil {
				return nil, err
			}
			documents = append(documents, document)
		}
	}
	return iam.NewRole(documents...)
}

// listedARN matches an ARN in a list. moto describes lists in the form of Python.
var listedARN = regexp.MustCompile(`arn:[\w:/+=.@-]+`)

// managedPolicy returns the document of a managed policy.
func managedPolicy(ctx context.Context, account aws.Config, policy string) (string, error) {
	client := awsiam.NewFromConfig(account)
	described, err := client.GetPolicy(ctx, &awsiam.GetPolicyInput{PolicyArn: &policy})
	if err != nil {
		return "", fmt.Errorf("cannot read policy %s: %w", policy, err)
	}
	got, err := client.GetPolicyVersion(ctx,
		&awsiam.GetPolicyVersionInput{PolicyArn: &policy, VersionId: described.Policy.DefaultVersionId})
	if err != nil {
		return "", fmt.Errorf("cannot read policy %s: %w", policy, err)
	}
	return url.QueryUnescape(aws.ToString(got.PolicyVersion.Document))
}

// judgeExecution returns an error if CloudFormation's role does not allow what
// the deployed stack needs. The emulator does not evaluate that.
func (d *deployment) judgeExecution(ctx context.Context) error {
	t, err := d.template(ctx)
	if err != nil {
		return err
	}
	t.NameAll(StackName)
	var errs []error
	for _, logical := range slices.Sorted(maps.Keys(t.Resources)) {
		calls, err := t.Calls(logical)
		errs = append(errs, err)
		for _, c := range calls {
			errs = append(errs, d.pipeline.execution.Judge(c))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("CloudFormation's role cannot deploy the stack: %w", err)
	}
	return nil
}

// pipelineCalls returns the permissions that a request of the CDK needs.
func (a *Account) pipelineCalls(service string, r *http.Request) ([]iam.Call, error) {
	switch service {
	case "sts", "cloudformation":
		body, err := drain(r)
		if err != nil {
			return nil, err
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, err
		}
		return a.queryCalls(service, form), nil
	case "ssm":
		body, err := drain(r)
		if err != nil {
			return nil, err
		}
		var in struct{ Name string }
		err = json.Unmarshal(body, &in)
		_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		return []iam.Call{{Action: "ssm:" + action, Resource: a.ARN("ssm", "parameter"+in.Name)}}, err
	case "s3":
		return a.assetCalls(r)
	}
	return a.calls(service, r)
}

func (a *Account) queryCalls(service string, form url.Values) []iam.Call {
	action := form.Get("Action")
	switch action {
	case "GetCallerIdentity": // it needs no permission
		return nil
	case "AssumeRole":
		return []iam.Call{{Action: "sts:AssumeRole", Resource: form.Get("RoleArn")}}
	}
	call := iam.Call{Action: service + ":" + action, Resource: "*"}
	if stack := form.Get("StackName"); strings.HasPrefix(stack, "arn:") {
		call.Resource = stack
	} else if stack != "" {
		call.Resource = a.ARN("cloudformation", "stack/"+stack+"/00000000-0000-0000-0000-000000000000")
	}
	calls := []iam.Call{call}
	if role := form.Get("RoleARN"); role != "" {
		calls = append(calls, iam.Call{Action: "iam:PassRole", Resource: role,
			Keys: map[string][]string{"iam:PassedToService": {"cloudformation.amazonaws.com"}}})
	}
	return calls
}

// assetCalls returns the permission for a request to the CDK's bucket. All
// buckets are in the account.
func (a *Account) assetCalls(r *http.Request) ([]iam.Call, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	call := iam.Call{Resource: "arn:aws:s3:::" + bucket,
		Keys: map[string][]string{"aws:ResourceAccount": {a.ID}, "s3:ResourceAccount": {a.ID}}}
	if key != "" {
		call.Resource += "/" + key
	}
	query := r.URL.Query()
	switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case key != "" && reads:
		call.Action = "s3:GetObject"
	case key != "" && (r.Method == http.MethodPut || query.Has("uploads") || query.Has("uploadId")):
		call.Action = "s3:PutObject"
	case reads && query.Has("location"):
		call.Action = "s3:GetBucketLocation"
	case reads && query.Has("encryption"):
		call.Action = "s3:GetEncryptionConfiguration"
	case reads && (query.Has("list-type") || r.Method == http.MethodHead):
		call.Action = "s3:ListBucket"
	default:
		return nil, fmt.Errorf("a call of S3 that the rehearsal does not know: %s %s", r.Method, r.URL)
	}
	return []iam.Call{call}, nil
}

// admitSession admits the caller of a response with a session of a role. The
// name of the role is in the request.
func (a *Account) admitSession(response *http.Response) error {
	if _, service := signer(response.Request); service != "sts" || response.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	var out struct {
		User string `xml:"AssumeRoleResult>AssumedRoleUser>Arn"`
		Key  string `xml:"AssumeRoleResult>Credentials>AccessKeyId"`
	}
	if err := xml.Unmarshal(body, &out); err != nil || out.Key == "" {
		return err
	}
	parts := strings.Split(out.User, "/")
	name := parts[max(0, len(parts)-2)]
	if role := a.Assumable[name]; role != nil {
		a.Admit(out.Key, name, role)
	}
	return nil
}
