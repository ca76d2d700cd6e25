package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2integrations"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscognito"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53targets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publishapi"
	"github.com/larder-registry/larder/pkg/settings"
)

// function is one Lambda function: what it serves, and what of the registry it may read.
type function struct {
	name   string
	routes []httpapi.Route
	// partitions are patterns of the table's partition keys, of which it reads single items, and keys those of which it
	// reads all.
	partitions, keys []string
	// objects is a pattern of object keys.
	objects string
	// login says that it tells clients how people log in.
	login bool
	// publishes says that it writes, which has statements of its own.
	publishes bool
}

// functions are in the stack in this order. Discovery reads nothing, and answers what no other function serves; publish
// alone writes.
func functions() []function {
	return []function{
		{name: "discovery", routes: discovery.Routes(), login: true},
		{name: "modules", routes: modules.Routes(), partitions: []string{"modules/*", "tokens"}, objects: "modules/*"},
		{
			name: "providers", routes: providers.Routes(), objects: "providers/*",
			partitions: []string{"providers/*", "tokens"}, keys: []string{"keys/*"},
		},
		{name: "mirror", routes: mirror.Routes(), partitions: []string{"mirror/*", "tokens"}, objects: "mirror/*"},
		{name: "publish", routes: publishapi.Routes(), publishes: true},
	}
}

// stack is the registry as it is made.
type stack struct {
	awscdk.Stack // the scope of all that is in it
	settings     Settings
	access       string // settings.Access, with what the stack itself adds
	dist         string
	table        awsdynamodb.ITable
	bucket       awss3.IBucket
	functions    map[string]awslambda.Function // by name
	logs         []*string                     // the names of their log groups
	// requests are the log groups of the functions that clients read from.
	requests []awslogs.LogGroup
	// accessLog is the gateway's log group; nil if it logs nothing.
	accessLog awslogs.LogGroup
	// digests are those of the functions' code, by name.
	digests map[string]string
	// alarms are the names of the alarms, and topic is where they go to; none if
	// there are no alarms.
	alarms []string
	topic  awssns.ITopic
}

// stackDescription is the description of each stack of Larder, by which lookUp
// finds them.
const stackDescription = "Larder, a private registry for OpenTofu and Terraform"

// newStack adds the registry to an app. dist holds the functions' folders.
func newStack(app constructs.Construct, s Settings, dist string) awscdk.Stack {
	st := &stack{
		Stack: awscdk.NewStack(app, jsii.String("Larder"), &awscdk.StackProps{
			StackName:   &s.StackName,
			Description: jsii.String(stackDescription),
		}),
		settings:  s,
		access:    s.Access,
		dist:      dist,
		functions: make(map[string]awslambda.Function),
		digests:   make(map[string]string),
	}
	for i, warning := range s.Warnings {
		// The CDK prints warnings of one id once.
		id := "larder:settings-" + strconv.Itoa(i+1)
		awscdk.Annotations_Of(st.Stack).AddWarningV2(&id, &warning)
	}
	if s.Cognito != nil {
		st.access = st.newUserPool()
	}
	st.table = st.newTable()
	st.bucket = st.newBucket()
	api := st.newAPI()
	st.newSignals(api)
	st.output(settings.OutputTable, st.table.TableName(), "The DynamoDB table")
	st.output(settings.OutputBucket, st.bucket.BucketName(), "The S3 bucket")
	st.output(settings.OutputOperatorPolicy, st.newOperatorPolicy().ManagedPolicyArn(), "Attach it to who publishes with AWS credentials")
	st.output(settings.OutputWithdrawPolicy, st.newWithdrawPolicy().ManagedPolicyArn(), "Attach it, beside the operator's, to who withdraws a version, while that is needed")
	st.output(settings.OutputRequestLogs, awscdk.Fn_Join(jsii.String(","), st.requestLogs(func(g awslogs.LogGroup) *string { return g.LogGroupName() })), "Where requests are logged")
	st.output(settings.OutputRequestLogDays, jsii.String(strconv.Itoa(s.LogRetentionDays)), "For how many days that is kept")
	host := awscdk.Fn_Sub(jsii.String("${Api}.execute-api.${AWS::Region}.${AWS::URLSuffix}"), &map[string]*string{"Api": api.ApiId()})
	if s.DomainName != "" {
		host = &s.DomainName
	}
	st.output(settings.OutputHost, host, "What module addresses begin with")
	st.describeItself()
	st.output(settings.OutputURL, awscdk.Fn_Join(jsii.String(""), jsii.Strings("https://", *host)), "Where the registry is")
	return st.Stack
}

// describeItself adds the outputs that `larder doctor --stack` compares with
// what is there.
func (st *stack) describeItself() {
	var names, digests []*string
	for _, f := range functions() {
		names = append(
			names,
			awscdk.Fn_Join(jsii.String("="), &[]*string{jsii.String(f.name), st.functions[f.name].FunctionName()}),
		)
		digests = append(digests, jsii.String(f.name+"="+st.digests[f.name]))
	}
	comma := jsii.String(",")
	st.output(
		settings.OutputRelease,
		jsii.String(sourceRelease()),
		"The release that the stack was deployed from, or the last one before it",
	)
	st.output(settings.OutputFunctions, awscdk.Fn_Join(comma, &names), "The functions, and their names in Lambda")
	st.output(
		settings.OutputFunctionCode,
		awscdk.Fn_Join(comma, &digests),
		"The functions, and the SHA-256 digests of their code",
	)
	if !*awscdk.Token_IsUnresolved(st.access) {
		st.output(
			settings.OutputAccess,
			jsii.String(fmt.Sprintf("%x", sha256.Sum256([]byte(st.access)))),
			"The SHA-256 digest of the functions' access settings",
		)
	}
	if st.settings.Alarms {
		st.output(settings.OutputAlarms, jsii.String(strings.Join(st.alarms, ",")), "The names of the alarms")
		st.output(settings.OutputAlarmTopic, st.topic.TopicArn(), "The SNS topic that alarms go to")
	}
	if st.settings.DomainName != "" {
		st.output(settings.OutputCertificate, &st.settings.CertificateARN, "The certificate of the registry's domain")
	}
}

func (st *stack) output(name string, value *string, description string) {
	awscdk.NewCfnOutput(st.Stack, jsii.String(name), &awscdk.CfnOutputProps{Value: value, Description: &description})
}

func (st *stack) newTable() awsdynamodb.ITable {
	if st.settings.TableName != "" {
		return awsdynamodb.Table_FromTableName(st.Stack, jsii.String("Table"), &st.settings.TableName)
	}
	return awsdynamodb.NewTable(st.Stack, jsii.String("Table"), &awsdynamodb.TableProps{
		PartitionKey:                     &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING},
		SortKey:                          &awsdynamodb.Attribute{Name: jsii.String("sk"), Type: awsdynamodb.AttributeType_STRING},
		BillingMode:                      awsdynamodb.BillingMode_PAY_PER_REQUEST,
		TimeToLiveAttribute:              jsii.String(settings.TTLAttribute),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: jsii.Bool(true)},
		DeletionProtection:               jsii.Bool(true),
		// Not RETAIN_ON_UPDATE_OR_DELETE: what is protected cannot be deleted as a first deploy is rolled back either,
		// which would fail.
		RemovalPolicy: awscdk.RemovalPolicy_RETAIN,
	})
}

func (st *stack) newBucket() awss3.IBucket {
	if st.settings.BucketName != "" {
		return awss3.Bucket_FromBucketName(st.Stack, jsii.String("Bucket"), &st.settings.BucketName)
	}
	bucket := awss3.NewBucket(st.Stack, jsii.String("Bucket"), &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		Versioned:         jsii.Bool(true),
		RemovalPolicy:     awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE,
		LifecycleRules: &[]*awss3.LifecycleRule{
			{
				Id:                                  jsii.String("larder-leftovers"),
				AbortIncompleteMultipartUploadAfter: awscdk.Duration_Days(jsii.Number(7)),
				// What expires leaves a marker behind, which cannot be told by a tag. CloudFormation takes no rule that has
				// nothing but this.
				ExpiredObjectDeleteMarker: jsii.Bool(true),
			},
			// What is uploaded and not published goes. In a bucket with versions it becomes a noncurrent one first.
			{
				Id:                          jsii.String(objects.StagedRule),
				TagFilters:                  &map[string]any{objects.Tag: objects.TagStaged},
				Expiration:                  awscdk.Duration_Hours(jsii.Number(objects.StagedFor.Hours())),
				NoncurrentVersionExpiration: awscdk.Duration_Days(jsii.Number(1)),
			},
		},
	})
	// What is stored is never replaced, whoever has the permission to write. The parts of an upload are no objects yet;
	// its completion is.
	bucket.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid:        jsii.String("PutOnceOnly"),
		Effect:     awsiam.Effect_DENY,
		Principals: &[]awsiam.IPrincipal{awsiam.NewAnyPrincipal()},
		Actions:    jsii.Strings("s3:PutObject"),
		Resources:  &[]*string{bucket.ArnForObjects(jsii.String("*"))},
		Conditions: &map[string]any{
			"Null": map[string]any{"s3:if-none-match": "true"},
			"Bool": map[string]any{"s3:ObjectCreationOperation": "true"},
		},
	}))
	// Without it the policy would go with the stack, or when the stack adopts its own bucket by name.
	bucket.Policy().ApplyRemovalPolicy(awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE)
	return bucket
}

// newUserPool makes a user pool for people to log in by, and returns the access settings with it as an issuer. Whom it
// knows is its administrator's doing: nobody can sign up.
func (st *stack) newUserPool() string {
	pool := awscognito.NewUserPool(st.Stack, jsii.String("Users"), &awscognito.UserPoolProps{
		SelfSignUpEnabled: jsii.Bool(false),
		SignInAliases:     &awscognito.SignInAliases{Email: jsii.Bool(true), Username: jsii.Bool(true)},
		Mfa:               awscognito.Mfa_OPTIONAL,
		MfaSecondFactor:   &awscognito.MfaSecondFactor{Otp: jsii.Bool(true), Sms: jsii.Bool(false)},
		RemovalPolicy:     awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE,
	})
	pool.AddDomain(jsii.String("SignIn"), &awscognito.UserPoolDomainOptions{CognitoDomain: &awscognito.CognitoDomainOptions{DomainPrefix: &st.settings.Cognito.DomainPrefix}})
	// Cognito wants to know every address to which it may redirect, ports included.
	ports := []int{10000, 10010}
	var callbacks []*string
	for port := ports[0]; port <= ports[1]; port++ {
		callbacks = append(callbacks, jsii.String(fmt.Sprintf("http://localhost:%d/login", port)))
	}
	client := pool.AddClient(jsii.String("CommandLine"), &awscognito.UserPoolClientOptions{
		GenerateSecret: jsii.Bool(false),
		OAuth: &awscognito.OAuthSettings{
			Flows:        &awscognito.OAuthFlows{AuthorizationCodeGrant: jsii.Bool(true)},
			Scopes:       &[]awscognito.OAuthScope{awscognito.OAuthScope_OPENID()},
			CallbackUrls: &callbacks,
		},
		AccessTokenValidity: awscdk.Duration_Hours(jsii.Number(12)),
		IdTokenValidity:     awscdk.Duration_Hours(jsii.Number(12)),
	})
	var with access.Settings
	if err := json.Unmarshal([]byte(st.settings.Access), &with); err != nil {
		panic(err) // parseSettings wrote it
	}
	issuer := *pool.UserPoolProviderUrl()
	with.Issuers = append(with.Issuers, access.Issuer{Issuer: issuer, ClientIDs: []string{*client.UserPoolClientId()}, Name: "username", Rules: st.settings.Cognito.Rules})
	with.Login = &openid.Login{Issuer: issuer, Client: *client.UserPoolClientId(), Ports: ports}
	text, err := json.Marshal(with)
	if err != nil {
		panic(err) // it is strings
	}
	st.output(settings.OutputUserPool, pool.UserPoolId(), "The Cognito user pool by which people log in")
	return string(text)
}

// login returns how people log in, out of the access settings; it is empty where they do not.
func (st *stack) login() string {
	var with access.Settings
	if err := json.Unmarshal([]byte(st.access), &with); err != nil {
		panic(err) // it was written here or by parseSettings
	}
	if with.Login == nil {
		return ""
	}
	text, err := json.Marshal(with.Login)
	if err != nil {
		panic(err) // it is strings
	}
	return string(text)
}

// newLogGroup makes a log group that goes with the stack. The ARN that it has ends in ":*", as IAM wants it.
func (st *stack) newLogGroup(id string) awslogs.LogGroup { return st.newNamedLogGroup(id, nil) }

func (st *stack) newNamedLogGroup(id string, name *string) awslogs.LogGroup {
	group := awslogs.NewLogGroup(
		st.Stack,
		jsii.String(id),
		&awslogs.LogGroupProps{LogGroupName: name, RemovalPolicy: awscdk.RemovalPolicy_DESTROY},
	)
	if resource, ok := group.Node().DefaultChild().(awslogs.CfnLogGroup); ok {
		resource.SetRetentionInDays(jsii.Number(float64(st.settings.LogRetentionDays)))
	}
	return group
}

// newFunction makes a function with a role of its own, whose statements are written here and nowhere else.
func (st *stack) newFunction(f function) awslambda.Function {
	logs := st.newLogGroup(f.name + "-logs")
	statements := []awsiam.PolicyStatement{allow("WriteItsLog", jsii.Strings("logs:CreateLogStream", "logs:PutLogEvents"), []*string{logs.LogGroupArn()}, nil)}
	memory, timeout := st.settings.MemoryMiB, awscdk.Duration_Seconds(jsii.Number(10)) // clients give up after ten
	var reserved *float64
	var told map[string]string
	switch {
	case f.publishes:
		statements = append(statements, st.publishing()...)
		told = st.told()
		maps.Copy(told, st.settings.PublishLimits.Environment())
		told["GOMEMLIMIT"] = fmt.Sprintf("%dMiB", st.settings.PublishMemoryMiB*3/4) // what is made to take much memory is cleared away sooner
		// The gateway gives up after 30 seconds, and an inspection goes on for as long as Lambda lets it.
		memory, timeout = st.settings.PublishMemoryMiB, awscdk.Duration_Minutes(jsii.Number(15))
		if st.settings.PublishConcurrency > 0 {
			reserved = jsii.Number(float64(st.settings.PublishConcurrency))
		}
	case f.objects != "":
		statements = append(statements,
			allow("ReadItsItems", jsii.Strings("dynamodb:GetItem"), []*string{st.table.TableArn()}, heldTo(f.partitions...)),
			allow("SignItsObjects", jsii.Strings("s3:GetObject"), []*string{st.bucket.ArnForObjects(&f.objects)}, nil))
		if f.keys != nil {
			statements = append(statements, allow("ReadAllKeys", jsii.Strings("dynamodb:Query"), []*string{st.table.TableArn()}, heldTo(f.keys...)))
		}
		told = st.told()
		st.requests = append(st.requests, logs)
	case f.login:
		told = settings.LoginEnvironment(st.login())
	}
	environment := make(map[string]*string)
	for _, variables := range []map[string]string{told, settings.MetricsEnvironment(st.settings.MetricsNamespace)} {
		for name, value := range variables {
			environment[name] = &value
		}
	}
	role := awsiam.NewRole(st.Stack, jsii.String(f.name+"-role"), &awsiam.RoleProps{
		AssumedBy:      awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		Description:    jsii.String("What the function " + f.name + " of the registry may do"),
		InlinePolicies: &map[string]awsiam.PolicyDocument{"function": awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &statements})},
	})
	architecture := awslambda.Architecture_ARM_64()
	if st.settings.Architecture == "x86_64" {
		architecture = awslambda.Architecture_X86_64()
	}
	st.logs = append(st.logs, logs.LogGroupName())
	code, digest, err := packFunction(st.dist, f.name)
	if err != nil {
		panic(err) // scripts/build wrote it
	}
	st.digests[f.name] = digest
	st.functions[f.name] = awslambda.NewFunction(st.Stack, jsii.String(f.name), &awslambda.FunctionProps{
		Description:   jsii.String("Larder: " + f.name),
		Runtime:       awslambda.Runtime_PROVIDED_AL2023(),
		Architecture:  architecture,
		Handler:       jsii.String("bootstrap"),
		Code:          awslambda.Code_FromAsset(&code, nil),
		MemorySize:    jsii.Number(float64(memory)),
		Timeout:       timeout,
		Role:          role,
		LogGroup:      logs,
		LoggingFormat: awslambda.LoggingFormat_JSON,
		Environment:   &environment,

		ReservedConcurrentExecutions: reserved,
	})
	// The CDK waits for the role's policies, which are in the role itself here.
	if resource, ok := st.functions[f.name].Node().DefaultChild().(awslambda.CfnFunction); ok {
		resource.AddDeletionOverride(jsii.String("DependsOn"))
	}
	return st.functions[f.name]
}

// told is the environment of a function that reads the catalogue.
func (st *stack) told() map[string]string {
	return settings.Settings{Table: *st.table.TableName(), Bucket: *st.bucket.BucketName(), PresignLifetime: st.settings.PresignLifetime, Access: st.access}.Environment()
}

// publishing is what publishing for those without AWS credentials needs. It deletes nothing, and makes neither tokens nor
// keys. It writes the audit trail, and does not read it. Of the archives it reaches those that came by it, which it can neither replace nor, once they are kept, have expire.
//
// S3 knows the tag that a request brings for both of a PUT's actions, and the one that an object has for tagging alone:
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/tagging-and-policies.html.
func (st *stack) publishing() []awsiam.PolicyStatement {
	table := []*string{st.table.TableArn()}
	// These match the keys of registry.UploadKey. A star also matches slashes: with
	// fewer stars they would match all objects of a module that is called api.
	uploads := []string{"modules/*/*/*/*/api/*", "providers/*/*/*/api/*"}
	var archives []*string
	for _, keys := range uploads {
		archives = append(archives, st.bucket.ArnForObjects(&keys))
	}
	const brings, has = "s3:RequestObjectTag/" + objects.Tag, "s3:ExistingObjectTag/" + objects.Tag
	equals := func(key string, values ...string) map[string]any { return map[string]any{key: values} }
	return []awsiam.PolicyStatement{
		allow("ReadItems", jsii.Strings("dynamodb:GetItem"), table, heldTo("modules/*", "providers/*", "catalog/*", "namespaces", "uploads/*", "tokens", "keys/*")),
		allow("ReadAllOfUploadsAndKeys", jsii.Strings("dynamodb:Query"), table, heldTo("uploads/*", "keys/*")),
		allow("Publish", jsii.Strings("dynamodb:PutItem"), table, heldTo("modules/*", "providers/*", "catalog/*", "namespaces", "uploads/*", "audit/*")),
		allow("HoldOnToKeys", jsii.Strings("dynamodb:ConditionCheckItem"), table, heldTo("keys/*")),
		allow("ReadUploads", jsii.Strings("s3:GetObject", "s3:GetObjectTagging"), archives, nil),
		allow("StageOnce", jsii.Strings("s3:PutObject"), archives, map[string]any{
			"StringEquals": equals(brings, objects.TagStaged),
			// The stack's own bucket demands it of everyone; one that is adopted may not.
			"Null": map[string]any{"s3:if-none-match": "false"},
		}),
		allow("StageAndKeep", jsii.Strings("s3:PutObjectTagging"), archives, map[string]any{"StringEquals": equals(brings, objects.TagStaged, objects.TagKept)}),
		deny("KeepForGood", jsii.Strings("s3:PutObjectTagging"), archives, map[string]any{"StringEquals": equals(has, objects.TagKept)}),
		// Without it S3 answers 403, and not 404, to a question for an object that is missing, whose key counts as the prefix.
		allow("SeeWhichUploadsThereAre", jsii.Strings("s3:ListBucket"), []*string{st.bucket.BucketArn()}, map[string]any{"StringLike": map[string]any{"s3:prefix": uploads}}),
	}
}

// heldTo is the condition under which a request of the table names partitions of these patterns alone.
func heldTo(partitions ...string) map[string]any {
	return map[string]any{
		"ForAllValues:StringLike": map[string]any{"dynamodb:LeadingKeys": partitions},
		// Without this, a request that names no key would pass the condition above.
		"Null": map[string]any{"dynamodb:LeadingKeys": "false"},
	}
}

func allow(sid string, actions *[]*string, resources []*string, conditions map[string]any) awsiam.PolicyStatement {
	props := &awsiam.PolicyStatementProps{Sid: &sid, Actions: actions, Resources: &resources}
	if conditions != nil {
		props.Conditions = &conditions
	}
	return awsiam.NewPolicyStatement(props)
}

func deny(sid string, actions *[]*string, resources []*string, conditions map[string]any) awsiam.PolicyStatement {
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{Sid: &sid, Effect: awsiam.Effect_DENY, Actions: actions, Resources: &resources, Conditions: &conditions})
}

// newAPI makes the gateway. Its routes are the handlers' routes with any method, so that HEAD and 405 are theirs; what
// is left goes to discovery, whose 404 is JSON.
func (st *stack) newAPI() awsapigatewayv2.HttpApi {
	api := awsapigatewayv2.NewHttpApi(st.Stack, jsii.String("Api"), &awsapigatewayv2.HttpApiProps{
		ApiName:                   jsii.String(st.settings.StackName),
		CreateDefaultStage:        jsii.Bool(false),
		DisableExecuteApiEndpoint: jsii.Bool(st.settings.DomainName != ""),
	})
	for _, f := range functions() {
		integration := awsapigatewayv2integrations.NewHttpLambdaIntegration(jsii.String(f.name), st.newFunction(f), nil)
		for _, path := range httpapi.Paths(f.routes) {
			api.AddRoutes(&awsapigatewayv2.AddRoutesOptions{
				Path: &path, Methods: &[]awsapigatewayv2.HttpMethod{awsapigatewayv2.HttpMethod_ANY}, Integration: integration,
			})
		}
		if f.name == "discovery" {
			awsapigatewayv2.NewHttpRoute(st.Stack, jsii.String("Default"), &awsapigatewayv2.HttpRouteProps{
				HttpApi: api, RouteKey: awsapigatewayv2.HttpRouteKey_DEFAULT(), Integration: integration,
			})
		}
	}
	props := &awsapigatewayv2.CfnStageProps{
		ApiId:      api.ApiId(),
		StageName:  jsii.String("$default"),
		AutoDeploy: jsii.Bool(true),
		DefaultRouteSettings: &awsapigatewayv2.CfnStage_RouteSettingsProperty{
			ThrottlingRateLimit:  jsii.Number(float64(st.settings.ThrottleRate)),
			ThrottlingBurstLimit: jsii.Number(float64(st.settings.ThrottleBurst)),
		},
	}
	if st.settings.AccessLog {
		// AWS lets the gateway write to a group of any other name by a policy of all such groups of the account, which
		// has 5,120 characters at most.
		st.accessLog = st.newNamedLogGroup("access-logs", jsii.String("/aws/vendedlogs/apigateway/"+st.settings.StackName))
		props.AccessLogSettings = &awsapigatewayv2.CfnStage_AccessLogSettingsProperty{
			DestinationArn: st.accessLog.LogGroupArn(),
			Format:         jsii.String(accessLogFormat()),
		}
	}
	stage := awsapigatewayv2.NewCfnStage(st.Stack, jsii.String("Stage"), props)
	if st.settings.DomainName != "" {
		st.newDomain(api, stage)
	}
	return api
}

// accessLogFormat returns what the gateway logs of a request. It has the route
// and not the path, since a path may have a token or a signature in it; the
// functions' log has the path without them. The User-Agent is the only header.
func accessLogFormat() string {
	format, err := json.Marshal(map[string]string{
		"requestId": "$context.requestId", "time": "$context.requestTime", "ip": "$context.identity.sourceIp", "method": "$context.httpMethod",
		"route": "$context.routeKey", "status": "$context.status", "bytes": "$context.responseLength",
		"latency": "$context.responseLatency", "integrationLatency": "$context.integrationLatency", "integrationError": "$context.integrationErrorMessage",
		"userAgent": "$context.identity.userAgent",
	})
	if err != nil {
		panic(err) // strings encode
	}
	return string(format)
}

func (st *stack) newDomain(api awsapigatewayv2.HttpApi, stage awsapigatewayv2.CfnStage) {
	s := st.settings
	domain := awsapigatewayv2.NewDomainName(st.Stack, jsii.String("Domain"), &awsapigatewayv2.DomainNameProps{
		DomainName:     &s.DomainName,
		Certificate:    awscertificatemanager.Certificate_FromCertificateArn(st.Stack, jsii.String("Certificate"), &s.CertificateARN),
		SecurityPolicy: awsapigatewayv2.SecurityPolicy_TLS_1_2,
	})
	mapping := awsapigatewayv2.NewCfnApiMapping(st.Stack, jsii.String("Mapping"), &awsapigatewayv2.CfnApiMappingProps{
		ApiId: api.ApiId(), DomainName: domain.Name(), Stage: jsii.String("$default"),
	})
	mapping.AddResourceDependency(stage, nil)
	zone := awsroute53.HostedZone_FromHostedZoneAttributes(st.Stack, jsii.String("Zone"), &awsroute53.HostedZoneAttributes{HostedZoneId: &s.HostedZoneID, ZoneName: &s.HostedZoneName})
	target := awsroute53.RecordTarget_FromAlias(awsroute53targets.NewApiGatewayv2DomainProperties(domain.RegionalDomainName(), domain.RegionalHostedZoneId()))
	awsroute53.NewARecord(st.Stack, jsii.String("Address"), &awsroute53.ARecordProps{Zone: zone, RecordName: jsii.String(s.DomainName + "."), Target: target})
}

// newOperatorPolicy allows exactly what publishing, making tokens, counting
// downloads and examining the stack with AWS credentials need. It allows to
// delete tokens and keys alone, and the bucket's policy lets nobody replace an
// archive. IAM cannot require that an item is new, though: the publisher's own
// conditions protect the record of a version.
func (st *stack) newOperatorPolicy() awsiam.ManagedPolicy {
	stackARN := awscdk.Fn_Sub(jsii.String("arn:${AWS::Partition}:cloudformation:${AWS::Region}:${AWS::AccountId}:stack/"+st.settings.StackName+"/*"), nil)
	return awsiam.NewManagedPolicy(st.Stack, jsii.String("OperatorPolicy"), &awsiam.ManagedPolicyProps{
		Description: jsii.String(fmt.Sprintf("Publishing to the registry %s", st.settings.StackName)),
		Statements: new(slices.Concat([]awsiam.PolicyStatement{
			allow("FindTheRegistry", jsii.Strings("cloudformation:DescribeStacks"), []*string{stackARN}, nil),
			allow("ReadAndWriteTheCatalogue", jsii.Strings("dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem"), []*string{st.table.TableArn()},
				heldTo("modules/*", "providers/*", "mirror/*", "keys/*", "catalog/*", "namespaces", "tokens", "audit/*")),
			allow("HoldOnToKeys", jsii.Strings("dynamodb:ConditionCheckItem"), []*string{st.table.TableArn()},
				heldTo("keys/*")),
			allow("RevokeTokensAndKeys", jsii.Strings("dynamodb:DeleteItem"), []*string{st.table.TableArn()}, heldTo("tokens", "keys/*")),
			allow("ReadAndPutArchives", jsii.Strings("s3:GetObject", "s3:PutObject"), []*string{st.bucket.ArnForObjects(jsii.String("modules/*")), st.bucket.ArnForObjects(jsii.String("providers/*")), st.bucket.ArnForObjects(jsii.String("mirror/*"))}, nil),
			// Without it S3 answers 403, and not 404, to a question for an object that is missing.
			allow("SeeWhichArchivesThereAre", jsii.Strings("s3:ListBucket"), []*string{st.bucket.BucketArn()}, map[string]any{"StringLike": map[string]any{"s3:prefix": []string{"modules/*", "providers/*", "mirror/*"}}}),
			allow("CountDownloads", jsii.Strings("logs:StartQuery"), *st.requestLogs(func(g awslogs.LogGroup) *string { return g.LogGroupArn() }), nil),
			// These name a query by its id, and IAM knows no resource for that.
			allow("ReadWhatWasCounted", jsii.Strings("logs:GetQueryResults", "logs:StopQuery"), []*string{jsii.String("*")}, nil),
		}, st.examining())),
	})
}

// examining is what `larder doctor --stack` reads of the stack.
func (st *stack) examining() []awsiam.PolicyStatement {
	var lambdas []*string
	for _, f := range functions() {
		lambdas = append(lambdas, st.functions[f.name].FunctionArn())
	}
	statements := []awsiam.PolicyStatement{
		allow(
			"ExamineTheTable",
			jsii.Strings("dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:DescribeContinuousBackups"),
			[]*string{st.table.TableArn()},
			nil,
		),
		allow(
			"ExamineTheBucket",
			jsii.Strings(
				"s3:GetBucketPolicy",
				"s3:GetBucketPublicAccessBlock",
				"s3:GetLifecycleConfiguration",
				"s3:GetBucketVersioning",
				"s3:GetEncryptionConfiguration",
			),
			[]*string{st.bucket.BucketArn()},
			nil,
		),
		allow("ExamineFunctions", jsii.Strings("lambda:GetFunctionConfiguration"), lambdas, nil),
	}
	if st.settings.Alarms {
		statements = append(statements,
			// Not on single alarms: AWS's examples allow this action on all, and
			// its denials name alarm:*.
			allow("ExamineAlarms", jsii.Strings("cloudwatch:DescribeAlarms"), []*string{st.alarmARN("*")}, nil),
			allow("ListSubscribers", jsii.Strings("sns:ListSubscriptionsByTopic"), []*string{st.topic.TopicArn()}, nil))
	}
	if st.settings.DomainName != "" {
		statements = append(
			statements,
			allow(
				"ExamineTheCertificate",
				jsii.Strings("acm:DescribeCertificate"),
				[]*string{&st.settings.CertificateARN},
				nil,
			),
		)
	}
	return statements
}

// newWithdrawPolicy holds what withdrawing a version needs beside the operator's policy: to remove its objects with all their
// versions. Nobody has it until it is attached.
func (st *stack) newWithdrawPolicy() awsiam.ManagedPolicy {
	prefixes := []string{"modules/*", "providers/*", "mirror/*"}
	var archives []*string
	for _, prefix := range prefixes {
		archives = append(archives, st.bucket.ArnForObjects(&prefix))
	}
	return awsiam.NewManagedPolicy(st.Stack, jsii.String("WithdrawPolicy"), &awsiam.ManagedPolicyProps{
		Description: jsii.String(fmt.Sprintf("Removing what is withdrawn from the registry %s", st.settings.StackName)),
		Statements: &[]awsiam.PolicyStatement{
			allow("RemoveArchives", jsii.Strings("s3:DeleteObjectVersion"), archives, nil),
			allow("SeeWhichVersionsOfArchivesThereAre", jsii.Strings("s3:ListBucketVersions"), []*string{st.bucket.BucketArn()}, map[string]any{"StringLike": map[string]any{"s3:prefix": prefixes}}),
		},
	})
}

// requestLogs returns something of each log group of requests.
func (st *stack) requestLogs(of func(awslogs.LogGroup) *string) *[]*string {
	var all []*string
	for _, group := range st.requests {
		all = append(all, of(group))
	}
	return &all
}
