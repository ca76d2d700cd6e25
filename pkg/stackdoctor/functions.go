package stackdoctor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/settings"
)

// deployLimit is longer than any deploy takes. A function that changed later
// was not changed by the deploy.
const deployLimit = time.Hour

// modified is the format of Lambda's LastModified.
const modified = "2006-01-02T15:04:05.999-0700"

// function is an existing function.
type function struct {
	call          call
	configuration *lambda.GetFunctionConfigurationOutput
	environment   map[string]string
	// otherAccess reports whether its access settings differ from the stack's.
	otherAccess bool
	// problems are the problems that were found.
	problems []problem
}

type problem struct{ result, fix string }

func (f *function) getenv(name string) string { return f.environment[name] }

func (f *function) report(result, fix string) { f.problems = append(f.problems, problem{result, fix}) }

// pairs parses an output of the form NAME=VALUE,NAME=VALUE.
func pairs(text string) map[string]string {
	all := make(map[string]string)
	for pair := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			all[name] = value
		}
	}
	return all
}

// functions examines each function, and the settings that all must share.
func (e *examination) functions(ctx context.Context) {
	names, digests := pairs(e.outputs[settings.OutputFunctions]), pairs(e.outputs[settings.OutputFunctionCode])
	if len(names) == 0 {
		e.unknown(
			"functions",
			"",
			"cannot check functions: the stack does not name them, because it has an older release",
			deployAgain,
		)
		return
	}
	there := make(map[string]*function)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c := call{"function " + name, "lambda:GetFunctionConfiguration", names[name]}
		out, err := e.Services.Functions.GetFunctionConfiguration(
			ctx,
			&lambda.GetFunctionConfigurationInput{FunctionName: aws.String(names[name])},
		)
		switch {
		case code(err) == "ResourceNotFoundException":
			e.wrong(c.step, c.String(), "the function "+names[name]+" does not exist", revert)
			continue
		case err != nil:
			e.failed(c, err)
			continue
		}
		f := &function{call: c, configuration: out, environment: map[string]string{}}
		if out.Environment != nil {
			f.environment = out.Environment.Variables
		}
		there[name] = f
		f.deployed(digests[name], e.redeploy(name, names[name], digests[name], out.Architectures))
		e.configured(name, f)
	}
	e.agree(there)
	for _, name := range slices.Sorted(maps.Keys(there)) {
		e.reportFunction(there[name])
	}
}

// reportFunction adds a step for each problem of a function, or one if there
// are none. A change by hand without other problems is a warning.
func (e *examination) reportFunction(f *function) {
	for _, p := range f.problems {
		e.wrong(f.call.step, f.call.String(), p.result, p.fix)
	}
	if len(f.problems) > 0 {
		return
	}
	c := f.configuration
	text := aws.ToString(c.LastModified)
	if at, err := time.Parse(modified, text); err == nil && at.Sub(e.changed) > deployLimit {
		e.warn(
			f.call.step,
			f.call.String(),
			fmt.Sprintf(
				"it was changed on %s, after the last deploy on %s",
				at.UTC().Format(time.RFC3339),
				e.changed.UTC().Format(time.RFC3339),
			),
			revert,
		)
		return
	}
	switch {
	case c.State == types.StatePending || c.LastUpdateStatus == types.LastUpdateStatusInProgress:
		e.warn(f.call.step, f.call.String(), "it is being updated", "run the command again when the update is done")
	default:
		e.ok(f.call.step, "it runs the deployed code with the stack's settings")
	}
}

// redeploy returns how to restore a function's code. CloudFormation does not
// restore it if the template is the same. It cannot read a function's code, so
// --revert-drift does not notice a change of it either.
func (e *examination) redeploy(name, physical, digest string, on []types.Architecture) string {
	architecture := types.ArchitectureArm64 // Larder's default, not Lambda's
	if len(on) > 0 {
		architecture = on[0]
	}
	return fmt.Sprintf(
		"find out in CloudTrail who changed it; then deploy another release, or restore the package: in the folder "+
			"infra of the deployed source, which has release %s, run npx cdk synth and "+
			"aws lambda update-function-code --function-name %s --zip-file fileb://../dist/%s-packages/%s.zip; "+
			"the command must return the CodeSha256 %s",
		cmp.Or(e.outputs[settings.OutputRelease], "unknown"),
		physical,
		architecture,
		name,
		digest,
	)
}

// deployed reports problems with the code and the state of a function. redeploy
// is how to restore its code.
func (f *function) deployed(digest, redeploy string) {
	c := f.configuration
	if c.State == types.StateFailed {
		f.report("it cannot run: "+aws.ToString(c.StateReason), deployAgain)
	}
	if c.LastUpdateStatus == types.LastUpdateStatusFailed {
		f.report("its last update failed: "+aws.ToString(c.LastUpdateStatusReason), deployAgain)
	}
	if digest != "" && aws.ToString(c.CodeSha256) != digest {
		f.report(
			fmt.Sprintf(
				"its code is not what the stack deployed: the digest is %s instead of %s",
				aws.ToString(c.CodeSha256),
				digest,
			),
			redeploy,
		)
	}
	if c.Runtime != types.RuntimeProvidedal2023 {
		f.report(fmt.Sprintf("its runtime is %s instead of %s", c.Runtime, types.RuntimeProvidedal2023), revert)
	}
}

// configured reports problems with a function's environment, on its own and
// compared with the stack's outputs.
func (e *examination) configured(name string, f *function) {
	if c := f.configuration.Environment; c != nil && c.Error != nil {
		f.report(
			"its environment cannot be read: "+aws.ToString(c.Error.Message),
			"allow these credentials to use the key that encrypts the function's environment",
		)
		return
	}
	if name == discovery { // it has no table
		if _, err := openid.ParseLogin(settings.Login(f.getenv)); err != nil {
			f.report(err.Error(), revert)
		}
		return
	}
	s, err := settings.FromEnvironment(f.getenv)
	if err != nil {
		f.report(strings.ReplaceAll(err.Error(), "\n", "; "), revert)
	}
	for _, is := range []struct{ what, has, want string }{
		{"table", s.Table, e.outputs[settings.OutputTable]},
		{"bucket", s.Bucket, e.outputs[settings.OutputBucket]},
	} {
		if is.has != "" && is.has != is.want {
			f.report(fmt.Sprintf("its %s is %s, but the stack's is %s", is.what, is.has, is.want), revert)
		}
	}
	digest := e.outputs[settings.OutputAccess]
	f.otherAccess = digest != "" && fmt.Sprintf("%x", sha256.Sum256([]byte(s.Access))) != digest
	switch _, err := access.ParseSettings([]byte(s.Access)); {
	case err != nil:
		f.report(err.Error(), revert)
	case f.otherAccess:
		f.report("its access settings are not what the stack deployed: "+shown(s.Access), revert)
	}
	pull := pairs(e.outputs[settings.OutputFunctions])["pull"]
	if is := settings.PullFunction(f.getenv); name == "mirror" && is != pull {
		f.report(fmt.Sprintf("it fetches providers with the function %s, but the stack's is %s", shown(is), shown(pull)),
			revert)
	}
	if _, err := settings.PublishLimitsFromEnvironment(f.getenv); err != nil {
		f.report(strings.ReplaceAll(err.Error(), "\n", "; "), revert)
	}
}

// discovery is the name of the function that does not use the table or the
// bucket.
const discovery = "discovery"

// agree reports functions whose shared settings differ from those of most
// functions. It ignores functions whose access settings are already reported.
func (e *examination) agree(there map[string]*function) {
	common := map[string]func(name string, f *function) (value string, has bool){
		"lifetime of URLs": func(name string, f *function) (string, bool) {
			s, err := settings.FromEnvironment(f.getenv)
			return s.PresignLifetime.String(), err == nil && name != discovery
		},
		"rule of access": func(name string, f *function) (string, bool) {
			s, _ := settings.FromEnvironment(f.getenv)
			_, err := access.ParseSettings([]byte(s.Access))
			return s.Access, err == nil && !f.otherAccess && name != discovery
		},
		"login": login,
		"namespace of metrics": func(_ string, f *function) (string, bool) {
			return settings.MetricsNamespace(f.getenv), true
		},
		"architecture": func(_ string, f *function) (string, bool) {
			return fmt.Sprint(f.configuration.Architectures), len(f.configuration.Architectures) > 0
		},
	}
	for _, what := range slices.Sorted(maps.Keys(common)) {
		values, count := make(map[string]string), make(map[string]int)
		for name, f := range there {
			if value, has := common[what](name, f); has {
				values[name] = value
				count[value]++
			}
		}
		most := ""
		for _, value := range slices.Sorted(maps.Keys(count)) {
			if most == "" && count[most] == 0 || count[value] > count[most] {
				most = value
			}
		}
		for name, value := range values {
			// The login of other functions is part of their access settings, which are
			// compared already.
			if value != most && (what != "login" || name == discovery) {
				there[name].report(
					fmt.Sprintf("its %s is %s, but that of most functions is %s", what, shown(value), shown(most)),
					revert,
				)
			}
		}
	}
}

// shown shortens a value to fit on a line.
func shown(text string) string {
	const most = 60
	switch {
	case text == "":
		return "none"
	case len(text) > most:
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// login returns the login settings of a function. The function for discovery
// has a variable for them, and others have them in their access settings.
func login(name string, f *function) (value string, has bool) {
	var l *openid.Login
	var err error
	switch {
	case name == discovery:
		l, err = openid.ParseLogin(settings.Login(f.getenv))
	case f.otherAccess:
		return "", false
	default:
		var s settings.Settings
		var parsed access.Settings
		s, _ = settings.FromEnvironment(f.getenv)
		parsed, err = access.ParseSettings([]byte(s.Access))
		l = parsed.Login
	}
	if err != nil || l == nil {
		return "", err == nil
	}
	l.Web = nil // discovery does not have it
	text, err := json.Marshal(l)
	return string(text), err == nil
}
