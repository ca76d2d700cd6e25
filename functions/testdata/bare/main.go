// Bare is the least that a Lambda function in Go can be: what others are measured by.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	lambda.Start(func(context.Context) (string, error) { return "", nil })
}
