// Infra is the CDK app that makes the registry in an AWS account: functions behind an HTTP API, a table and a bucket.
// Synthesis builds the functions.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
)

func main() {
	// No jsii.Close: it reports its own child's end as an error, beside ours. The child ends with its standard input.
	app := awscdk.NewApp(nil)
	context, _ := app.Node().GetAllContext(nil).(map[string]any)
	s, err := parseSettings(context, os.Getenv("CDK_DEFAULT_REGION"))
	if err != nil {
		fail(err)
	}
	dist, err := build(s.Architecture)
	if err != nil {
		fail(err)
	}
	newStack(app, s, dist)
	app.Synth(nil)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// build builds the functions and returns the folder that holds one folder for each.
func build(architecture string) (string, error) {
	cmd := exec.Command("../scripts/build", architecture) //nolint:noctx,gosec // it is what this program waits for; the argument is one of two words
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the functions: %w", err)
	}
	return filepath.Abs(filepath.Join("..", "dist", architecture))
}
