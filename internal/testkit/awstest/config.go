// Package awstest has the configuration and the credentials with which tests
// reach emulators of AWS on this machine.
package awstest

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Credentials of the emulated services, as the environment of a function holds them.
const (
	AccessKey = "AKIDREHEARSAL"
	SecretKey = "rehearsal-secret"
	Region    = "eu-central-1"
)

// Config is an AWS configuration that reaches a service at a URL.
func Config(url string) aws.Config {
	return aws.Config{Region: Region, BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, "")}
}
