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

// account returns the configuration with which a function reaches AWS, as Lambda tells it by environment variables: the
// region, and the credentials of its role, which stay the same for as long as the function runs. The SDK's own package for
// this knows every other place where they could be, none of which a function has, and what it links for them takes time to
// start.
//
// Source: https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html
func account(getenv func(string) string, client aws.HTTPClient) (aws.Config, error) {
	role := aws.Credentials{
		AccessKeyID: getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: getenv("AWS_SESSION_TOKEN"),
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
	// A session token is a role's alone.
	for _, name := range []string{"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if getenv(name) == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
	}
	return config, errors.Join(errs...)
}

// at returns a configuration for one service, which an emulator may stand in for: by the variables that the AWS command
// line and SDKs have for this.
func at(service string, config aws.Config, getenv func(string) string) aws.Config {
	if url := cmp.Or(getenv("AWS_ENDPOINT_URL_"+service), getenv("AWS_ENDPOINT_URL")); url != "" {
		config.BaseEndpoint = &url
	}
	return config
}
