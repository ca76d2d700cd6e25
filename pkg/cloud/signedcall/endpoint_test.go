package signedcall_test

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// source is a source of the AWS SDK's configuration.
type source struct {
	fips      aws.FIPSEndpointState
	dualStack aws.DualStackEndpointState
	ignore    bool
	// endpoints are the endpoints by the names of services in the SDK.
	endpoints map[string]string
}

func (s source) GetUseFIPSEndpoint(context.Context) (aws.FIPSEndpointState, bool, error) {
	return s.fips, s.fips != 0, nil
}

func (s source) GetUseDualStackEndpoint(context.Context) (aws.DualStackEndpointState, bool, error) {
	return s.dualStack, s.dualStack != 0, nil
}

func (s source) GetIgnoreConfiguredEndpoints(context.Context) (value, found bool, err error) {
	return s.ignore, s.ignore, nil
}

func (s source) GetServiceBaseEndpoint(_ context.Context, id string) (endpoint string, found bool, err error) {
	endpoint, found = s.endpoints[id]
	return endpoint, found, nil
}

// endpoint returns the URL to which requests to a service are sent.
func endpoint(t *testing.T, s signedcall.Service, config aws.Config) (string, error) {
	t.Helper()
	sent := ""
	config.Credentials = to(nil).Credentials
	config.HTTPClient = client(func(r *http.Request) (*http.Response, error) {
		sent = r.URL.String()
		return answer(http.StatusOK, ""), nil
	})
	err := signedcall.REST(t.Context(), config, s, "Act", http.MethodGet, "", nil, nil)
	return sent, err
}

// The hosts are those of the AWS SDK's rules for endpoints.
func TestHosts(t *testing.T) {
	t.Parallel()
	fips, dual := source{fips: aws.FIPSEndpointStateEnabled}, source{dualStack: aws.DualStackEndpointStateEnabled}
	for _, test := range []struct {
		region, want string
		sources      []any
		fips         string // the services whose host ends with -fips
	}{
		{region: "eu-central-1", want: "NAME.eu-central-1.amazonaws.com"},
		{region: "us-gov-west-1", want: "NAME.us-gov-west-1.amazonaws.com"},
		{region: "cn-north-1", want: "NAME.cn-north-1.amazonaws.com.cn"},
		{region: "eusc-de-east-1", want: "NAME.eusc-de-east-1.amazonaws.eu"},
		{region: "us-iso-east-1", want: "NAME.us-iso-east-1.c2s.ic.gov"},
		{region: "us-east-1", want: "NAME-fips.us-east-1.amazonaws.com", sources: []any{fips}},
		{region: "us-gov-west-1", want: "NAME.us-gov-west-1.amazonaws.com", sources: []any{fips}, fips: "apigateway kms lambda"},
		{region: "eu-central-1", want: "NAME.eu-central-1.api.aws", sources: []any{source{}, "other", dual}},
		{region: "cn-north-1", want: "NAME.cn-north-1.api.amazonwebservices.com.cn", sources: []any{dual}},
		{region: "eusc-de-east-1", want: "NAME.eusc-de-east-1.api.amazonwebservices.eu", sources: []any{dual}},
		{region: "us-east-1", want: "NAME-fips.us-east-1.api.aws", sources: []any{dual, fips}},
		{
			region: "us-gov-west-1", want: "NAME.us-gov-west-1.api.aws", sources: []any{dual, fips},
			fips: "acm apigateway cloudformation kms lambda sns",
		},
	} {
		for _, s := range []signedcall.Service{
			signedcall.ACM, signedcall.APIGateway, signedcall.CloudFormation, signedcall.CloudWatch, signedcall.KMS,
			signedcall.Lambda, signedcall.SNS,
		} {
			name := s.Name
			if slices.Contains(strings.Fields(test.fips), name) {
				name += "-fips"
			}
			want := "https://" + strings.Replace(test.want, "NAME", name, 1)
			got, err := endpoint(t, s, aws.Config{Region: test.region, ConfigSources: test.sources})
			if got != want || err != nil {
				t.Errorf("got %s, %v; want %s", got, err, want)
			}
		}
	}
	for _, region := range []string{"", "a.example.com/", "eu-central-1.", "eu_central_1", "é"} {
		if got, err := endpoint(t, signedcall.Lambda, aws.Config{Region: region}); err == nil {
			t.Errorf("%q: %s", region, got)
		}
	}
}

// The settings of endpoints have the order of the AWS SDK.
func TestEndpoints(t *testing.T) {
	const all, own = "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_API_GATEWAY"
	const base, host = "http://base", "https://apigateway.eu-central-1.amazonaws.com"
	services := source{endpoints: map[string]string{"API Gateway": "http://own"}}
	other := source{endpoints: map[string]string{"SNS": "http://other"}}
	for name, test := range map[string]struct {
		base      string
		source    source
		variables []string
		want      string
	}{
		"none":                     {want: host},
		"of all services":          {base: base, want: base},
		"with a slash":             {base: base + "/", want: base},
		"of the service":           {base: base, source: services, want: "http://own"},
		"of another service":       {base: base, source: other, want: base},
		"all services' variable":   {base: base, source: services, variables: []string{all}, want: base},
		"the service's variable":   {base: base, source: services, variables: []string{all, own}, want: "http://own"},
		"none that may be used":    {source: source{ignore: true, endpoints: services.endpoints}, want: host},
		"the program's own choice": {base: base, source: source{ignore: true, endpoints: services.endpoints}, want: base},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{all, own} {
				t.Setenv(variable, "") // so that the test restores it
				os.Unsetenv(variable)
			}
			for _, variable := range test.variables {
				t.Setenv(variable, "http://any")
			}
			config := aws.Config{Region: "eu-central-1", ConfigSources: []any{test.source}}
			if test.base != "" {
				config.BaseEndpoint = &test.base
			}
			if got, err := endpoint(t, signedcall.APIGatewayV1, config); got != test.want || err != nil {
				t.Errorf("got %s, %v; want %s", got, err, test.want)
			}
		})
	}
}
