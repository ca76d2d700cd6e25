// Infra is the CDK app that deploys the registry to an AWS account: functions
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
	// jsii.Close would print an error when its child process ends. The child
	// exits when its standard input is closed.
	if err := synthesize(awscdk.NewApp(nil)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// synthesize adds the stack to an app. If a deploy is rejected, the stack has
// an error annotation. `cdk deploy`, `diff`, `synth` and `rollback` then fail;
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
	go func() { account <- lookUp(context.Background(), s, qualifier(given, s), os.Getenv) }()
	fmt.Fprintf(os.Stderr, "Building the functions for %s.\n", s.Architecture)
	dist, err := build(s.Architecture)
	if err != nil {
		return err
	}
	f := <-account
	s = s.fit(f.quota)
	stack := newStack(app, s, dist)
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

// qualifier returns the bootstrap qualifier, which is part of the names of the
// CDK's own roles.
func qualifier(context map[string]any, s Settings) string {
	if s.BootstrapQualifier != "" {
		return s.BootstrapQualifier
	}
	if own, ok := context["@aws-cdk/core:bootstrapQualifier"].(string); ok {
		return own
	}
	return *awscdk.DefaultStackSynthesizer_DEFAULT_QUALIFIER()
}

// build builds the functions. It returns a folder with one folder for each
// function.
func build(architecture string) (string, error) {
	//nolint:noctx,gosec // this program waits for it; the argument is one of two words
	cmd := exec.Command("../scripts/build", architecture)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("cannot build the functions: %w", err)
	}
	return filepath.Abs(filepath.Join("..", "dist", architecture))
}
