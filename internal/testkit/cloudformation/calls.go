package cloudformation

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/larder-registry/larder/internal/testkit/iam"
)

// row lists actions that CloudFormation needs for resources of one type.
type row struct {
	kind string // without AWS::
	// when is the property that needs the actions. It is empty if all resources
	// of the type need them, and deleted if those do that are not retained.
	when string
	// on is the ARN of what the actions are on, without arn:aws:, or an asterisk.
	// {Name} is the physical ID, and other names in braces are properties.
	on      string
	actions string
	// keys are condition keys of the calls, with values like on.
	keys map[string]string
}

const (
	deleted  = "deletion"
	function = "lambda:{Region}:{Account}:function:"
	role     = "iam::{Account}:role{Path}{Name}"
	group    = "logs:{Region}:{Account}:log-group:"
	pool     = "cognito-idp:{Region}:{Account}:userpool/"
	apis     = "apigateway:{Region}::/apis"
	domains  = "apigateway:{Region}::/domainnames"
	// change are the gateway's actions for one document. It checks tags as a
	// document of their own.
	change  = "apigateway:GET apigateway:PATCH apigateway:PUT"
	tagging = "apigateway:TagResource apigateway:UntagResource"
	tags    = "apigateway:GET apigateway:PUT apigateway:POST apigateway:DELETE"
)

// bounded are the condition keys of changes of a role.
var bounded = map[string]string{"iam:PermissionsBoundary": "{PermissionsBoundary}"}

// rows has the types of resources of all settings, and the actions that their
// properties need. All resources can have tags. Actions are those of the
// handlers of CloudFormation's resource types, with these exceptions:
//   - Types in AWS::Route53 have no handlers.
//   - The gateway also checks the permissions for logging, and creates its
//     service-linked role with a first domain.
//   - CloudFormation reads the version of the bootstrap as the execution role.
//   - The key of a table needs what DynamoDB requires of who creates it.
//
// Sources: https://docs.aws.amazon.com/cloudformation-cli/latest/userguide/resource-type-schema.html,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.usagenotes.html,
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/iam-access-control-overview-cwl.html,
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-logging.html.
var rows = []row{
	{kind: "Lambda::Function", on: function + "{Name}", actions: "lambda:CreateFunction lambda:GetFunction " +
		"lambda:GetFunctionCodeSigningConfig lambda:GetFunctionRecursionConfig lambda:GetFunctionScalingConfig " +
		"lambda:GetRuntimeManagementConfig lambda:UpdateFunctionCode lambda:UpdateFunctionConfiguration " +
		"lambda:ListTags lambda:TagResource lambda:UntagResource"},
	{kind: "Lambda::Function", when: "ReservedConcurrentExecutions", on: function + "{Name}",
		actions: "lambda:PutFunctionConcurrency lambda:DeleteFunctionConcurrency"},
	{kind: "Lambda::Function", when: deleted, on: function + "{Name}", actions: "lambda:DeleteFunction"},
	{kind: "Lambda::Function", on: "{Role}", actions: "iam:PassRole",
		keys: map[string]string{"iam:PassedToService": "lambda.amazonaws.com"}},
	{kind: "Lambda::Function", on: "s3:::{Code.S3Bucket}/{Code.S3Key}", actions: "s3:GetObject"},
	{kind: "Lambda::Permission", on: "{FunctionName}", actions: "lambda:AddPermission lambda:GetPolicy"},
	{kind: "Lambda::Permission", when: deleted, on: "{FunctionName}", actions: "lambda:RemovePermission"},
	{kind: "Lambda::EventInvokeConfig", on: function + "{FunctionName}", actions: "lambda:PutFunctionEventInvokeConfig " +
		"lambda:GetFunctionEventInvokeConfig lambda:UpdateFunctionEventInvokeConfig"},
	{kind: "Lambda::EventInvokeConfig", when: deleted, on: function + "{FunctionName}",
		actions: "lambda:DeleteFunctionEventInvokeConfig"},

	{kind: "IAM::Role", on: role, actions: "iam:CreateRole iam:PutRolePolicy iam:DeleteRolePolicy", keys: bounded},
	{kind: "IAM::Role", when: "PermissionsBoundary", on: role, actions: "iam:PutRolePermissionsBoundary", keys: bounded},
	{kind: "IAM::Role", on: role, actions: "iam:GetRole iam:GetRolePolicy iam:ListRolePolicies " +
		"iam:ListAttachedRolePolicies iam:TagRole iam:UntagRole"},
	{kind: "IAM::Role", when: "Description", on: role, actions: "iam:UpdateRole iam:UpdateRoleDescription"},
	{kind: "IAM::Role", when: deleted, on: role, actions: "iam:DeleteRole"},
	{kind: "IAM::ManagedPolicy", on: "{Name}", actions: "iam:CreatePolicy iam:GetPolicy iam:GetPolicyVersion " +
		"iam:ListPolicyVersions iam:ListEntitiesForPolicy iam:CreatePolicyVersion iam:DeletePolicyVersion"},
	{kind: "IAM::ManagedPolicy", when: deleted, on: "{Name}", actions: "iam:DeletePolicy"},

	{kind: "DynamoDB::Table", on: "dynamodb:{Region}:{Account}:table/{Name}", actions: "dynamodb:CreateTable " +
		"dynamodb:DescribeTable dynamodb:UpdateTable dynamodb:DescribeTimeToLive dynamodb:UpdateTimeToLive " +
		"dynamodb:DescribeContinuousBackups dynamodb:UpdateContinuousBackups dynamodb:DescribeContributorInsights " +
		"dynamodb:DescribeKinesisStreamingDestination dynamodb:GetResourcePolicy dynamodb:ListTagsOfResource " +
		"dynamodb:TagResource dynamodb:UntagResource"},
	{kind: "DynamoDB::Table", when: deleted, on: "dynamodb:{Region}:{Account}:table/{Name}",
		actions: "dynamodb:DeleteTable"},
	{kind: "DynamoDB::Table", when: "SSESpecification", on: "{SSESpecification.KMSMasterKeyId}",
		actions: "kms:DescribeKey"},
	{kind: "DynamoDB::Table", when: "SSESpecification", on: "{SSESpecification.KMSMasterKeyId}",
		actions: "kms:CreateGrant kms:Decrypt kms:Encrypt kms:GenerateDataKey kms:ReEncryptFrom kms:ReEncryptTo " +
			"kms:RevokeGrant",
		keys: map[string]string{"kms:ViaService": "dynamodb.{Region}.amazonaws.com"}},
	{kind: "S3::Bucket", on: "s3:::{Name}", actions: "s3:CreateBucket s3:ListBucket s3:PutBucketVersioning " +
		"s3:PutBucketPublicAccessBlock s3:PutBucketOwnershipControls s3:PutEncryptionConfiguration " +
		"s3:PutLifecycleConfiguration s3:PutBucketTagging s3:TagResource s3:UntagResource s3:ListTagsForResource " +
		"s3:GetAccelerateConfiguration s3:GetLifecycleConfiguration s3:GetBucketPublicAccessBlock " +
		"s3:GetAnalyticsConfiguration s3:GetBucketCORS s3:GetEncryptionConfiguration s3:GetInventoryConfiguration " +
		"s3:GetBucketLogging s3:GetMetricsConfiguration s3:GetBucketNotification s3:GetBucketVersioning " +
		"s3:GetReplicationConfiguration s3:GetBucketWebsite s3:GetBucketObjectLockConfiguration s3:GetBucketTagging " +
		"s3:GetBucketAbac s3:GetBucketOwnershipControls s3:GetIntelligentTieringConfiguration " +
		"s3:GetBucketMetadataTableConfiguration"},
	{kind: "S3::Bucket", when: deleted, on: "s3:::{Name}", actions: "s3:DeleteBucket"},
	{kind: "S3::BucketPolicy", on: "s3:::{Bucket}", actions: "s3:GetBucketPolicy s3:PutBucketPolicy"},
	{kind: "S3::BucketPolicy", when: deleted, on: "s3:::{Bucket}", actions: "s3:DeleteBucketPolicy"},

	// IAM evaluates these with the ARN that ends in ":*", but for tags without it.
	{kind: "Logs::LogGroup", on: group + "{Name}:*", actions: "logs:CreateLogGroup logs:PutRetentionPolicy " +
		"logs:GetDataProtectionPolicy logs:DescribeIndexPolicies"},
	{kind: "Logs::LogGroup", on: group + "{Name}", actions: "logs:TagResource logs:UntagResource logs:ListTagsForResource"},
	{kind: "Logs::LogGroup", on: "*", actions: "logs:DescribeLogGroups logs:DescribeResourcePolicies"},
	{kind: "Logs::LogGroup", when: deleted, on: group + "{Name}:*", actions: "logs:DeleteLogGroup"},
	{kind: "Logs::LogGroup", when: "KmsKeyId", on: group + "{Name}:*",
		actions: "logs:AssociateKmsKey logs:DisassociateKmsKey"},
	{kind: "Logs::ResourcePolicy", on: "*",
		actions: "logs:PutResourcePolicy logs:DescribeResourcePolicies logs:DeleteResourcePolicy"},
	{kind: "Logs::MetricFilter", on: group + "{LogGroupName}:*",
		actions: "logs:PutMetricFilter logs:DescribeMetricFilters"},
	{kind: "Logs::MetricFilter", when: deleted, on: group + "{LogGroupName}:*", actions: "logs:DeleteMetricFilter"},
	{kind: "Logs::SubscriptionFilter", on: group + "{LogGroupName}:*",
		actions: "logs:PutSubscriptionFilter logs:DescribeSubscriptionFilters"},
	{kind: "Logs::SubscriptionFilter", when: deleted, on: group + "{LogGroupName}:*", actions: "logs:DeleteSubscriptionFilter"},

	{kind: "ApiGatewayV2::Api", on: apis, actions: "apigateway:POST"},
	{kind: "ApiGatewayV2::Api", on: apis + "/{Name}", actions: change},
	{kind: "ApiGatewayV2::Api", on: "apigateway:{Region}::/tags/{Name}", actions: tags},
	{kind: "ApiGatewayV2::Api", when: deleted, on: apis + "/{Name}", actions: "apigateway:DELETE"},
	{kind: "ApiGatewayV2::Integration", on: apis + "/{ApiId}/integrations", actions: "apigateway:POST"},
	{kind: "ApiGatewayV2::Integration", on: apis + "/{ApiId}/integrations/{Name}", actions: change + " apigateway:DELETE"},
	{kind: "ApiGatewayV2::Route", on: apis + "/{ApiId}/routes", actions: "apigateway:POST"},
	{kind: "ApiGatewayV2::Route", on: apis + "/{ApiId}/routes/{Name}", actions: change + " apigateway:DELETE"},
	{kind: "ApiGatewayV2::Stage", on: apis + "/{ApiId}/stages", actions: "apigateway:POST"},
	{kind: "ApiGatewayV2::Stage", on: apis + "/{ApiId}/stages/{Name}",
		actions: change + " apigateway:DELETE " + tagging},
	{kind: "ApiGatewayV2::Stage", when: "AccessLogSettings", on: "*", actions: "logs:CreateLogDelivery " +
		"logs:GetLogDelivery logs:UpdateLogDelivery logs:DeleteLogDelivery logs:ListLogDeliveries " +
		"logs:PutResourcePolicy logs:DescribeResourcePolicies logs:DescribeLogGroups"},
	{kind: "ApiGatewayV2::DomainName", on: domains, actions: "apigateway:POST"},
	{kind: "ApiGatewayV2::DomainName", on: domains + "/{DomainName}", actions: change + " apigateway:DELETE"},
	{kind: "ApiGatewayV2::DomainName", actions: "iam:CreateServiceLinkedRole",
		on: "iam::{Account}:role/aws-service-role/ops.apigateway.amazonaws.com/AWSServiceRoleForAPIGateway"},
	{kind: "ApiGatewayV2::ApiMapping", on: domains + "/{DomainName}/apimappings", actions: "apigateway:POST"},
	{kind: "ApiGatewayV2::ApiMapping", on: domains + "/{DomainName}/apimappings/{Name}",
		actions: change + " apigateway:DELETE"},
	{kind: "Route53::RecordSet", on: "route53:::hostedzone/{HostedZoneId}",
		actions: "route53:ChangeResourceRecordSets route53:GetHostedZone route53:ListResourceRecordSets"},
	{kind: "Route53::RecordSet", on: "route53:::change/C0123456789", actions: "route53:GetChange"},

	{kind: "SQS::Queue", on: "sqs:{Region}:{Account}:{Name}", actions: "sqs:CreateQueue sqs:GetQueueUrl " +
		"sqs:GetQueueAttributes sqs:SetQueueAttributes sqs:ListQueueTags sqs:TagQueue sqs:UntagQueue"},
	{kind: "SQS::Queue", when: deleted, on: "sqs:{Region}:{Account}:{Name}", actions: "sqs:DeleteQueue"},
	{kind: "SQS::QueuePolicy", on: "sqs:{Region}:{Account}:{Queues}", actions: "sqs:SetQueueAttributes"},
	{kind: "Events::Rule", on: "events:{Region}:{Account}:rule/{Name}", actions: "events:DescribeRule " +
		"events:PutRule events:PutTargets events:RemoveTargets events:ListTargetsByRule events:TagResource " +
		"events:UntagResource events:ListTagsForResource"},
	{kind: "Events::Rule", when: deleted, on: "events:{Region}:{Account}:rule/{Name}", actions: "events:DeleteRule"},
	{kind: "SNS::Topic", on: "{Name}", actions: "sns:CreateTopic sns:GetTopicAttributes sns:SetTopicAttributes " +
		"sns:ListSubscriptionsByTopic sns:GetDataProtectionPolicy sns:TagResource sns:UntagResource " +
		"sns:ListTagsForResource"},
	{kind: "SNS::Topic", when: deleted, on: "{Name}", actions: "sns:DeleteTopic"},
	{kind: "SNS::TopicPolicy", on: "{Topics}", actions: "sns:SetTopicAttributes"},
	{kind: "SNS::Subscription", on: "{TopicArn}", actions: "sns:Subscribe"},
	{kind: "SNS::Subscription", on: "*", actions: "sns:GetSubscriptionAttributes sns:Unsubscribe"},
	{kind: "CloudWatch::Alarm", on: "cloudwatch:{Region}:{Account}:alarm:{Name}", actions: "cloudwatch:PutMetricAlarm " +
		"cloudwatch:TagResource cloudwatch:UntagResource cloudwatch:ListTagsForResource"},
	{kind: "CloudWatch::Alarm", on: "cloudwatch:{Region}:{Account}:alarm:*", actions: "cloudwatch:DescribeAlarms"},
	{kind: "CloudWatch::Alarm", when: deleted, on: "cloudwatch:{Region}:{Account}:alarm:{Name}",
		actions: "cloudwatch:DeleteAlarms"},
	{kind: "CloudWatch::Dashboard", on: "cloudwatch::{Account}:dashboard/{Name}", actions: "cloudwatch:PutDashboard " +
		"cloudwatch:GetDashboard cloudwatch:TagResource cloudwatch:UntagResource cloudwatch:ListTagsForResource"},
	{kind: "CloudWatch::Dashboard", when: deleted, on: "cloudwatch::{Account}:dashboard/{Name}",
		actions: "cloudwatch:DeleteDashboards"},

	{kind: "Cognito::UserPool", on: "*", actions: "cognito-idp:CreateUserPool"},
	{kind: "Cognito::UserPool", on: pool + "{Name}", actions: "cognito-idp:DescribeUserPool " +
		"cognito-idp:UpdateUserPool cognito-idp:GetUserPoolMfaConfig cognito-idp:SetUserPoolMfaConfig " +
		"cognito-idp:ListTagsForResource cognito-idp:TagResource cognito-idp:UntagResource"},
	{kind: "Cognito::UserPool", when: deleted, on: pool + "{Name}", actions: "cognito-idp:DeleteUserPool"},
	{kind: "Cognito::UserPoolClient", on: pool + "{UserPoolId}", actions: "cognito-idp:CreateUserPoolClient " +
		"cognito-idp:DescribeUserPoolClient cognito-idp:UpdateUserPoolClient cognito-idp:DeleteUserPoolClient"},
	{kind: "Cognito::UserPoolDomain", on: "*", actions: "cognito-idp:DescribeUserPoolDomain"},
	{kind: "Cognito::UserPoolDomain", on: pool + "{UserPoolId}", actions: "cognito-idp:CreateUserPoolDomain " +
		"cognito-idp:UpdateUserPoolDomain cognito-idp:DeleteUserPoolDomain"},
}

// Calls returns the calls that CloudFormation makes with the execution role to
// create, read, update, tag and delete a resource. It returns an error if the
// type is not supported. A retained resource is not deleted; with the policy
// RetainExceptOnCreate it is if its creation fails.
func (t Template) Calls(logical string) (calls []iam.Call, err error) {
	r := t.Resources[logical]
	known := false
	for _, row := range rows {
		if "AWS::"+row.kind != r.Type {
			continue
		}
		known = true
		switch {
		case row.when == "", row.when == deleted && r.DeletionPolicy != "Retain",
			r.Properties[row.when] != nil:
		default:
			continue
		}
		keys := make(map[string][]string)
		for key, value := range row.keys {
			if got := t.expand(logical, value); got[0] != "" {
				keys[key] = got
			}
		}
		for _, resource := range t.expand(logical, row.on) {
			if resource != "*" && !strings.HasPrefix(resource, "arn:") {
				resource = "arn:aws:" + resource
			}
			for action := range strings.FieldsSeq(row.actions) {
				calls = append(calls, iam.Call{Action: action, Resource: resource, Keys: maps.Clone(keys)})
			}
		}
	}
	if !known {
		return nil, fmt.Errorf("%s: the actions for resources of type %s are not in the table", logical, r.Type)
	}
	return calls, nil
}

// braces matches the name of a property in a pattern.
var braces = regexp.MustCompile(`\{([A-Za-z0-9.]+)\}`)

// expand replaces the names of properties in a pattern by their values. There is
// one result for each value.
func (t Template) expand(logical, pattern string) []string {
	results := []string{pattern}
	for _, found := range braces.FindAllStringSubmatch(pattern, -1) {
		var next []string
		for _, value := range t.values(logical, found[1]) {
			for _, result := range results {
				next = append(next, strings.Replace(result, found[0], value, 1))
			}
		}
		results = next
	}
	return results
}

func (t Template) values(logical, name string) []string {
	r := t.Resources[logical]
	switch name {
	case "Region":
		return []string{t.Region}
	case "Account":
		return []string{t.Account}
	case "Name":
		return []string{lastPart(t.Physical[logical])}
	case "Path":
		return []string{path(r.Properties)}
	}
	var value any = r.Properties
	for part := range strings.SplitSeq(name, ".") {
		of, _ := value.(map[string]any)
		value = of[part]
	}
	var values []string
	all, isList := t.Resolve(value).([]any)
	if !isList {
		all = []any{t.Resolve(value)}
	}
	for _, v := range all {
		text, _ := v.(string)
		values = append(values, lastPart(text))
	}
	return values
}

// names are the properties with the names of resources, by type.
var names = map[string]string{
	"AWS::ApiGatewayV2::DomainName": "DomainName", "AWS::ApiGatewayV2::Stage": "StageName",
	"AWS::CloudWatch::Alarm": "AlarmName", "AWS::CloudWatch::Dashboard": "DashboardName",
	"AWS::DynamoDB::Table": "TableName", "AWS::IAM::Role": "RoleName", "AWS::Lambda::Function": "FunctionName",
	"AWS::Logs::LogGroup": "LogGroupName", "AWS::S3::Bucket": "BucketName",
}

// NameAll adds the physical IDs that are missing, in the form in which
// CloudFormation makes them for a stack with this name.
func (t Template) NameAll(stack string) {
	local := ":" + t.Region + ":" + t.Account + ":"
	for logical, r := range t.Resources {
		if t.Physical[logical] != "" {
			continue
		}
		name := stack + "-" + logical + "-A1B2C3D4E5F6"
		if given, ok := t.Resolve(r.Properties[names[r.Type]]).(string); ok {
			name = given
		}
		switch r.Type {
		case "AWS::S3::Bucket":
			name = strings.ToLower(name)
		case "AWS::SNS::Topic":
			name = "arn:aws:sns" + local + name
		case "AWS::IAM::ManagedPolicy":
			name = "arn:aws:iam::" + t.Account + ":policy" + path(r.Properties) + name
		case "AWS::Cognito::UserPool":
			name = t.Region + "_A1b2C3d4E"
		}
		t.Physical[logical] = name
	}
}
