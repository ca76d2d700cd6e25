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
	"hash"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
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
	credentials aws.CredentialsProvider
	region      string
	origin      string // what comes before a path
	path        string // what comes before a key
	// request is what a request has behind its query, as far as it is signed, and expires the part of a query.
	request []byte
	expires string
	now     func() time.Time
	key     atomic.Pointer[signingKey]
}

// New returns what signs for a bucket, with the region, the credentials and the endpoint of a configuration.
func New(config aws.Config, bucket string, options Options) (*Signer, error) {
	scheme, host, path := "https", "s3."+config.Region+"."+domain(config.Region), "/"
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
	return &Signer{
		credentials: config.Credentials, region: config.Region, origin: scheme + "://" + host, path: path,
		request: []byte("\nhost:" + host + "\n\nhost\nUNSIGNED-PAYLOAD"),
		expires: "&X-Amz-Expires=" + strconv.Itoa(int(cmp.Or(options.Lifetime, time.Hour).Seconds())),
		now:     time.Now,
	}, nil
}

// canBeHost says whether a bucket's name is one label before S3's, as certificates are for. Old ones need not be.
func canBeHost(bucket string) bool {
	return len(bucket) >= 3 && len(bucket) <= 63 && strings.Trim(bucket, "-") == bucket &&
		!strings.ContainsFunc(bucket, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' })
}

// isAddress says whether a host, perhaps with a port, is an IP address, before which there is no label.
func isAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return net.ParseIP(strings.Trim(host, "[]")) != nil
}

// domain returns that of a region's partition.
//
// Source: partitions.json of https://github.com/aws/aws-sdk-go-v2/tree/main/internal/endpoints/awsrulesfn
func domain(region string) string {
	for _, other := range []struct{ region, domain string }{
		{"cn-", "amazonaws.com.cn"}, {"eusc-", "amazonaws.eu"}, {"us-iso-", "c2s.ic.gov"}, {"us-isob-", "sc2s.sgov.gov"}, {"us-isof-", "csp.hci.ic.gov"}, {"eu-isoe-", "cloud.adc-e.uk"},
	} {
		if strings.HasPrefix(region, other.region) {
			return other.domain
		}
	}
	return "amazonaws.com"
}

const (
	algorithm = "AWS4-HMAC-SHA256"
	timestamp = "20060102T150405Z"
	day       = 24 * 60 * 60 // in seconds
)

// signingKey is what stays the same for a day, unless there are other credentials.
type signingKey struct {
	of  aws.Credentials
	day int64
	// scope is that of the key; credential, with the algorithm, and token are parts of a query.
	scope, credential, token string
	// tools are made for one signature and used for the next.
	tools sync.Pool
}

// tools are what a signature takes.
type tools struct {
	mac, hash hash.Hash
	text      []byte // that is summed
	sums      [sha256.Size + 2*sha256.Size]byte
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
	k := s.keyOf(credentials, now)
	// Of what a key is made, this alone does not mean itself to S3.
	key = strings.ReplaceAll(key, "+", "%2B")
	const rest = 200 // the date, names, and the signature
	signed := make([]byte, 0, len(s.origin)+len(s.path)+len(key)+len(k.credential)+len(s.expires)+len(k.token)+rest)
	signed = append(signed, s.origin...)
	path := len(signed)
	signed = append(append(signed, s.path...), key...)
	query := len(signed) + 1
	signed = append(append(signed, '?'), k.credential...)
	signed = now.AppendFormat(append(signed, "&X-Amz-Date="...), timestamp)
	signed = append(append(append(signed, s.expires...), k.token...), "&X-Amz-SignedHeaders=host"...)

	t, _ := k.tools.Get().(*tools)
	defer k.tools.Put(t)
	t.text = append(append(t.text[:0], "GET\n"...), signed[path:query-1]...)
	t.text = append(append(append(t.text, '\n'), signed[query:]...), s.request...)
	request := t.sum(t.hash)
	t.text = now.AppendFormat(append(t.text[:0], algorithm+"\n"...), timestamp)
	t.text = append(append(append(append(t.text, '\n'), k.scope...), '\n'), request...)
	signature := t.sum(t.mac)
	return string(append(append(signed, "&X-Amz-Signature="...), signature...)), nil
}

// sum returns the sum of the text by a hash, in hexadecimal, which the next one overwrites.
func (t *tools) sum(by hash.Hash) []byte {
	by.Reset()
	by.Write(t.text)
	binary, text := t.sums[:0:sha256.Size], t.sums[sha256.Size:]
	hex.Encode(text, by.Sum(binary))
	return text
}

func (s *Signer) keyOf(c aws.Credentials, now time.Time) *signingKey {
	k := s.key.Load()
	if k != nil && k.day == now.Unix()/day && k.of.AccessKeyID == c.AccessKeyID && k.of.SecretAccessKey == c.SecretAccessKey && k.of.SessionToken == c.SessionToken {
		return k
	}
	date := now.Format("20060102")
	k = &signingKey{of: c, day: now.Unix() / day, scope: date + "/" + s.region + "/s3/aws4_request"}
	k.credential = "X-Amz-Algorithm=" + algorithm + "&X-Amz-Credential=" + url.QueryEscape(c.AccessKeyID+"/"+k.scope)
	if c.SessionToken != "" {
		k.token = "&X-Amz-Security-Token=" + url.QueryEscape(c.SessionToken)
	}
	key := []byte("AWS4" + c.SecretAccessKey)
	for _, part := range []string{date, s.region, "s3", "aws4_request"} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	k.tools.New = func() any { return &tools{mac: hmac.New(sha256.New, key), hash: sha256.New()} }
	s.key.Store(k)
	return k
}
