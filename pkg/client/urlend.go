package client

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// URLEnd returns when a URL ends. ends reports whether it has a query, so that it
// may end: any parameter can be a signature or a token. at is when the earliest of
// them expires, or zero if that is not visible.
//
// These signatures have a visible end:
//
//   - X-Amz-Signature of Amazon S3, version 4, and those like it, such as
//     X-Goog-Signature. Source: Amazon S3 API reference, "Authenticating Requests:
//     Using Query Parameters".
//   - Signature of S3, version 2, and of CloudFront. Source: CloudFront developer
//     guide, "Use signed URLs".
//   - sig of Azure. Source: Azure Storage, "Create an account SAS".
//   - JWTs. Source: RFC 7519, section 4.1.4.
func URLEnd(address string) (ends bool, at time.Time) {
	parsed, err := url.Parse(address)
	if err != nil {
		return false, time.Time{}
	}
	query := make(map[string]string)
	for name, values := range parsed.Query() {
		query[strings.ToLower(name)] = values[0]
	}
	expires := func(t time.Time, err error) {
		if err == nil && (at.IsZero() || t.Before(at)) {
			at = t.UTC()
		}
	}
	for name, value := range query {
		switch prefix, isVersion4 := strings.CutSuffix(name, "-signature"); {
		case isVersion4:
			expires(version4End(query[prefix+"-date"], query[prefix+"-expires"]))
		case name == "signature":
			expires(seconds(query["expires"]))
			expires(cloudFrontEnd(query["policy"]))
		case name == "sig":
			expires(azureEnd(query["se"]))
			expires(tokenEnd(value)) // of Artifactory
		case strings.HasSuffix(name, "token"), name == "jwt":
			expires(tokenEnd(value))
		}
	}
	return parsed.RawQuery != "", at
}

// version4End returns the time that is a number of seconds after a date.
func version4End(date, expires string) (time.Time, error) {
	from, err := time.Parse("20060102T150405Z", date)
	if err != nil {
		return from, err
	}
	n, err := strconv.ParseUint(expires, 10, 31)
	return from.Add(time.Duration(n) * time.Second), err
}

// seconds parses a Unix time.
func seconds(text string) (time.Time, error) {
	n, err := strconv.ParseUint(text, 10, 40)
	return time.Unix(int64(n), 0), err
}

// cloudFrontEnd returns the end of a policy. It is JSON in Base64, with other
// characters for those that a URL escapes.
func cloudFrontEnd(policy string) (time.Time, error) {
	text, err := base64.StdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "=", "~", "/").Replace(policy))
	if err != nil {
		return time.Time{}, err
	}
	var p struct {
		Statement []struct {
			Condition struct {
				DateLessThan struct {
					Time json.Number `json:"AWS:EpochTime"`
				}
			}
		}
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return time.Time{}, err
	}
	if len(p.Statement) == 0 {
		return time.Time{}, strconv.ErrSyntax
	}
	return seconds(p.Statement[0].Condition.DateLessThan.Time.String())
}

// azureEnd parses an ISO 8601 time in one of the forms of Azure.
func azureEnd(text string) (t time.Time, err error) {
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04Z", time.DateOnly} {
		if t, err = time.Parse(form, text); err == nil {
			break
		}
	}
	return t, err
}

// tokenEnd returns the end of a JWT, which it does not verify.
func tokenEnd(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, strconv.ErrSyntax
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, err
	}
	var claims struct {
		End json.Number `json:"exp"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return time.Time{}, err
	}
	return seconds(claims.End.String())
}
