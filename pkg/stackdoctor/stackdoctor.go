// Package stackdoctor examines a deployed registry from inside its AWS account:
// it compares the table, the bucket, the functions, the alarms and the
// certificate of a stack with what the registry needs. It reads configuration
// alone, and changes nothing.
package stackdoctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/doctor"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// Doctor says which stack to examine, and how to read it.
type Doctor struct {
	// Stack is its name, and Region where it is.
	Stack, Region string
	// Services read the account.
	Services Services
	// Release is that of the command line, such as 1.2.3.
	Release string
	// Now may be nil for this machine's clock.
	Now func() time.Time
	// Found gets each step as it is found. It may be nil.
	Found func(doctor.Step)
}

// Report is what an examination found.
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

// examination is one under way.
type examination struct {
	Doctor
	report  Report
	outputs map[string]string
	// account is the number of the stack's account.
	account string
	// changed is when the last deploy began.
	changed time.Time
	ended   func() error
}

// Examine looks at everything that it may read. What it may not read is a step
// with the outcome [doctor.Unknown]. It returns [registry.ErrNotFound] if there
// is no such stack, and fails at the end of ctx.
func (d Doctor) Examine(ctx context.Context) (Report, error) {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Found == nil {
		d.Found = func(doctor.Step) {}
	}
	e := &examination{
		Doctor:  d,
		report:  Report{Stack: d.Stack, Region: d.Region},
		outputs: make(map[string]string),
		ended:   ctx.Err,
	}
	if err := e.examine(ctx); err != nil {
		return Report{}, err
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
	e.functions(ctx)
	e.alarms(ctx)
	e.certificate(ctx)
	return nil
}

func (e *examination) add(o doctor.Outcome, name, tried, seen, do string) {
	if e.ended() != nil {
		return // what was read since then may be the end alone
	}
	s := doctor.Step{Name: name, Outcome: o, Request: tried, Result: seen, Fix: do}
	e.report.Steps = append(e.report.Steps, s)
	e.Found(s)
}

func (e *examination) ok(name, seen string) { e.add(doctor.OK, name, "", seen, "") }
func (e *examination) warn(name, tried, seen, do string) {
	e.add(doctor.Warning, name, tried, seen, do)
}
func (e *examination) wrong(name, tried, seen, do string) { e.add(doctor.Wrong, name, tried, seen, do) }
func (e *examination) skip(name, why string)              { e.add(doctor.Skipped, name, "", why, "") }
func (e *examination) unknown(name, tried, seen, do string) {
	e.add(doctor.Unknown, name, tried, seen, do)
}

// call is one that reads an account.
type call struct {
	// step is the name of the step that needs it.
	step string
	// action is how IAM names it, and resource what it is about.
	action, resource string
}

func (c call) String() string { return c.action + " of " + c.resource }

// denied are the error codes of services for a call that IAM does not allow.
var denied = regexp.MustCompile(
	`^(AccessDenied(Exception)?|AuthorizationError(Exception)?|UnauthorizedOperation|NotAuthorized)$`,
)

// failed adds the step for a call that did not return anything. Nothing is
// known of what it was to read.
func (e *examination) failed(c call, err error) {
	if denied.MatchString(code(err)) {
		e.unknown(
			c.step,
			c.String(),
			fmt.Sprintf("cannot check %s: not allowed to %s", c.step, c.action),
			"attach the policy of the stack's output "+settings.OutputOperatorPolicy+", of this release, to these credentials",
		)
		return
	}
	e.unknown(
		c.step,
		c.String(),
		fmt.Sprintf("cannot check %s: %v", c.step, err),
		"run it again; check the network and the credentials if it stays so",
	)
}

// code returns the code of an error of AWS, or nothing.
func code(err error) string {
	if failed, ok := errors.AsType[smithy.APIError](err); ok {
		return failed.ErrorCode()
	}
	return ""
}

// isNoStack reports whether CloudFormation knows no stack of the name. It has no
// error code of its own for that.
func isNoStack(err error) bool {
	failed, ok := errors.AsType[smithy.APIError](err)
	return ok && failed.ErrorCode() == "ValidationError" && strings.Contains(failed.ErrorMessage(), "does not exist")
}

const deployAgain = "deploy it again with this release: npx cdk deploy"

// revert makes everything as the stack's template has it, which a mere deploy
// of the same template does not.
const revert = "find out in CloudTrail who changed it; then bring it back: npx cdk deploy --revert-drift"

// stack reads the stack itself. Without it nothing else can be found.
func (e *examination) stack(ctx context.Context) (found bool, err error) {
	c := call{"stack", "cloudformation:DescribeStacks", e.Stack}
	described, err := e.Services.Stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &e.Stack})
	if isNoStack(err) || err == nil && len(described.Stacks) != 1 {
		return false, fmt.Errorf("stack %s in region %s: %w: is it another region or account?",
			e.Stack, e.Region, registry.ErrNotFound)
	}
	if err != nil {
		e.failed(c, err)
		return false, nil
	}
	s := described.Stacks[0]
	for _, o := range s.Outputs {
		e.outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	e.changed = aws.ToTime(s.CreationTime)
	if s.LastUpdatedTime != nil {
		e.changed = *s.LastUpdatedTime
	}
	e.account = accountOf(aws.ToString(s.StackId))
	return e.status(c, s), nil
}

// accountOf returns the account in an ARN, if it has one.
func accountOf(arn string) string {
	parsed, err := awsarn.Parse(arn)
	if err != nil {
		return ""
	}
	return parsed.AccountID
}

const readEvents = "read the stack's events in CloudFormation; then "

// status judges the stack's status and its outputs. It reports whether there is
// more to examine: a stack whose first deploy has not succeeded has no outputs.
func (e *examination) status(c call, s types.Stack) (deployed bool) {
	status := fmt.Sprintf("%s, last deployed at %s", s.StackStatus, e.changed.UTC().Format(time.RFC3339))
	var missing []string
	for _, output := range []string{settings.OutputTable, settings.OutputBucket} {
		if e.outputs[output] == "" {
			missing = append(missing, output)
		}
	}
	deployed = len(missing) == 0
	switch text := string(s.StackStatus); {
	case s.StackStatus == types.StackStatusReviewInProgress:
		e.unknown(
			"stack",
			c.String(),
			"cannot check stack: REVIEW_IN_PROGRESS: a change set waits, and nothing is deployed",
			"execute the change set in CloudFormation, or deploy: npx cdk deploy",
		)
	case s.StackStatus == types.StackStatusUpdateRollbackFailed:
		e.wrong(
			"stack",
			c.String(),
			status,
			readEvents+"remove the cause, and run npx cdk rollback, or "+
				"aws cloudformation continue-update-rollback --stack-name "+e.Stack,
		)
	case s.StackStatus == types.StackStatusRollbackComplete:
		e.wrong("stack", c.String(), status+": the first deploy failed", readEvents+deployAgain)
	case strings.HasSuffix(text, "_FAILED"):
		e.wrong("stack", c.String(), status, readEvents+deployAgain)
	case strings.HasSuffix(text, "_IN_PROGRESS") && !deployed:
		e.unknown(
			"stack",
			c.String(),
			"cannot check stack: "+string(s.StackStatus)+": it has no outputs yet",
			"wait for the deploy to end, and run this again",
		)
	case !deployed:
		e.wrong(
			"stack",
			c.String(),
			fmt.Sprintf("%s, without the output %s", status, strings.Join(missing, " and ")),
			"name the stack of a registry; if this is one, "+deployAgain,
		)
	case strings.HasSuffix(text, "_IN_PROGRESS"):
		e.warn("stack", c.String(), status, "wait for the deploy to end, and run this again")
	case strings.HasSuffix(text, "ROLLBACK_COMPLETE"):
		e.warn(
			"stack",
			c.String(),
			status+": the last deploy failed, and the stack is as it was before",
			readEvents+"deploy again",
		)
	default:
		e.ok("stack", status)
	}
	return deployed
}

// plainRelease is a released version, and no build of a commit.
var plainRelease = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)$`)

// release compares the stack's release with the command line's.
func (e *examination) release() {
	deployed, there := e.outputs[settings.OutputRelease]
	stack, own := plainRelease.FindStringSubmatch(deployed), plainRelease.FindStringSubmatch(e.Release)
	switch {
	case !there:
		e.warn("release", "", "the stack does not name its release: it is older than this command line", deployAgain)
	case stack == nil || own == nil:
		e.ok(
			"release",
			fmt.Sprintf(
				"the stack is of %s, and this command line of %s; only releases are compared",
				deployed,
				e.Release,
			),
		)
	case stack[1] != own[1]:
		e.warn(
			"release",
			"",
			fmt.Sprintf("the stack is of release %s, and this command line of %s", stack[1], own[1]),
			"deploy the release of the command line, or use the command line of the stack's release",
		)
	default:
		e.ok("release", "the stack and this command line are of "+stack[1])
	}
}
