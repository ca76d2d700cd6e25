package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/aws-sdk-go-v2/service/ssooidc"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// An error of the AWS SDK with the credentials is explained, and others are not
// changed.
func TestExplainCredentials(t *testing.T) {
	refused := func(code string) error {
		return &smithy.OperationError{
			ServiceID: "DynamoDB", OperationName: "Query",
			Err: fmt.Errorf("https response error StatusCode: 400, RequestID: 0, %w",
				&smithy.GenericAPIError{Code: code, Message: "The security token included in the request is expired"}),
		}
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{refused("ExpiredToken"), place.AWSExpired},
		{refused("ExpiredTokenException"), place.AWSExpired},
		{refused("InvalidClientTokenId"), place.AWSRefused},
		{refused("UnrecognizedClientException"), place.AWSRefused},
		{refused("InvalidAccessKeyId"), place.AWSRefused},
		{fmt.Errorf("cannot list: %w; again", refused("ExpiredToken")), "cannot list: " + place.AWSExpired + "; again"},
		{fmt.Errorf("failed to refresh cached credentials, %w", &ssocreds.InvalidTokenError{}), place.AWSExpired},
		{&ssocreds.InvalidTokenError{Err: os.ErrNotExist}, place.AWSExpired},
		{&smithy.OperationError{ServiceID: "DynamoDB", OperationName: "Query", Err: errors.New("get identity: " +
			"failed to refresh cached credentials, timeout")}, place.AWSLost + ": timeout"},
		{refused("AccessDeniedException"), ""},
		{errors.New("ExpiredToken"), ""},
	} {
		before := test.err.Error()
		err := place.ExplainCredentials(t.Context(), test.err)
		want := test.want
		if want == "" {
			want = before
		}
		if err.Error() != want || !errors.Is(err, test.err) || (registry.Hint(err) == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", before, err, want)
		}
		if again := place.ExplainCredentials(t.Context(), err); again.Error() != want {
			t.Errorf("%s is explained twice", err)
		}
	}
	if err := place.ExplainCredentials(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// provider has an error instead of credentials.
type provider struct{ err error }

func (p provider) Retrieve(context.Context) (aws.Credentials, error) { return aws.Credentials{}, p.err }

// The errors of the AWS SDK's own cache and of IAM Identity Center are
// recognized.
func TestCredentialsOfSDK(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amzn-Errortype", "InvalidGrantException")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token.json")
	writeFiles(t, filepath.Dir(file), map[string]string{"token.json": `{"accessToken": "a", "clientId": "c",
		"clientSecret": "s", "refreshToken": "r", "expiresAt": "2020-01-01T00:00:00Z"}`})
	client := ssooidc.New(ssooidc.Options{Region: "eu-central-1", BaseEndpoint: &server.URL})
	_, refused := ssocreds.NewSSOTokenProvider(client, file).RetrieveBearerToken(t.Context())
	_, missing := ssocreds.NewSSOTokenProvider(client, file+"?").RetrieveBearerToken(t.Context())
	for _, test := range []struct {
		err  error
		want string
	}{{refused, place.AWSExpired}, {missing, place.AWSExpired}, {errors.New("timeout"), place.AWSLost + ": timeout"}} {
		_, err := aws.NewCredentialsCache(provider{test.err}).Retrieve(t.Context())
		if got := place.ExplainCredentials(t.Context(), err); got.Error() != test.want {
			t.Errorf("%v: %q, want %q", err, got, test.want)
		}
	}
}

// Commands explain how to get credentials, by the source of those that expired.
func TestExpiredCredentials(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<ErrorResponse><Error><Code>ExpiredToken</Code>`+
			`<Message>The security token included in the request is expired</Message></Error></ErrorResponse>`)
	}))
	t.Cleanup(server.Close)
	home := t.TempDir()
	writeFiles(t, home, map[string]string{"config": `[profile sso]
sso_start_url = https://example.awsapps.com/start
sso_region = eu-central-1
sso_account_id = 000000000000
sso_role_name = operator
[profile keys]
aws_access_key_id = AKIA
aws_secret_access_key = secret
`})
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range map[string]string{
		"HOME": home, "AWS_CONFIG_FILE": filepath.Join(home, "config"), "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": server.URL,
	} {
		t.Setenv(name, value)
	}
	texts := golden.New(t)
	for _, args := range [][]string{{"list", "--store", "stack:larder"}, {"doctor", "--stack", "larder", "--quiet"}} {
		for name, env := range map[string]map[string]string{
			"a profile of IAM Identity Center": {"AWS_PROFILE": "sso"},
			"a profile with keys":              {"AWS_PROFILE": "keys"},
			"the environment": {
				"AWS_ACCESS_KEY_ID": "ASIA", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t",
			},
			"nothing": nil,
		} {
			t.Run(args[0]+" with "+name, func(t *testing.T) {
				for name, value := range env {
					t.Setenv(name, value)
				}
				var stdout, stderr bytes.Buffer
				if code := run(t.Context(), args, &stdout, &stderr); code != failure.ExitFailed {
					t.Errorf("exit code %d", code)
				}
				texts.Text(t, stdout.String()+stderr.String())
			})
		}
	}
}
