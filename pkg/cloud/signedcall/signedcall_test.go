package signedcall_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// call sends a request with a body.
func call(ctx context.Context, c aws.Config, out any) error {
	return signedcall.REST(ctx, c, signedcall.Lambda, "Act", http.MethodPut, "/functions/a%3Ab?x=1",
		map[string]int{"Size": 1}, out)
}

// answer returns a response with a status.
func answer(status int, body string, header ...string) *http.Response {
	r := &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)),
		Body: io.NopCloser(strings.NewReader(body)), Header: make(http.Header),
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// A request is signed with all credentials, and the signature covers its body.
func TestSigned(t *testing.T) {
	t.Parallel()
	var signatures []string
	for _, size := range []int{1, 1, 2} {
		synctest.Test(t, func(t *testing.T) { // at the same time
			config := to(func(r *http.Request) (*http.Response, error) {
				if diff := cmp.Diff("https://lambda.eu-central-1.amazonaws.com/functions/a%3Ab", r.URL.String()); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff("the-session", r.Header.Get("X-Amz-Security-Token")); diff != "" {
					t.Error(diff)
				}
				signature := r.Header.Get("Authorization")
				if !strings.Contains(signature, "/eu-central-1/lambda/aws4_request") {
					t.Errorf("the signature is %s", signature)
				}
				signatures = append(signatures, signature)
				return answer(http.StatusOK, "{}"), nil
			})
			if err := signedcall.REST(t.Context(), config, signedcall.Lambda, "Act", http.MethodPut, "/functions/a%3Ab",
				size, nil); err != nil {
				t.Error(err)
			}
		})
	}
	if signatures[0] != signatures[1] || signatures[1] == signatures[2] {
		t.Errorf("the signatures are\n%s", strings.Join(signatures, "\n"))
	}
}

// Requests are repeated with all of their content if AWS is busy or cannot be
// reached, as often as the configuration allows. Others are not.
func TestRepeated(t *testing.T) {
	t.Parallel()
	refused := func() (*http.Response, error) { return nil, errors.New("dial tcp: connection refused") }
	throttled := func() (*http.Response, error) {
		return answer(http.StatusBadRequest, `{"__type":"ThrottlingException"}`), nil
	}
	broken := func() (*http.Response, error) { return answer(http.StatusBadGateway, "<html>"), nil }
	cut := func() (*http.Response, error) {
		r := answer(http.StatusServiceUnavailable, "")
		r.Body = io.NopCloser(readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
		return r, nil
	}
	denied := func() (*http.Response, error) {
		return answer(http.StatusForbidden, "{}", "X-Amzn-Errortype", "AccessDeniedException"), nil
	}
	strange := func() (*http.Response, error) { return answer(http.StatusOK, "<html>"), nil }
	for name, test := range map[string]struct {
		answers []func() (*http.Response, error)
		most    int
		sent    int
		failed  string // a part of the error; if empty, none
	}{
		"at first":       {sent: 1},
		"throttled once": {answers: []func() (*http.Response, error){throttled}, sent: 2},
		"twice":          {answers: []func() (*http.Response, error){refused, broken}, sent: 3},
		"too often": {
			answers: []func() (*http.Response, error){broken, refused, throttled}, sent: 3, failed: "ThrottlingException",
		},
		"with more attempts": {answers: []func() (*http.Response, error){broken, broken, broken}, most: 4, sent: 4},
		"with one attempt": {
			answers: []func() (*http.Response, error){broken}, most: 1, sent: 1, failed: "api error 502 Bad Gateway",
		},
		"with a cut body": {answers: []func() (*http.Response, error){cut}, sent: 2},
		"denied":          {answers: []func() (*http.Response, error){denied}, sent: 1, failed: "AccessDeniedException"},
		"strange":         {answers: []func() (*http.Response, error){strange}, sent: 1, failed: "deserialization failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				config := to(func(r *http.Request) (*http.Response, error) {
					if body, _ := io.ReadAll(r.Body); string(body) != `{"Size":1}` {
						t.Errorf("the body is %s", body)
					}
					sent++
					if sent <= len(test.answers) {
						return test.answers[sent-1]()
					}
					return answer(http.StatusOK, `{"Size": 2}`), nil
				})
				config.RetryMaxAttempts = test.most
				var out struct{ Size int }
				err := call(t.Context(), config, &out)
				if (err == nil) != (test.failed == "") || !strings.Contains(fmt.Sprint(err), test.failed) {
					t.Errorf("error is %v, want %s", err, test.failed)
				}
				if err == nil && out.Size != 2 {
					t.Errorf("the result is %+v", out)
				}
				if sent != test.sent {
					t.Errorf("%d requests, want %d", sent, test.sent)
				}
				if text := fmt.Sprint(err); strings.Contains(text, "the-secret") || strings.Contains(text, "the-session") {
					t.Errorf("the error has credentials: %s", text)
				}
			})
		})
	}
}

// A request ends with its context, also while it waits for the next attempt.
func TestCanceled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		sent := 0
		config := to(func(r *http.Request) (*http.Response, error) {
			if sent++; r.Context().Err() != nil {
				return nil, r.Context().Err()
			}
			return answer(http.StatusServiceUnavailable, ""), nil
		})
		config.RetryMaxAttempts = 100
		if err := call(ctx, config, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if sent > 2 {
			t.Errorf("%d requests", sent)
		}
	})
}

// If the clock of this machine is wrong, the request is signed again with the
// time of AWS.
func TestSkew(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		off  time.Duration
		code string
		sent int
	}{
		"slow": {time.Hour, "InvalidSignatureException", 2}, "fast": {-time.Hour, "InvalidSignatureException", 2},
		"right":           {time.Minute, "InvalidSignatureException", 1},
		"another failure": {time.Hour, "ValidationException", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				config := to(func(r *http.Request) (*http.Response, error) {
					sent++
					signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
					if err != nil {
						t.Error(err)
					}
					now := time.Now().Add(test.off).UTC()
					if now.Sub(signed).Abs() < 5*time.Minute && sent > 1 {
						return answer(http.StatusOK, "{}"), nil
					}
					return answer(http.StatusForbidden, `{"message":"Signature expired"}`, "Date", now.Format(http.TimeFormat),
						"X-Amzn-Errortype", test.code), nil
				})
				config.RetryMaxAttempts = 3
				err := call(t.Context(), config, nil)
				if (err == nil) != (test.sent == 2) || sent != test.sent {
					t.Errorf("%d requests, want %d: %v", sent, test.sent, err)
				}
			})
		})
	}
}

// A response is bounded.
func TestLongResponse(t *testing.T) {
	t.Parallel()
	read := 0
	config := to(func(*http.Request) (*http.Response, error) {
		r := answer(http.StatusOK, "")
		r.Body = io.NopCloser(readerFunc(func(p []byte) (int, error) {
			read += len(p)
			return copy(p, bytes.Repeat([]byte(" "), len(p))), nil
		}))
		return r, nil
	})
	if err := call(t.Context(), config, &struct{}{}); err == nil || !strings.Contains(err.Error(), "longer than 8 MiB") {
		t.Error(err)
	}
	if read > 17<<20 {
		t.Errorf("%d bytes were read", read)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A failure without a code of AWS has the HTTP status. A response in another
// format has the error of the AWS SDK.
func TestStrangeResponses(t *testing.T) {
	t.Parallel()
	respond := func(status int, body string) aws.Config {
		return to(func(*http.Request) (*http.Response, error) { return answer(status, body), nil })
	}
	_, err := signedcall.GetTemplate(t.Context(), respond(http.StatusForbidden, "<html><p>blocked"), "larder")
	if failed, _ := errors.AsType[smithy.APIError](err); failed == nil || failed.ErrorCode() != "403 Forbidden" {
		t.Error(err)
	}
	_, err = signedcall.GetAccountConcurrency(t.Context(), respond(http.StatusForbidden, "<html>"))
	if failed, _ := errors.AsType[smithy.APIError](err); failed == nil || failed.ErrorCode() != "403 Forbidden" {
		t.Error(err)
	}
	_, err = signedcall.GetTemplate(t.Context(), respond(http.StatusOK, "not XML"), "larder")
	if _, ok := errors.AsType[*smithy.DeserializationError](err); !ok {
		t.Error(err)
	}
	if _, err := signedcall.GetAccountConcurrency(t.Context(), respond(http.StatusOK, "{}")); err == nil {
		t.Error("no error for a response without a limit")
	}
	config := respond(http.StatusOK, "{}")
	config.Credentials = nil
	if _, err := signedcall.GetAccountConcurrency(t.Context(), config); err == nil {
		t.Error("no error without credentials")
	}
}

// A stack that does not exist has an error of its own.
func TestNoStack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		want   bool
	}{
		"no stack": {400, "<R><Error><Code>ValidationError</Code><Message>Stack with id larder does not exist</Message>" +
			"</Error></R>", true},
		"no stack in the list": {200, "<R><DescribeStacksResult><Stacks/></DescribeStacksResult></R>", true},
		"another name": {400, "<R><Error><Code>ValidationError</Code><Message>1 validation error detected</Message>" +
			"</Error></R>", false},
		"another error": {403, "<R><Error><Code>AccessDenied</Code><Message>role r does not exist</Message>" +
			"</Error></R>", false},
	} {
		config := to(func(*http.Request) (*http.Response, error) { return answer(test.status, test.body), nil })
		_, err := signedcall.DescribeStack(t.Context(), config, "larder")
		if err == nil || errors.Is(err, errs.ErrNotFound) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
