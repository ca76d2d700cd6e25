package presign_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/larder-registry/larder/pkg/objects/presign"
	"github.com/larder-registry/larder/pkg/registry"
)

var someone = aws.Credentials{
	AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
	SessionToken: "IQoJ/b3+Jp==",
}

func from(c aws.Credentials) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return c, nil })
}

// TestAsTheSDKSigns compares a URL with the one of the SDK's signer for the
// same request.
func TestAsTheSDKSigns(t *testing.T) {
	t.Parallel()
	without := someone
	without.SessionToken = ""
	now := time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)
	for name, test := range map[string]struct {
		config aws.Config
		bucket string
		style  bool
		dual   bool
	}{
		"a role's":          {aws.Config{Region: "eu-central-1", Credentials: from(someone)}, "larder-archives", false, false},
		"a user's":          {aws.Config{Region: "us-east-1", Credentials: from(without)}, "larder-archives", false, false},
		"China's":           {aws.Config{Region: "cn-north-1", Credentials: from(someone)}, "larder-archives", false, false},
		"the cloud's":       {aws.Config{Region: "us-gov-west-1", Credentials: from(someone)}, "larder-archives", false, false},
		"Europe's own":      {aws.Config{Region: "eusc-de-east-1", Credentials: from(someone)}, "larder-archives", false, false},
		"one that is apart": {aws.Config{Region: "us-isob-east-1", Credentials: from(someone)}, "larder-archives", false, false},
		"a fourth":          {aws.Config{Region: "us-iso-west-1", Credentials: from(someone)}, "larder-archives", false, false},
		"a fifth":           {aws.Config{Region: "us-isof-south-1", Credentials: from(someone)}, "larder-archives", false, false},
		"a sixth":           {aws.Config{Region: "eu-isoe-west-1", Credentials: from(someone)}, "larder-archives", false, false},
		"a name with dots":  {aws.Config{Region: "eu-central-1", Credentials: from(someone)}, "archives.example.com", false, false},
		"an old name":       {aws.Config{Region: "eu-central-1", Credentials: from(someone)}, "Larder_Old", false, false},
		"a short name":      {aws.Config{Region: "eu-central-1", Credentials: from(someone)}, "la", false, false},
		"IPv6":              {aws.Config{Region: "eu-central-1", Credentials: from(someone)}, "larder-archives", false, true},
		"IPv6 in China":     {aws.Config{Region: "cn-north-1", Credentials: from(someone)}, "larder-archives", false, true},
		"IPv6 in Europe's own": {
			aws.Config{Region: "eusc-de-east-1", Credentials: from(someone)}, "larder-archives", false, true,
		},
		"an emulator's": {
			aws.Config{Region: "us-east-1", Credentials: from(someone), BaseEndpoint: aws.String("http://127.0.0.1:7070")},
			"larder-archives", true, false,
		},
		"one behind a path": {
			aws.Config{
				Region: "us-east-1", Credentials: from(someone),
				BaseEndpoint: aws.String("https://s3.example.com/some/where/"),
			},
			"larder-archives", true, false,
		},
		"one with hosts": {
			aws.Config{Region: "us-east-1", Credentials: from(someone), BaseEndpoint: aws.String("https://s3.example.com:9000")},
			"larder-archives", false, false,
		},
		"an address": {
			aws.Config{Region: "us-east-1", Credentials: from(someone), BaseEndpoint: aws.String("http://127.0.0.1:9000")},
			"larder-archives", false, false,
		},
		"an address of IPv6": {
			aws.Config{Region: "us-east-1", Credentials: from(someone), BaseEndpoint: aws.String("http://[::1]:9000")},
			"larder-archives", false, false,
		},
	} {
		signer, err := presign.New(
			test.config,
			test.bucket,
			presign.Options{Lifetime: 90 * time.Minute, PathStyle: test.style, DualStack: test.dual},
		)
		if err != nil {
			t.Fatal(err)
		}
		signer.SetClock(func() time.Time { return now })
		client := s3.NewPresignClient(s3.NewFromConfig(test.config, func(o *s3.Options) {
			o.UsePathStyle = test.style
			if test.dual {
				o.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled
			}
			o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		}))
		for _, key := range []string{
			"modules/acme/vpc/aws/1.0.0/abc.tar.gz", "modules/acme/vpc/aws/1.0.0-rc.1+b.2/a_b~c.tar.gz", "x",
		} {
			got, err := signer.SignGet(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := client.PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: &test.bucket, Key: &key})
			if err != nil {
				t.Fatal(err)
			}
			// The SDK's URL also has the operation, which is not needed.
			place, _, _ := strings.Cut(theirs.URL, "?")
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, place+"?X-Amz-Expires=5400", nil)
			if err != nil {
				t.Fatal(err)
			}
			credentials, _ := test.config.Credentials.Retrieve(t.Context())
			want, header, err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).
				PresignHTTP(t.Context(), credentials, request, "UNSIGNED-PAYLOAD", "s3", test.config.Region, now)
			if err != nil || got != want || len(header) != 1 {
				t.Errorf("%s, %s:\n%s\n%s\n%v %v", name, key, got, want, header, err)
			}
		}
	}
}

// TestKeyChanges checks that the cached key is replaced on another day and for
// other credentials.
func TestKeyChanges(t *testing.T) {
	t.Parallel()
	now, credentials := time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC), someone
	config := aws.Config{
		Region:      "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return credentials, nil }),
	}
	sign := func(s *presign.Signer) string {
		s.SetClock(func() time.Time { return now })
		signed, err := s.SignGet(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	fresh := func() *presign.Signer {
		s, err := presign.New(config, "b", presign.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	reused := fresh()
	sign(reused)
	for name, change := range map[string]func(){
		"nothing":        func() {},
		"another day":    func() { now = now.Add(time.Second) },
		"another secret": func() { credentials.SecretAccessKey += "x" },
		"another token":  func() { credentials.SessionToken += "x" },
		"another id":     func() { credentials.AccessKeyID += "x" },
	} {
		change()
		if got, want := sign(reused), sign(fresh()); got != want {
			t.Errorf("%s:\n%s\n%s", name, got, want)
		}
	}
}

// TestErrors checks that errors contain no credentials.
func TestErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("no credentials")
	s, err := presign.New(aws.Config{
		Region:      "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return someone, broken }),
	}, "b", presign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]error{"x": broken, "../x": registry.ErrInvalid} {
		url, err := s.SignGet(t.Context(), key)
		if !errors.Is(err, want) {
			t.Errorf("%s: error is %v, not %v", key, err, want)
			continue
		}
		if url != "" {
			t.Errorf("%s: got a URL with an error: %s", key, url)
		}
		for _, secret := range []string{someone.AccessKeyID, someone.SecretAccessKey, someone.SessionToken} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error contains %s: %v", key, secret, err)
			}
		}
	}
}

func TestInvalidEndpoint(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"", "localhost", "://", "%"} {
		if _, err := presign.New(aws.Config{BaseEndpoint: &endpoint}, "b", presign.Options{}); err == nil {
			t.Errorf("%q is an endpoint", endpoint)
		}
	}
}

func BenchmarkSignGet(b *testing.B) {
	credentials := someone
	credentials.SessionToken = strings.Repeat("token+/=", 128) // as long as a role's
	config := aws.Config{Region: "eu-central-1", Credentials: from(credentials)}
	const key = "providers/acme/inventory/1.0.0/0000000000000000000000000000000000000000000000000000000000000000/" +
		"terraform-provider-inventory_1.0.0_linux_amd64.zip"
	b.Run("ours", func(b *testing.B) {
		s, err := presign.New(config, "larder-archives", presign.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.SignGet(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sdk", func(b *testing.B) {
		s := s3.NewPresignClient(s3.NewFromConfig(config))
		b.ReportAllocs()
		for b.Loop() {
			in := &s3.GetObjectInput{Bucket: aws.String("larder-archives"), Key: aws.String(key)}
			if _, err := s.PresignGetObject(b.Context(), in); err != nil {
				b.Fatal(err)
			}
		}
	})
}
