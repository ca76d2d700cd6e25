package signedcall

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/pkg/cloud/partition"
)

// Service is a service of AWS.
type Service struct {
	// ID is its name in the AWS SDK. Errors and the names of settings of endpoints
	// contain it.
	ID string
	// Name is its name in hosts and signatures.
	Name string
	// API is the version of a Query API, or the prefix of the operations of a
	// JSON API.
	API string
	// GovFIPS is which of its FIPS endpoints in GovCloud have hosts of their own.
	// All endpoints are FIPS endpoints there.
	GovFIPS govFIPS
}

type govFIPS int

const (
	dualStackFIPS govFIPS = iota // those with IPv6 addresses
	allFIPS
	noFIPS
)

// The services that this project uses.
var (
	ACM            = Service{ID: "ACM", Name: "acm", API: "CertificateManager"}
	APIGateway     = Service{ID: "ApiGatewayV2", Name: "apigateway", GovFIPS: allFIPS}
	APIGatewayV1   = Service{ID: "API Gateway", Name: "apigateway", GovFIPS: allFIPS} // the account's limits
	CloudFormation = Service{ID: "CloudFormation", Name: "cloudformation", API: "2010-05-15"}
	CloudWatch     = Service{ID: "CloudWatch", Name: "monitoring", API: "2010-08-01", GovFIPS: noFIPS}
	KMS            = Service{ID: "KMS", Name: "kms", API: "TrentService", GovFIPS: allFIPS}
	Lambda         = Service{ID: "Lambda", Name: "lambda", GovFIPS: allFIPS}
	SNS            = Service{ID: "SNS", Name: "sns", API: "2010-03-31"}
)

// baseURL returns the URL of a service in the region of a configuration, without
// a slash at the end.
func baseURL(s Service, config aws.Config) (string, error) {
	if endpoint := configured(s, config); endpoint != "" {
		return strings.TrimSuffix(endpoint, "/"), nil
	}
	// Nothing else may become a part of a host.
	if config.Region == "" || strings.Trim(config.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", fmt.Errorf("invalid AWS region %q", config.Region)
	}
	p, name := partition.Of(config.Region), s.Name
	domain := p.Domain
	both := setting(config, dualStack.GetUseDualStackEndpoint) == aws.DualStackEndpointStateEnabled
	if both {
		domain = p.DualStack
	}
	own := p.ID != "aws-us-gov" || s.GovFIPS == allFIPS || s.GovFIPS == dualStackFIPS && both
	if own && setting(config, fips.GetUseFIPSEndpoint) == aws.FIPSEndpointStateEnabled {
		name += "-fips"
	}
	return "https://" + name + "." + config.Region + "." + domain, nil
}

// configured returns the endpoint of a service in a configuration, or "". The
// service's own one comes before the one of all services, unless only the
// variable of all services is set.
func configured(s Service, config aws.Config) string {
	all := aws.ToString(config.BaseEndpoint)
	_, inEnv := os.LookupEnv("AWS_ENDPOINT_URL")
	_, ownInEnv := os.LookupEnv("AWS_ENDPOINT_URL_" + strings.ToUpper(strings.ReplaceAll(s.ID, " ", "_")))
	if inEnv && !ownInEnv || setting(config, ignore.GetIgnoreConfiguredEndpoints) {
		return all
	}
	own := setting(config, func(source endpoints, ctx context.Context) (string, bool, error) {
		return source.GetServiceBaseEndpoint(ctx, s.ID)
	})
	return cmp.Or(own, all)
}

// The settings of a configuration's sources, which are the environment and the
// files of the AWS command line.
type (
	fips interface {
		GetUseFIPSEndpoint(context.Context) (aws.FIPSEndpointState, bool, error)
	}
	dualStack interface {
		GetUseDualStackEndpoint(context.Context) (aws.DualStackEndpointState, bool, error)
	}
	ignore interface {
		GetIgnoreConfiguredEndpoints(context.Context) (bool, bool, error)
	}
	endpoints interface {
		GetServiceBaseEndpoint(ctx context.Context, id string) (string, bool, error)
	}
)

// setting returns a setting from the first source with a value for it.
func setting[S, T any](config aws.Config, get func(S, context.Context) (T, bool, error)) (value T) {
	for _, source := range config.ConfigSources {
		if s, ok := source.(S); ok {
			if got, found, err := get(s, context.Background()); found && err == nil {
				return got
			}
		}
	}
	return value
}
