package partition_test

import (
	"context"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyendpoints "github.com/aws/smithy-go/endpoints"

	"github.com/larder-registry/larder/pkg/cloud/partition"
)

// regions has a region or more of each partition.
var regions = map[string]partition.Partition{
	"us-east-1":       {ID: "aws", Domain: "amazonaws.com"},
	"eu-central-1":    {ID: "aws", Domain: "amazonaws.com"},
	"mx-central-1":    {ID: "aws", Domain: "amazonaws.com"},
	"us-gov-west-1":   {ID: "aws-us-gov", Domain: "amazonaws.com"},
	"cn-north-1":      {ID: "aws-cn", Domain: "amazonaws.com.cn"},
	"eusc-de-east-1":  {ID: "aws-eusc", Domain: "amazonaws.eu"},
	"us-iso-east-1":   {ID: "aws-iso", Domain: "c2s.ic.gov"},
	"us-isob-east-1":  {ID: "aws-iso-b", Domain: "sc2s.sgov.gov"},
	"eu-isoe-west-1":  {ID: "aws-iso-e", Domain: "cloud.adc-e.uk"},
	"us-isof-south-1": {ID: "aws-iso-f", Domain: "csp.hci.ic.gov"},
}

func TestOf(t *testing.T) {
	t.Parallel()
	var all, ids []string
	for region, want := range regions {
		got := partition.Of(region)
		if got.ID != want.ID || got.Domain != want.Domain {
			t.Errorf("%s: %v, want %v", region, got, want)
		}
		ids = append(ids, want.ID)
	}
	for _, p := range partition.All() {
		all = append(all, p.ID)
	}
	slices.Sort(all)
	slices.Sort(ids)
	if ids = slices.Compact(ids); !slices.Equal(all, ids) {
		t.Errorf("the partitions are %v, want %v", all, ids)
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	for region, in := range regions {
		for _, service := range []string{"s3", "dynamodb", "lambda", "ssm", "cognito-idp"} {
			if got, want := partition.Host(service, region), service+"."+region+"."+in.Domain; got != want {
				t.Errorf("%s in %s: %s, want %s", service, region, got, want)
			}
		}
	}
}

// TestAsTheSDKResolves compares hosts with those of the SDK's own rules.
func TestAsTheSDKResolves(t *testing.T) {
	t.Parallel()
	for region := range regions {
		for want, resolve := range map[string]func(context.Context) (smithyendpoints.Endpoint, error){
			partition.Host("s3", region): func(ctx context.Context) (smithyendpoints.Endpoint, error) {
				return s3.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, s3.EndpointParameters{Region: &region}.WithDefaults())
			},
			partition.Host("dynamodb", region): func(ctx context.Context) (smithyendpoints.Endpoint, error) {
				return dynamodb.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx,
					dynamodb.EndpointParameters{Region: &region}.WithDefaults())
			},
			"dynamodb." + region + "." + partition.Of(region).DualStack: func(ctx context.Context) (
				smithyendpoints.Endpoint, error,
			) {
				return dynamodb.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx,
					dynamodb.EndpointParameters{Region: &region, UseDualStack: aws.Bool(true)}.WithDefaults())
			},
		} {
			endpoint, err := resolve(t.Context())
			if err != nil {
				t.Errorf("%s: %v", want, err)
			} else if endpoint.URI.Host != want {
				t.Errorf("%s, want %s", want, endpoint.URI.Host)
			}
		}
	}
}
