// Package signedcall sends requests to services of AWS of which this project
// uses a few operations. The AWS SDK's client of such a service has hundreds.
// It would make a program larger, slower to build and slower to start.
//
// Like those clients, it takes the region, the credentials, the endpoint and
// the limits of retries from the SDK's configuration. It always retries in the
// standard mode. The code and the message of AWS are in errors as
// [smithy.APIError].
package signedcall

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// maxResponse bounds a response, in bytes. The result of a log query has up to
// 10,000 rows. The template of a stack has up to 1 MiB.
const maxResponse = 8 << 20

// maxSkew is how much this machine's clock may differ from that of AWS, which
// rejects requests that were signed 5 minutes earlier or later.
const maxSkew = 4 * time.Minute

// skewCodes are the codes of failures for which the AWS SDK considers a wrong
// time.
var skewCodes = []string{
	"InvalidSignatureException", "SignatureDoesNotMatch", "AuthFailure", "RequestTimeTooSkewed", "AccessDeniedException",
}

// Query calls an operation of a service with the AWS Query protocol. It decodes
// the XML response into out, unless out is nil.
func Query(ctx context.Context, config aws.Config, s Service, operation string, in url.Values, out any) error {
	form := url.Values{"Action": {operation}, "Version": {s.API}}
	for name, values := range in {
		form[name] = values
	}
	return request{
		service: s, operation: operation, method: http.MethodPost, path: "/",
		header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, body: []byte(form.Encode()),
		decode: xml.Unmarshal, failure: xmlFailure,
	}.send(ctx, config, out)
}

// JSON calls an operation of a service with the AWS JSON 1.1 protocol. It
// decodes the response into out, unless out is nil.
func JSON(ctx context.Context, config aws.Config, s Service, operation string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return request{
		service: s, operation: operation, method: http.MethodPost, path: "/",
		header: map[string]string{
			"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": s.API + "." + operation,
		},
		body: body, decode: json.Unmarshal, failure: jsonFailure,
	}.send(ctx, config, out)
}

// REST calls an operation of a service at a path, which is escaped and can have
// a query. If in is not nil, it is the JSON body. REST decodes the response into
// out, unless out is nil.
func REST(ctx context.Context, config aws.Config, s Service, operation, method, path string, in, out any) error {
	r := request{
		service: s, operation: operation, method: method, path: path,
		// Without it, API Gateway has another format for some documents.
		header: map[string]string{"Accept": "application/json"}, decode: json.Unmarshal, failure: jsonFailure,
	}
	if in != nil {
		r.header["Content-Type"] = "application/json"
		var err error
		if r.body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	return r.send(ctx, config, out)
}

// request is a request that can be repeated.
type request struct {
	service                 Service
	operation, method, path string
	header                  map[string]string
	body                    []byte
	decode                  func([]byte, any) error
	// failure returns the code and the message in the response to a failed
	// request. They can be empty.
	failure func(http.Header, []byte) (code, message string)
}

// send sends a request until it succeeds, fails for good, or was sent often
// enough. The AWS SDK decides when it is sent again.
func (r request) send(ctx context.Context, config aws.Config, out any) error {
	var skew time.Duration
	attempts := retry.NewAttemptMiddleware(retryerOf(config), func(in any) any { return in })
	_, _, err := attempts.HandleFinalize(ctx, middleware.FinalizeInput{}, middleware.FinalizeHandlerFunc(
		func(ctx context.Context, _ middleware.FinalizeInput) (
			_ middleware.FinalizeOutput, _ middleware.Metadata, err error,
		) {
			body, err := r.try(ctx, config, &skew)
			if err == nil && out != nil {
				if err = r.decode(body, out); err != nil {
					err = &smithy.DeserializationError{Err: err}
				}
			}
			return middleware.FinalizeOutput{}, middleware.Metadata{}, err
		}))
	if err != nil {
		return &smithy.OperationError{ServiceID: r.service.ID, OperationName: r.operation, Err: err}
	}
	return nil
}

// retryerOf returns the retryer of a configuration, which is the SDK's standard
// one by default.
func retryerOf(config aws.Config) aws.Retryer {
	var retryer aws.Retryer = retry.NewStandard()
	if config.Retryer != nil {
		retryer = config.Retryer()
	}
	if config.RetryMaxAttempts > 0 {
		retryer = retry.AddWithMaxAttempts(retryer, config.RetryMaxAttempts)
	}
	return retryer
}

// try sends a request once, with a signature of the current time and skew. If
// AWS rejects its time, try changes skew.
func (r request) try(ctx context.Context, config aws.Config, skew *time.Duration) ([]byte, error) {
	base, err := baseURL(r.service, config)
	if err != nil {
		return nil, err
	}
	out, err := http.NewRequestWithContext(ctx, r.method, base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.header {
		out.Header.Set(name, value)
	}
	signed := time.Now().Add(*skew)
	if err := r.sign(ctx, out, config, signed); err != nil {
		return nil, err
	}
	client := config.HTTPClient
	if client == nil {
		client = defaultClient
	}
	response, err := client.Do(out)
	if err != nil {
		return nil, &smithyhttp.RequestSendError{Err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if response.StatusCode/100 == 2 {
		if err == nil && len(body) > maxResponse {
			err = fmt.Errorf("the response is longer than %d MiB", maxResponse>>20)
		}
		return body, err
	}
	code, message := r.failure(response.Header, body)
	err = &awshttp.ResponseError{
		RequestID: response.Header.Get("X-Amzn-Requestid"),
		ResponseError: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: response},
			Err:      &smithy.GenericAPIError{Code: cmp.Or(code, response.Status), Message: message},
		},
	}
	date, failed := http.ParseTime(response.Header.Get("Date"))
	if failed == nil && slices.Contains(skewCodes, code) && date.Sub(signed).Abs() > maxSkew {
		*skew = time.Until(date)
		err = skewError{err}
	}
	return nil, err
}

// skewError is the error of a request that can have had the wrong time.
type skewError struct{ error }

func (e skewError) Unwrap() error { return e.error }

// RetryableError makes the AWS SDK repeat the request.
func (skewError) RetryableError() bool { return true }

var defaultClient = awshttp.NewBuildableClient()

// sign adds the signature of a time with the credentials of a configuration.
func (r request) sign(ctx context.Context, out *http.Request, config aws.Config, at time.Time) error {
	if config.Credentials == nil {
		return errors.New("there are no AWS credentials")
	}
	credentials, err := config.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(r.body)
	return v4.NewSigner().SignHTTP(ctx, credentials, out, hex.EncodeToString(sum[:]), r.service.Name, config.Region, at)
}

func jsonFailure(header http.Header, body []byte) (code, message string) {
	var failed struct {
		Type          string `json:"__type"`
		Code, Message string
	}
	_ = json.Unmarshal(body, &failed) // it may be a page of a proxy
	code = cmp.Or(header.Get("X-Amzn-Errortype"), failed.Type, failed.Code)
	code, _, _ = strings.Cut(code, ":")                              // a URL can follow
	return code[strings.LastIndexByte(code, '#')+1:], failed.Message // a namespace can precede
}

func xmlFailure(_ http.Header, body []byte) (code, message string) {
	var failed struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	_ = xml.Unmarshal(body, &failed) // it may be a page of a proxy
	return failed.Code, failed.Message
}
