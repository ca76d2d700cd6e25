package rehearsal

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// IAM sees each request as calls of actions, on resources, with keys; whatever is not known is refused.
func TestCalls(t *testing.T) {
	t.Parallel()
	a := &Account{ID: "1", Region: "r"}
	request := func(method, target string, body io.Reader) *http.Request {
		return httptest.NewRequestWithContext(t.Context(), method, target, body)
	}
	dynamo := func(action, body string) *http.Request {
		r := request(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+action)
		return r
	}
	form := func(body string) *http.Request { return request(http.MethodPost, "/", strings.NewReader(body)) }
	copying := request(http.MethodPut, "/b/key", nil)
	copying.Header.Set("X-Amz-Copy-Source", "b/other")
	for _, test := range []struct {
		service string
		request *http.Request
		want    string // the calls; empty for a refusal
	}{
		{"dynamodb", dynamo("GetItem", `{"TableName": "t", "Key": {"pk": {"S": "modules/a"}, "sk": {"S": "listing"}}}`), "dynamodb:GetItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys modules/a)"},
		{"dynamodb", dynamo("Query", `{"TableName": "t", "KeyConditionExpression": "#pk = :p AND begins_with(#sk, :s)", "ExpressionAttributeValues": {":p": {"S": "modules/a"}, ":s": {"S": "v"}}}`), "dynamodb:Query of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys modules/a)"},
		{"dynamodb", dynamo("TransactWriteItems", `{"TransactItems": [{"Put": {"TableName": "t", "Item": {"pk": {"S": "a"}, "revision": {"N": "1"}}}}, {"Put": {"TableName": "t", "Item": {"pk": {"S": "b"}}}}]}`), "dynamodb:PutItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys a); dynamodb:PutItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys b)"},
		{"dynamodb", dynamo("TransactWriteItems", `{"TransactItems": [{"Delete": {"TableName": "t", "Key": {"pk": {"S": "a"}}}}]}`), "dynamodb:DeleteItem of arn:aws:dynamodb:r:1:table/t (dynamodb:LeadingKeys a)"},
		{"dynamodb", dynamo("GetItem", `{"TableName": "t"}`), ""},
		{"dynamodb", dynamo("GetItem", `{`), ""},
		{"dynamodb", dynamo("Scan", `{"TableName": "t"}`), ""},
		{"s3", request(http.MethodGet, "/b/modules/x?X-Amz-Signature=1", nil), "s3:GetObject of arn:aws:s3:::b/modules/x"},
		{"s3", request(http.MethodHead, "/b/modules/x", nil), "s3:GetObject of arn:aws:s3:::b/modules/x"},
		{"s3", request(http.MethodPut, "/b/modules/x", nil), "s3:PutObject of arn:aws:s3:::b/modules/x"},
		{"s3", request(http.MethodGet, "/b?list-type=2&prefix=modules/", nil), "s3:ListBucket of arn:aws:s3:::b (s3:prefix modules/)"},
		{"s3", request(http.MethodDelete, "/b/key", nil), ""},
		{"s3", request(http.MethodDelete, "/b", nil), ""},
		{"s3", copying, ""},
		{"cloudformation", form("Action=DescribeStacks&StackName=larder"), "cloudformation:DescribeStacks of arn:aws:cloudformation:r:1:stack/larder/00000000-0000-0000-0000-000000000000"},
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
}
