// Package awstest provides the configuration and the credentials with which
// tests use emulators of AWS on this machine.
package awstest

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// The credentials of the emulated services, in the form of a function's
// environment.
const (
	AccessKey = "AKIDREHEARSAL"
	SecretKey = "rehearsal-secret"
	Region    = "eu-central-1"
)

// Config returns an AWS configuration for a service at a URL.
func Config(url string) aws.Config {
	return aws.Config{Region: Region, BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, "")}
}
