package main

import (
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
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53targets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/usage/logged"
	"github.com/larder-registry/larder/pkg/web"
)

// function describes a Lambda function: its routes and the data that it may
// read.
type function struct {
	name string
	// routes are its single routes. trees are the prefixes of its other paths. Those
	// of a tree need one route together.
	routes []httpapi.Route
	trees  []string
	// parts are the parts of the settings' limits that each of its routes has, as
	// divisors. treeParts are those of a tree that has others.
	parts     throttle
	treeParts map[string]throttle
	// partitions are patterns of the partition keys of which it reads single
	// items. queried are patterns of those of which it reads all items.
	partitions, queried []string
	// objects are patterns of the keys of the objects for which it signs URLs.
	objects []string
	// fetches means that it uses these URLs itself.
	fetches bool
	// login means that it serves the login of people to clients.
	login bool
	// sessions means that it logs people in. It writes their sessions, and reads
	// the secret with which the issuer recognizes it.
	sessions bool
	// publishes means that it writes. Its permissions are those of publishing.
	publishes bool
	// pulls means that it fetches what the mirror lacks. It has no route, and its
	// permissions are those of pulling. invokesPull means that it invokes that
	// function.
	pulls, invokesPull bool
	// counts means that it counts downloads from the request log. It has no
	// route, and writes only the counts.
	counts bool
}

const (
	// sessionItems is the partition of sessions.
	sessionItems = "sessions"
	// policyItem is the partition of the mirror's policy. Only operators write
	// it.
	policyItem = "policy"
	// usageItems are the partitions of downloads and of last uses of tokens.
	// totalItems is the one of the downloads of all addresses, and countingItem
	// the one of the time since when downloads are counted.
	usageItems   = "usage/*"
	totalItems   = "usage/totals"
	countingItem = "usage/counting"
	// usageName is the name of the function that counts downloads.
	usageName = "usage"
	// pullName is the name of the function that fetches what the mirror lacks.
	pullName = "pull"
)

// mirrored are the patterns of the partitions and of the objects of the mirror.
var mirrored = []string{registry.MirrorPrefix + "*", registry.MirrorModulePrefix + "*"}

// downloadItems are the partitions of the downloads of each address.
var downloadItems = []string{
	"usage/modules/*", "usage/providers/*", "usage/" + registry.MirrorPrefix + "*", "usage/" + registry.MirrorModulePrefix + "*",
}

// documents, files and archives are patterns of keys, of the documentation, the
// files and the archives of modules.
const (
	documents = "modules/*/" + registry.DocsName
	files     = "modules/*/" + registry.FilesName
	archives  = "modules/*.tar.gz"
)

func (f function) routeKeys() []string { return httpapi.RouteKeys(f.routes, f.trees...) }

// functions returns the functions in the order of the stack. Discovery reads
// nothing. Only publish, pull, web and usage write. Pull writes only the
// mirror, web only sessions, and usage only counts. Mirror invokes pull, so it
// comes later.
func functions() []function {
	items := slices.Concat([]string{"modules/*", "providers/*"}, mirrored, []string{"catalog/*"})
	return []function{
		{name: "discovery", routes: discovery.Routes(), parts: throttle{2, 5}, login: true},
		{name: "modules", routes: modules.Routes(), parts: throttle{1, 1}, partitions: []string{"modules/*", "tokens"},
			objects: []string{"modules/*"}},
		{
			name: "providers", routes: providers.Routes(), parts: throttle{2, 9}, objects: []string{"providers/*"},
			partitions: []string{"providers/*", "tokens"}, queried: []string{"keys/*"},
		},
		{name: pullName, pulls: true},
		{
			name: "mirror", routes: mirror.Routes(), trees: []string{mirror.ProvidersPath, mirror.ModulesPath},
			partitions: slices.Concat(mirrored, []string{"tokens", policyItem}), objects: mirrored, invokesPull: true,
			// The quota of an account has no room for the bursts of more routes.
			// Clients request one module after the other.
			parts: throttle{1, 1}, treeParts: map[string]throttle{mirror.ModulesPath: {1, 4}},
		},
		{
			name: "metadata", trees: []string{metadata.Tree}, parts: throttle{4, 16}, fetches: true,
			objects:    []string{documents, files, "mirror-" + files},
			partitions: slices.Concat(items, []string{"tokens", policyItem, totalItems}),
			queried:    slices.Concat(items, []string{"namespaces", totalItems}),
		},
		{
			name: "web", trees: []string{web.Tree}, parts: throttle{2, 8}, fetches: true, sessions: true,
			objects: []string{
				documents, files, archives, "mirror-" + documents, "mirror-" + files, "mirror-" + archives,
			},
			partitions: slices.Concat(items, []string{"keys/*", sessionItems, "tokens", policyItem, countingItem}),
			// The page of the status reads all tokens, keys, downloads, origins and changes.
			queried: slices.Concat(downloadItems, []string{
				"catalog/*", "namespaces", totalItems, "audit/*", "keys/*", "tokens", registry.MirrorPrefix + "providers",
			}),
		},
		{name: "publish", trees: []string{protocol.PublishPath}, parts: throttle{2, 12}, publishes: true},
		{name: usageName, counts: true, partitions: []string{usageItems}},
	}
}

// functions returns the functions of a stack with these settings. A read-only
// stack has none that fetches for the mirror or counts. Its function publish
// only reads the callers' tokens, and then refuses.
func (s Settings) functions() []function {
	all := functions()
	if !s.ReadOnly {
		return all
	}
	all = slices.DeleteFunc(all, func(f function) bool { return f.pulls || f.counts })
	for i := range all {
		f := &all[i]
		switch {
		case f.invokesPull:
			f.invokesPull = false
			f.partitions = slices.DeleteFunc(f.partitions, func(p string) bool { return p == policyItem })
		case f.publishes:
			f.publishes, f.partitions = false, []string{"tokens"}
		}
	}
	return all
}

// stack is the registry while it is built.
type stack struct {
	awscdk.Stack // the scope of all resources
	settings     Settings
	access       string // settings.Access with the stack's own user pool
	dist         string
	key          awskms.IKey // nil without settings.KMSKeyARN
	table        awsdynamodb.ITable
	bucket       awss3.IBucket
	failures     awssqs.Queue                  // the requests to fetch for the mirror that failed
	functions    map[string]awslambda.Function // by name
	logs         []*string                     // the names of the functions' log groups
	// requests are the log groups of the functions that hand out URLs or
	// recognize tokens.
	requests []awslogs.LogGroup
	// accessLog is the gateway's log group. It is nil if the gateway does not
	// log.
	accessLog awslogs.LogGroup
	// digests are the digests of the functions' packages, by name.
	digests map[string]string
	// alarms are the names of the alarms, and topic is the topic that they
	// notify. Both are empty if there are no alarms.
	alarms []string
	topic  awssns.ITopic
}

// stackDescription is the description of each Larder stack, by which lookUp
// finds them.
const stackDescription = "Larder, a private registry for OpenTofu and Terraform"

// newStack adds the registry to an app. dist has one folder for each function.
func newStack(app constructs.Construct, s Settings, dist string) awscdk.Stack {
	st := &stack{
		Stack: awscdk.NewStack(app, jsii.String("Larder"), &awscdk.StackProps{
			StackName:   &s.StackName,
			Description: jsii.String(stackDescription),
			Synthesizer: awscdk.NewDefaultStackSynthesizer(&awscdk.DefaultStackSynthesizerProps{
				Qualifier: optional(s.BootstrapQualifier),
			}),
		}),
		settings:  s,
		access:    s.Access,
		dist:      dist,
		functions: make(map[string]awslambda.Function),
		digests:   make(map[string]string),
	}
	for i, warning := range s.Warnings {
		// The CDK prints only one warning for each id.
		id := "larder:settings-" + strconv.Itoa(i+1)
		awscdk.Annotations_Of(st.Stack).AddWarningV2(&id, &warning)
	}
	for key, value := range s.Tags {
		awscdk.Tags_Of(st.Stack).Add(&key, &value, nil)
	}
	if s.PermissionsBoundary != "" {
		awsiam.PermissionsBoundary_Of(st.Stack).Apply(
			awsiam.ManagedPolicy_FromManagedPolicyArn(st.Stack, jsii.String("Boundary"), &s.PermissionsBoundary))
	}
	if s.KMSKeyARN != "" {
		st.key = awskms.Key_FromKeyArn(st.Stack, jsii.String("Key"), &s.KMSKeyARN)
	}
	// The gateway comes first, because the user pool needs its host, and its
	// functions need the user pool.
	api := awsapigatewayv2.NewHttpApi(st.Stack, jsii.String("Api"), &awsapigatewayv2.HttpApiProps{
		ApiName:                   &s.StackName,
		IpAddressType:             st.addresses(),
		CreateDefaultStage:        jsii.Bool(false),
		DisableExecuteApiEndpoint: jsii.Bool(s.DomainName != ""),
	})
	host := awscdk.Fn_Sub(jsii.String("${Api}.execute-api.${AWS::Region}.${AWS::URLSuffix}"),
		&map[string]*string{"Api": api.ApiId()})
	if s.DomainName != "" {
		host = &s.DomainName
	}
	if s.Cognito != nil {
		st.access = st.newUserPool(host)
	}
	st.table = st.newTable()
	st.bucket = st.newBucket()
	if !s.ReadOnly {
		st.failures = st.newPullFailures()
	}
	st.newEndpoints(api)
	if !s.ReadOnly {
		st.newPullEvents()
		st.newSubscriptions()
	}
	st.newMonitoring(api)
	st.output(settings.OutputTable, st.table.TableName(), "The DynamoDB table")
	st.output(settings.OutputBucket, st.bucket.BucketName(), "The S3 bucket")
	st.output(settings.OutputOperatorPolicy, st.newOperatorPolicy(api).ManagedPolicyArn(),
		"The policy for principals that publish with AWS credentials")
	st.output(settings.OutputWithdrawPolicy, st.newWithdrawPolicy().ManagedPolicyArn(),
		"The policy for principals that withdraw versions; attach it, with the operator's, only while you need it")
	about := "The host of module and provider addresses"
	if registry.Host(s.DomainName).Display() != s.DomainName {
		// CloudFormation returns other letters of outputs as question marks.
		about += ", in Punycode. Clients need it in Unicode, as larder prints it"
	}
	st.output(settings.OutputHost, host, about)
	st.describeItself()
	st.output(settings.OutputURL, awscdk.Fn_Join(jsii.String(""), jsii.Strings("https://", *host)),
		"The URL of the registry")
	return st.Stack
}

// describeItself adds the outputs that `larder doctor --stack` compares with
// the deployed resources.
func (st *stack) describeItself() {
	var names, digests []*string
	for _, f := range st.settings.functions() {
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
	if st.settings.Alarms {
		st.output(settings.OutputAlarms, jsii.String(strings.Join(st.alarms, ",")), "The names of the alarms")
		st.output(settings.OutputAlarmTopic, st.topic.TopicArn(), "The SNS topic that alarms go to")
	}
	if st.settings.ReadOnly {
		st.output(settings.OutputReadOnly, jsii.String("true"), "Nothing can be published to this registry")
	}
	if st.settings.DomainName != "" {
		st.output(settings.OutputCertificate, &st.settings.CertificateARN, "The certificate of the registry's domain")
	}
	if st.key != nil {
		st.output(settings.OutputKey, &st.settings.KMSKeyARN, "The KMS key that encrypts the stored data")
	}
}

func (st *stack) output(name string, value *string, description string) {
	awscdk.NewCfnOutput(st.Stack, jsii.String(name), &awscdk.CfnOutputProps{Value: value, Description: &description})
}

func (st *stack) newTable() awsdynamodb.ITable {
	if st.settings.TableName != "" {
		return awsdynamodb.Table_FromTableName(st.Stack, jsii.String("Table"), &st.settings.TableName)
	}
	var encryption awsdynamodb.TableEncryption // by a key that AWS owns
	if st.key != nil {
		encryption = awsdynamodb.TableEncryption_CUSTOMER_MANAGED
	}
	return awsdynamodb.NewTable(st.Stack, jsii.String("Table"), &awsdynamodb.TableProps{
		Encryption: encryption, EncryptionKey: st.key,
		PartitionKey: &awsdynamodb.Attribute{Name: jsii.String("pk"),
			Type: awsdynamodb.AttributeType_STRING},
		SortKey: &awsdynamodb.Attribute{Name: jsii.String("sk"),
			Type: awsdynamodb.AttributeType_STRING},
		BillingMode:         awsdynamodb.BillingMode_PAY_PER_REQUEST,
		TimeToLiveAttribute: jsii.String(settings.TTLAttribute),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
		DeletionProtection: jsii.Bool(true),
		// Not RETAIN_ON_UPDATE_OR_DELETE: if a first deploy is rolled back, the
		// deletion of a protected table fails, and with it the rollback.
		RemovalPolicy: awscdk.RemovalPolicy_RETAIN,
	})
}

func (st *stack) newBucket() awss3.IBucket {
	if st.settings.BucketName != "" {
		return awss3.Bucket_FromBucketName(st.Stack, jsii.String("Bucket"), &st.settings.BucketName)
	}
	encryption, bucketKey := awss3.BucketEncryption_S3_MANAGED, (*bool)(nil)
	if st.key != nil {
		// With a bucket key, S3 sends one request to KMS for many objects.
		encryption, bucketKey = awss3.BucketEncryption_KMS, jsii.Bool(true)
	}
	bucket := awss3.NewBucket(st.Stack, jsii.String("Bucket"), &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		Encryption:        encryption,
		EncryptionKey:     st.key,
		BucketKeyEnabled:  bucketKey,
		EnforceSSL:        jsii.Bool(true),
		Versioned:         jsii.Bool(true),
		RemovalPolicy:     awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE,
		LifecycleRules: &[]*awss3.LifecycleRule{
			{
				Id:                                  jsii.String("larder-leftovers"),
				AbortIncompleteMultipartUploadAfter: awscdk.Duration_Days(jsii.Number(7)),
				// An object that expires leaves a delete marker, which a filter
				// on tags does not match. CloudFormation rejects a rule that
				// has only this property.
				ExpiredObjectDeleteMarker: jsii.Bool(true),
			},
			// Uploads that were not published expire. In a versioned bucket
			// they first become noncurrent versions.
			{
				Id:                          jsii.String(objects.StagedRule),
				TagFilters:                  &map[string]any{objects.Tag: objects.TagStaged},
				Expiration:                  awscdk.Duration_Hours(jsii.Number(objects.StagedFor.Hours())),
				NoncurrentVersionExpiration: awscdk.Duration_Days(jsii.Number(1)),
			},
		},
	})
	// Stored objects cannot be overwritten, by any principal. The condition
	// does not apply to parts of an upload, which are not objects, but to its
	// completion.
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
	// Otherwise the policy would be deleted with the stack, or when the stack
	// adopts its own bucket by name.
	bucket.Policy().ApplyRemovalPolicy(awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE)
	return bucket
}

// newUserPool creates a user pool for people to log in, and returns the access
// settings with the pool as an issuer. Only its administrator can add users. One
// public client serves the command lines and the web pages on the host.
func (st *stack) newUserPool(host *string) string {
	pool := awscognito.NewUserPool(st.Stack, jsii.String("Users"), &awscognito.UserPoolProps{
		UserPoolName:      &st.settings.StackName,
		SelfSignUpEnabled: jsii.Bool(false),
		SignInAliases:     &awscognito.SignInAliases{Email: jsii.Bool(true), Username: jsii.Bool(true)},
		Mfa:               awscognito.Mfa_OPTIONAL,
		MfaSecondFactor:   &awscognito.MfaSecondFactor{Otp: jsii.Bool(true), Sms: jsii.Bool(false)},
		RemovalPolicy:     awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE,
	})
	pool.AddDomain(jsii.String("SignIn"),
		&awscognito.UserPoolDomainOptions{CognitoDomain: &awscognito.CognitoDomainOptions{
			DomainPrefix: &st.settings.Cognito.DomainPrefix,
		}})
	// Cognito requires a list of all redirect URLs, with their ports.
	ports := []int{10000, 10010}
	callbacks := []*string{awscdk.Fn_Join(jsii.String(""), jsii.Strings("https://", *host, openid.CallbackPath))}
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
		// Otherwise the sign-in page would reveal who has an account.
		PreventUserExistenceErrors: jsii.Bool(true),
		AccessTokenValidity:        awscdk.Duration_Hours(jsii.Number(12)),
		IdTokenValidity:            awscdk.Duration_Hours(jsii.Number(12)),
	})
	var with access.Settings
	if err := json.Unmarshal([]byte(st.settings.Access), &with); err != nil {
		panic(err) // parseSettings wrote it
	}
	issuer := *pool.UserPoolProviderUrl()
	with.Issuers = append(with.Issuers,
		access.Issuer{Issuer: issuer, ClientIDs: []string{*client.UserPoolClientId()}, Name: "username",
			Rules: st.settings.Cognito.Rules})
	with.Login = &openid.Login{Issuer: issuer, Client: *client.UserPoolClientId(), Ports: ports,
		Web: &openid.WebClient{Client: *client.UserPoolClientId()}}
	text, err := json.Marshal(with)
	if err != nil {
		panic(err) // strings always encode
	}
	st.output(settings.OutputUserPool, pool.UserPoolId(), "The Cognito user pool by which people log in")
	return string(text)
}

// login returns the login of the access settings, or nil if there is none.
func (st *stack) login() *openid.Login {
	var with access.Settings
	if err := json.Unmarshal([]byte(st.access), &with); err != nil {
		panic(err) // it was written here or by parseSettings
	}
	return with.Login
}

// clientLogin returns the login of the access settings for the command lines. It
// is empty if there is none.
func (st *stack) clientLogin() string {
	login := st.login()
	if login == nil {
		return ""
	}
	login.Web = nil
	text, err := json.Marshal(login)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(text)
}

// accessLogs begins the name of the gateway's log group, unless the settings have a
// prefix. Log groups with this beginning need no resource policy.
const accessLogs = "/aws/vendedlogs/apigateway/"

// newLogGroup creates a log group that is deleted with the stack. It has the name
// of what logs below the settings' prefix, and otherwise the usual name. If that is
// empty, CloudFormation generates one. The ARN of the group ends in ":*", as IAM
// requires.
func (st *stack) newLogGroup(id, of, usual string) awslogs.LogGroup {
	name := usual
	if prefix := st.settings.LogGroupPrefix; prefix != "" {
		name = prefix + st.settings.StackName + "/" + of
	}
	group := awslogs.NewLogGroup(st.Stack, &id, &awslogs.LogGroupProps{
		LogGroupName: optional(name), EncryptionKey: st.key, RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	if resource, ok := group.Node().DefaultChild().(awslogs.CfnLogGroup); ok {
		resource.SetRetentionInDays(jsii.Number(float64(st.settings.LogRetentionDays)))
		// Another prefix makes another group. The old one stays, so that no log is lost.
		resource.CfnOptions().SetUpdateReplacePolicy(awscdk.CfnDeletionPolicy_RETAIN)
	}
	return group
}

// optional returns nil for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// newFunction creates a function with its own role. The role's statements are
// all written here; the CDK adds none.
func (st *stack) newFunction(f function) awslambda.Function {
	logs := st.newLogGroup(f.name+"-logs", f.name, "")
	statements := []awsiam.PolicyStatement{allow("WriteLogs",
		jsii.Strings("logs:CreateLogStream", "logs:PutLogEvents"),
		[]*string{logs.LogGroupArn()}, nil)}
	memory, timeout := st.settings.MemoryMiB, awscdk.Duration_Seconds(jsii.Number(10)) // as long as clients wait
	var reserved *float64
	var storage awscdk.Size
	var variables map[string]string
	switch {
	case f.publishes:
		statements = append(append(statements, st.publishing()...), st.useKey(encrypting, "dynamodb", "s3")...)
		variables = st.variables()
		maps.Copy(variables, st.settings.PublishLimits.Environment())
		// The garbage collector then runs early enough for archives that are
		// made to need much memory.
		variables["GOMEMLIMIT"] = fmt.Sprintf("%dMiB", st.settings.PublishMemoryMiB*3/4)
		// The gateway times out after 30 seconds, but an inspection continues
		// until Lambda's timeout.
		memory, timeout = st.settings.PublishMemoryMiB, awscdk.Duration_Minutes(jsii.Number(15))
		reserved = concurrency(st.settings.PublishConcurrency)
	case f.pulls:
		statements = append(append(statements, st.pulling()...), st.useKey(encrypting, "dynamodb", "s3", "sqs")...)
		variables = st.variables()
		maps.Copy(variables, settings.Pull{
			Folder: "/tmp/larder", Release: sourceRelease(), Copies: st.settings.Copies,
		}.Environment())
		memory, timeout = pullMemoryMiB, awscdk.Duration_Minutes(jsii.Number(15))
		variables["GOMEMLIMIT"] = fmt.Sprintf("%dMiB", memory*3/4)
		storage = awscdk.Size_Mebibytes(jsii.Number(settings.PullStorageMiB))
		reserved = concurrency(st.settings.PullConcurrency)
	case f.partitions != nil:
		statements = append(statements, allow("ReadItems", jsii.Strings("dynamodb:GetItem"),
			[]*string{st.table.TableArn()}, onPartitions(f.partitions...)))
		services := []string{"dynamodb"}
		if f.objects != nil {
			services = append(services, "s3")
			statements = append(statements, allow("SignObjects", jsii.Strings("s3:GetObject"),
				st.objectARNs(f.objects), nil))
		}
		if f.queried != nil {
			statements = append(statements, allow("QueryItems", jsii.Strings("dynamodb:Query"),
				[]*string{st.table.TableArn()}, onPartitions(f.queried...)))
		}
		if f.sessions {
			secret := st.clientSecret()
			statements = append(append(statements, st.sessions()), secret...)
			if len(secret) > 0 {
				services = append(services, "ssm")
			}
		}
		statements = append(statements, st.useKey(decrypting, services...)...)
		variables = st.variables()
		if f.invokesPull {
			// It may wait for pull until 8 seconds after the request's arrival. A
			// request ends 2 seconds before the timeout, so 2 seconds are left to
			// read what pull has found. The gateway waits for 30 seconds.
			timeout = awscdk.Duration_Seconds(jsii.Number(12))
			pull := st.functions[pullName]
			statements = append(statements,
				allow("FetchProviders", jsii.Strings("lambda:InvokeFunction"), []*string{pull.FunctionArn()}, nil))
			maps.Copy(variables, settings.PullFunctionEnvironment(*pull.FunctionName()))
		}
		if f.fetches || f.counts {
			// The garbage collector then runs early enough for a large catalog,
			// which the function caches, and for a large batch of lines.
			variables["GOMEMLIMIT"] = fmt.Sprintf("%dMiB", memory*3/4)
		}
		if f.counts {
			statements = append(statements, allow("CountDownloads", jsii.Strings("dynamodb:PutItem"),
				[]*string{st.table.TableArn()}, onPartitions(usageItems)))
			// A batch can have many downloads. Nobody waits.
			timeout = awscdk.Duration_Minutes(jsii.Number(1))
		}
	case f.login:
		variables = settings.LoginEnvironment(st.clientLogin())
	}
	environment := make(map[string]*string)
	for _, some := range []map[string]string{variables, settings.MetricsEnvironment(st.settings.MetricsNamespace)} {
		for name, value := range some {
			environment[name] = &value
		}
	}
	role := awsiam.NewRole(st.Stack, jsii.String(f.name+"-role"), &awsiam.RoleProps{
		Path:        optional(st.settings.RolePath),
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		Description: jsii.String("Permissions of the registry's function " + f.name),
		InlinePolicies: &map[string]awsiam.PolicyDocument{
			"function": awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &statements}),
		},
	})
	architecture := awslambda.Architecture_ARM_64()
	if st.settings.Architecture == "x86_64" {
		architecture = awslambda.Architecture_X86_64()
	}
	st.logs = append(st.logs, logs.LogGroupName())
	if f.publishes || slices.Contains(f.partitions, "tokens") {
		st.requests = append(st.requests, logs)
	}
	code, digest, err := packFunction(st.dist, f.name)
	if err != nil {
		panic(err) // scripts/build has built it
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
		EphemeralStorageSize:         storage,
	})
	// The CDK makes the function wait for the role's policies, which are inline
	// here.
	if resource, ok := st.functions[f.name].Node().DefaultChild().(awslambda.CfnFunction); ok {
		resource.AddDeletionOverride(jsii.String("DependsOn"))
	}
	return st.functions[f.name]
}

// concurrency returns the reserved instances of a function. If 0, none are
// reserved.
func concurrency(instances int) *float64 {
	if instances == 0 {
		return nil
	}
	return jsii.Number(float64(instances))
}

// pullMemoryMiB is the memory of the function that fetches providers and modules.
// Lambda gives a function bandwidth and processors with its memory. Packages and
// archives are in files, so they need little of it. An archive of a module is
// inspected in a child process with up to inspection.DefaultMaxMemory, beside the
// heap of the function.
const pullMemoryMiB = 1024

// newPullEvents decides what happens to asynchronous invocations of the function
// that fetches for the mirror, and creates the rule that invokes it every night. If
// the function fails three times, Lambda sends the request to a queue. Nothing
// polls the queue, so it costs nothing while nothing fails.
func (st *stack) newPullEvents() {
	pull := st.functions[pullName]
	awslambda.NewCfnEventInvokeConfig(st.Stack, jsii.String("PullEvents"), &awslambda.CfnEventInvokeConfigProps{
		FunctionName:             pull.FunctionName(),
		Qualifier:                jsii.String("$LATEST"),
		MaximumRetryAttempts:     jsii.Number(2),
		MaximumEventAgeInSeconds: awscdk.Duration_Hours(jsii.Number(1)).ToSeconds(nil),
		DestinationConfig: &awslambda.CfnEventInvokeConfig_DestinationConfigProperty{
			OnFailure: &awslambda.CfnEventInvokeConfig_OnFailureProperty{Destination: st.failures.QueueArn()},
		},
	})
	awsevents.NewRule(st.Stack, jsii.String("PullNightly"), &awsevents.RuleProps{
		Description: jsii.String("Lets Larder check for new versions of the providers and modules that clients request"),
		// Not at the full hour, when the origins have the most requests.
		Schedule: awsevents.Schedule_Cron(&awsevents.CronOptions{Hour: jsii.String("3"), Minute: jsii.String("17")}),
		Targets: &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(pull, &awseventstargets.LambdaFunctionProps{
			Event: awsevents.RuleTargetInput_FromObject(map[string]any{"action": string(protocol.PullNightly)}),
		})},
	})
}

// newSubscriptions lets the lines of the request logs that count invoke the
// function that counts. Its own log is not among them, so that it never invokes
// itself. If it fails three times, as Lambda's default is, the counts of a
// batch are lost.
func (st *stack) newSubscriptions() {
	usage := st.functions[usageName]
	for _, group := range st.requests {
		id := *group.Node().Id()
		permission := awslambda.NewCfnPermission(st.Stack, jsii.String(id+"-invoke"), &awslambda.CfnPermissionProps{
			Action: jsii.String("lambda:InvokeFunction"), FunctionName: usage.FunctionArn(),
			Principal: jsii.String("logs.amazonaws.com"), SourceAccount: st.Account(), SourceArn: group.LogGroupArn(),
		})
		// CloudWatch checks the permission when it creates the filter.
		awslogs.NewCfnSubscriptionFilter(st.Stack, jsii.String(id+"-filter"), &awslogs.CfnSubscriptionFilterProps{
			LogGroupName: group.LogGroupName(), DestinationArn: usage.FunctionArn(), FilterPattern: jsii.String(logged.Pattern()),
		}).AddResourceDependency(permission, nil)
	}
}

// newPullFailures returns the queue for requests to fetch something that failed.
func (st *stack) newPullFailures() awssqs.Queue {
	encryption := awssqs.QueueEncryption_SQS_MANAGED
	if st.key != nil {
		encryption = awssqs.QueueEncryption_KMS
	}
	return awssqs.NewQueue(st.Stack, jsii.String("PullFailures"), &awssqs.QueueProps{
		Encryption:          encryption,
		EncryptionMasterKey: st.key,
		EnforceSSL:          jsii.Bool(true),
		RetentionPeriod:     awscdk.Duration_Days(jsii.Number(14)),
	})
}

// pulling returns the permissions of the function that fetches for the mirror. It
// stores packages, archives and records of the mirror, and cannot delete or replace
// an object. It writes the audit trail, but cannot read it. It reads the policy,
// which only operators write.
func (st *stack) pulling() []awsiam.PolicyStatement {
	table := []*string{st.table.TableArn()}
	packages := st.objectARNs(mirrored)
	return []awsiam.PolicyStatement{
		// The catalog without a name has the schema of the registry.
		allow("ReadItems", jsii.Strings("dynamodb:GetItem"), table,
			onPartitions(slices.Concat(mirrored, []string{"catalog/mirror", "catalog/", policyItem})...)),
		allow("QueryMirror", jsii.Strings("dynamodb:Query"), table, onPartitions("mirror/*")),
		allow("Mirror", jsii.Strings("dynamodb:PutItem"), table,
			onPartitions(slices.Concat(mirrored, []string{"catalog/mirror", "audit/*"})...)),
		allow("ReadPackages", jsii.Strings("s3:GetObject"), packages, nil),
		allow("PutPackagesOnce", jsii.Strings("s3:PutObject"), packages, map[string]any{
			// The stack's own bucket requires this of everyone; an adopted one
			// may not.
			"Null": map[string]any{"s3:if-none-match": "false"},
		}),
		// Without s3:ListBucket, S3 answers a request for a missing object with
		// 403 instead of 404.
		allow("ListPackages", jsii.Strings("s3:ListBucket"), []*string{st.bucket.BucketArn()},
			map[string]any{"StringLike": map[string]any{"s3:prefix": mirrored}}),
		// Lambda sends the message with this role.
		allow("ReportFailures", jsii.Strings("sqs:SendMessage"), []*string{st.failures.QueueArn()}, nil),
	}
}

// variables returns the environment of a function that reads the catalog.
func (st *stack) variables() map[string]string {
	return settings.Settings{
		Table: *st.table.TableName(), Bucket: *st.bucket.BucketName(),
		PresignLifetime: st.settings.PresignLifetime, Access: st.access, IPv6: st.settings.IPv6,
		ReadOnly: st.settings.ReadOnly,
	}.Environment()
}

// sessions returns the permission of the function that logs people in to add and
// end sessions.
func (st *stack) sessions() awsiam.PolicyStatement {
	return allow("WriteSessions", jsii.Strings("dynamodb:PutItem", "dynamodb:DeleteItem"),
		[]*string{st.table.TableArn()}, onPartitions(sessionItems))
}

// clientSecret returns the permission to read the secret of the issuer's client, if
// that has one. The key of AWS for parameters needs no permission of the role.
func (st *stack) clientSecret() []awsiam.PolicyStatement {
	login := st.login()
	if login == nil || login.Web == nil || login.Web.SecretParameter == "" {
		return nil
	}
	parameter := awscdk.Fn_Sub(jsii.String("arn:${AWS::Partition}:ssm:${AWS::Region}:${AWS::AccountId}:parameter"+
		string(login.Web.SecretParameter)), nil)
	return []awsiam.PolicyStatement{
		allow("ReadClientSecret", jsii.Strings("ssm:GetParameter"), []*string{parameter}, nil),
	}
}

// The actions with the key that reading and writing need. S3 and SQS also decrypt
// when they write. DynamoDB only decrypts the key of the table.
//
// Sources: https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html;
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.howitworks.html;
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html.
var (
	decrypting = []string{"kms:Decrypt"}
	encrypting = []string{"kms:Decrypt", "kms:GenerateDataKey"}
)

// useKey returns the permission to use the settings' key through services, and none
// without a key.
func (st *stack) useKey(actions []string, services ...string) []awsiam.PolicyStatement {
	if st.key == nil {
		return nil
	}
	var through []*string
	for _, service := range services {
		through = append(through, awscdk.Fn_Sub(jsii.String(service+".${AWS::Region}.*"), nil))
	}
	return []awsiam.PolicyStatement{allow("UseKey", jsii.Strings(actions...), []*string{st.key.KeyArn()},
		map[string]any{"StringLike": map[string]any{"kms:ViaService": through}})}
}

// publishing returns the permissions of the publish function, for publishers
// without AWS credentials. It cannot delete anything, and cannot create tokens
// or keys. It writes the audit trail, but cannot read it. It reaches only the
// archives that were uploaded through it. It can neither replace them nor, once
// they are published, make them expire.
//
// For both actions of a PUT, S3 checks the tag in the request. For tagging, it
// checks the object's tag:
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/tagging-and-policies.html.
func (st *stack) publishing() []awsiam.PolicyStatement {
	table := []*string{st.table.TableArn()}
	// These match the keys of registry.UploadKey. A star also matches slashes:
	// with fewer stars they would match all objects of a module named api.
	uploads := []string{"modules/*/*/*/*/api/*", "providers/*/*/*/api/*"}
	var archives []*string
	for _, keys := range uploads {
		archives = append(archives, st.bucket.ArnForObjects(&keys))
	}
	const requested, existing = "s3:RequestObjectTag/" + objects.Tag, "s3:ExistingObjectTag/" + objects.Tag
	equals := func(key string, values ...string) map[string]any { return map[string]any{key: values} }
	return []awsiam.PolicyStatement{
		allow("ReadItems", jsii.Strings("dynamodb:GetItem"), table,
			onPartitions("modules/*", "providers/*", "catalog/*", "namespaces", "uploads/*", "tokens", "keys/*")),
		allow("QueryUploadsAndKeys", jsii.Strings("dynamodb:Query"), table, onPartitions("uploads/*", "keys/*")),
		allow("Publish", jsii.Strings("dynamodb:PutItem"), table,
			onPartitions("modules/*", "providers/*", "catalog/*", "namespaces", "uploads/*", "audit/*")),
		allow("CheckKeys", jsii.Strings("dynamodb:ConditionCheckItem"), table, onPartitions("keys/*")),
		allow("ReadUploads", jsii.Strings("s3:GetObject", "s3:GetObjectTagging"), archives, nil),
		allow("StageOnce", jsii.Strings("s3:PutObject"), archives, map[string]any{
			"StringEquals": equals(requested, objects.TagStaged),
			// The stack's own bucket requires this of everyone; an adopted one
			// may not.
			"Null": map[string]any{"s3:if-none-match": "false"},
		}),
		allow("TagStagedOrKept", jsii.Strings("s3:PutObjectTagging"), archives,
			map[string]any{"StringEquals": equals(requested, objects.TagStaged, objects.TagKept)}),
		deny("LeaveKept", jsii.Strings("s3:PutObjectTagging"), archives,
			map[string]any{"StringEquals": equals(existing, objects.TagKept)}),
		// Without s3:ListBucket, S3 answers a request for a missing object with
		// 403 instead of 404. It checks the object's key as the prefix.
		allow("ListUploads", jsii.Strings("s3:ListBucket"), []*string{st.bucket.BucketArn()},
			map[string]any{"StringLike": map[string]any{"s3:prefix": uploads}}),
	}
}

// onPartitions returns the condition that a request to the table names only
// partitions that match the patterns.
func onPartitions(partitions ...string) map[string]any {
	return map[string]any{
		"ForAllValues:StringLike": map[string]any{"dynamodb:LeadingKeys": partitions},
		// Without this, a request that names no key would pass the condition
		// above.
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
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{Sid: &sid, Effect: awsiam.Effect_DENY,
		Actions: actions, Resources: &resources, Conditions: &conditions})
}

// newEndpoints creates the functions and their routes in the gateway. All changes
// of routes and integrations are one after the other, because API Gateway rejects
// changes of one API at the same time.
func (st *stack) newEndpoints(api awsapigatewayv2.HttpApi) {
	routes := make(map[string]awscdk.CfnResource) // by route key
	var last awscdk.CfnResource
	for _, f := range st.settings.functions() {
		made := st.newFunction(f)
		if f.pulls || f.counts {
			continue
		}
		id := f.name
		if slices.Contains(f.trees, "/") {
			id += "-default" // the CDK leaves the id of its route out of names
		}
		integration := awsapigatewayv2integrations.NewHttpLambdaIntegration(&id, made, nil)
		for _, key := range f.routeKeys() {
			last = after(last, st.newRoute(api, key, integration))
			routes[key] = last
		}
	}
	limits := make(map[string]any)
	for key, limit := range st.settings.throttles() {
		limits[key] = map[string]any{"ThrottlingRateLimit": limit.rate, "ThrottlingBurstLimit": limit.burst}
	}
	props := &awsapigatewayv2.CfnStageProps{
		ApiId:      api.ApiId(),
		StageName:  jsii.String("$default"),
		AutoDeploy: jsii.Bool(true),
		// All routes of the stack have limits of their own. This one is for a route
		// that someone else adds.
		DefaultRouteSettings: &awsapigatewayv2.CfnStage_RouteSettingsProperty{
			ThrottlingRateLimit:  jsii.Number(float64(st.settings.ThrottleRate)),
			ThrottlingBurstLimit: jsii.Number(float64(st.settings.ThrottleBurst)),
		},
		RouteSettings: limits,
	}
	var policy awscdk.CfnResource
	if st.settings.AccessLog {
		st.accessLog = st.newLogGroup("access-logs", "gateway", accessLogs+st.settings.StackName)
		if st.settings.LogGroupPrefix != "" {
			policy = st.newLogPolicy()
		}
		props.AccessLogSettings = &awsapigatewayv2.CfnStage_AccessLogSettingsProperty{
			DestinationArn: st.accessLog.LogGroupArn(),
			Format:         jsii.String(accessLogFormat()),
		}
	}
	stage := awsapigatewayv2.NewCfnStage(st.Stack, jsii.String("Stage"), props)
	if policy != nil {
		stage.AddResourceDependency(policy, nil)
	}
	// API Gateway rejects settings of a route that does not exist.
	for _, key := range slices.Sorted(maps.Keys(limits)) {
		stage.AddResourceDependency(routes[key], nil)
	}
	if st.settings.DomainName != "" {
		st.newDomain(api, stage)
	}
}

func (st *stack) newRoute(
	api awsapigatewayv2.HttpApi, key string, integration awsapigatewayv2.HttpRouteIntegration,
) awsapigatewayv2.HttpRoute {
	method, path, isPath := strings.Cut(key, " ")
	if isPath {
		return (*api.AddRoutes(&awsapigatewayv2.AddRoutesOptions{
			Path: &path, Methods: &[]awsapigatewayv2.HttpMethod{awsapigatewayv2.HttpMethod(method)}, Integration: integration,
		}))[0]
	}
	return awsapigatewayv2.NewHttpRoute(st.Stack, jsii.String("Default"), &awsapigatewayv2.HttpRouteProps{
		HttpApi: api, RouteKey: awsapigatewayv2.HttpRouteKey_DEFAULT(), Integration: integration,
	})
}

// after makes a route wait for its permission, and the route and its integration
// for the resource of another route, unless that is nil. It returns the resource
// of the route.
func after(last awscdk.CfnResource, route awsapigatewayv2.HttpRoute) awscdk.CfnResource {
	var own awscdk.CfnResource
	var permissions, changes []awscdk.CfnResource
	for _, child := range *route.Node().FindAll(constructs.ConstructOrder_PREORDER) {
		switch resource := child.(type) {
		case awsapigatewayv2.CfnRoute:
			own, changes = resource, append(changes, resource)
		case awsapigatewayv2.CfnIntegration:
			changes = append(changes, resource)
		case awslambda.CfnPermission:
			permissions = append(permissions, resource)
		}
	}
	for _, permission := range permissions {
		own.AddResourceDependency(permission, nil)
	}
	if last != nil {
		for _, change := range changes {
			change.AddResourceDependency(last, nil)
		}
	}
	return own
}

// accessLogFormat returns the format of the gateway's log. It has the route but
// not the path, since a path may contain a token or a signature. The functions'
// log has the path without them. The User-Agent is the only header.
func accessLogFormat() string {
	format, err := json.Marshal(map[string]string{
		"requestId": "$context.requestId", "time": "$context.requestTime",
		"ip": "$context.identity.sourceIp", "method": "$context.httpMethod",
		"route": "$context.routeKey", "status": "$context.status", "bytes": "$context.responseLength",
		"latency": "$context.responseLatency", "integrationLatency": "$context.integrationLatency",
		"integrationError": "$context.integrationErrorMessage",
		"userAgent":        "$context.identity.userAgent",
	})
	if err != nil {
		panic(err) // strings always encode
	}
	return string(format)
}

func (st *stack) newDomain(api awsapigatewayv2.HttpApi, stage awsapigatewayv2.CfnStage) {
	s := st.settings
	domain := awsapigatewayv2.NewDomainName(st.Stack, jsii.String("Domain"), &awsapigatewayv2.DomainNameProps{
		DomainName:    &s.DomainName,
		IpAddressType: st.addresses(),
		Certificate: awscertificatemanager.Certificate_FromCertificateArn(st.Stack, jsii.String("Certificate"),
			&s.CertificateARN),
		SecurityPolicy: awsapigatewayv2.SecurityPolicy_TLS_1_2,
	})
	mapping := awsapigatewayv2.NewCfnApiMapping(st.Stack, jsii.String("Mapping"), &awsapigatewayv2.CfnApiMappingProps{
		ApiId: api.ApiId(), DomainName: domain.Name(), Stage: jsii.String("$default"),
	})
	mapping.AddResourceDependency(stage, nil)
	st.output(settings.OutputTarget, domain.RegionalDomainName(), "The host that the record of the domain points to")
	if s.HostedZoneID == "" {
		return
	}
	zone := awsroute53.HostedZone_FromHostedZoneAttributes(st.Stack, jsii.String("Zone"),
		&awsroute53.HostedZoneAttributes{HostedZoneId: &s.HostedZoneID, ZoneName: &s.HostedZoneName})
	target := awsroute53.RecordTarget_FromAlias(awsroute53targets.NewApiGatewayv2DomainProperties(
		domain.RegionalDomainName(), domain.RegionalHostedZoneId()))
	awsroute53.NewARecord(st.Stack, jsii.String("Address"),
		&awsroute53.ARecordProps{Zone: zone, RecordName: jsii.String(s.DomainName + "."), Target: target})
	if s.IPv6 {
		awsroute53.NewAaaaRecord(st.Stack, jsii.String("AddressIPv6"),
			&awsroute53.AaaaRecordProps{Zone: zone, RecordName: jsii.String(s.DomainName + "."), Target: target})
	}
}

// addresses returns the kinds of addresses that the gateway has.
func (st *stack) addresses() awsapigatewayv2.IpAddressType {
	if st.settings.IPv6 {
		return awsapigatewayv2.IpAddressType_DUAL_STACK
	}
	return "" // IPv4
}

// newLogPolicy lets the gateway log to a group whose name does not begin with
// accessLogs. Otherwise the gateway would extend a policy that all such groups of the
// account share, and that has at most 5,120 characters. An account can have ten
// policies in a region.
//
// Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/AWS-logs-and-resource-policy.html.
func (st *stack) newLogPolicy() awscdk.CfnResource {
	document := awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &[]awsiam.PolicyStatement{
		awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Sid:        jsii.String("GatewayLogs"),
			Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("delivery.logs.amazonaws.com"), nil)},
			Actions:    jsii.Strings("logs:CreateLogStream", "logs:PutLogEvents"),
			Resources:  &[]*string{st.accessLog.LogGroupArn()},
			Conditions: &map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": *st.Account()}},
		}),
	}})
	return awslogs.NewCfnResourcePolicy(st.Stack, jsii.String("GatewayLogPolicy"), &awslogs.CfnResourcePolicyProps{
		PolicyName: &st.settings.StackName, PolicyDocument: st.ToJsonString(document, nil),
	})
}

// newOperatorPolicy creates the policy for publishing, creating tokens,
// counting downloads and inspecting the stack with AWS credentials. It allows
// deleting only tokens and keys, and the bucket's policy prevents overwriting
// archives. IAM cannot require that an item is new. The publisher's own
// conditions protect the records of versions. In a read-only stack it allows no
// change.
func (st *stack) newOperatorPolicy(api awsapigatewayv2.HttpApi) awsiam.ManagedPolicy {
	stackARN := awscdk.Fn_Sub(jsii.String(
		"arn:${AWS::Partition}:cloudformation:${AWS::Region}:${AWS::AccountId}:stack/"+st.settings.StackName+"/*"), nil)
	withKey := encrypting
	if st.settings.ReadOnly {
		withKey = decrypting
	}
	return awsiam.NewManagedPolicy(st.Stack, jsii.String("OperatorPolicy"), &awsiam.ManagedPolicyProps{
		Path: optional(st.settings.RolePath),
		// CloudFormation replaces a policy whose description changes.
		Description: jsii.String("Publishing to the registry " + st.settings.StackName),
		Statements: new(slices.Concat([]awsiam.PolicyStatement{
			// With a long name, the policy has no room for more statements.
			allow("ReadStack", jsii.Strings("cloudformation:DescribeStacks", "cloudformation:GetTemplate",
				"cloudformation:ListStackResources"), []*string{stackARN}, nil),
		}, st.operating(), []awsiam.PolicyStatement{
			// Without s3:ListBucket, S3 answers a request for a missing object
			// with 403 instead of 404.
			allow("ListArchives", jsii.Strings("s3:ListBucket"), []*string{st.bucket.BucketArn()},
				map[string]any{"StringLike": map[string]any{"s3:prefix": operated}}),
			allow("ReadUsage", jsii.Strings("dynamodb:GetItem", "dynamodb:Query"), []*string{st.table.TableArn()},
				onPartitions(usageItems)),
			// IAM has no resource type for an account.
			allow("ReadLimits", jsii.Strings("lambda:GetAccountSettings"), []*string{jsii.String("*")}, nil),
		}, st.inspecting(api), st.useKey(withKey, "dynamodb", "s3"))),
	})
}

// operating returns the permissions to read and change the registry. In a
// read-only stack they allow no change.
func (st *stack) operating() []awsiam.PolicyStatement {
	table := []*string{st.table.TableArn()}
	stored := st.objectARNs(operated)
	items := onPartitions(
		slices.Concat(operated, []string{"keys/*", "catalog/*", "namespaces", "tokens", "audit/*", policyItem})...)
	if st.settings.ReadOnly {
		return []awsiam.PolicyStatement{
			allow("ReadCatalog", jsii.Strings("dynamodb:GetItem", "dynamodb:Query"), table, items),
			allow("ReadArchives", jsii.Strings("s3:GetObject"), stored, nil),
		}
	}
	return []awsiam.PolicyStatement{
		allow("ReadAndWriteCatalog", jsii.Strings("dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem",
			"dynamodb:ConditionCheckItem"), table, items),
		allow("RevokeTokensAndKeys", jsii.Strings("dynamodb:DeleteItem"), table, onPartitions("tokens", "keys/*")),
		allow("ReadAndPutArchives", jsii.Strings("s3:GetObject", "s3:PutObject"), stored, nil),
	}
}

// inspecting returns the permissions for `larder doctor --stack`. They are one
// statement, to save room. Each action is possible on one kind of its resources. An
// adopted store can have any key.
func (st *stack) inspecting(api awsapigatewayv2.HttpApi) []awsiam.PolicyStatement {
	actions := []string{
		"dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:DescribeContinuousBackups",
		"s3:GetBucketPolicy", "s3:GetBucketPublicAccessBlock", "s3:GetLifecycleConfiguration", "s3:GetBucketVersioning",
		"s3:GetEncryptionConfiguration",
		"lambda:GetFunctionConfiguration", "lambda:GetFunctionConcurrency",
		"apigateway:GET",
	}
	resources := []*string{st.table.TableArn(), st.bucket.BucketArn()}
	for _, f := range st.settings.functions() {
		resources = append(resources, st.functions[f.name].FunctionArn())
	}
	for _, document := range []string{"/apis/" + *api.ApiId() + "/*", "/account"} {
		resources = append(resources, st.FormatArn(&awscdk.ArnComponents{
			Service: jsii.String("apigateway"), Account: jsii.String(""), Resource: &document,
			ArnFormat: awscdk.ArnFormat_NO_RESOURCE_NAME,
		}))
	}
	if st.key != nil {
		actions = append(actions, "kms:DescribeKey", "kms:GetKeyPolicy")
		resources = append(resources, st.key.KeyArn())
	}
	if st.settings.Alarms {
		// Not on single alarms: AWS's examples allow this action on all alarms, and
		// its denials name alarm:*.
		actions = append(actions, "cloudwatch:DescribeAlarms", "sns:ListSubscriptionsByTopic")
		resources = append(resources, st.alarmARN("*"), st.topic.TopicArn())
	}
	if st.settings.DomainName != "" {
		actions = append(actions, "acm:DescribeCertificate")
		resources = append(resources, &st.settings.CertificateARN)
	}
	slices.Sort(actions)
	statements := []awsiam.PolicyStatement{allow("Inspect", jsii.Strings(actions...), resources, nil)}
	if st.settings.TableName != "" || st.settings.BucketName != "" {
		keys := st.FormatArn(&awscdk.ArnComponents{
			Service: jsii.String("kms"), Resource: jsii.String("key"), ResourceName: jsii.String("*"),
		})
		statements = append(statements, allow("InspectKeyOfAdopted", jsii.Strings("kms:DescribeKey"), []*string{keys}, nil))
	}
	return statements
}

// newWithdrawPolicy creates the policy with the permissions that withdrawing a
// version needs in addition to the operator's: removing all versions of its
// objects. It is attached to no principal.
func (st *stack) newWithdrawPolicy() awsiam.ManagedPolicy {
	archives := slices.Concat([]string{"modules/*", "providers/*"}, mirrored)
	return awsiam.NewManagedPolicy(st.Stack, jsii.String("WithdrawPolicy"), &awsiam.ManagedPolicyProps{
		Path: optional(st.settings.RolePath),
		// CloudFormation replaces a policy whose description changes.
		Description: jsii.String("Removing what " + "is withdrawn from the registry " + st.settings.StackName),
		Statements: &[]awsiam.PolicyStatement{
			allow("RemoveArchives", jsii.Strings("s3:DeleteObjectVersion"), st.objectARNs(archives), nil),
			allow("ListArchiveVersions", jsii.Strings("s3:ListBucketVersions"), []*string{st.bucket.BucketArn()},
				map[string]any{"StringLike": map[string]any{"s3:prefix": archives}}),
		},
	})
}

// operated are patterns of the objects that operators read and write, and of the
// partitions of their versions. The last one is short for [mirrored], because
// otherwise the policy has no room for a long name.
var operated = []string{"modules/*", "providers/*", "mirror*/*"}

// objectARNs returns the ARNs of objects by patterns of their keys.
func (st *stack) objectARNs(patterns []string) []*string {
	arns := make([]*string, len(patterns))
	for i, pattern := range patterns {
		arns[i] = st.bucket.ArnForObjects(&pattern)
	}
	return arns
}
