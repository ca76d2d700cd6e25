// Package rehearsal deploys the registry as its owner would, to an emulator or to
// an account of AWS, and uses it as its clients would.
package rehearsal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/settings"
)

// StackName is that of the stack of a rehearsal; no other is touched.
const StackName = "larder-rehearsal"

// Rehearsal deploys the registry as its owner would, and uses it as clients would.
type Rehearsal struct {
	// Checkout is the root of the source.
	Checkout string
	// Older is a commit to deploy first, over which the source is deployed then; none if it is empty.
	Older string
	// Restore says that the registry is filled, lost and restored before the scenarios, in an emulator.
	Restore bool
	// Account is where to deploy, and Endpoint the URL of the emulator that it is in; empty for AWS itself.
	Account  aws.Config
	Endpoint string
	// Env is added to the environment of programs that find the account by it.
	Env []string
	// Out is told what is done, and how long it takes.
	Out io.Writer
	// Ask is asked before anything is made in an account of AWS.
	Ask func(question string) bool
	// Scenarios are what the deployed registry is used for.
	Scenarios []Scenario
}

// ErrNotWanted says that the answer to Ask was no.
var ErrNotWanted = errors.New("nothing was done")

// Run rehearses. Its error names what is wrong, a line for each thing.
func (r *Rehearsal) Run(ctx context.Context) error {
	begun := time.Now()
	if err := r.check(ctx); err != nil {
		return err
	}
	if err := r.agree(ctx); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "larder-rehearsal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	found, missing := clients.Find()
	for _, c := range found {
		fmt.Fprintln(r.Out, "with", c.Path)
	}
	for _, why := range missing {
		fmt.Fprintln(r.Out, "LEFT OUT:", why)
	}
	if len(found) == 0 {
		return errors.New("there is no client to rehearse with")
	}
	// A namespace of its own, so that a second rehearsal on the same stack publishes as the first did.
	d := &deployment{
		Rehearsal: r,
		scratch:   scratch,
		readers:   new(sync.Map),
		namespace: begun.UTC().Format("rehearsal-20060102-150405"),
		clients:   found,
		policies:  make(map[string]string),
	}
	if r.Endpoint == "" {
		fmt.Fprintln(r.Out, "LEFT OUT: publishing by a CI job's identity, since AWS does not reach an issuer on this machine")
	} else {
		if d.ci, err = issuers.StartCI(); err != nil {
			return err
		}
		defer d.ci.Close()
	}
	if err := d.build(ctx); err != nil {
		return err
	}
	stack, err := d.deploy(ctx)
	if err != nil {
		return err
	}
	if err := d.deployAgain(ctx, stack); err != nil {
		return err
	}
	if r.Restore {
		if stack, err = d.restore(ctx, stack); err != nil {
			return err
		}
	}
	if err := d.use(ctx, stack); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "rehearsed in %s\n", time.Since(begun).Round(time.Second))
	if r.Endpoint == "" {
		fmt.Fprintf(r.Out, "the stack %s stays until scripts/rehearse --destroy\n", StackName)
	}
	return nil
}

// check finds out, before anything is made, whether what is needed is there.
func (r *Rehearsal) check(ctx context.Context) error {
	if r.Restore && r.Endpoint == "" {
		return errors.New("restoring is rehearsed in an emulator alone: AWS takes up to an hour for it, and keeps the tables and buckets that were lost")
	}
	if r.Endpoint != "" && runtime.GOOS != "linux" {
		return errors.New("functions run on Linux alone: here only a rehearsal in AWS is possible")
	}
	for _, program := range []string{"go", "npm", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not on PATH", program)
		}
	}
	if r.Older == "" {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "git", "-C", r.Checkout, "cat-file", "-e", r.Older+":infra/cdk.json").CombinedOutput(); err != nil {
		return fmt.Errorf("%s is no commit of this checkout that can be deployed: %s", r.Older, bytes.TrimSpace(out))
	}
	return nil
}

// agree finds out where this is, and asks whether it is meant.
func (r *Rehearsal) agree(ctx context.Context) error {
	id, err := r.caller(ctx)
	if err != nil {
		return err
	}
	if r.Endpoint != "" {
		fmt.Fprintf(r.Out, "rehearsing in the emulator at %s, account %s, region %s\n", r.Endpoint, id, r.Account.Region)
		return nil
	}
	fmt.Fprintf(r.Out, "rehearsing in AWS, account %s, region %s\n", id, r.Account.Region)
	if !r.Ask(fmt.Sprintf("This makes the stack %s there, with a registry of its own, bootstraps CDK where that is not done, and costs next to nothing. Go on?", StackName)) {
		return ErrNotWanted
	}
	return nil
}

// caller returns the number of the account.
func (r *Rehearsal) caller(ctx context.Context) (string, error) {
	caller, err := sts.NewFromConfig(r.Account).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		where := "AWS"
		if r.Endpoint != "" {
			where = r.Endpoint
		}
		return "", fmt.Errorf("asking %s whose account this is: %w", where, err)
	}
	return aws.ToString(caller.Account), nil
}

// step does one thing, and says what and how long it took.
func (r *Rehearsal) step(what string, do func() error) error {
	fmt.Fprintf(r.Out, "%s ...\n", what)
	begun := time.Now()
	if err := do(); err != nil {
		fmt.Fprintf(r.Out, "  failed after %.1f s\n", time.Since(begun).Seconds())
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(r.Out, "  %.1f s\n", time.Since(begun).Seconds())
	return nil
}

// deployment is one run of a rehearsal.
type deployment struct {
	*Rehearsal
	scratch   string
	namespace string
	readers   *sync.Map // tokens of clients by namespace
	clients   []clients.Client
	ci        *issuers.CI // whom the stack trusts; nil in AWS
	// adopted are settings by which the stack has a restored table and bucket.
	adopted map[string]any
	// policies are those of buckets, by their names: see Account.
	policies map[string]string
}

// command is a program that finds the account. It has a folder and further variables.
func (d *deployment) command(ctx context.Context, dir string, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(d.environ(), d.Env...), env...)
	cmd.WaitDelay = 10 * time.Second // what it has started may hold on to its output
	return cmd
}

// run runs a program and returns its standard output. Its error has all that it printed.
func (d *deployment) run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := d.command(ctx, dir, env, name, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, &said, &out)
	}
	return out.String(), nil
}

// environ is this process's environment, without what would lead programs elsewhere than to an emulator.
func (d *deployment) environ() []string {
	if d.Endpoint == "" {
		return os.Environ()
	}
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "AWS_ENDPOINT_URL_") || strings.HasPrefix(variable, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=")
	})
}

// build builds the programs of the source, and installs the CDK's.
func (d *deployment) build(ctx context.Context) error {
	return d.step("building the command line, and CDK's", func() error {
		folder := d.scratch + string(filepath.Separator)
		if _, err := d.run(ctx, d.Checkout, nil, "go", "build", "-o", folder, "./scripts/larder", "./infra"); err != nil {
			return err
		}
		_, err := d.run(ctx, d.Checkout, nil, filepath.Join(d.Checkout, "scripts", "tools"), "cdk")
		return err
	})
}

// deploy leaves the source, which is built, deployed, and says what is there then.
func (d *deployment) deploy(ctx context.Context) (stack *Stack, err error) {
	if err := d.bootstrap(ctx); err != nil {
		return nil, err
	}
	var older *Stack
	if d.Older != "" {
		if older, err = d.deployOlder(ctx); err != nil {
			return nil, err
		}
	}
	err = d.step("cdk deploy", func() error {
		if d.Older != "" {
			return d.deploySource(ctx, "access") // it was open to everyone
		}
		return d.deploySource(ctx)
	})
	if err != nil {
		return nil, err
	}
	if stack, err = Inspect(ctx, d.Account, StackName); err != nil {
		return nil, err
	}
	for _, kept := range []string{settings.OutputTable, settings.OutputBucket} {
		if older != nil && older.Outputs[kept] != stack.Outputs[kept] {
			return nil, fmt.Errorf("a deploy over %s makes another %s: it was %s and is %s", d.Older, kept, older.Outputs[kept], stack.Outputs[kept])
		}
	}
	return stack, nil
}

// deployAgain deploys the same source, which must change nothing.
func (d *deployment) deployAgain(ctx context.Context, stack *Stack) error {
	return d.step("cdk deploy again, with no change", func() error {
		if err := d.deploySource(ctx); err != nil {
			return err
		}
		again, err := Inspect(ctx, d.Account, StackName)
		if err != nil {
			return err
		}
		if changes := again.Changes(stack); len(changes) > 0 {
			return fmt.Errorf("it changes what is there: %s", strings.Join(changes, "; "))
		}
		return nil
	})
}

// olderModule is what the older release publishes.
func (d *deployment) olderModule() string { return d.namespace + "/older/null" }

// olderFolder returns where the source of the older release goes. It is always the
// same folder for a checkout, because Go caches what it compiles by its path. It is
// another one for each checkout, because several can share .tools.
func olderFolder(checkout string) (string, error) {
	path, err := filepath.Abs(checkout)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(path, ".tools", "older-"+hex.EncodeToString(sum[:6])), nil
}

// deployOlder deploys an older commit and publishes a module with its own command line.
func (d *deployment) deployOlder(ctx context.Context) (stack *Stack, err error) {
	err = d.step("cdk deploy of the older "+d.Older, func() error {
		checkout, err := olderFolder(d.Checkout)
		if err != nil {
			return err
		}
		tar := filepath.Join(d.scratch, "older.tar")
		if err := os.RemoveAll(checkout); err != nil {
			return err
		}
		defer os.RemoveAll(checkout)
		if err := os.MkdirAll(checkout, 0o700); err != nil {
			return err
		}
		if _, err := d.run(ctx, d.Checkout, nil, "git", "archive", "--output", tar, d.Older); err != nil {
			return err
		}
		if _, err := d.run(ctx, checkout, nil, "tar", "-xf", tar); err != nil {
			return err
		}
		// The first releases must be told so. What they published then is private, as everything is by default.
		own := d.settings(map[string]any{"anonymousRead": true})
		app := cdkApp{folder: d.scratch, command: fmt.Sprintf("go run -C %q .", filepath.Join(checkout, "infra"))}
		var more []string
		if _, err := os.Stat(filepath.Join(checkout, "infra", "settings.schema.json")); err == nil {
			if err := writeSettings(filepath.Join(checkout, "infra"), own); err != nil {
				return err
			}
		} else { // it has settings in CDK context
			for key, value := range own {
				more = append(more, "-c", fmt.Sprintf("%s=%v", key, value))
			}
		}
		if err := d.cdkDeploy(ctx, app, more...); err != nil {
			return err
		}
		if stack, err = Inspect(ctx, d.Account, StackName); err != nil {
			return err
		}
		module := filepath.Join(d.scratch, "older-module")
		if err := os.MkdirAll(module, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(module, "main.tf"), []byte("output \"text\" {\n  value = \"older\"\n}\n"), 0o600); err != nil {
			return err
		}
		_, err = d.run(ctx, checkout, d.pathStyle(), "go", "run", "./scripts/larder", "publish", "module", module, d.olderModule(), "1.0.0", "--store", "stack:"+StackName)
		return err
	})
	return stack, err
}

// pathStyle is what programs need besides AWS's own variables to use an emulator of S3.
func (d *deployment) pathStyle() []string {
	if d.Endpoint == "" {
		return nil
	}
	return []string{"LARDER_S3_PATH_STYLE=true"}
}

// bootstrap prepares the account for CDK, unless it is.
func (d *deployment) bootstrap(ctx context.Context) error {
	const toolkit = "CDKToolkit"
	_, found, err := describe(ctx, d.Account, toolkit)
	if err != nil {
		return err
	}
	if found {
		fmt.Fprintf(d.Out, "cdk bootstrap: it has been done, the stack %s is there\n", toolkit)
		return nil
	}
	return d.step("cdk bootstrap", func() error {
		app, err := d.source(d.settings(nil))
		if err != nil {
			return err
		}
		return d.cdk(ctx, app, "bootstrap")
	})
}

// bootstrapVersion is where CDK finds which bootstrap there is. moto answers 500 to an update that rests on the default of
// this parameter.
const bootstrapVersion = "BootstrapVersion=/cdk-bootstrap/hnb659fds/version"

func (d *deployment) cdkDeploy(ctx context.Context, app cdkApp, more ...string) error {
	args := append([]string{"deploy", "--require-approval", "never"}, more...)
	if d.Endpoint != "" {
		// moto gives a stack that a change set made no outputs.
		args = append(args, "--method", "direct", "--parameters", bootstrapVersion)
	}
	return d.cdk(ctx, app, args...)
}

// deploySource deploys the source that is rehearsed, which may drop what is
// allowed.
func (d *deployment) deploySource(ctx context.Context, allowDrop ...string) error {
	// All that a stack can have to tell of itself.
	own := d.settings(map[string]any{"alarms": true, "dashboard": true})
	maps.Copy(own, d.adopted)
	if d.Endpoint != "" {
		own["alarmEmail"] = alarmEmail
	}
	if d.ci != nil {
		access, err := trusting(d.ci.URL, d.namespace)
		if err != nil {
			return err
		}
		own["access"] = json.RawMessage(access)
	}
	app, err := d.source(own)
	if err != nil {
		return err
	}
	var more []string
	if len(allowDrop) > 0 {
		more = []string{"-c", "allow-drop=" + strings.Join(allowDrop, ",")}
	}
	if err := d.cdkDeploy(ctx, app, more...); err != nil || d.Endpoint == "" {
		return err
	}
	return d.fillIn(ctx)
}

// alarmEmail is whom alarms are mailed to in an emulator, which mails nobody.
const alarmEmail = "registry@example.com"

// settings returns those that every stack of a rehearsal has, and more.
func (d *deployment) settings(more map[string]any) map[string]any {
	all := map[string]any{"stackName": StackName, "architecture": lambda.Architecture()}
	maps.Copy(all, more)
	return all
}

// cdkApp is the CDK app of a checkout: the folder from which the cdk commands
// run, and the command that runs the app; none if that is empty.
type cdkApp struct {
	folder, command string
}

// source returns the app of the source that is rehearsed, with settings.
func (d *deployment) source(own map[string]any) (cdkApp, error) {
	app, err := d.appIn("source")
	if err == nil {
		err = writeSettings(app.folder, own)
	}
	return app, err
}

// appIn returns the app of the source in a folder that is to it as infra is in a
// checkout, so that the settings of this checkout do not count.
func (d *deployment) appIn(name string) (cdkApp, error) {
	checkout := filepath.Join(d.scratch, name)
	app := cdkApp{folder: filepath.Join(checkout, "infra"), command: filepath.Join(d.scratch, "infra")}
	if _, err := os.Stat(app.folder); err == nil {
		return app, nil
	}
	for _, dir := range []string{app.folder, filepath.Join(checkout, "scripts")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return app, err
		}
	}
	build := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", filepath.Join(d.Checkout, "scripts", "build"))
	if err := os.WriteFile(filepath.Join(checkout, "scripts", "build"), []byte(build), 0o700); err != nil {
		return app, err
	}
	return app, os.Symlink(filepath.Join(d.Checkout, "dist"), filepath.Join(checkout, "dist"))
}

// settingsFile is where a stack's owner keeps its settings.
const settingsFile = "settings.json"

func writeSettings(infra string, own map[string]any) error {
	text, err := json.MarshalIndent(own, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(infra, settingsFile), text, 0o600)
}

// cdk runs a command of the CDK.
func (d *deployment) cdk(ctx context.Context, app cdkApp, args ...string) error {
	out := filepath.Join(d.scratch, "cdk.out")
	if app.command != "" {
		args = append(args, "--app", app.command)
	}
	args = append(args, "--output", out, "--no-version-reporting", "--no-notices", "--ci")
	env := append(d.pathStyle(), "CDK_DISABLE_CLI_TELEMETRY=true", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=1")
	if d.Endpoint != "" {
		// The CDK checks a template against CloudFormation's schemas, which takes as
		// long as the rest of a synthesis. It only warns, and nobody would see it here.
		env = append(env, "CDK_VALIDATION=false")
	}
	_, err := d.run(ctx, app.folder, env, filepath.Join(d.Checkout, "infra", "node_modules", ".bin", "cdk"), args...)
	return err
}

// open returns a deployed stack as its users have it, until it is closed. In an
// emulator it runs; in AWS, running is nil. The command line works on it as
// roles that have the policies for that alone.
func (d *deployment) open(
	ctx context.Context,
	stack *Stack,
) (registry *Registry, running *Running, done func(), err error) {
	o, err := d.assume(ctx, stack)
	done = func() {
		if running != nil {
			running.Close()
		}
		if err := d.removeRoles(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintln(d.Out, err)
		}
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	registry = &Registry{
		Host: stack.Outputs[settings.OutputHost], Clients: d.clients, HTTP: http.DefaultClient,
		Namespace: d.namespace, Readers: d.readers, Older: d.olderModule(), Scratch: d.scratch, CI: d.ci,
		Lose: func(ctx context.Context, key string) error {
			_, err := d.buckets().DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(stack.Outputs[settings.OutputBucket]), Key: &key})
			return err
		},
	}
	env := append(d.pathStyle(), "AWS_REGION="+d.Account.Region) // which a profile may have named
	if d.Endpoint != "" {
		err := d.step("starting the deployed functions, since the emulator has no API Gateway", func() error {
			dir, err := os.MkdirTemp(d.scratch, "functions")
			if err != nil {
				return err
			}
			running, err = stack.Run(ctx, d.Endpoint, dir, o)
			return err
		})
		if err != nil {
			done()
			return nil, nil, nil, err
		}
		running.Account.BucketPolicies = d.policies
		registry.Host, registry.HTTP, registry.CAFile = running.Gateway.Host, running.Gateway.Client(), filepath.Join(d.scratch, "ca.pem")
		if err := running.Gateway.WriteCA(registry.CAFile); err != nil {
			done()
			return nil, nil, nil, err
		}
		env = append(env, "AWS_ENDPOINT_URL="+running.Account.URL)
	}
	larder := func(ctx context.Context, as aws.Credentials, args ...string) (string, error) {
		return d.run(
			ctx,
			d.scratch,
			append(slices.Clone(env), variables(as)...),
			filepath.Join(d.scratch, "larder"),
			args...)
	}
	registry.Larder = func(ctx context.Context, args ...string) (string, error) {
		return larder(ctx, o.operator, append(args, "--store", "stack:"+StackName)...)
	}
	registry.Examine = func(ctx context.Context) (string, error) {
		return larder(ctx, o.operator, "doctor", "--json", "--stack", StackName)
	}
	if running != nil {
		registry.Interrupt = func(ctx context.Context, args ...string) error {
			env := append(slices.Clone(env), variables(o.operator)...)
			return running.interrupt(
				d.command(
					ctx,
					d.scratch,
					env,
					filepath.Join(d.scratch, "larder"),
					append(args, "--store", "stack:"+StackName)...),
			)
		}
	}
	registry.Withdraw = func(ctx context.Context, args ...string) error {
		_, err := larder(
			ctx,
			o.withdraw,
			append(append([]string{"withdraw"}, args...), "--yes", "--store", "stack:"+StackName)...)
		return err
	}
	registry.Through = func(ctx context.Context, env []string, args ...string) (string, error) {
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"} {
			env = append(env, name+"=")
		}
		if registry.CAFile != "" {
			env = append(env, "SSL_CERT_FILE="+registry.CAFile)
		}
		return d.run(ctx, d.scratch, env, filepath.Join(d.scratch, "larder"), append(args, "--registry", "https://"+registry.Host)...)
	}
	return registry, running, done, nil
}

// variables are the environment by which programs have credentials, and no others.
func variables(c aws.Credentials) []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + c.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + c.SecretAccessKey,
		"AWS_SESSION_TOKEN=" + c.SessionToken,
		"AWS_PROFILE=",
	}
}

// use goes through the scenarios with a deployed stack.
func (d *deployment) use(ctx context.Context, stack *Stack) error {
	registry, running, done, err := d.open(ctx, stack)
	if err != nil {
		return err
	}
	defer done()
	scenarios := d.Scenarios
	if d.Older != "" {
		scenarios = append([]Scenario{{"a module that the older release published", func(ctx context.Context, r *Registry) error {
			return r.installModule(ctx, d.olderModule(), "1.0.0", "older")
		}}}, scenarios...)
	}
	if d.adopted != nil {
		scenarios = append([]Scenario{{"what was restored: verify, init", d.restored}}, scenarios...)
	}
	for _, s := range scenarios {
		if err := d.step(s.Name, func() error { return s.Run(ctx, registry) }); err != nil {
			if running != nil {
				return errors.Join(err, running.Wrong())
			}
			return fmt.Errorf("%w\nwhat the functions say of it: %s", err, stack.logs())
		}
	}
	if running == nil {
		return nil
	}
	return errors.Join(running.Wrong(), running.Unneeded())
}
