// Package presign makes presigned URLs to GET objects of an S3 bucket. It sends nothing and reads nothing, and does without
// the SDK's client of S3, so that a function which only hands out URLs neither carries nor starts it.
//
// A URL signs the host and nothing else of what a client sends, so that any client can use it.
//
// Source: Signature Version 4 in the query,
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html.
package presign

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/pkg/objects"
)

// Options of New.
type Options struct {
	// Lifetime of URLs; 60 minutes where it is zero. They end earlier where the credentials that sign them do.
	Lifetime time.Duration
	// PathStyle puts the bucket into the path and not into the host, as S3's emulators need it.
	PathStyle bool
}

// Signer signs for one bucket.
type Signer struct {
	credentials  aws.CredentialsProvider
	region       string
	scheme, host string
	path         string // what comes before a key
	expires      string
	now          func() time.Time
	key          atomic.Pointer[signingKey]
}

// New returns what signs for a bucket, with the region, the credentials and the endpoint of a configuration.
func New(config aws.Config, bucket string, options Options) (*Signer, error) {
	s := &Signer{
		credentials: config.Credentials, region: config.Region, scheme: "https", host: "s3." + config.Region + ".amazonaws.com", path: "/",
		expires: strconv.Itoa(int(cmp.Or(options.Lifetime, time.Hour).Seconds())), now: time.Now,
	}
	if strings.HasPrefix(config.Region, "cn-") {
		s.host += ".cn"
	}
	if config.BaseEndpoint != nil {
		base, err := url.Parse(*config.BaseEndpoint)
		if err != nil || base.Host == "" {
			return nil, fmt.Errorf("endpoint %q is not a URL", *config.BaseEndpoint)
		}
		s.scheme, s.host, s.path = base.Scheme, base.Host, strings.TrimSuffix(base.EscapedPath(), "/")+"/"
	}
	// A certificate is for one label before S3's name.
	if options.PathStyle || strings.Contains(bucket, ".") {
		s.path += bucket + "/"
	} else {
		s.host = bucket + "." + s.host
	}
	return s, nil
}

const (
	algorithm = "AWS4-HMAC-SHA256"
	dayFormat = "20060102"
	timestamp = "20060102T150405Z"
)

// signingKey is what stays the same for a day, unless there are other credentials.
type signingKey struct {
	of  aws.Credentials
	day string
	// scope is that of the key, credential and token its parts of a query.
	scope, credential, token string
	key                      []byte
}

// SignGet returns an absolute URL from which anyone can GET an object for a limited time. It does not look whether the
// object is there. Errors are registry.ErrInvalid where no object has such a key, and those of getting credentials.
func (s *Signer) SignGet(ctx context.Context, key string) (string, error) {
	if err := objects.CheckKey(key); err != nil {
		return "", err
	}
	credentials, err := s.credentials.Retrieve(ctx)
	if err != nil {
		return "", fmt.Errorf("signing a URL for %s: %w", key, err)
	}
	now := s.now().UTC()
	k := s.keyOf(credentials, now.Format(dayFormat))
	date := now.Format(timestamp)
	// Of what a key is made, this alone does not mean itself to S3.
	path := s.path + strings.ReplaceAll(key, "+", "%2B")
	query := "X-Amz-Algorithm=" + algorithm + "&X-Amz-Credential=" + k.credential + "&X-Amz-Date=" + date + "&X-Amz-Expires=" + s.expires + k.token + "&X-Amz-SignedHeaders=host"

	request := sha256.Sum256([]byte("GET\n" + path + "\n" + query + "\nhost:" + s.host + "\n\nhost\nUNSIGNED-PAYLOAD"))
	signature := mac(k.key, algorithm+"\n"+date+"\n"+k.scope+"\n"+hex.EncodeToString(request[:]))
	return s.scheme + "://" + s.host + path + "?" + query + "&X-Amz-Signature=" + hex.EncodeToString(signature), nil
}

func (s *Signer) keyOf(c aws.Credentials, day string) *signingKey {
	k := s.key.Load()
	if k != nil && k.day == day && k.of.AccessKeyID == c.AccessKeyID && k.of.SecretAccessKey == c.SecretAccessKey && k.of.SessionToken == c.SessionToken {
		return k
	}
	k = &signingKey{of: c, day: day, scope: day + "/" + s.region + "/s3/aws4_request"}
	k.credential = url.QueryEscape(c.AccessKeyID + "/" + k.scope)
	if c.SessionToken != "" {
		k.token = "&X-Amz-Security-Token=" + url.QueryEscape(c.SessionToken)
	}
	k.key = []byte("AWS4" + c.SecretAccessKey)
	for _, part := range []string{day, s.region, "s3", "aws4_request"} {
		k.key = mac(k.key, part)
	}
	s.key.Store(k)
	return k
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
