// Package rehearsal deploys the registry to an emulator or to an AWS account,
// like its owner would, and then uses it like its clients would.
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
	"regexp"
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
	"github.com/larder-registry/larder/pkg/client/git"
	"github.com/larder-registry/larder/pkg/cloud/partition"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// StackName is the name of a rehearsal's stack. A rehearsal changes no other
// stack.
const StackName = "larder-rehearsal"

// Rehearsal deploys the registry like its owner would, and uses it like its
// clients would.
type Rehearsal struct {
	// Checkout is the root of the source.
	Checkout string
	// Older is a commit to deploy first. The checkout is then deployed over it.
	// If empty, only the checkout is deployed.
	Older string
	// Restore fills, loses and restores the registry before the scenarios, and
	// continues with a copy in another region. It works only in an emulator.
	Restore bool
	// Account is the account to deploy to. Endpoint is the URL of its emulator,
	// or empty for AWS.
	Account  aws.Config
	Endpoint string
	// Env is added to the environment of programs, so that they use the
	// account.
	Env []string
	// Out receives a line for each step, with the time that it took.
	Out io.Writer
	// Confirm requests confirmation before a rehearsal changes an AWS account.
	Confirm func(question string) bool
	// Scenarios are run with the deployed registry.
	Scenarios []Scenario
	// Checks answers questions that only an AWS account answers, after the
	// scenarios, and writes a report to Out in the end. Throttle includes the
	// throttle, for which it deploys twice more and sends 3,000 requests.
	Checks, Throttle bool

	report *report // nil without Checks
}

// ErrNotWanted is returned if Confirm returned false.
var ErrNotWanted = errors.New("nothing was done")

// Run runs the rehearsal. Its error has one line for each fault.
func (r *Rehearsal) Run(ctx context.Context) error {
	begun := time.Now()
	if !r.Checks {
		return r.run(ctx, begun)
	}
	r.report = &report{where: "AWS", partition: partition.Of(r.Account.Region).ID, begun: begun}
	if r.Endpoint != "" {
		r.report.where = "an emulator"
	}
	if checkout, err := git.Open(ctx, r.Checkout); err == nil { // the source of a release has no history
		commit, _ := checkout.Run(ctx, "rev-parse", "HEAD")
		r.report.commit = strings.TrimSpace(string(commit))
	}
	home, _ := os.UserHomeDir() // empty hides nothing
	r.report.hide(r.Checkout, home, r.Endpoint)
	err := r.run(ctx, begun)
	if len(r.report.steps) > 0 {
		fmt.Fprintf(r.Out, "\n%s", r.report.markdown(time.Now()))
	}
	return err
}

func (r *Rehearsal) run(ctx context.Context, begun time.Time) error {
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
		return errors.New("cannot rehearse: found no OpenTofu or Terraform")
	}
	// The namespace is new each time, so that a rehearsal can be repeated on
	// the same stack.
	d := &deployment{
		Rehearsal: r,
		scratch:   scratch,
		readers:   new(sync.Map),
		namespace: begun.UTC().Format("rehearsal-20060102-150405"),
		clients:   found,
		policies:  make(map[string]string),
	}
	if r.report != nil {
		r.report.hide(scratch)
		for _, c := range found {
			version, err := d.run(ctx, scratch, nil, c.Path, "version")
			if err != nil {
				return err
			}
			r.report.clients = append(r.report.clients, clientVersion.FindString(version))
		}
	}
	if r.Endpoint == "" {
		fmt.Fprintln(r.Out, "LEFT OUT: publishing with a CI job's identity, since AWS cannot reach an issuer on this machine")
	} else {
		if d.ci, err = issuers.StartCI(); err != nil {
			return err
		}
		defer d.ci.Close()
	}
	if err := d.build(ctx); err != nil {
		return err
	}
	defer d.stop()
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
		there := d.inAnotherRegion()
		defer there.stop()
		if stack, err = d.loseRegion(ctx, stack, there); err != nil {
			return err
		}
		d = there
	}
	if err := d.use(ctx, stack); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "rehearsed in %s\n", time.Since(begun).Round(time.Second))
	if r.Endpoint == "" {
		fmt.Fprintf(r.Out, "scripts/rehearse --destroy deletes the stack %s\n", StackName)
	}
	return nil
}

// clientVersion matches the line with a client's version. Warnings can precede
// it.
var clientVersion = regexp.MustCompile(`(?m)^(OpenTofu|Terraform) v\S+`)

// check checks the prerequisites of a rehearsal, before it changes anything.
func (r *Rehearsal) check(ctx context.Context) error {
	if r.Restore && r.Endpoint == "" {
		return errors.New("cannot rehearse restoring in AWS: it takes up to an hour there, " +
			"and leaves the lost tables and buckets")
	}
	if r.Endpoint != "" && runtime.GOOS != "linux" {
		return errors.New("cannot rehearse in an emulator: functions run only on Linux")
	}
	for _, program := range []string{"go", "npm", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not on PATH", program)
		}
	}
	if r.Older == "" {
		return nil
	}
	checkout, err := git.Open(ctx, r.Checkout)
	if err == nil {
		_, err = checkout.Run(ctx, "cat-file", "-e", r.Older+":infra/cdk.json")
	}
	if err != nil {
		return fmt.Errorf("cannot deploy commit %s of this checkout: %w", r.Older, err)
	}
	return nil
}

// agree prints the account and the region, and requests confirmation if they
// are in AWS.
func (r *Rehearsal) agree(ctx context.Context) error {
	id, err := r.caller(ctx)
	if err != nil {
		return err
	}
	if r.report != nil {
		r.report.hide(id)
	}
	if r.Endpoint != "" {
		fmt.Fprintf(r.Out, "rehearsing in the emulator at %s, account %s, region %s\n", r.Endpoint, id,
			r.Account.Region)
		return nil
	}
	fmt.Fprintf(r.Out, "rehearsing in AWS, account %s, region %s\n", id, r.Account.Region)
	if !r.Confirm(fmt.Sprintf("This creates the stack %s with a new registry there, and bootstraps the CDK "+
		"if necessary. It costs almost nothing. Continue?", StackName)) {
		return ErrNotWanted
	}
	return nil
}

func (r *Rehearsal) caller(ctx context.Context) (string, error) {
	caller, err := sts.NewFromConfig(r.Account).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		where := "AWS"
		if r.Endpoint != "" {
			where = r.Endpoint
		}
		return "", fmt.Errorf("cannot read the account number from %s: %w", where, err)
	}
	return aws.ToString(caller.Account), nil
}

// step runs one step, and prints its name and the time that it took.
func (r *Rehearsal) step(what string, do func() error) error {
	fmt.Fprintf(r.Out, "%s ...\n", what)
	begun := time.Now()
	err := do()
	if r.report != nil {
		r.report.steps = append(r.report.steps, reportedStep{what, time.Since(begun), err})
	}
	if err != nil {
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
	readers   *sync.Map // the clients' tokens, by namespace
	clients   []clients.Client
	ci        *issuers.CI // an issuer that the stack trusts; nil in AWS
	// adopted are settings with which the stack adopts a restored table and
	// bucket.
	adopted map[string]any
	// extra are settings of one deploy.
	extra map[string]any
	// key is the ARN of the key that the stack uses in an emulator. It is empty in
	// AWS, where a key costs money.
	key string
	// policies are the policies of buckets, by bucket name. See
	// [Account.BucketPolicies].
	policies map[string]string
	// pipeline deploys the checkout. It is nil in AWS.
	pipeline *pipeline
}

// command returns a command that uses the account, with a working directory and
// further variables.
func (d *deployment) command(ctx context.Context, dir string, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(d.environ(), d.Env...), env...)
	cmd.WaitDelay = 10 * time.Second // its child processes may keep its output open
	return cmd
}

// run runs a program and returns its standard output. An error contains all its
// output.
func (d *deployment) run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := d.command(ctx, dir, env, name, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, &stderr, &out)
	}
	return out.String(), nil
}

// environ returns this process's environment, without variables that would make
// programs use AWS instead of the emulator.
func (d *deployment) environ() []string {
	if d.Endpoint == "" {
		return os.Environ()
	}
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "AWS_ENDPOINT_URL_") || strings.HasPrefix(variable,
			"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=")
	})
}

// build builds the programs of the checkout, and installs the CDK.
func (d *deployment) build(ctx context.Context) error {
	return d.step("building the command line and the CDK app", func() error {
		folder := d.scratch + string(filepath.Separator)
		if _, err := d.run(ctx, d.Checkout, nil, "go", "build", "-o", folder, "./scripts/larder",
			"./infra"); err != nil {
			return err
		}
		_, err := d.run(ctx, d.Checkout, nil, filepath.Join(d.Checkout, "scripts", "tools"), "cdk")
		return err
	})
}

// stop ends the proxy of the pipeline.
func (d *deployment) stop() {
	if d.pipeline != nil {
		d.pipeline.account.Close()
	}
}

func (d *deployment) deploy(ctx context.Context) (stack *Stack, err error) {
	if d.Endpoint != "" && d.Older == "" { // moto cannot encrypt a table that exists
		id, err := d.caller(ctx)
		if err == nil {
			d.key, err = d.createKey(ctx, id)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := d.bootstrap(ctx); err != nil {
		return nil, err
	}
	var older *Stack
	if d.Older != "" {
		if older, err = d.deployOlder(ctx); err != nil {
			return nil, err
		}
	}
	if err = d.step("cdk deploy", func() error { return d.deploySource(ctx) }); err != nil {
		return nil, err
	}
	if stack, err = Inspect(ctx, d.Account, StackName); err != nil {
		return nil, err
	}
	for _, kept := range []string{settings.OutputTable, settings.OutputBucket} {
		if older != nil && older.Outputs[kept] != stack.Outputs[kept] {
			return nil, fmt.Errorf("a deploy over %s makes another %s: it was %s and is %s", d.Older, kept,
				older.Outputs[kept], stack.Outputs[kept])
		}
	}
	return stack, nil
}

// deployAgain deploys the same source again, which must not change anything.
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
			return fmt.Errorf("the second deploy has changed the stack: %s", strings.Join(changes, "; "))
		}
		return nil
	})
}

// olderModule returns the address of the module that the older command line
// publishes.
func (d *deployment) olderModule() string { return d.namespace + "/older/null" }

// olderFolder returns the folder for the source of the older commit. It is the
// same one each time, since Go caches compiled packages by their path. Each
// checkout has its own, since several can share .tools.
func olderFolder(checkout string) (string, error) {
	path, err := filepath.Abs(checkout)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(path, ".tools", "older-"+hex.EncodeToString(sum[:6])), nil
}

// deployOlder deploys an older commit, and publishes a module with its command
// line.
func (d *deployment) deployOlder(ctx context.Context) (stack *Stack, err error) {
	err = d.step("cdk deploy of the older "+d.Older, func() error {
		checkout, err := olderFolder(d.Checkout)
		if err != nil {
			return err
		}
		history, err := git.Open(ctx, d.Checkout)
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
		if _, err := history.Run(ctx, "archive", "--output", tar, d.Older); err != nil {
			return err
		}
		if _, err := d.run(ctx, checkout, nil, "tar", "-xf", tar); err != nil {
			return err
		}
		infra := filepath.Join(checkout, "infra")
		if err := writeSettings(infra, d.settings(nil)); err != nil {
			return err
		}
		app := cdkApp{folder: d.scratch, command: fmt.Sprintf("go run -C %q .", infra)}
		var more []string
		if d.pipeline != nil { // it may not have the setting yet
			more = []string{"-c", "@aws-cdk/core:bootstrapQualifier=" + qualifier}
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
		if err := os.WriteFile(filepath.Join(module, "main.tf"),
			[]byte("output \"text\" {\n  value = \"older\"\n}\n"), 0o600); err != nil {
			return err
		}
		_, err = d.run(ctx, checkout, d.pathStyle(), "go", "run", "./scripts/larder", "publish", "module", module,
			d.olderModule(), "1.0.0", "--store", "stack:"+StackName)
		return err
	})
	return stack, err
}

// pathStyle returns the variables, other than AWS's own, that programs need to
// use an emulator of S3.
func (d *deployment) pathStyle() []string {
	if d.Endpoint == "" {
		return nil
	}
	return []string{"LARDER_S3_PATH_STYLE=true"}
}

// bootstrap prepares the account for the CDK, if necessary. In an emulator, it
// also prepares the pipeline that deploys then.
func (d *deployment) bootstrap(ctx context.Context) error {
	if d.Endpoint != "" {
		return d.step("creating the policies of a company, and cdk bootstrap with them", func() (err error) {
			d.pipeline, err = d.preparePipeline(ctx)
			return err
		})
	}
	const toolkit = "CDKToolkit"
	_, err := signedcall.DescribeStack(ctx, d.Account, toolkit)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	if err == nil {
		fmt.Fprintf(d.Out, "cdk bootstrap: not needed, since the stack %s exists\n", toolkit)
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

// bootstrapVersion returns the parameter that has the name of the bootstrap
// version. moto answers an update that relies on its default with 500.
func bootstrapVersion(qualifier string) string {
	return "BootstrapVersion=/cdk-bootstrap/" + qualifier + "/version"
}

func (d *deployment) cdkDeploy(ctx context.Context, app cdkApp, more ...string) error {
	args := append([]string{"deploy", "--require-approval", "never"}, more...)
	of := "hnb659fds"
	if d.pipeline != nil {
		of = qualifier
	}
	if d.Endpoint != "" {
		// moto creates no outputs if a stack is created from a change set.
		args = append(args, "--method", "direct", "--parameters", bootstrapVersion(of))
	}
	return d.cdk(ctx, app, args...)
}

// deploySource deploys the checkout. It may drop the kinds of resources in
// allowDrop.
func (d *deployment) deploySource(ctx context.Context, allowDrop ...string) error {
	// With all resources that `larder doctor --stack` can inspect.
	own := d.settings(map[string]any{"alarms": true, "dashboard": true})
	if d.pipeline != nil {
		maps.Copy(own, d.pipeline.settings)
	}
	maps.Copy(own, d.adopted)
	maps.Copy(own, d.extra)
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
	if d.pipeline == nil {
		return d.cdkDeploy(ctx, app, more...)
	}
	app.env = d.pipeline.env
	if err := d.cdkDeploy(ctx, app, more...); err != nil {
		return fmt.Errorf("%w\ndenied: %s", err, strings.Join(d.pipeline.account.Denied(), "\ndenied: "))
	}
	if err := d.judgeExecution(ctx); err != nil {
		return err
	}
	return d.fillIn(ctx)
}

// alarmEmail is the recipient of alarms in an emulator, which sends no mail.
const alarmEmail = "registry@example.com"

// settings returns the settings of every stack of a rehearsal, and more.
func (d *deployment) settings(more map[string]any) map[string]any {
	all := map[string]any{"stackName": StackName, "architecture": lambda.Architecture()}
	maps.Copy(all, more)
	return all
}

// cdkApp is the CDK app of a checkout. folder is the working directory of cdk
// commands. command runs the app; if empty, cdk.json has the command. env are
// further variables of the commands.
type cdkApp struct {
	folder, command string
	env             []string
}

func (d *deployment) source(own map[string]any) (cdkApp, error) {
	app, err := d.appIn("source")
	if err == nil {
		err = writeSettings(app.folder, own)
	}
	return app, err
}

// appIn returns the checkout's app in a folder with the layout of a checkout.
// This way the app ignores the settings of this checkout.
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

// settingsFile is the name of the settings file.
const settingsFile = "settings.json"

func writeSettings(infra string, own map[string]any) error {
	text, err := json.MarshalIndent(own, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(infra, settingsFile), text, 0o600)
}

func (d *deployment) cdk(ctx context.Context, app cdkApp, args ...string) error {
	out := filepath.Join(d.scratch, "cdk.out")
	if app.command != "" {
		args = append(args, "--app", app.command)
	}
	args = append(args, "--output", out, "--no-version-reporting", "--no-notices", "--ci")
	env := append(d.pathStyle(), "CDK_DISABLE_CLI_TELEMETRY=true", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=1")
	if d.Endpoint != "" {
		// The CDK validates a template against CloudFormation's schemas, which
		// takes as long as the rest of a synthesis. Its warnings are not
		// visible here.
		env = append(env, "CDK_VALIDATION=false")
	}
	env = append(env, app.env...)
	_, err := d.run(ctx, app.folder, env, filepath.Join(d.Checkout, "infra", "node_modules", ".bin", "cdk"), args...)
	return err
}

// open returns a deployed stack in the form that its users have. The caller
// calls done unless there is an error. In an emulator the stack's
// functions run on this machine; in AWS, running is nil. The command line uses
// roles that have only the operators' policies.
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
		Operator: o.operator,
		Lose: func(ctx context.Context, key string) error {
			_, err := d.buckets().DeleteObject(ctx,
				&s3.DeleteObjectInput{Bucket: aws.String(stack.Outputs[settings.OutputBucket]), Key: &key})
			return err
		},
	}
	env := append(d.pathStyle(), "AWS_REGION="+d.Account.Region) // the region may come from a profile
	if d.Endpoint != "" {
		err := d.step("starting the deployed functions behind a local gateway", func() error {
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
		registry.Origin, registry.Nightly, registry.Deliver = running.Origin, running.nightly, running.deliver
		registry.Host, registry.HTTP = running.Gateway.Host, running.Gateway.Client()
		registry.AWS = running.Account.URL
		registry.CAFile = filepath.Join(d.scratch, "ca.pem")
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
	if running != nil && d.key != "" {
		registry.WithoutKey = func(ctx context.Context, do func() error) ([]string, error) {
			set := func(iamDecides bool) error { return d.setKeyPolicy(ctx, d.key, stack.Account, iamDecides) }
			return running.Account.Expect(func() error {
				if err := set(false); err != nil {
					return err
				}
				return errors.Join(do(), set(true))
			})
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
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
			"AWS_PROFILE"} {
			env = append(env, name+"=")
		}
		if registry.CAFile != "" {
			env = append(env, "SSL_CERT_FILE="+registry.CAFile)
		}
		return d.run(ctx, d.scratch, env, filepath.Join(d.scratch, "larder"),
			append(args, "--registry", "https://"+registry.Host)...)
	}
	return registry, running, done, nil
}

// variables returns environment variables with these credentials and no others.
func variables(c aws.Credentials) []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + c.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + c.SecretAccessKey,
		"AWS_SESSION_TOKEN=" + c.SessionToken,
		"AWS_PROFILE=",
	}
}

// use runs the scenarios and the checks with a deployed stack.
func (d *deployment) use(ctx context.Context, stack *Stack) error {
	if d.report != nil {
		d.report.release = stack.Outputs[settings.OutputRelease]
		d.report.hide(stack.Outputs[settings.OutputHost], stack.Outputs[settings.OutputTable],
			stack.Outputs[settings.OutputBucket])
	}
	registry, running, done, err := d.open(ctx, stack)
	if err != nil {
		return err
	}
	defer done()
	err = d.runScenarios(ctx, stack, registry, running)
	if d.report == nil {
		return err
	}
	return errors.Join(err, d.runChecks(ctx, registry, d.checks(stack)))
}

func (d *deployment) runScenarios(ctx context.Context, stack *Stack, registry *Registry, running *Running) error {
	scenarios := d.Scenarios
	if d.Older != "" {
		scenarios = append([]Scenario{{"a module that the older command line published",
			func(ctx context.Context, r *Registry) error {
				return r.installModule(ctx, d.olderModule(), "1.0.0", "older")
			}}}, scenarios...)
	}
	if d.adopted != nil {
		scenarios = append([]Scenario{{"the restored registry: verify, init", d.restored}}, scenarios...)
	}
	for _, s := range scenarios {
		if err := d.step(s.Name, func() error { return s.Run(ctx, registry) }); err != nil {
			if running != nil {
				return errors.Join(err, running.Wrong())
			}
			return fmt.Errorf("%w\nto see the functions' logs: %s", err, stack.logs())
		}
	}
	if running == nil {
		return nil
	}
	return errors.Join(running.Wrong(), running.Unneeded())
}
