package deployed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	nethttp "net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/larder-registry/larder/pkg/cloud/partition"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Invoker sends requests to the Lambda function that fetches providers. It sends
// them itself, because Lambda's client in the AWS SDK would make the function
// start slower.
//
// Both methods repeat a request until ctx ends, if Lambda is busy or cannot be
// reached. That is safe, since the function does the same work only once.
type Invoker struct {
	config aws.Config
	url    string
	now    func() time.Time
}

// PullWorker returns the worker of the mirror, or nil if the stack has
// none. The role of the function needs lambda:InvokeFunction.
func (r *Registry) PullWorker() *Invoker { return r.pull }

func newInvoker(config aws.Config, function string) *Invoker {
	if function == "" {
		return nil
	}
	// A request lasts as long as the work, so only ctx bounds it.
	config.HTTPClient = http.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
		d.Timeout = 2 * time.Second
	})
	// The colons of an ARN are escaped, as the SDK does: they are in the signature.
	path := "2015-03-31/functions/" + url.QueryEscape(function) + "/invocations"
	return &Invoker{config, serviceURL("lambda", config) + path, time.Now}
}

const (
	// synchronous and asynchronous are the invocation types of the two methods.
	synchronous, asynchronous = "RequestResponse", "Event"
	// firstWait and maxWait bound the time between two attempts.
	firstWait, maxWait = 100 * time.Millisecond, time.Second
	// maxResponse bounds the response of the function, in bytes.
	maxResponse = 64 << 10
)

// Do implements mirror.Worker.
func (i *Invoker) Do(ctx context.Context, request protocol.PullRequest) (protocol.PullResponse, error) {
	var response protocol.PullResponse
	text, err := i.invoke(ctx, synchronous, request)
	if err == nil && json.Unmarshal(text, &response) != nil {
		err = errors.New("cannot invoke the function that fetches providers: its response is not valid")
	}
	return response, err
}

// Start implements mirror.Worker.
func (i *Invoker) Start(ctx context.Context, request protocol.PullRequest) error {
	_, err := i.invoke(ctx, asynchronous, request)
	return err
}

// invoke sends a request until it succeeds, fails for good, or ctx ends.
func (i *Invoker) invoke(ctx context.Context, kind string, request protocol.PullRequest) ([]byte, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		text, err := i.send(ctx, kind, body)
		if err == nil {
			return text, nil
		}
		err = fmt.Errorf("cannot invoke the function that fetches providers: %w", err)
		if !errors.Is(err, registry.ErrUnavailable) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait/2 + rand.N(wait/2)): //nolint:gosec // jitter, not a secret
		}
	}
}

// send sends the request Invoke once. Its error is [registry.ErrUnavailable] if
// another attempt may succeed.
//
// Source: https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html.
func (i *Invoker) send(ctx context.Context, kind string, body []byte) ([]byte, error) {
	request, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodPost, i.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Amz-Invocation-Type", kind)
	if err := sign(ctx, request, body, "lambda", i.config, i.now()); err != nil {
		return nil, err
	}
	response, err := i.config.HTTPClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	want := map[string]int{synchronous: nethttp.StatusOK, asynchronous: nethttp.StatusAccepted}[kind]
	if response.StatusCode != want {
		return nil, invokeError(response)
	}
	// The payload can have anything that the function met.
	if response.Header.Get("X-Amz-Function-Error") != "" {
		return nil, errors.New("it failed, and its log has the reason")
	}
	return text, nil
}

// invokeError returns the error for a response with another status than the
// expected one.
func invokeError(response *nethttp.Response) error {
	kind, _, _ := strings.Cut(response.Header.Get("X-Amzn-Errortype"), ":")
	status := response.StatusCode
	switch {
	case status == nethttp.StatusTooManyRequests, status >= nethttp.StatusInternalServerError:
		return fmt.Errorf("%w: Lambda returns %d", registry.ErrUnavailable, status)
	case kind == "AccessDeniedException":
		return errors.New("this function's role may not invoke it")
	case kind == "ResourceNotFoundException":
		return errors.New("there is no such function")
	}
	return fmt.Errorf("unexpected status %d %s of Lambda", status, cmp.Or(nethttp.StatusText(status), "an unknown status"))
}

func sign(ctx context.Context, request *nethttp.Request, body []byte, service string, config aws.Config,
	now time.Time) error {
	credentials, err := config.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	return v4.NewSigner().SignHTTP(ctx, credentials, request, hex.EncodeToString(sum[:]), service, config.Region, now)
}

// serviceURL returns the URL of a service in the region. It ends with a slash.
func serviceURL(service string, config aws.Config) string {
	if config.BaseEndpoint != nil {
		return strings.TrimSuffix(*config.BaseEndpoint, "/") + "/"
	}
	return "https://" + partition.Host(service, config.Region) + "/"
}
