package rehearsal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/iam"
)

// Account is a proxy in front of an emulator that allows all requests. It
// enforces permissions like AWS. It identifies the caller by the access key of
// the signature, and denies requests that the caller's role does not allow.
type Account struct {
	// URL is the value for AWS_ENDPOINT_URL.
	URL string
	// ID and Region are part of the ARNs of all resources.
	ID, Region string
	// Alarms answers requests for alarms instead of the emulator. Set it before
	// the first request.
	Alarms http.Handler
	// API answers requests to API Gateway instead of the emulator. It may be
	// nil.
	API *API
	// BucketPolicies are the policies of buckets, by bucket name. The emulator
	// has no policies, since it would deny each PUT without evaluating the
	// conditions.
	BucketPolicies map[string]string
	// Unconfirmed lists subscribers as not yet confirmed. The emulator confirms
	// them at once.
	Unconfirmed bool
	// Assumable are the roles that principals with the permission can assume, by
	// name. If not nil, the account is for the CDK.
	Assumable map[string]*iam.Role

	server     *http.Server
	encryption encryption
	// tags reads the tags of an object from the emulator, without permission
	// checks. It returns nil if the object does not exist.
	tags func(ctx context.Context, bucket, key string) (map[string]string, error)

	mu     sync.Mutex
	roles  map[string]namedRole // by access key
	denied []string
}

// namedRole is a principal with several roles. It may do everything that one of
// them allows.
type namedRole struct {
	name  string
	roles []*iam.Role
}

func (r namedRole) judge(c iam.Call) error {
	var denied error
	for _, role := range r.roles {
		err := role.Judge(c)
		if err == nil {
			return nil
		}
		denied = cmp.Or(denied, err)
	}
	return denied
}

// StartAccount starts an Account in front of the emulator at a URL. The caller
// closes it.
func StartAccount(ctx context.Context, emulator, id, region string) (*Account, error) {
	target, err := url.Parse(emulator)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the endpoint %s: %w", emulator, err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	a := &Account{URL: "http://localhost:" + port, ID: id, Region: region, tags: tagsIn(emulator),
		encryption: encryptionIn(emulator, region), roles: make(map[string]namedRole)}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(response *http.Response) error {
			a.hideMissing(response)
			if err := a.admitSession(response); err != nil {
				return err
			}
			if a.API != nil {
				if err := a.API.addTo(response); err != nil {
					return err
				}
			}
			return a.unconfirm(response)
		},
	}
	a.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if who, err := a.judge(r); err != nil {
				a.mu.Lock()
				a.denied = append(a.denied, fmt.Sprintf("%s: %v", who, err))
				a.mu.Unlock()
				deny(w, r)
				return
			}
			switch _, service := signer(r); {
			case service == "s3" && r.URL.Query().Has("policy"):
				a.bucketPolicy(w, r)
				return
			case service == "monitoring" && a.Alarms != nil:
				a.Alarms.ServeHTTP(w, r)
				return
			case service == "apigateway" && a.API != nil:
				a.API.ServeHTTP(w, r)
				return
			case r.URL.Path == accountSettings:
				_, _ = io.WriteString(w, `{"AccountLimit":{"ConcurrentExecutions":1000}}`)
				return
			}
			proxy.ServeHTTP(w, r)
		}),
	}
	go func() { _ = a.server.Serve(listener) }()
	return a, nil
}

// Close stops the proxy, but not the emulator.
func (a *Account) Close() { _ = a.server.Close() }

// Add adds a principal with a name and roles, and returns its access key. No
// role may deny a request that another one allows.
func (a *Account) Add(name string, roles ...*iam.Role) string {
	a.mu.Lock()
	key := fmt.Sprintf("ASIAREHEARSAL%07d", len(a.roles)+1)
	a.mu.Unlock()
	a.Admit(key, name, roles...)
	return key
}

// Admit is like [Account.Add], for an existing access key.
func (a *Account) Admit(key, name string, roles ...*iam.Role) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roles[key] = namedRole{name, roles}
}

// Judge returns an error if the principal with an access key may not do
// something, which counts as a denied request. Use it for services that the
// account does not have.
func (a *Account) Judge(accessKey string, c iam.Call) error {
	a.mu.Lock()
	caller, known := a.roles[accessKey]
	a.mu.Unlock()
	err := fmt.Errorf("unknown access key %s", accessKey)
	if known {
		err = caller.judge(c)
	}
	if err != nil {
		a.mu.Lock()
		a.denied = append(a.denied, fmt.Sprintf("%s: %v", caller.name, err))
		a.mu.Unlock()
	}
	return err
}

// Expect calls do, and returns the requests that were denied meanwhile. They do not
// count as denied.
func (a *Account) Expect(do func() error) (denied []string, err error) {
	before := len(a.Denied())
	err = do()
	a.mu.Lock()
	defer a.mu.Unlock()
	denied = slices.Clone(a.denied[before:])
	a.denied = a.denied[:before]
	return denied, err
}

// Denied returns the denied requests, each with the caller's name.
func (a *Account) Denied() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.denied)
}

// Unused returns the parts of the principals' statements that no request
// needed.
func (a *Account) Unused() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var unused []string
	for _, r := range a.roles {
		for _, role := range r.roles {
			for _, what := range role.Unused() {
				unused = append(unused, r.name+": "+what)
			}
		}
	}
	slices.Sort(unused)
	return unused
}

// credential matches the access key and the service in a signature, in a header
// or in a presigned URL.
var credential = regexp.MustCompile(`(?:Credential=|^)([A-Z0-9]+)/\d{8}/[a-z0-9-]+/([a-z0-9]+)/aws4_request`)

func (a *Account) judge(r *http.Request) (who string, err error) {
	key, service := signer(r)
	if key == "" {
		return "unknown caller", fmt.Errorf("%s %s is not signed", r.Method, r.URL.Path)
	}
	a.mu.Lock()
	caller, known := a.roles[key]
	a.mu.Unlock()
	if !known {
		return "unknown caller", fmt.Errorf("unknown access key %s", key)
	}
	needed := a.calls
	if a.Assumable != nil {
		needed = a.pipelineCalls
	}
	calls, err := needed(service, r)
	for _, c := range calls {
		err = errors.Join(err, caller.judge(c), a.judgeKey(r.Context(), caller, c))
	}
	return caller.name, err
}

// judgeKey returns an error if a store may not use its key for a call of a caller.
func (a *Account) judgeKey(ctx context.Context, caller namedRole, c iam.Call) error {
	calls, err := a.encryption.calls(ctx, c)
	for _, c := range calls {
		err = errors.Join(err, caller.judge(c), a.encryption.permits(ctx, c))
	}
	return err
}

// signer returns the access key and the service of a request's signature.
func signer(r *http.Request) (key, service string) {
	found := credential.FindStringSubmatch(cmp.Or(r.URL.Query().Get("X-Amz-Credential"),
		r.Header.Get("Authorization")))
	if found == nil {
		return "", ""
	}
	return found[1], found[2]
}

// calls returns the permissions that a request needs. It rejects requests that
// it does not support, so that none passes unchecked.
func (a *Account) calls(service string, r *http.Request) ([]iam.Call, error) {
	switch service {
	case "s3":
		return a.s3Calls(r)
	case "dynamodb":
		return a.dynamoDBCalls(r)
	case "lambda":
		return a.lambdaCalls(r)
	case "acm":
		return a.certificateCalls(r)
	case "kms":
		return a.keyCalls(r)
	case "apigateway":
		if r.Method == http.MethodGet {
			return []iam.Call{{Action: "apigateway:GET",
				Resource: "arn:aws:apigateway:" + a.Region + "::" + strings.TrimPrefix(r.URL.Path, "/v2")}}, nil
		}
	case "cloudformation", "monitoring", "sns", "sts":
		body, err := drain(r)
		if err != nil {
			return nil, err
		}
		form, err := url.ParseQuery(string(body))
		switch action := form.Get("Action"); {
		case err != nil:
			return nil, err
		case service+":"+action == "sts:GetCallerIdentity": // it needs no permission
			return nil, nil
		case service == "cloudformation" &&
			slices.Contains([]string{"DescribeStacks", "GetTemplate", "ListStackResources"}, action):
			return []iam.Call{{Action: "cloudformation:" + action,
				Resource: a.ARN("cloudformation",
					"stack/"+form.Get("StackName")+"/00000000-0000-0000-0000-000000000000")}}, nil
		case service+":"+action == "monitoring:DescribeAlarms": // IAM checks it for all alarms, even if some are named
			return []iam.Call{{Action: "cloudwatch:DescribeAlarms", Resource: a.ARN("cloudwatch", "alarm:*")}}, nil
		case service+":"+action == "sns:ListSubscriptionsByTopic":
			return []iam.Call{{Action: "sns:ListSubscriptionsByTopic", Resource: form.Get("TopicArn")}}, nil
		}
	}
	return nil, fmt.Errorf("a call of %s that the rehearsal does not know: %s %s", service, r.Method, r.URL.Path)
}

// accountSettings is the path of Lambda's limits in an account.
const accountSettings = "/2016-08-19/account-settings"

// functionSetting matches the path of a function's setting, which has a version
// of Lambda's API.
var functionSetting = regexp.MustCompile(`^/[0-9-]+/functions/([^/]+)/(configuration|concurrency)$`)

// lambdaCalls returns the permission to read a setting of a function, or the
// account's limits.
func (a *Account) lambdaCalls(r *http.Request) ([]iam.Call, error) {
	found := functionSetting.FindStringSubmatch(r.URL.Path)
	switch {
	case r.Method != http.MethodGet || r.URL.RawQuery != "":
	case r.URL.Path == accountSettings:
		return []iam.Call{{Action: "lambda:GetAccountSettings", Resource: "*"}}, nil
	case found != nil:
		action := map[string]string{
			"configuration": "lambda:GetFunctionConfiguration", "concurrency": "lambda:GetFunctionConcurrency",
		}[found[2]]
		return []iam.Call{{Action: action, Resource: a.ARN("lambda", "function:"+found[1])}}, nil
	}
	return nil, fmt.Errorf("a call of Lambda that the rehearsal does not know: %s %s", r.Method, r.URL.Path)
}

func (a *Account) certificateCalls(r *http.Request) ([]iam.Call, error) {
	body, err := drain(r)
	if err != nil {
		return nil, err
	}
	if target := r.Header.Get("X-Amz-Target"); target != "CertificateManager.DescribeCertificate" {
		return nil, fmt.Errorf("a call of ACM that the rehearsal does not know: %s", target)
	}
	var in struct{ CertificateArn string }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	return []iam.Call{{Action: "acm:DescribeCertificate", Resource: in.CertificateArn}}, nil
}

// keyCalls returns the permission to read a key. KMS checks the policy of the key
// too.
func (a *Account) keyCalls(r *http.Request) ([]iam.Call, error) {
	body, err := drain(r)
	if err != nil {
		return nil, err
	}
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if action != "DescribeKey" && action != "GetKeyPolicy" {
		return nil, fmt.Errorf("a call of KMS that the rehearsal does not know: %s", action)
	}
	var in struct {
		KeyID string `json:"KeyId"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	c := iam.Call{Action: "kms:" + action, Resource: in.KeyID}
	return []iam.Call{c}, a.encryption.permits(r.Context(), c)
}

// ARN returns the ARN of a resource of the account.
func (a *Account) ARN(service, resource string) string {
	return "arn:aws:" + service + ":" + a.Region + ":" + a.ID + ":" + resource
}

// drain returns a request's body, and replaces it so that it can be read again.
func drain(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// inURL are the supported query parameters, including those of presigned URLs.
// Other parameters are rejected, since S3 may treat them as headers.
var inURL = []string{
	"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token", "X-Amz-SignedHeaders",
	"X-Amz-Signature", "X-Amz-Content-Sha256", "X-Amz-Checksum-Mode",
	"x-id", "list-type", "prefix", "start-after", "continuation-token", "max-keys", "encoding-type", "tagging",
	"versions", "versionId", "key-marker", "version-id-marker",
}

func (a *Account) s3Calls(r *http.Request) ([]iam.Call, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	object := "arn:aws:s3:::" + bucket + "/" + key
	query := r.URL.Query()
	if action := bucketAction(r, key); action != "" {
		return []iam.Call{{Action: action, Resource: "arn:aws:s3:::" + bucket}}, nil
	}
	for name := range query {
		if !slices.Contains(inURL, name) {
			return nil, fmt.Errorf("a call of S3 that the rehearsal does not know: %s with %s", r.Method, name)
		}
	}
	for _, name := range []string{"X-Amz-Acl", "X-Amz-Copy-Source"} {
		if r.Header.Get(name) != "" {
			return nil, fmt.Errorf("a call of S3 that the rehearsal does not know: %s with %s", r.Method, name)
		}
	}
	if query.Has("versions") || query.Has("versionId") {
		return versionCalls(r, bucket, key)
	}
	switch tagging := query.Has("tagging"); {
	case key == "" && r.Method == http.MethodGet && query.Get("list-type") == "2" && !tagging:
		return []iam.Call{listing(bucket, query.Get("prefix"))}, nil
	case key == "":
	case tagging && r.Method == http.MethodGet:
		return []iam.Call{{Action: "s3:GetObjectTagging", Resource: object}}, nil
	case tagging && r.Method == http.MethodPut:
		return a.retagging(r, bucket, key)
	case tagging:
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return []iam.Call{{Action: "s3:GetObject", Resource: object}}, nil
	case r.Method == http.MethodPut:
		return putting(r, object)
	}
	return nil, fmt.Errorf("a call of S3 that the rehearsal does not know: %s %s", r.Method, r.URL.Path)
}

// bucketAction returns the action of a request for one setting of a bucket. It
// returns "" for other requests.
func bucketAction(r *http.Request, key string) string {
	names := slices.Sorted(maps.Keys(r.URL.Query()))
	names = slices.DeleteFunc(names, func(name string) bool { return name == "x-id" })
	if key != "" || r.Method != http.MethodGet || len(names) != 1 {
		return ""
	}
	return map[string]string{
		"policy":            "s3:GetBucketPolicy",
		"publicAccessBlock": "s3:GetBucketPublicAccessBlock",
		"lifecycle":         "s3:GetLifecycleConfiguration",
		"versioning":        "s3:GetBucketVersioning",
		"encryption":        "s3:GetEncryptionConfiguration",
	}[names[0]]
}

func versionCalls(r *http.Request, bucket, key string) ([]iam.Call, error) {
	query := r.URL.Query()
	switch {
	case key == "" && r.Method == http.MethodGet && query.Has("versions") && !query.Has("versionId"):
		return []iam.Call{{Action: "s3:ListBucketVersions", Resource: "arn:aws:s3:::" + bucket,
			Keys: map[string][]string{"s3:prefix": {query.Get("prefix")}}}}, nil
	case key != "" && r.Method == http.MethodDelete && query.Get("versionId") != "" && !query.Has("tagging") &&
		!query.Has("versions"):
		return []iam.Call{{Action: "s3:DeleteObjectVersion", Resource: "arn:aws:s3:::" + bucket + "/" + key}}, nil
	}
	return nil, fmt.Errorf("a call of S3 that the rehearsal does not know: %s %s of versions", r.Method, r.URL.Path)
}

// putting returns the permissions for a PUT of an object. If the request has
// tags, it also needs the permission to tag. S3 does not check the tags of an
// existing object.
func putting(r *http.Request, object string) ([]iam.Call, error) {
	keys := make(map[string][]string)
	var tags []string
	for name, values := range r.Header {
		switch name {
		case "If-None-Match":
			keys["s3:if-none-match"] = values
		case "X-Amz-Tagging":
			tags = values
		}
	}
	if len(tags) == 0 {
		return []iam.Call{{Action: "s3:PutObject", Resource: object, Keys: keys}}, nil
	}
	brought, err := url.ParseQuery(strings.Join(tags, "&"))
	if err != nil {
		return nil, fmt.Errorf("cannot parse the tags %q: %w", tags, err)
	}
	tagging := make(map[string][]string)
	for tag, values := range brought {
		if len(values) != 1 {
			return nil, fmt.Errorf("cannot parse the tags %q: duplicate %s", tags, tag)
		}
		tagging["s3:RequestObjectTag/"+tag] = values
	}
	maps.Copy(keys, tagging)
	return []iam.Call{{Action: "s3:PutObject", Resource: object, Keys: keys},
		{Action: "s3:PutObjectTagging", Resource: object, Keys: tagging}}, nil
}

// maxTagging is the maximum size of a request with tags, in bytes. An object
// has at most ten tags.
const maxTagging = 64 << 10

// retagging returns the permission for a PUT of an object's tags.
func (a *Account) retagging(r *http.Request, bucket, key string) ([]iam.Call, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxTagging+1))
	if err == nil && len(body) > maxTagging {
		err = fmt.Errorf("more than %d bytes", maxTagging)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var brought struct {
		XMLName xml.Name                      `xml:"Tagging"`
		Tags    []struct{ Key, Value string } `xml:"TagSet>Tag"`
	}
	if err == nil {
		err = xml.Unmarshal(body, &brought)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the new tags of %s: %w", key, err)
	}
	has, err := a.tags(r.Context(), bucket, key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the tags of %s: %w", key, err)
	}
	call := iam.Call{Action: "s3:PutObjectTagging", Resource: "arn:aws:s3:::" + bucket + "/" + key,
		Keys: make(map[string][]string)}
	for _, tag := range brought.Tags {
		name := "s3:RequestObjectTag/" + tag.Key
		call.Keys[name] = append(call.Keys[name], tag.Value)
	}
	for tag, value := range has {
		call.Keys["s3:ExistingObjectTag/"+tag] = []string{value}
	}
	return []iam.Call{call}, nil
}

// tagsIn returns a function that reads tags from the emulator at a URL, without
// permission checks.
func tagsIn(emulator string) func(ctx context.Context, bucket, key string) (map[string]string, error) {
	client := s3.NewFromConfig(awstest.Config(emulator), func(o *s3.Options) { o.UsePathStyle = true })
	return func(ctx context.Context, bucket, key string) (map[string]string, error) {
		out, err := client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: &bucket, Key: &key})
		var failed *awshttp.ResponseError
		if errors.As(err, &failed) && failed.HTTPStatusCode() == http.StatusNotFound {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		tags := make(map[string]string)
		for _, tag := range out.TagSet {
			tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
		}
		return tags, nil
	}
}

func listing(bucket, prefix string) iam.Call {
	return iam.Call{Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + bucket,
		Keys: map[string][]string{"s3:prefix": {prefix}}}
}

// hideMissing replaces 404 with 403 for a missing object if the caller may not
// list the bucket, like S3 does. S3 then checks the object's key as the prefix
// of a listing: https://github.com/ceph/ceph/pull/68577.
func (a *Account) hideMissing(response *http.Response) {
	r := response.Request
	who, service := signer(r)
	bucket, key, isObject := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if response.StatusCode != http.StatusNotFound || service != "s3" || !isObject {
		return
	}
	a.mu.Lock()
	caller := a.roles[who]
	a.mu.Unlock()
	if err := caller.judge(listing(bucket, key)); err != nil {
		a.mu.Lock()
		a.denied = append(a.denied, fmt.Sprintf("%s: reading a missing object: %v", caller.name, err))
		a.mu.Unlock()
		response.StatusCode, response.Status = http.StatusForbidden, "403 Forbidden"
		response.Header.Del("Content-Length")
		_ = response.Body.Close()
		response.Body, response.ContentLength = http.NoBody, 0
	}
}

func (a *Account) bucketPolicy(w http.ResponseWriter, r *http.Request) {
	text, there := a.BucketPolicies[strings.Trim(r.URL.Path, "/")]
	if !there {
		w.WriteHeader(http.StatusNotFound)
		text = `<Error><Code>NoSuchBucketPolicy</Code><Message>The bucket policy does not exist</Message></Error>`
	}
	_, _ = io.WriteString(w, text)
}

// confirmed matches the ARN of a subscription in a listing.
var confirmed = regexp.MustCompile(`<SubscriptionArn>[^<]*</SubscriptionArn>`)

// unconfirm lists subscribers as unconfirmed, if the account is set so.
func (a *Account) unconfirm(response *http.Response) error {
	if _, service := signer(response.Request); service != "sns" || !a.Unconfirmed {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	body = confirmed.ReplaceAll(body, []byte("<SubscriptionArn>PendingConfirmation</SubscriptionArn>"))
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Del("Content-Length")
	return nil
}

// attribute is a DynamoDB attribute of type string.
type attribute struct{ S string }

// keyed has the parts of a request that identify an item or a partition.
type keyed struct {
	TableName                 string
	Key                       map[string]attribute
	Item                      map[string]json.RawMessage
	KeyConditionExpression    string
	ExpressionAttributeValues map[string]json.RawMessage
}

// partitionKey matches the placeholder of the partition key in a key condition,
// which must come first.
var partitionKey = regexp.MustCompile(`^\s*\S+\s*=\s*(:\w+)`)

func (k keyed) leadingKey() (string, error) {
	raw := k.Item["pk"]
	if k.KeyConditionExpression != "" {
		if found := partitionKey.FindStringSubmatch(k.KeyConditionExpression); found != nil {
			raw = k.ExpressionAttributeValues[found[1]]
		}
	}
	key := k.Key["pk"]
	if raw != nil {
		if err := json.Unmarshal(raw, &key); err != nil {
			return "", err
		}
	}
	if key.S == "" {
		return "", errors.New("the request has no partition key")
	}
	return key.S, nil
}

// dynamoDBCalls returns a permission for each item. A transaction needs the
// permissions of all its reads and writes.
func (a *Account) dynamoDBCalls(r *http.Request) ([]iam.Call, error) {
	body, err := drain(r)
	if err != nil {
		return nil, err
	}
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	named := make(map[string][]keyed)
	switch action {
	case "DescribeTable", "DescribeTimeToLive", "DescribeContinuousBackups": // these have no item
		var one keyed
		err := json.Unmarshal(body, &one)
		return []iam.Call{{Action: "dynamodb:" + action, Resource: a.ARN("dynamodb", "table/"+one.TableName)}}, err
	case "GetItem", "Query":
		var one keyed
		err = json.Unmarshal(body, &one)
		named[action] = []keyed{one}
	case "TransactGetItems":
		var transaction struct{ TransactItems []struct{ Get keyed } }
		err = json.Unmarshal(body, &transaction)
		for _, item := range transaction.TransactItems {
			named["GetItem"] = append(named["GetItem"], item.Get)
		}
	case "TransactWriteItems":
		var transaction struct{ TransactItems []map[string]keyed }
		err = json.Unmarshal(body, &transaction)
		for _, item := range transaction.TransactItems {
			for kind, k := range item {
				action := map[string]string{"Put": "PutItem", "Delete": "DeleteItem", "Update": "UpdateItem",
					"ConditionCheck": "ConditionCheckItem"}[kind]
				named[action] = append(named[action], k)
			}
		}
	default:
		return nil, fmt.Errorf("a call of DynamoDB that the rehearsal does not know: %s", action)
	}
	if err != nil {
		return nil, err
	}
	var calls []iam.Call
	for _, action := range slices.Sorted(maps.Keys(named)) {
		for _, k := range named[action] {
			leading, err := k.leadingKey()
			if err != nil {
				return nil, err
			}
			calls = append(calls, iam.Call{
				Action: "dynamodb:" + action, Resource: a.ARN("dynamodb", "table/"+k.TableName),
				Keys: map[string][]string{"dynamodb:LeadingKeys": {leading}},
			})
		}
	}
	return calls, nil
}

// deny writes the service's own form of a denial, in XML or JSON.
func deny(w http.ResponseWriter, r *http.Request) {
	_, service := signer(r)
	status, kind := http.StatusForbidden, "application/xml"
	text := `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`
	const xmlError = `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code>` +
		`<Message>not authorized</Message></Error></ErrorResponse>`
	switch {
	case service == "lambda", service == "apigateway":
		w.Header().Set("X-Amzn-Errortype", "AccessDeniedException")
		kind, text = "application/json", `{"Message":"not authorized"}`
	case r.Header.Get("X-Amz-Target") != "":
		status, kind = http.StatusBadRequest, "application/x-amz-json-1.0"
		text = `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not authorized"}`
	case service == "sns":
		text = fmt.Sprintf(xmlError, "AuthorizationError")
	case r.Method == http.MethodPost:
		text = fmt.Sprintf(xmlError, "AccessDenied")
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
