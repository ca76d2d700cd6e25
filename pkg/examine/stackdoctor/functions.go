package stackdoctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
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
	configuration signedcall.Function
	// compared reports whether all of its settings were compared.
	compared bool
	// problems are the problems that were found.
	problems []problem
}

type problem struct{ result, fix string }

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

func (e *examination) functions(ctx context.Context) {
	names, digests := pairs(e.outputs[settings.OutputFunctions]), pairs(e.outputs[settings.OutputFunctionCode])
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c := call{"function " + name, "lambda:GetFunctionConfiguration", names[name]}
		configuration, err := signedcall.GetFunctionConfiguration(ctx, e.Services.Config, names[name])
		switch {
		case code(err) == "ResourceNotFoundException":
			e.wrong(c.step, c.String(), "the function "+names[name]+" does not exist", revert)
			continue
		case err != nil:
			e.failed(c, err)
			continue
		}
		f := &function{call: c, configuration: configuration}
		f.deployed(digests[name], e.redeploy(name, names[name], digests[name], configuration.Architectures))
		e.compare(ctx, f)
		e.reportFunction(f)
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
	if at, err := time.Parse(modified, c.LastModified); err == nil && at.Sub(e.changed) > deployLimit {
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
	case c.State == "Pending" || c.LastUpdateStatus == "InProgress":
		e.warn(f.call.step, f.call.String(), "it is being updated", "run the command again when the update is done")
	case f.compared:
		e.ok(f.call.step, "it runs the deployed code with the stack's settings")
	default:
		e.ok(f.call.step, "it runs the deployed code; its settings were not compared")
	}
}

// redeploy returns how to restore a function's code. CloudFormation does not
// restore it if the template is the same. It cannot read a function's code, so
// --revert-drift does not notice a change of it either.
func (e *examination) redeploy(name, physical, digest string, on []string) string {
	architecture := "arm64" // Larder's default, not Lambda's
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
	if c.State == "Failed" {
		f.report("it cannot run: "+c.StateReason, deployAgain)
	}
	if c.LastUpdateStatus == "Failed" {
		f.report("its last update failed: "+c.LastUpdateStatusReason, deployAgain)
	}
	if digest != "" && c.CodeSha256 != digest {
		f.report(
			fmt.Sprintf(
				"its code is not what the stack deployed: the digest is %s instead of %s",
				c.CodeSha256,
				digest,
			),
			redeploy,
		)
	}
}

// compare reports where a function differs from the stack's template. A value
// that cannot be resolved is not compared.
func (e *examination) compare(ctx context.Context, f *function) {
	if e.template == nil {
		return
	}
	r, found := e.template.function(f.call.resource)
	if !found {
		return
	}
	f.compared = true
	for _, s := range e.settings(ctx, f) {
		want, known := e.template.text(r.at(s.property...))
		if want = cmp.Or(want, s.absent); known && want != "" && s.has != want {
			f.report(fmt.Sprintf("its %s is %s, but the stack's template has %s", s.what, shown(s.has), shown(want)), revert)
		}
	}
	e.environment(f, r)
}

// setting is a setting of a function.
type setting struct {
	what, has string
	// absent is the value if the template has none. If empty, the value is then
	// not compared.
	absent string
	// property is the path of the setting in the template.
	property []string
}

func (e *examination) settings(ctx context.Context, f *function) []setting {
	c := f.configuration
	var layers []string
	for _, l := range c.Layers {
		layers = append(layers, l.Arn)
	}
	all := []setting{
		{"role", c.Role, "", []string{"Role"}},
		{"memory in MiB", strconv.Itoa(c.MemorySize), "128", []string{"MemorySize"}},
		{"timeout in seconds", strconv.Itoa(c.Timeout), "3", []string{"Timeout"}},
		{"architecture", strings.Join(c.Architectures, ","), "x86_64", []string{"Architectures"}},
		{"runtime", c.Runtime, "", []string{"Runtime"}},
		{"handler", c.Handler, "", []string{"Handler"}},
		{"list of layers", cmp.Or(strings.Join(layers, ","), "none"), "none", []string{"Layers"}},
	}
	if l := c.LoggingConfig; l != nil { // an emulator may not have it
		all = append(all, setting{"log group", l.LogGroup, "", []string{"LoggingConfig", "LogGroup"}})
	}
	if s := c.EphemeralStorage; s != nil {
		all = append(all, setting{"storage in MiB", strconv.Itoa(s.Size), "512", []string{"EphemeralStorage", "Size"}})
	}
	reads := call{f.call.step + " concurrency", "lambda:GetFunctionConcurrency", f.call.resource}
	concurrency, err := signedcall.GetFunctionConcurrency(ctx, e.Services.Config, f.call.resource)
	if err != nil {
		e.failed(reads, err)
		return all
	}
	reserved := "none"
	if concurrency != nil {
		reserved = strconv.Itoa(*concurrency)
	}
	return append(all, setting{"reserved concurrency", reserved, "none", []string{"ReservedConcurrentExecutions"}})
}

// environment reports each variable that differs from the template. It shows
// only values that the stack set, and only those of Larder, because others may
// be secret.
func (e *examination) environment(f *function, r resource) {
	has := make(map[string]string)
	if c := f.configuration.Environment; c != nil {
		if c.Error != nil {
			f.report(
				"its environment cannot be read: "+c.Error.Message,
				"allow these credentials to use the key that encrypts the function's environment",
			)
			return
		}
		has = c.Variables
	}
	variables, _ := r.at("Environment", "Variables").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if _, set := variables[name]; !set {
			f.report("its variable "+name+" is not in the stack's template", revert)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		want, known := e.template.text(variables[name])
		value, set := has[name]
		short, shortWant := shown(value), shown(want)
		switch {
		case !set:
			f.report("its variable "+name+" of the stack's template is missing", revert)
		case !known || value == want:
		case strings.HasPrefix(name, "LARDER_") && short != shortWant:
			f.report(fmt.Sprintf("its variable %s is %s, but the stack's template has %s", name, short, shortWant), revert)
		default:
			f.report("its variable "+name+" differs from the stack's template", revert)
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
