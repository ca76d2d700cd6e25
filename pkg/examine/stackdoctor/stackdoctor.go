// Package stackdoctor examines a deployed registry from inside its AWS account.
// It compares the functions and the API of a stack with the stack's template.
// It compares the table, the bucket, the alarms, the certificate and the
// account's limits with the requirements of a registry. It reads only
// configuration, and changes nothing.
package stackdoctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// Doctor defines which stack to examine.
type Doctor struct {
	// Stack is the name of the stack, and Region its region.
	Stack, Region string
	// Services read the account.
	Services Services
	// Release is the release of the command line, such as 1.2.3.
	Release string
	// Now returns the time. If nil, [time.Now] is used.
	Now func() time.Time
	// Fatal reports whether the error of a call ends the examination, as one with
	// the credentials does. If nil, none does.
	Fatal func(error) bool
	// Found is called with each step as soon as it is complete. It may be nil.
	Found func(doctor.Step)
}

// Report is the result of an examination.
type Report struct {
	Stack  string        `json:"stack"`
	Region string        `json:"region"`
	Steps  []doctor.Step `json:"steps"`
}

// Count returns how many steps have an outcome.
func (r Report) Count(o doctor.Outcome) (n int) {
	for _, step := range r.Steps {
		if step.Outcome == o {
			n++
		}
	}
	return n
}

// examination is the state of one call of [Doctor.Examine].
type examination struct {
	Doctor
	report  Report
	outputs map[string]string
	// arn is the stack's ARN, with its account.
	arn awsarn.ARN
	// template is nil if it cannot be read.
	template *template
	// changed is the time at which the last deploy began.
	changed time.Time
	// fatal is the error that ended the examination, or nil.
	fatal  error
	ctxErr func() error
}

// Examine performs all steps. If it is not allowed to read something, it adds a
// step with the outcome [doctor.Unknown]. It returns [registry.ErrNotFound] if
// the stack does not exist, and an error if ctx ends or an error is fatal.
func (d Doctor) Examine(ctx context.Context) (Report, error) {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Found == nil {
		d.Found = func(doctor.Step) {}
	}
	e := &examination{
		Doctor: d,
		report: Report{Stack: d.Stack, Region: d.Region},
		ctxErr: ctx.Err,
	}
	if err := e.examine(ctx); err != nil {
		return Report{}, err
	}
	if e.fatal != nil {
		return Report{}, fmt.Errorf("cannot examine stack %s: %w", d.Stack, e.fatal)
	}
	return e.report, ctx.Err()
}

func (e *examination) examine(ctx context.Context) error {
	found, err := e.stack(ctx)
	if err != nil || !found {
		return err
	}
	e.release()
	e.table(ctx)
	e.bucket(ctx)
	e.readTemplate(ctx)
	e.key(ctx)
	e.functions(ctx)
	e.api(ctx)
	e.accountLimits(ctx)
	e.alarms(ctx)
	e.certificate(ctx)
	return nil
}

func (e *examination) add(o doctor.Outcome, name, request, result, fix string) {
	if e.ctxErr() != nil || e.fatal != nil {
		return // the last call may have failed only because the context ended
	}
	s := doctor.Step{Name: name, Outcome: o, Request: request, Result: result, Fix: fix}
	e.report.Steps = append(e.report.Steps, s)
	e.Found(s)
}

func (e *examination) ok(name, result string) { e.add(doctor.OK, name, "", result, "") }
func (e *examination) warn(name, request, result, fix string) {
	e.add(doctor.Warning, name, request, result, fix)
}
func (e *examination) wrong(name, request, result, fix string) {
	e.add(doctor.Wrong, name, request, result, fix)
}
func (e *examination) skip(name, why string) { e.add(doctor.Skipped, name, "", why, "") }
func (e *examination) unknown(name, request, result, fix string) {
	e.add(doctor.Unknown, name, request, result, fix)
}

// call is a request that reads the account.
type call struct {
	// step is the name of the step that needs it.
	step string
	// action is its name in IAM, and resource what it reads.
	action, resource string
}

func (c call) String() string { return c.action + " of " + c.resource }

// denied matches the error codes for a call that IAM does not allow.
var denied = regexp.MustCompile(
	`^(AccessDenied(Exception)?|AuthorizationError(Exception)?|UnauthorizedOperation|NotAuthorized)$`,
)

// failed adds the step for a call that failed. The doctor has no information
// about what the call reads.
func (e *examination) failed(c call, err error) {
	if e.Fatal != nil && e.Fatal(err) {
		e.fatal = err
		return
	}
	if denied.MatchString(code(err)) {
		e.unknown(
			c.step,
			c.String(),
			fmt.Sprintf("cannot check %s: no permission for %s", c.step, c.action),
			"attach the policy in the stack's output "+settings.OutputOperatorPolicy+", from this release, to these credentials",
		)
		return
	}
	e.unknown(
		c.step,
		c.String(),
		fmt.Sprintf("cannot check %s: %v", c.step, err),
		"try again; if it fails again, check the network and the credentials",
	)
}

// code returns the code of an AWS error, or "".
func code(err error) string {
	if failed, ok := errors.AsType[smithy.APIError](err); ok {
		return failed.ErrorCode()
	}
	return ""
}

const deployAgain = "deploy the stack again with this release: npx cdk deploy"

// revert restores everything to the stack's template. Deploying the same
// template again does not do that.
const revert = "find out in CloudTrail who changed it; then revert the change: npx cdk deploy --revert-drift"

// stack reads the stack. All other steps need its outputs.
func (e *examination) stack(ctx context.Context) (found bool, err error) {
	c := call{"stack", "cloudformation:DescribeStacks", e.Stack}
	s, err := signedcall.DescribeStack(ctx, e.Services.Config, e.Stack)
	if errors.Is(err, registry.ErrNotFound) {
		return false, registry.WithHint(fmt.Errorf("cannot find stack %s in region %s: %w",
			e.Stack, e.Region, registry.ErrNotFound), "Check the region and the account of your credentials.")
	}
	if err != nil {
		e.failed(c, err)
		return false, nil
	}
	e.outputs, e.changed = s.Outputs, s.Created
	if s.Updated != nil {
		e.changed = *s.Updated
	}
	e.arn, _ = awsarn.Parse(s.ID) // always valid
	return e.status(c, s.Status), nil
}

const readEvents = "read the stack's events in CloudFormation; then "

// status checks the stack's status and its outputs. It reports whether there is
// more to examine. After a failed first deploy the stack has no outputs.
func (e *examination) status(c call, code string) (deployed bool) {
	status := fmt.Sprintf("%s, last deployed at %s", code, e.changed.UTC().Format(time.RFC3339))
	var missing []string
	for _, output := range []string{
		settings.OutputTable, settings.OutputBucket, settings.OutputRelease, settings.OutputFunctions,
		settings.OutputFunctionCode,
	} {
		if e.outputs[output] == "" {
			missing = append(missing, output)
		}
	}
	deployed = len(missing) == 0
	switch {
	case code == "REVIEW_IN_PROGRESS":
		e.unknown(
			"stack",
			c.String(),
			"cannot check stack: REVIEW_IN_PROGRESS: a change set is waiting, and nothing is deployed",
			"execute the change set in CloudFormation, or deploy: npx cdk deploy",
		)
	case code == "UPDATE_ROLLBACK_FAILED":
		e.wrong(
			"stack",
			c.String(),
			status,
			readEvents+"remove the cause, and run npx cdk rollback or "+
				"aws cloudformation continue-update-rollback --stack-name "+e.Stack,
		)
	case code == "ROLLBACK_COMPLETE":
		e.wrong("stack", c.String(), status+": the first deploy failed", readEvents+deployAgain)
	case strings.HasSuffix(code, "_FAILED"):
		e.wrong("stack", c.String(), status, readEvents+deployAgain)
	case strings.HasSuffix(code, "_IN_PROGRESS") && !deployed:
		e.unknown(
			"stack",
			c.String(),
			"cannot check stack: "+code+": it has no outputs yet",
			"wait until the deploy ends, and run the command again",
		)
	case !deployed:
		e.wrong(
			"stack",
			c.String(),
			fmt.Sprintf("%s; missing outputs: %s", status, strings.Join(missing, ", ")),
			"name the stack of a registry; if this is one, "+deployAgain,
		)
	case strings.HasSuffix(code, "_IN_PROGRESS"):
		e.warn("stack", c.String(), status, "wait until the deploy ends, and run the command again")
	case strings.HasSuffix(code, "ROLLBACK_COMPLETE"):
		e.warn(
			"stack",
			c.String(),
			status+": the last deploy failed, and the stack was rolled back",
			readEvents+"deploy again",
		)
	default:
		e.ok("stack", status)
	}
	return deployed
}

// plainRelease matches a released version, and not the build of a commit.
var plainRelease = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)$`)

func (e *examination) release() {
	deployed := e.outputs[settings.OutputRelease]
	stack, own := plainRelease.FindStringSubmatch(deployed), plainRelease.FindStringSubmatch(e.Release)
	switch {
	case stack == nil || own == nil:
		e.ok(
			"release",
			fmt.Sprintf(
				"the stack has %s and this command line %s; the doctor only compares released versions",
				deployed,
				e.Release,
			),
		)
	case stack[1] != own[1]:
		e.warn(
			"release",
			"",
			fmt.Sprintf("the stack has release %s, but this command line has %s", stack[1], own[1]),
			"deploy the command line's release, or use the command line of the stack's release",
		)
	default:
		e.ok("release", "the stack and this command line have release "+stack[1])
	}
}
