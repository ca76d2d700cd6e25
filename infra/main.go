// Infra is the CDK app that makes the registry in an AWS account: functions
// behind an HTTP API, a table and a bucket. Synthesis builds the functions.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
)

func main() {
	// No jsii.Close: it reports its own child's end as an error, beside ours. The
	// child ends with its standard input.
	if err := synthesize(awscdk.NewApp(nil)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// synthesize adds the stack to an app. If a deploy is refused, the stack has an
// error annotation: `cdk deploy`, `diff`, `synth` and `rollback` fail with it, and
// `cdk ls` and `destroy` ignore it.
func synthesize(app awscdk.App) error {
	given, _ := app.Node().GetAllContext(nil).(map[string]any)
	choices, err := readContext(given)
	if err != nil {
		return err
	}
	s, err := loadSettings(choices, os.Getenv("CDK_DEFAULT_REGION"))
	if err != nil {
		return err
	}
	account := make(chan found, 1)
	go func() { account <- lookUp(context.Background(), s, qualifier(given), os.Getenv) }()
	fmt.Fprintf(os.Stderr, "Building the functions for %s.\n", s.Architecture)
	dist, err := build(s.Architecture)
	if err != nil {
		return err
	}
	stack := newStack(app, s, dist)
	f := <-account
	refused, warnings := f.judge(choices, s, madeBy(stack))
	for _, line := range warnings {
		fmt.Fprintln(os.Stderr, line)
	}
	for _, why := range refused {
		awscdk.Annotations_Of(stack).AddError(&why)
	}
	app.Synth(nil)
	return nil
}

// qualifier returns the bootstrap qualifier, which is in the names of the CDK's
// own roles.
func qualifier(context map[string]any) string {
	if own, ok := context["@aws-cdk/core:bootstrapQualifier"].(string); ok {
		return own
	}
	return *awscdk.DefaultStackSynthesizer_DEFAULT_QUALIFIER()
}

// build builds the functions and returns the folder that holds one folder for each.
func build(architecture string) (string, error) {
	//nolint:noctx,gosec // this program waits for it; the argument is one of two words
	cmd := exec.Command("../scripts/build", architecture)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the functions: %w", err)
	}
	return filepath.Abs(filepath.Join("..", "dist", architecture))
}
