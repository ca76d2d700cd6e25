package client_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/client"
)

func TestURLEnd(t *testing.T) {
	t.Parallel()
	const file = "https://files.example.com/a.zip"
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	policy := "eyJTdGF0ZW1lbnQiOlt7IlJlc291cmNlIjoiKiIsIkNvbmRpdGlvbiI6eyJEYXRlTGVzc1RoYW4iOnsiQVdTOkVwb2NoVGltZSI6MTc5NjEz" +
		"OTAwMH19fV19"
	at := time.Date(2026, 12, 1, 15, 30, 0, 0, time.UTC)
	for name, want := range map[string]struct {
		address string
		ends    bool
		at      time.Time
	}{
		"no query":    {file, false, time.Time{}},
		"other query": {file + "?archive=zip&expires=1796139000&se=2026-12-01T15:30:00Z", true, time.Time{}},
		"no URL":      {"https://[", false, time.Time{}},
		"S3, version 4": {
			file + "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20261201T152500Z&X-Amz-Expires=300&X-Amz-Signature=ab", true, at,
		},
		"S3, version 4, in lower case": {
			file + "?x-amz-date=20261201T152500Z&x-amz-expires=300&x-amz-signature=ab", true, at,
		},
		"S3, version 4, without a lifetime": {file + "?X-Amz-Date=20261201T152500Z&X-Amz-Signature=ab", true, time.Time{}},
		"S3, version 4, negative": {
			file + "?X-Amz-Date=20261201T152500Z&X-Amz-Expires=-300&X-Amz-Signature=ab", true, time.Time{},
		},
		"S3, version 4, too long": {
			file + "?X-Amz-Date=20261201T152500Z&X-Amz-Expires=99999999999999999999&X-Amz-Signature=ab", true, time.Time{},
		},
		"S3, version 2": {file + "?AWSAccessKeyId=AK&Signature=ab%3D&Expires=1796139000", true, at},
		"Google":        {file + "?X-Goog-Date=20261201T152500Z&X-Goog-Expires=300&X-Goog-Signature=ab", true, at},
		"CloudFront":    {file + "?Expires=1796139000&Signature=ab__&Key-Pair-Id=K1", true, at},
		"CloudFront, with a policy": {
			file + "?Policy=" + policy + "&Signature=ab__&Key-Pair-Id=K1", true, at,
		},
		"CloudFront, with an invalid policy": {file + "?Policy=e30_&Signature=ab__&Key-Pair-Id=K1", true, time.Time{}},
		"Azure":                              {file + "?sv=2024-11-04&se=2026-12-01T15%3A30%3A00Z&sp=r&sig=ab%3D", true, at},
		"Azure, without seconds":             {file + "?se=2026-12-01T15%3A30Z&sig=ab", true, at},
		"Azure, a day":                       {file + "?se=2026-12-01&sig=ab", true, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
		"Azure, with a policy of the store":  {file + "?si=read&sig=ab", true, time.Time{}},
		"a JWT":                              {file + "?token=" + jwt(`{"exp":1796139000}`), true, at},
		"Artifactory":                        {file + "?sig=" + jwt(`{"exp":1796139000}`), true, at},
		"a JWT without an end":               {file + "?jwt=" + jwt(`{}`), true, time.Time{}},
		"a token":                            {file + "?access_token=abc", true, time.Time{}},
		"the earlier of two": {
			file + "?se=2026-12-01T16%3A30%3A00Z&sig=ab&jwt=" + jwt(`{"exp":1796139000}`), true, at,
		},
	} {
		ends, at := client.URLEnd(want.address)
		if ends != want.ends {
			t.Errorf("%s: ends %t, want %t", name, ends, want.ends)
		}
		if !at.Equal(want.at) {
			t.Errorf("%s: ends at %v, want %v", name, at, want.at)
		}
	}
}

func FuzzURLEnd(f *testing.F) {
	f.Add("https://a/b?X-Amz-Date=20261201T152500Z&X-Amz-Expires=300&X-Amz-Signature=ab")
	f.Add("https://a/b?Policy=e30_&Signature=x&jwt=a.e30.b&sig=&se=")
	f.Fuzz(func(t *testing.T, address string) {
		if ends, at := client.URLEnd(address); !ends && !at.IsZero() {
			t.Errorf("%q ends at %v without a query", address, at)
		}
	})
}
