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

// Account stands before an emulator that lets everyone do everything, and does what AWS does: it knows who calls by the
// access key that signed, and refuses what the caller's role does not allow.
type Account struct {
	// URL is what AWS_ENDPOINT_URL must be.
	URL string
	// ID and Region are those of the ARNs of what is in it.
	ID, Region string
	// Insights answers queries of logs, in place of the emulator. It is set before the first call.
	Insights http.Handler

	server *http.Server
	// tags asks the emulator, as nobody in particular, for the tags of an object; there are none where it is missing.
	tags func(ctx context.Context, bucket, key string) (map[string]string, error)

	mu     sync.Mutex
	roles  map[string]namedRole // by access key
	denied []string
}

// namedRole is a principal with the policies of several roles: what one of them allows, it may.
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

// StartAccount starts it in front of the emulator at a URL.
func StartAccount(ctx context.Context, emulator, id, region string) (*Account, error) {
	target, err := url.Parse(emulator)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", emulator, err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	a := &Account{URL: "http://localhost:" + port, ID: id, Region: region, tags: tagsIn(emulator), roles: make(map[string]namedRole)}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: a.hideMissing,
	}
	a.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, err := a.judge(r); err != nil {
			a.mu.Lock()
			a.denied = append(a.denied, fmt.Sprintf("%s: %v", who, err))
			a.mu.Unlock()
			deny(w, r)
			return
		}
		if _, service := signer(r); service == "logs" && a.Insights != nil {
			a.Insights.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = a.server.Serve(listener) }()
	return a, nil
}

// Close ends it, but not the emulator.
func (a *Account) Close() { _ = a.server.Close() }

// Add lets a principal in, and returns the access key by which it is known. What one of its roles allows, none of the others may
// deny.
func (a *Account) Add(name string, roles ...*iam.Role) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := fmt.Sprintf("ASIAREHEARSAL%07d", len(a.roles)+1)
	a.roles[key] = namedRole{name, roles}
	return key
}

// Denied returns the calls that were refused, each with who made it.
func (a *Account) Denied() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.denied)
}

// Unused names what of the principals' statements no call has needed.
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

// credential is how a signature names who signed and for which service, in a header or a presigned URL.
var credential = regexp.MustCompile(`(?:Credential=|^)([A-Z0-9]+)/\d{8}/[a-z0-9-]+/([a-z0-9]+)/aws4_request`)

func (a *Account) judge(r *http.Request) (who string, err error) {
	key, service := signer(r)
	if key == "" {
		return "somebody", fmt.Errorf("%s %s is not signed", r.Method, r.URL.Path)
	}
	a.mu.Lock()
	caller, known := a.roles[key]
	a.mu.Unlock()
	if !known {
		return "somebody", fmt.Errorf("access key %s is nobody's", key)
	}
	calls, err := a.calls(service, r)
	for _, c := range calls {
		err = errors.Join(err, caller.judge(c))
	}
	return caller.name, err
}

// signer returns the access key with which a request is signed, and the service that it is for.
func signer(r *http.Request) (key, service string) {
	found := credential.FindStringSubmatch(cmp.Or(r.URL.Query().Get("X-Amz-Credential"), r.Header.Get("Authorization")))
	if found == nil {
		return "", ""
	}
	return found[1], found[2]
}

// calls returns what IAM makes of a request. What it does not know it refuses, so that nothing passes unseen.
func (a *Account) calls(service string, r *http.Request) ([]iam.Call, error) {
	switch service {
	case "s3":
		return a.s3Calls(r)
	case "dynamodb":
		return a.dynamoDBCalls(r)
	case "logs":
		return a.logsCalls(r)
	case "cloudformation", "sts":
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
		case service+":"+action == "cloudformation:DescribeStacks":
			return []iam.Call{{Action: "cloudformation:DescribeStacks", Resource: a.ARN("cloudformation", "stack/"+form.Get("StackName")+"/00000000-0000-0000-0000-000000000000")}}, nil
		}
	}
	return nil, fmt.Errorf("a call of %s that the rehearsal does not know: %s %s", service, r.Method, r.URL.Path)
}

// logsCalls returns a call for each log group of a query. What names a query by its id has no resource.
func (a *Account) logsCalls(r *http.Request) ([]iam.Call, error) {
	body, err := drain(r)
	if err != nil {
		return nil, err
	}
	switch _, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); action {
	case "GetQueryResults", "StopQuery":
		return []iam.Call{{Action: "logs:" + action, Resource: "*"}}, nil
	case "StartQuery":
		var in struct{ LogGroupNames []string }
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, err
		}
		if len(in.LogGroupNames) == 0 {
			return nil, errors.New("a query of no log group")
		}
		var calls []iam.Call
		for _, group := range in.LogGroupNames {
			calls = append(calls, iam.Call{Action: "logs:StartQuery", Resource: a.ARN("logs", "log-group:"+group+":log-stream:")})
		}
		return calls, nil
	default:
		return nil, fmt.Errorf("a call of CloudWatch Logs that the rehearsal does not know: %s", action)
	}
}

// ARN names something of the account.
func (a *Account) ARN(service, resource string) string {
	return "arn:aws:" + service + ":" + a.Region + ":" + a.ID + ":" + resource
}

// drain returns a request's body, which can be read again.
func drain(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// inURL are what of a signed request is in a presigned URL. Anything else there that S3 reads from headers is not let
// through unseen.
var inURL = []string{
	"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Content-Sha256", "X-Amz-Checksum-Mode",
	"x-id", "list-type", "prefix", "start-after", "continuation-token", "max-keys", "encoding-type", "tagging",
	"versions", "versionId", "key-marker", "version-id-marker",
}

func (a *Account) s3Calls(r *http.Request) ([]iam.Call, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	object := "arn:aws:s3:::" + bucket + "/" + key
	query := r.URL.Query()
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

// versionCalls is what it takes to list and delete versions of objects.
func versionCalls(r *http.Request, bucket, key string) ([]iam.Call, error) {
	query := r.URL.Query()
	switch {
	case key == "" && r.Method == http.MethodGet && query.Has("versions") && !query.Has("versionId"):
		return []iam.Call{{Action: "s3:ListBucketVersions", Resource: "arn:aws:s3:::" + bucket, Keys: map[string][]string{"s3:prefix": {query.Get("prefix")}}}}, nil
	case key != "" && r.Method == http.MethodDelete && query.Get("versionId") != "" && !query.Has("tagging") && !query.Has("versions"):
		return []iam.Call{{Action: "s3:DeleteObjectVersion", Resource: "arn:aws:s3:::" + bucket + "/" + key}}, nil
	}
	return nil, fmt.Errorf("a call of S3 that the rehearsal does not know: %s %s of versions", r.Method, r.URL.Path)
}

// putting is what a PUT of an object takes: the permission to tag it too, where it brings tags. S3 does not look at the
// tags of an object that is there already.
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
		return nil, fmt.Errorf("tags %q: %w", tags, err)
	}
	tagging := make(map[string][]string)
	for tag, values := range brought {
		if len(values) != 1 {
			return nil, fmt.Errorf("tags %q: %s is there more than once", tags, tag)
		}
		tagging["s3:RequestObjectTag/"+tag] = values
	}
	maps.Copy(keys, tagging)
	return []iam.Call{{Action: "s3:PutObject", Resource: object, Keys: keys}, {Action: "s3:PutObjectTagging", Resource: object, Keys: tagging}}, nil
}

// maxTagging bounds the tags of a request, in bytes: an object has at most ten.
const maxTagging = 64 << 10

// retagging is what a PUT of the tags of an object takes.
func (a *Account) retagging(r *http.Request, bucket, key string) ([]iam.Call, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxTagging+1))
	if err == nil && len(body) > maxTagging {
		err = fmt.Errorf("they have more than %d bytes", maxTagging)
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
		return nil, fmt.Errorf("tags of %s: %w", key, err)
	}
	has, err := a.tags(r.Context(), bucket, key)
	if err != nil {
		return nil, fmt.Errorf("tags of %s: %w", key, err)
	}
	call := iam.Call{Action: "s3:PutObjectTagging", Resource: "arn:aws:s3:::" + bucket + "/" + key, Keys: make(map[string][]string)}
	for _, tag := range brought.Tags {
		name := "s3:RequestObjectTag/" + tag.Key
		call.Keys[name] = append(call.Keys[name], tag.Value)
	}
	for tag, value := range has {
		call.Keys["s3:ExistingObjectTag/"+tag] = []string{value}
	}
	return []iam.Call{call}, nil
}

// tagsIn returns what asks the emulator at a URL for tags. It has access to everything.
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
	return iam.Call{Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + bucket, Keys: map[string][]string{"s3:prefix": {prefix}}}
}

// hideMissing answers 403 in place of 404 for an object that is missing to who may not list the bucket, as S3 does. The
// object's key stands for the prefix of a listing then, as Ceph found of S3: https://github.com/ceph/ceph/pull/68577.
func (a *Account) hideMissing(response *http.Response) error {
	r := response.Request
	who, service := signer(r)
	bucket, key, isObject := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if response.StatusCode != http.StatusNotFound || service != "s3" || !isObject {
		return nil
	}
	a.mu.Lock()
	caller := a.roles[who]
	a.mu.Unlock()
	if err := caller.judge(listing(bucket, key)); err != nil {
		a.mu.Lock()
		a.denied = append(a.denied, fmt.Sprintf("%s: asking for a missing object: %v", caller.name, err))
		a.mu.Unlock()
		response.StatusCode, response.Status = http.StatusForbidden, "403 Forbidden"
		response.Header.Del("Content-Length")
		_ = response.Body.Close()
		response.Body, response.ContentLength = http.NoBody, 0
	}
	return nil
}

// attribute is a string of DynamoDB's.
type attribute struct{ S string }

// keyed is what a request says of one item or partition.
type keyed struct {
	TableName                 string
	Key                       map[string]attribute
	Item                      map[string]json.RawMessage
	KeyConditionExpression    string
	ExpressionAttributeValues map[string]json.RawMessage
}

// partition finds the placeholder of the partition's key in a query, which comes first.
var partition = regexp.MustCompile(`^\s*\S+\s*=\s*(:\w+)`)

func (k keyed) leadingKey() (string, error) {
	raw := k.Item["pk"]
	if k.KeyConditionExpression != "" {
		if found := partition.FindStringSubmatch(k.KeyConditionExpression); found != nil {
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
		return "", errors.New("a call of DynamoDB without a partition")
	}
	return key.S, nil
}

// dynamoDBCalls returns a call for each item: a transaction needs the permission
// of each of its reads or writes.
func (a *Account) dynamoDBCalls(r *http.Request) ([]iam.Call, error) {
	body, err := drain(r)
	if err != nil {
		return nil, err
	}
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	named := make(map[string][]keyed)
	switch action {
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
				action := map[string]string{"Put": "PutItem", "Delete": "DeleteItem", "Update": "UpdateItem", "ConditionCheck": "ConditionCheckItem"}[kind]
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

// deny answers as the services do, which speak XML or JSON.
func deny(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Amz-Target") != "" {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not authorized"}`)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusForbidden)
	if r.Method == http.MethodPost {
		_, _ = io.WriteString(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>`)
		return
	}
	_, _ = io.WriteString(w, `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`)
}
