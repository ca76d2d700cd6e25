// Package presign makes presigned URLs to GET objects of an S3 bucket. It sends
// no request. It does without the SDK's S3 client, so that a function that only
// hands out URLs neither links nor starts that client.
//
// The host is the only header that a URL signs, so any client can use it.
//
// Source: Signature Version 4 in the query,
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html.
package presign

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/larder-registry/larder/pkg/cloud/partition"
	"github.com/larder-registry/larder/pkg/objects"
)

// Options are the options of [New].
type Options struct {
	// Lifetime of URLs. If zero, it is 60 minutes. A URL expires earlier if the
	// credentials that signed it do.
	Lifetime time.Duration
	// PathStyle puts the bucket into the path and not into the host, as
	// emulators of S3 need it.
	PathStyle bool
	// DualStack uses the host of S3 that has IPv6 addresses too, unless the
	// configuration has an endpoint.
	DualStack bool
}

// Signer signs URLs for one bucket. It is safe for concurrent use.
type Signer struct {
	credentials aws.CredentialsProvider
	region      string
	scheme      string
	host        string
	path        string // precedes a key
	query       string // of a request before it is signed
	now         func() time.Time
	// signer caches the key that it derives from the latest credentials.
	signer atomic.Pointer[secretSigner]
}

// secretSigner is a signer for one secret access key. The SDK's signer looks up
// its derived key only by access key ID, so it must not be used with another
// secret.
type secretSigner struct {
	secret string
	*v4.Signer
}

// New returns a Signer for a bucket. It uses the region, the credentials and the
// endpoint of the configuration. It fails if the endpoint is not a URL.
func New(config aws.Config, bucket string, options Options) (*Signer, error) {
	service := "s3"
	if options.DualStack {
		service = "s3.dualstack"
	}
	scheme, host, path := "https", partition.Host(service, config.Region), "/"
	if config.BaseEndpoint != nil {
		base, err := url.Parse(*config.BaseEndpoint)
		if err != nil || base.Host == "" {
			return nil, fmt.Errorf("endpoint %q is not a URL", *config.BaseEndpoint)
		}
		scheme, host, path = base.Scheme, base.Host, strings.TrimSuffix(base.EscapedPath(), "/")+"/"
	}
	if options.PathStyle || !canBeHost(bucket) || isAddress(host) {
		path += bucket + "/"
	} else {
		host = bucket + "." + host
	}
	lifetime := cmp.Or(options.Lifetime, time.Hour)
	return &Signer{
		credentials: config.Credentials, region: config.Region, scheme: scheme, host: host, path: path,
		query: "X-Amz-Expires=" + strconv.Itoa(int(lifetime.Seconds())),
		now:   time.Now,
	}, nil
}

// canBeHost reports whether a bucket's name can be the first label of a host.
// Old names need not be, and S3's certificates cover only one label.
func canBeHost(bucket string) bool {
	return len(bucket) >= 3 && len(bucket) <= 63 && strings.Trim(bucket, "-") == bucket &&
		!strings.ContainsFunc(bucket, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
		})
}

// isAddress reports whether a host, with or without a port, is an IP address.
// No label can precede one.
func isAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return net.ParseIP(strings.Trim(host, "[]")) != nil
}

// SignGet returns an absolute URL from which anyone can GET an object for a
// limited time. It does not check that the object exists. The error is
// registry.ErrInvalid if no object can have the key, or the one of retrieving
// the credentials.
func (s *Signer) SignGet(ctx context.Context, key string) (string, error) {
	if err := objects.CheckKey(key); err != nil {
		return "", err
	}
	credentials, err := s.credentials.Retrieve(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot sign a URL for %s: %w", key, err)
	}
	// S3 reads a plus sign in a path as a space. The other characters of a key
	// stand for themselves.
	escaped := strings.ReplaceAll(key, "+", "%2B")
	// With a scheme, the signer would sign the host without the scheme's default
	// port. Go's HTTP client sends that port if the URL has it.
	request := &http.Request{
		Method: http.MethodGet, Host: s.host,
		URL: &url.URL{Opaque: "//" + s.host + s.path + escaped, RawQuery: s.query},
	}
	signed, _, err := s.signerOf(credentials.SecretAccessKey).
		PresignHTTP(ctx, credentials, request, "UNSIGNED-PAYLOAD", "s3", s.region, s.now())
	if err != nil {
		return "", fmt.Errorf("cannot sign a URL for %s: %w", key, err)
	}
	return s.scheme + ":" + signed, nil
}

func (s *Signer) signerOf(secret string) *v4.Signer {
	latest := s.signer.Load()
	if latest == nil || latest.secret != secret {
		latest = &secretSigner{secret, v4.NewSigner(func(o *v4.SignerOptions) {
			o.DisableURIPathEscaping = true // the path is escaped already
		})}
		s.signer.Store(latest)
	}
	return latest.Signer
}
