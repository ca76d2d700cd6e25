package deployed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// account returns the configuration with which a function reaches AWS, from
// Lambda's environment variables. These are the region and the credentials of
// its role, which do not change while the function runs. The SDK's own package
// reads many other sources that a function does not have, and linking it makes
// the function start slower.
//
// Source:
// https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html
func account(getenv func(string) string, client aws.HTTPClient) (aws.Config, error) {
	role := aws.Credentials{
		AccessKeyID: getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: getenv(
			"AWS_SESSION_TOKEN",
		),
		Source: "Lambda",
	}
	config := aws.Config{
		Region: getenv("AWS_REGION"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return role, nil
		}),
		HTTPClient: client,
		Retryer:    func() aws.Retryer { return retry.AddWithMaxBackoffDelay(retry.NewStandard(), 200*time.Millisecond) },
	}
	var errs []error
	// Only a role has a session token.
	for _, name := range []string{"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if getenv(name) == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
	}
	return config, errors.Join(errs...)
}

// at returns a configuration for one service. The standard endpoint variables
// of the AWS command line and SDKs can replace the service by an emulator.
func at(service string, config aws.Config, getenv func(string) string) aws.Config {
	if url := cmp.Or(getenv("AWS_ENDPOINT_URL_"+service), getenv("AWS_ENDPOINT_URL")); url != "" {
		config.BaseEndpoint = &url
	}
	return config
}
