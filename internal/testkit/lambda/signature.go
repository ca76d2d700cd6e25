package lambda

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/larder-registry/larder/internal/testkit/awstest"
)

var authorization = regexp.MustCompile(
	`^AWS4-HMAC-SHA256 Credential=([A-Z0-9]+)/\d{8}/([a-z0-9-]+)/([a-z0-9]+)/aws4_request, ` +
		`SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}$`)

// checkSignature returns the access key that signed a request for Lambda in a
// region. If it is that of package awstest, it also checks the signature itself. The secrets of
// other keys are not known here.
func checkSignature(r *http.Request, payload []byte, region string) (accessKey string, err error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", apiError{http.StatusForbidden, "MissingAuthenticationTokenException", "Missing Authentication Token"}
	}
	parts := authorization.FindStringSubmatch(header)
	if parts == nil {
		return "", apiError{http.StatusForbidden, "IncompleteSignatureException", "The Authorization header is not valid."}
	}
	accessKey = parts[1]
	if parts[2] != region || parts[3] != "lambda" {
		return "", apiError{http.StatusForbidden, "InvalidSignatureException",
			"Credential should be scoped to region " + region + " and service lambda."}
	}
	if accessKey != awstest.AccessKey {
		return accessKey, nil
	}
	again, err := sign(r, payload, region, strings.Split(parts[4], ";"))
	if err != nil {
		return "", err
	}
	if again != header {
		return "", apiError{http.StatusForbidden, "InvalidSignatureException",
			"The request signature we calculated does not match the signature you provided."}
	}
	return accessKey, nil
}

// sign returns the Authorization header of a request whose given headers are
// signed.
func sign(r *http.Request, payload []byte, region string, headers []string) (string, error) {
	date := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil {
		return "", apiError{http.StatusForbidden, "IncompleteSignatureException", "Date must be in ISO-8601 basic format."}
	}
	signed := r.Clone(r.Context())
	signed.Header, signed.ContentLength = make(http.Header), 0
	signed.URL.Scheme, signed.URL.Host = "http", r.Host
	for _, name := range headers {
		switch name {
		case "host":
		case "content-length":
			signed.ContentLength = r.ContentLength
		default:
			signed.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	digest := sha256.Sum256(payload)
	credentials := aws.Credentials{AccessKeyID: awstest.AccessKey, SecretAccessKey: awstest.SecretKey}
	if err := v4.NewSigner().SignHTTP(r.Context(), credentials, signed, hex.EncodeToString(digest[:]), "lambda",
		region, at); err != nil {
		return "", err
	}
	return signed.Header.Get("Authorization"), nil
}
