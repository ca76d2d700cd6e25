package deployed_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/registry"
)

// parameters is an SSM with one parameter. It verifies the signature of
// requests.
type parameters struct {
	*httptest.Server
	requests atomic.Int64
	status   int
	body     string
}

func newParameters(t *testing.T) *parameters {
	t.Helper()
	p := &parameters{
		status: http.StatusOK, body: `{"Parameter":{"Name":"/larder/web","Type":"SecureString","Value":"s3cret"}}`,
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		body, _ := io.ReadAll(r.Body)
		var sent struct {
			Name           string
			WithDecryption bool
		}
		if err := json.Unmarshal(body, &sent); err != nil || sent.Name != "/larder/web" || !sent.WithDecryption {
			t.Errorf("body %s: %v", body, err)
		}
		if got := r.Header.Get("X-Amz-Target"); got != "AmazonSSM.GetParameter" {
			t.Errorf("target %s", got)
		}
		if !signedFor(t, "ssm", r, body) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, p.body)
	}))
	t.Cleanup(p.Close)
	return p
}

// signedFor reports whether a request to a service has the signature of the
// environment's credentials.
func signedFor(t *testing.T, service string, r *http.Request, body []byte) bool {
	t.Helper()
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Errorf("date: %v", err)
		return false
	}
	again, err := http.NewRequestWithContext(
		t.Context(), r.Method, "http://"+r.Host+r.URL.EscapedPath(), strings.NewReader(string(body)),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Content-Type", "X-Amz-Target", "X-Amz-Invocation-Type"} {
		if value := r.Header.Get(name); value != "" {
			again.Header.Set(name, value)
		}
	}
	env := environment(nil)
	sum := sha256.Sum256(body)
	err = v4.NewSigner().SignHTTP(t.Context(), sdk.Credentials{
		AccessKeyID: env("AWS_ACCESS_KEY_ID"), SecretAccessKey: env("AWS_SECRET_ACCESS_KEY"),
		SessionToken: env("AWS_SESSION_TOKEN"),
	}, again, hex.EncodeToString(sum[:]), service, env("AWS_REGION"), at)
	if err != nil {
		t.Fatal(err)
	}
	want, got := again.Header.Get("Authorization"), r.Header.Get("Authorization")
	if want != got || r.Header.Get("X-Amz-Security-Token") != env("AWS_SESSION_TOKEN") {
		t.Errorf("signature %s, want %s", got, want)
		return false
	}
	return true
}

// withWeb are access settings with a web client that has a secret.
const withWeb = `{"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"],
	"rules": [{"claims": {"sub": "**"}, "scopes": ["read:**"]}]}],
	"login": {"issuer": "https://a.example.com", "client": "c",
		"web": {"client": "w", "secretParameter": "/larder/web"}}}`

func openWith(t *testing.T, more map[string]string) *deployed.Registry {
	t.Helper()
	r, err := deployed.Open(environment(more))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The secret of the web client is read from SSM with a signed request, and
// cached.
func TestWebSecret(t *testing.T) {
	t.Parallel()
	p := newParameters(t)
	secret := openWith(t, map[string]string{"LARDER_ACCESS": withWeb, "AWS_ENDPOINT_URL_SSM": p.URL + "/"}).WebSecret()
	for range 3 {
		if got, err := secret(t.Context()); got != "s3cret" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := p.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// A client without a secret needs no request.
func TestNoWebSecret(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{`{}`, strings.Replace(withWeb, `, "secretParameter": "/larder/web"`, "", 1)} {
		if openWith(t, map[string]string{"LARDER_ACCESS": settings}).WebSecret() != nil {
			t.Errorf("a secret for %s", settings)
		}
	}
}

// A failure to read the secret does not reveal it, and is not cached.
func TestWebSecretFails(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"missing":      {400, `{"__type":"ParameterNotFound"}`, nil},
		"denied":       {400, `{"__type":"com.amazon.coral.service#AccessDeniedException","message":"s3cret"}`, nil},
		"throttled":    {400, `{"__type":"ThrottlingException"}`, registry.ErrUnavailable},
		"down":         {503, `s3cret`, registry.ErrUnavailable},
		"not JSON":     {200, `s3cret`, nil},
		"a number":     {200, `{"Parameter":{"Value":["s3cret"]}}`, nil},
		"empty":        {200, `{"Parameter":{"Value":""}}`, nil},
		"unknown":      {418, `s3cret`, nil},
		"long":         {200, `{"Parameter":{"Value":"s3cret` + strings.Repeat("a", 64<<10) + `"}}`, nil},
		"other status": {299, `{"Parameter":{"Value":"s3cret"}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParameters(t)
			good := p.body
			p.status, p.body = test.status, test.body
			secret := openWith(t, map[string]string{"LARDER_ACCESS": withWeb, "AWS_ENDPOINT_URL_SSM": p.URL}).WebSecret()
			_, err := secret(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if strings.Contains(err.Error()+registry.Hint(err), "s3cret") {
				t.Errorf("the secret in %v", err)
			}
			texts.Error(t, err)
			p.status, p.body = http.StatusOK, good
			if got, err := secret(t.Context()); got != "s3cret" || err != nil {
				t.Errorf("after the failure: %q, %v", got, err)
			}
		})
	}
}
