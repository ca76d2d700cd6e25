package stackdoctor_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/stackdoctor"
)

// client answers each request, instead of a server.
type client func(*http.Request) *http.Response

func (c client) Do(r *http.Request) (*http.Response, error) { return c(r), nil }

// A request to API Gateway is signed, and goes to the domain of its region.
func TestGateway(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{
		"eu-central-1":   "https://apigateway.eu-central-1.amazonaws.com/v2/apis/a/stages/%24default",
		"cn-north-1":     "https://apigateway.cn-north-1.amazonaws.com.cn/v2/apis/a/stages/%24default",
		"eusc-de-east-1": "https://apigateway.eusc-de-east-1.amazonaws.eu/v2/apis/a/stages/%24default",
		"":               "http://localhost:5000/v2/apis/a/stages/%24default",
	} {
		config := aws.Config{
			Region:      region,
			Credentials: credentials.NewStaticCredentialsProvider("AKIA", "secret", "session"),
			HTTPClient: client(func(r *http.Request) *http.Response {
				if diff := cmp.Diff(want, r.URL.String()); diff != "" {
					t.Error(diff)
				}
				if !strings.Contains(r.Header.Get("Authorization"), "/"+region+"/apigateway/aws4_request") {
					t.Errorf("the signature is %s", r.Header.Get("Authorization"))
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}
			}),
		}
		if region == "" {
			config.BaseEndpoint = aws.String("http://localhost:5000/")
		}
		text, err := stackdoctor.NewServices(config, false).Gateways.Get(t.Context(), "/v2/apis/a/stages/%24default")
		if string(text) != "{}" || err != nil {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// The error of API Gateway has its code and message.
func TestGatewayError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ kind, body, code, message string }{
		{"AccessDeniedException", `{"Message":"not authorized"}`, "AccessDeniedException", "not authorized"},
		{"NotFoundException:http://x", `{"message":"Invalid API"}`, "NotFoundException", "Invalid API"},
		{"", "<html>", "403 Forbidden", ""},
	} {
		config := aws.Config{
			Region:      "eu-central-1",
			Credentials: credentials.NewStaticCredentialsProvider("AKIA", "secret", ""),
			HTTPClient: client(func(*http.Request) *http.Response {
				return &http.Response{
					StatusCode: http.StatusForbidden, Status: "403 Forbidden", Body: io.NopCloser(strings.NewReader(test.body)),
					Header: http.Header{"X-Amzn-Errortype": {test.kind}},
				}
			}),
		}
		_, err := stackdoctor.NewServices(config, false).Gateways.Get(t.Context(), "/account")
		failed, _ := errors.AsType[smithy.APIError](err)
		if failed == nil || failed.ErrorCode() != test.code || failed.ErrorMessage() != test.message {
			t.Errorf("%q, want %s %s", err, test.code, test.message)
		}
	}
}
