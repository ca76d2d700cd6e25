package presign_test

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/pkg/objects/presign"
)

// urlCase contains the inputs of a URL. If a field is not set, sign uses a
// default.
type urlCase struct {
	name        string
	key         string
	credentials aws.Credentials
	region      string
	endpoint    string
	bucket      string
	pathStyle   bool
	lifetime    time.Duration
	at          time.Time
}

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

var urlCases = []urlCase{
	{name: "module", key: "modules/acme/vpc/aws/1.0.0/" + sum + ".tar.gz"},
	{name: "prerelease", key: "modules/acme/vpc/aws/1.0.0-rc.1/" + sum + ".tar.gz"},
	{name: "build metadata", key: "modules/acme/vpc/aws/1.0.0+build.7/" + sum + ".tar.gz"},
	{name: "prerelease with build metadata", key: "modules/acme/vpc/aws/1.0.0-rc.1+b.2/" + sum + ".tar.gz"},
	{name: "plus signs", key: "+a++b/c+"},
	{name: "tilde and underscore", key: "~a_b~/c_~.tar.gz"},
	{name: "dots", key: "a..b/.../.hidden"},
	{name: "capital letters", key: "Modules/ACME/Vpc"},
	{name: "one character", key: "x"},
	{name: "longest key", key: strings.Repeat("a", 1000)},
	{name: "provider zip", key: "providers/acme/note/1.0.0/" + sum + "/note_1.0.0_linux_amd64.zip"},
	{name: "provider checksums", key: "providers/acme/note/1.0.0/" + sum + "/note_1.0.0_SHA256SUMS"},
	{name: "provider signature", key: "providers/acme/note/1.0.0/" + sum + "/note_1.0.0_SHA256SUMS.sig"},
	{name: "mirrored zip", key: "mirror/registry.example.com/acme/note/1.0.0/" + sum + "/linux_arm64.zip"},

	{name: "user", credentials: aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}},
	{
		name:        "access key with reserved characters",
		credentials: aws.Credentials{AccessKeyID: "some+one/else=", SecretAccessKey: "s+/="},
	},
	{name: "token with reserved characters", credentials: token("a+b/c==&d=e?f#g%2Bh:i;j,k@l")},
	{name: "token with unreserved characters", credentials: token("a-b_c.d~e")},
	{name: "token as long as a role's", credentials: token(strings.Repeat("token+/=", 128))},

	{name: "region us-east-1", region: "us-east-1"},
	{name: "region ap-southeast-5", region: "ap-southeast-5"},
	{name: "region in China", region: "cn-north-1"},
	{name: "region of GovCloud", region: "us-gov-west-1"},
	{name: "region of the European Sovereign Cloud", region: "eusc-de-east-1"},
	{name: "region us-iso", region: "us-iso-west-1"},
	{name: "region us-isob", region: "us-isob-east-1"},
	{name: "region us-isof", region: "us-isof-south-1"},
	{name: "region eu-isoe", region: "eu-isoe-west-1"},

	{name: "bucket with dots", bucket: "archives.example.com"},
	{name: "bucket with capital letters", bucket: "Larder_Old"},
	{name: "short bucket", bucket: "la"},
	{name: "longest bucket", bucket: strings.Repeat("b", 63)},
	{name: "bucket with a dash at an end", bucket: "archives-"},
	{name: "path style", pathStyle: true},
	{name: "path style with plus signs", pathStyle: true, key: "modules/acme/vpc/aws/1.0.0+b/a.tar.gz"},

	{name: "endpoint", endpoint: "https://s3.example.com"},
	{name: "endpoint with path style", endpoint: "https://s3.example.com", pathStyle: true},
	{name: "endpoint with port", endpoint: "https://s3.example.com:9000"},
	{name: "endpoint with port and path style", endpoint: "https://s3.example.com:9000", pathStyle: true},
	{name: "endpoint with default port of HTTPS", endpoint: "https://s3.example.com:443"},
	{name: "endpoint with default port of HTTP", endpoint: "http://s3.example.com:80", pathStyle: true},
	{name: "endpoint with path", endpoint: "https://s3.example.com/some/where", pathStyle: true},
	{name: "endpoint with path and slash", endpoint: "https://s3.example.com/some/where/"},
	{name: "endpoint with escaped path", endpoint: "https://s3.example.com/a%20b/c%2Fd+e", pathStyle: true},
	{name: "endpoint with query and user", endpoint: "https://user@s3.example.com/?a=b#c"},
	{name: "endpoint with capital letters", endpoint: "HTTPS://S3.Example.com"},
	{name: "endpoint with final dot", endpoint: "https://s3.example.com."},
	{name: "endpoint without dots", endpoint: "http://localhost"},
	{name: "endpoint with IPv4 address", endpoint: "http://127.0.0.1:7070"},
	{name: "endpoint with IPv6 address", endpoint: "http://[::1]:9000"},
	{name: "endpoint with IPv6 address without port", endpoint: "http://[2001:db8::1]"},

	{name: "lifetime of a minute", lifetime: time.Minute},
	{name: "lifetime of 90 minutes", lifetime: 90 * time.Minute},
	{name: "lifetime of 12 hours", lifetime: 12 * time.Hour},
	{name: "lifetime of a week", lifetime: 7 * 24 * time.Hour},
	{name: "lifetime with a fraction", lifetime: 1999 * time.Millisecond},

	{name: "first second of a day", at: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)},
	{name: "fraction of a second", at: time.Date(2026, 1, 2, 3, 4, 5, 999_999_999, time.UTC)},
	{name: "leap day", at: time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC)},
	{name: "another day in local time", at: time.Date(2026, 11, 22, 1, 0, 0, 0, time.FixedZone("", 2*60*60))},
}

// token returns credentials with a session token, like those of a role.
func token(session string) aws.Credentials {
	c := someone
	c.SessionToken = session
	return c
}

func (c urlCase) sign(t *testing.T) string {
	t.Helper()
	config := aws.Config{
		Region: cmp.Or(c.region, "eu-central-1"), Credentials: from(cmp.Or(c.credentials, someone)),
	}
	if c.endpoint != "" {
		config.BaseEndpoint = &c.endpoint
	}
	s, err := presign.New(config, cmp.Or(c.bucket, "larder-archives"),
		presign.Options{Lifetime: c.lifetime, PathStyle: c.pathStyle})
	if err != nil {
		t.Fatal(err)
	}
	at := cmp.Or(c.at, time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC))
	s.SetClock(func() time.Time { return at })
	url, err := s.SignGet(t.Context(), cmp.Or(c.key, "modules/acme/vpc/aws/1.0.0/abc.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// TestURLs compares URLs with a file that has one line "name: URL" for each
// case. They come from an earlier, independent implementation of Signature
// Version 4, so this test never rewrites them.
func TestURLs(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("testdata/urls.golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	urls := make(map[string]string)
	for line := range strings.Lines(string(golden)) {
		name, url, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		urls[name] = url
	}
	if len(urls) != len(urlCases) {
		t.Errorf("%d golden URLs for %d cases", len(urls), len(urlCases))
	}
	for _, c := range urlCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := c.sign(t)
			if want := urls[c.name]; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if !strings.Contains(got, "&X-Amz-SignedHeaders=host&X-Amz-Signature=") {
				t.Errorf("%s signs other headers than the host", got)
			}
		})
	}
}
