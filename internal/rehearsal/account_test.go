package rehearsal

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Account maps each request to actions, resources and keys, and rejects unknown
// requests.
func TestCalls(t *testing.T) {
	t.Parallel()
	a := &Account{ID: "1", Region: "r", tags: func(_ context.Context, bucket, key string) (map[string]string, error) {
		switch bucket + "/" + key {
		case "b/modules/staged":
			return map[string]string{"larder": "staged", "other": "x"}, nil
		case "b/modules/broken":
			return nil, errors.New("broken")
		}
		return nil, nil
	}}
	request := func(method, target string, body io.Reader) *http.Request {
		return httptest.NewRequestWithContext(t.Context(), method, target, body)
	}
	dynamo := func(action, body string) *http.Request {
		r := request(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+action)
		return r
	}
	logs := func(action, body string) *http.Request {
		r := request(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", "Logs_20140328."+action)
		return r
	}
	target := func(action, body string) *http.Request {
		r := request(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", action)
		return r
	}
	form := func(body string) *http.Request { return request(http.MethodPost, "/", strings.NewReader(body)) }
	put := func(target string, headers ...string) *http.Request {
		r := request(http.MethodPut, target, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		return r
	}
	tag := func(key, body string) *http.Request {
		return request(http.MethodPut, "/b/"+key+"?tagging=", strings.NewReader(body))
	}
	const kept = `<Tagging xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><TagSet>` +
		`<Tag><Key>larder</Key><Value>kept</Value></Tag><Tag><Key>b</Key><Value>c d</Value></Tag></TagSet></Tagging>`
	for _, test := range []struct {
		service string
		request *http.Request
		want    string // the calls; empty if rejected
	}{
		{"dynamodb", dynamo("GetItem", `{"TableName": "t", "Key": {"pk": {"S": "modules/a"}, "sk": {"S": "listing"}}}`),
			"dynamodb:GetItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys modules/a)"},
		{"dynamodb", dynamo("Query", `{"TableName": "t", "KeyConditionExpression": "#pk = :p AND begins_with(#sk, :s)",
			"ExpressionAttributeValues": {":p": {"S": "modules/a"}, ":s": {"S": "v"}}}`), "dynamodb:Query of " +
			"arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys modules/a)"},
		{"dynamodb", dynamo("TransactWriteItems",
			`{"TransactItems": [{"Put": {"TableName": "t", "Item": {"pk": {"S": "a"}, "revision": {"N": "1"}}}}, {"Put":
				{"TableName": "t", "Item": {"pk": {"S": "b"}}}}]}`), "dynamodb:PutItem of arn:aws:dynamodb:r:1:table/t " +
			"(dynamodb:LeadingKeys a); dynamodb:PutItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys b)"},
		{"dynamodb", dynamo("TransactWriteItems",
			`{"TransactItems": [{"Delete": {"TableName": "t", "Key": {"pk": {"S": "a"}}}}]}`),
			"dynamodb:DeleteItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys a)"},
		{"dynamodb", dynamo("TransactWriteItems",
			`{"TransactItems": [{"Put": {"TableName": "t", "Item": {"pk": {"S": "providers/a"}}}}, {"ConditionCheck":
				{"TableName": "t", "Key": {"pk": {"S": "keys/a"}, "sk": {"S": "K"}}, "ConditionExpression":
				"revision = :r"}}]}`), "dynamodb:ConditionCheckItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys " +
			"keys/a); dynamodb:PutItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys providers/a)"},
		{"dynamodb", dynamo("TransactWriteItems", `{"TransactItems": [{"ConditionCheck": {"TableName": "t"}}]}`), ""},
		{"dynamodb", dynamo("TransactGetItems",
			`{"TransactItems": [{"Get": {"TableName": "t", "Key": {"pk": {"S": "a"}, "sk": {"S": "listing"}}}}, {"Get":
				{"TableName": "u", "Key": {"pk": {"S": "b"}, "sk": {"S": "x"}}}}]}`), "dynamodb:GetItem of " +
			"arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys a); dynamodb:GetItem of arn:aws:dynamodb:r:1:table/u " +
			"(dynamodb:LeadingKeys b)"},
		{"dynamodb", dynamo("TransactGetItems", `{"TransactItems": [{"Get": {"TableName": "t"}}]}`), ""},
		{"dynamodb", dynamo("TransactGetItems",
			`{"TransactItems": [{"Put": {"TableName": "t", "Item": {"pk": {"S": "a"}}}}]}`), ""},
		{"dynamodb", dynamo("GetItem", `{"TableName": "t"}`), ""},
		{"dynamodb", dynamo("GetItem", `{`), ""},
		{"dynamodb", dynamo("Scan", `{"TableName": "t"}`), ""},
		{"s3", request(http.MethodGet, "/b/modules/x?X-Amz-Signature=1", nil),
			"s3:GetObject of arn:aws:s3:::b/modules/x"},
		{"s3", request(http.MethodHead, "/b/modules/x", nil), "s3:GetObject of arn:aws:s3:::b/modules/x"},
		{"s3", request(http.MethodPut, "/b/modules/x", nil), "s3:PutObject of arn:aws:s3:::b/modules/x"},
		{"s3", request(http.MethodGet, "/b?list-type=2&prefix=modules/", nil),
			"s3:ListBucket of arn:aws:s3:::b (s3:prefix modules/)"},
		{"s3", request(http.MethodDelete, "/b/key", nil), ""},
		{"s3", request(http.MethodDelete, "/b", nil), ""},
		{"s3", request(http.MethodGet, "/b?versions&prefix=modules/x/&key-marker=a&version-id-marker=1", nil),
			"s3:ListBucketVersions of arn:aws:s3:::b (s3:prefix modules/x/)"},
		{"s3", request(http.MethodDelete, "/b/key?versionId=1&x-id=DeleteObject", nil),
			"s3:DeleteObjectVersion of arn:aws:s3:::b/key"},
		{"s3", request(http.MethodDelete, "/b/key?versionId=", nil), ""},
		{"s3", request(http.MethodDelete, "/b/key?versionId=1&tagging", nil), ""},
		{"s3", request(http.MethodGet, "/b/key?versionId=1", nil), ""},
		{"s3", request(http.MethodPut, "/b?versions", nil), ""},
		{"logs", logs("DeleteLogGroup", `{}`), ""},
		{"s3", put("/b/key", "X-Amz-Copy-Source", "b/other"), ""},
		{"s3", put("/b/key", "X-Amz-Acl", "public-read"), ""},
		{"s3", put("/b/key?acl"), ""},
		{"s3", put("/b/x?X-Amz-Signature=1", "If-None-Match", "*"),
			"s3:PutObject of arn:aws:s3:::b/x (s3:if-none-match *)"},
		{"s3", put("/b/x?X-Amz-Signature=1&x-id=PutObject", "If-None-Match", "*", "X-Amz-Tagging", "larder=staged"),
			"s3:PutObject of arn:aws:s3:::b/x (s3:RequestObjectTag/larder staged) (s3:if-none-match *); " +
				"s3:PutObjectTagging of arn:aws:s3:::b/x (s3:RequestObjectTag/larder staged)"},
		{"s3", put("/b/modules/staged", "X-Amz-Tagging", "larder=staged&a%20b=c"),
			"s3:PutObject of arn:aws:s3:::b/modules/staged (s3:RequestObjectTag/a b c) (s3:RequestObjectTag/larder staged); " +
				"s3:PutObjectTagging of arn:aws:s3:::b/modules/staged (s3:RequestObjectTag/a b c) (s3:RequestObjectTag/larder " +
				"staged)"},
		{"s3", put("/b/x", "X-Amz-Tagging", "larder=staged&larder=kept"), ""},
		{"s3", put("/b/x", "X-Amz-Tagging", "larder=staged", "X-Amz-Tagging", "larder=kept"), ""},
		{"s3", put("/b/x", "X-Amz-Tagging", "larder=%zz"), ""},
		{"s3", put("/b/x?X-Amz-Tagging=larder%3Dstaged"), ""}, // S3 ignores it there, but an emulator may not
		{"s3", put("/b/x?x-amz-tagging=larder%3Dstaged"), ""},
		{"s3", tag("modules/new", kept),
			"s3:PutObjectTagging of arn:aws:s3:::b/modules/new (s3:RequestObjectTag/b c d) (s3:RequestObjectTag/larder kept)"},
		{"s3", tag("modules/staged", kept),
			"s3:PutObjectTagging of arn:aws:s3:::b/modules/staged (s3:ExistingObjectTag/larder staged) " +
				"(s3:ExistingObjectTag/other x) (s3:RequestObjectTag/b c d) (s3:RequestObjectTag/larder kept)"},
		{"s3", tag("modules/new", `<Tagging><TagSet/></Tagging>`),
			"s3:PutObjectTagging of arn:aws:s3:::b/modules/new"},
		{"s3", tag("modules/broken", kept), ""},
		{"s3", tag("modules/new", ""), ""},
		{"s3", tag("modules/new", "<Other/>"), ""},
		{"s3", tag("modules/new", kept+strings.Repeat(" ", 64<<10)), ""},
		{"s3", tag("", kept), ""},
		{"s3", request(http.MethodPut, "/b/x?tagging&versionId=1", strings.NewReader(kept)), ""},
		{"s3", request(http.MethodGet, "/b/x?tagging", nil), "s3:GetObjectTagging of arn:aws:s3:::b/x"},
		{"s3", request(http.MethodHead, "/b/x?tagging", nil), ""},
		{"s3", request(http.MethodDelete, "/b/x?tagging", nil), ""},
		{"s3", request(http.MethodGet, "/b?tagging", nil), ""},
		{"dynamodb", dynamo("DescribeTable", `{"TableName": "t"}`),
			"dynamodb:DescribeTable of arn:aws:dynamodb:r:1:table/t"},
		{"dynamodb", dynamo("DescribeTimeToLive", `{"TableName": "t"}`),
			"dynamodb:DescribeTimeToLive of arn:aws:dynamodb:r:1:table/t"},
		{"dynamodb", dynamo("DescribeContinuousBackups", `{"TableName": "t"}`),
			"dynamodb:DescribeContinuousBackups of arn:aws:dynamodb:r:1:table/t"},
		{"dynamodb", dynamo("UpdateTimeToLive", `{"TableName": "t"}`), ""},
		{"s3", request(http.MethodGet, "/b?policy", nil), "s3:GetBucketPolicy of arn:aws:s3:::b"},
		{"s3", request(http.MethodGet, "/b?publicAccessBlock=&x-id=GetPublicAccessBlock", nil),
			"s3:GetBucketPublicAccessBlock of arn:aws:s3:::b"},
		{"s3", request(http.MethodGet, "/b?lifecycle", nil), "s3:GetLifecycleConfiguration of arn:aws:s3:::b"},
		{"s3", request(http.MethodGet, "/b?versioning", nil), "s3:GetBucketVersioning of arn:aws:s3:::b"},
		{"s3", request(http.MethodGet, "/b?encryption", nil), "s3:GetEncryptionConfiguration of arn:aws:s3:::b"},
		{"s3", request(http.MethodPut, "/b?policy", nil), ""},
		{"s3", request(http.MethodGet, "/b/key?policy", nil), ""},
		{"s3", request(http.MethodGet, "/b?policy&versioning", nil), ""},
		{"s3", request(http.MethodGet, "/b?acl", nil), ""},
		{"lambda", request(http.MethodGet, "/2015-03-31/functions/f/configuration", nil),
			"lambda:GetFunctionConfiguration of arn:aws:lambda:r:1:function:f"},
		{"lambda", request(http.MethodGet, "/2019-09-30/functions/f/concurrency", nil),
			"lambda:GetFunctionConcurrency of arn:aws:lambda:r:1:function:f"},
		{"lambda", request(http.MethodGet, "/2016-08-19/account-settings", nil), "lambda:GetAccountSettings of *"},
		{"lambda", request(http.MethodGet, "/2015-03-31/functions/f", nil), ""},
		{"lambda", request(http.MethodGet, "/2015-03-31/functions/f/configuration?Qualifier=1", nil), ""},
		{"lambda", request(http.MethodPut, "/2015-03-31/functions/f/configuration", nil), ""},
		{"monitoring", form("Action=DescribeAlarms&AlarmNames.member.1=a"),
			"cloudwatch:DescribeAlarms of arn:aws:cloudwatch:r:1:alarm:*"},
		{"monitoring", form("Action=DescribeAlarms"), "cloudwatch:DescribeAlarms of arn:aws:cloudwatch:r:1:alarm:*"},
		{"monitoring", form("Action=PutMetricAlarm"), ""},
		{"sns", form("Action=ListSubscriptionsByTopic&TopicArn=arn:aws:sns:r:1:t"),
			"sns:ListSubscriptionsByTopic of arn:aws:sns:r:1:t"},
		{"sns", form("Action=Subscribe&TopicArn=arn:aws:sns:r:1:t"), ""},
		{"acm", target("CertificateManager.DescribeCertificate", `{"CertificateArn": "arn:c"}`),
			"acm:DescribeCertificate of arn:c"},
		{"acm", target("CertificateManager.GetCertificate", `{"CertificateArn": "arn:c"}`), ""},
		{"cloudformation", form("Action=DescribeStacks&StackName=larder"),
			"cloudformation:DescribeStacks of arn:aws:cloudformation:r:1:stack/larder/00000000-0000-0000-0000-000000000000"},
		{"cloudformation", form("Action=GetTemplate&StackName=larder"),
			"cloudformation:GetTemplate of arn:aws:cloudformation:r:1:stack/larder/00000000-0000-0000-0000-000000000000"},
		{"cloudformation", form("Action=ListStackResources&StackName=larder"),
			"cloudformation:ListStackResources of " +
				"arn:aws:cloudformation:r:1:stack/larder/00000000-0000-0000-0000-000000000000"},
		{"apigateway", request(http.MethodGet, "/v2/apis/a/stages/%24default", nil),
			"apigateway:GET of arn:aws:apigateway:r::/apis/a/stages/$default"},
		{"apigateway", request(http.MethodGet, "/account", nil), "apigateway:GET of arn:aws:apigateway:r::/account"},
		{"apigateway", request(http.MethodDelete, "/v2/apis/a", nil), ""},
		{"cloudformation", form("Action=DeleteStack&StackName=larder"), ""},
		{"kms", form("Action=Decrypt"), ""},
	} {
		calls, err := a.calls(test.service, test.request)
		var got []string
		for _, c := range calls {
			got = append(got, c.String())
		}
		if strings.Join(got, "; ") != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s %s: %q, %v", test.service, test.request.URL, got, err)
		}
	}
	// The body can be read again by the emulator.
	r := tag("modules/staged", kept)
	if _, err := a.calls("s3", r); err != nil {
		t.Error(err)
	}
	if body, err := io.ReadAll(r.Body); string(body) != kept || err != nil {
		t.Errorf("%s, %v", body, err)
	}
}
