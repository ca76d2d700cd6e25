package stackdoctor

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/partition"
)

// gateways reads the configuration of API Gateway.
type gateways interface {
	// Get returns the JSON document at a path of API Gateway. A code of AWS is in
	// the error as [smithy.APIError].
	Get(ctx context.Context, path string) ([]byte, error)
}

// gateway sends the requests itself. The AWS SDK has two clients for API
// Gateway, which would make the command line about 7 MB larger.
type gateway struct{ config aws.Config }

const (
	// maxDocument bounds a document of API Gateway, in bytes.
	maxDocument = 8 << 20
	// emptyBody is the SHA-256 digest of an empty body.
	emptyBody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func (g gateway) Get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url()+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json") // without it, some documents have another format
	credentials, err := g.config.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	if err := v4.NewSigner().SignHTTP(ctx, credentials, request, emptyBody, "apigateway", g.config.Region,
		time.Now()); err != nil {
		return nil, err
	}
	response, err := g.config.HTTPClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocument))
	if err != nil || response.StatusCode == http.StatusOK {
		return text, err
	}
	var failed struct{ Message string }
	_ = json.Unmarshal(text, &failed) // it may have none
	kind, _, _ := strings.Cut(response.Header.Get("X-Amzn-Errortype"), ":")
	return nil, &smithy.GenericAPIError{Code: cmp.Or(kind, response.Status), Message: failed.Message}
}

// url returns the URL of API Gateway in the region.
func (g gateway) url() string {
	if g.config.BaseEndpoint != nil {
		return strings.TrimSuffix(*g.config.BaseEndpoint, "/")
	}
	return "https://" + partition.Host("apigateway", g.config.Region)
}

// items returns the items of a list in API Gateway.
func items[T any](ctx context.Context, from gateways, path string) (all []T, err error) {
	for query := ""; ; {
		text, err := from.Get(ctx, path+query)
		if err != nil {
			return nil, err
		}
		var page struct {
			Items     []T
			NextToken string
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextToken == "" {
			return all, nil
		}
		query = "?nextToken=" + url.QueryEscape(page.NextToken)
	}
}
