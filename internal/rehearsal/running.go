package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/iam"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/web"
)

// Running is a deployed stack that runs on this machine. The functions run
// their deployed code with their environment and their roles, behind a gateway
// with the deployed routes.
type Running struct {
	// Gateway receives the clients' requests.
	Gateway *lambda.Gateway
	// Account receives the functions' AWS requests.
	Account *Account
	// Origin is a registry whose providers and modules the functions can fetch.
	Origin *Origin

	api       *lambda.API // has the function that fetches providers
	stack     *Stack
	functions map[string]*lambda.Function
	metrics   map[string]string // the namespaces of their metrics
	roles     map[string]*iam.Role
	logGroups map[string]string
	delivered map[string]int // the numbers of lines that were sent to the function that counts, by log group
}

// Run starts the stack's functions, which store their data in the emulator at a
// URL. It unpacks their code below dir. The operators get their policies. The
// caller closes the result.
func (s *Stack) Run(ctx context.Context, emulator, dir string, o operators) (*Running, error) {
	roles, operator, withdraw, err := s.Roles()
	if err != nil {
		return nil, err
	}
	account, err := StartAccount(ctx, emulator, s.Account, s.Region)
	if err != nil {
		return nil, err
	}
	r := &Running{
		Account: account, stack: s, functions: make(map[string]*lambda.Function),
		metrics: make(map[string]string), roles: roles, logGroups: make(map[string]string), delivered: make(map[string]int),
	}
	account.Alarms, account.API = s.Alarms, s.API
	account.Admit(o.operator.AccessKeyID, "the operator's policy", operator)
	// An adopted table or bucket can have another key than the stack's, but has none in
	// the emulator.
	_ = operator.Judge(iam.Call{Action: "kms:DescribeKey", Resource: account.ARN("kms", "key/0")})
	account.Admit(o.withdraw.AccessKeyID, "the withdraw policy", withdraw, operator)
	r.Origin = StartOrigin(ctx, dir)
	r.api = lambda.StartAPI(ctx, lambda.APIOptions{
		Region: s.Region, Functions: r.invoked(s, dir), Permit: r.permit, RetryWait: time.Millisecond,
	})
	for _, name := range slices.Sorted(maps.Keys(s.Functions)) {
		f := s.Functions[name]
		r.logGroups[name] = f.LogGroup
		r.metrics[name] = settings.MetricsNamespace(func(name string) string { return f.Environment[name] })
		if name == pullName { // it starts with its first event
			continue
		}
		env := r.environment(name, f)
		if err := r.start(ctx, name, f, env, filepath.Join(dir, name)); err != nil {
			r.Close()
			return nil, fmt.Errorf("function %s: %w", name, err)
		}
	}
	routes := make(map[string]lambda.Target)
	for key, name := range s.Routes {
		routes[key] = r.functions[name]
	}
	r.Gateway = lambda.StartGateway(routes)
	return r, nil
}

// pullName is the name of the function that fetches providers. It has no route,
// and runs in several processes.
const pullName = "pull"

func (r *Running) environment(name string, f *StackFunction) map[string]string {
	env := map[string]string{
		"AWS_ENDPOINT_URL": r.Account.URL, "AWS_REGION": r.stack.Region, "LARDER_S3_PATH_STYLE": "true",
		"AWS_ENDPOINT_URL_LAMBDA": r.api.URL,
		// Credentials in the form of a role's.
		"AWS_ACCESS_KEY_ID": r.Account.Add("function "+name, r.roles[name]), "AWS_SESSION_TOKEN": "rehearsal-session",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(f.MemoryMiB),
	}
	maps.Copy(env, f.Environment)
	return env
}

// invoked returns the functions that other functions invoke. Their processes
// trust the origin, and share no temporary folder.
func (r *Running) invoked(s *Stack, dir string) map[string]lambda.Deployed {
	f := s.Functions[pullName]
	if f == nil { // a read-only copy
		return nil
	}
	r.logGroups[pullName] = f.LogGroup
	r.metrics[pullName] = settings.MetricsNamespace(func(name string) string { return f.Environment[name] })
	started := 0
	var mu sync.Mutex
	var env map[string]string
	return map[string]lambda.Deployed{f.Name: {
		Concurrency: 4,
		Start: func(ctx context.Context) (*lambda.Function, error) {
			mu.Lock()
			defer mu.Unlock()
			if env == nil {
				env = r.environment(pullName, f)
			}
			started++
			own := filepath.Join(dir, pullName+strconv.Itoa(started))
			if err := os.MkdirAll(own, 0o700); err != nil {
				return nil, err
			}
			binary, err := f.Unpack(own)
			if err != nil {
				return nil, err
			}
			variables := maps.Clone(env)
			variables["SSL_CERT_FILE"] = filepath.Join(own, "ca.pem")
			maps.Copy(variables, settings.Pull{Folder: filepath.Join(own, "temporary"), Release: "rehearsal"}.Environment())
			if err := r.Origin.writeCAs(variables["SSL_CERT_FILE"]); err != nil {
				return nil, err
			}
			return lambda.StartFunction(ctx, pullName, binary, variables, f.Timeout)
		},
	}}
}

// permit returns an error if the principal with an access key may not invoke a
// function.
func (r *Running) permit(accessKey, function string) error {
	return r.Account.Judge(accessKey, iam.Call{
		Action: "lambda:InvokeFunction", Resource: r.Account.ARN("lambda", "function:"+function),
	})
}

// nightly sends the event of the nightly rule to the function that fetches
// providers, and waits until no work is left.
func (r *Running) nightly(ctx context.Context) error {
	r.api.Wait()
	processes := r.api.Processes(r.stack.Functions[pullName].Name)
	if len(processes) == 0 {
		return errors.New("nothing has invoked the function " + pullName)
	}
	_, err := processes[0].Invoke(ctx, json.RawMessage(r.stack.Functions[pullName].Nightly))
	return err
}

// logs returns what each function has logged, by its name.
func (r *Running) logs() map[string]string {
	logs := make(map[string]string)
	for name, f := range r.functions {
		logs[name] = f.Log()
	}
	if pull := r.stack.Functions[pullName]; pull != nil {
		for _, f := range r.api.Processes(pull.Name) {
			logs[pullName] += f.Log()
		}
	}
	return logs
}

// logged returns a function's log lines by its log group.
func (r *Running) logged(group string) ([]string, bool) {
	logs := r.logs()
	for name, at := range r.logGroups {
		if strings.HasSuffix(at, ":log-group:"+group) {
			return strings.Split(logs[name], "\n"), true
		}
	}
	return nil, false
}

// usageName is the name of the function that counts downloads.
const usageName = "usage"

// deliver invokes the function that counts as CloudWatch does, for the lines
// that were logged since its last call.
func (r *Running) deliver(ctx context.Context) error {
	counts := r.stack.Functions[usageName]
	if counts == nil { // a read-only copy
		return nil
	}
	for group, pattern := range counts.Subscribed {
		lines, found := r.logged(group)
		if !found {
			return fmt.Errorf("no function logs to %s", group)
		}
		complete := len(lines) - 1 // the last one has no end
		more := lines[r.delivered[group]:complete]
		r.delivered[group] = complete
		event, err := cloudwatch.Subscribed(pattern, group, time.Now(), more)
		if err != nil {
			return err
		}
		if event == nil {
			continue
		}
		if _, err := r.functions[usageName].Invoke(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

func (r *Running) start(ctx context.Context, name string, f *StackFunction, env map[string]string, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	binary, err := f.Unpack(dir)
	if err != nil {
		return err
	}
	started, err := lambda.StartFunction(ctx, name, binary, env, f.Timeout)
	if err == nil {
		r.functions[name] = started
	}
	return err
}

// Close stops the functions and the gateway.
func (r *Running) Close() {
	if r.Gateway != nil {
		r.Gateway.Close()
	}
	for _, f := range r.functions {
		f.Close()
	}
	r.api.Close()
	r.Origin.Close()
	r.Account.Close()
}

// Wrong returns the faults behind the gateway, one line each. A client only
// sees that a request fails.
func (r *Running) Wrong() error {
	wrong := r.Account.Denied()
	for _, failure := range r.Gateway.Failures() {
		wrong = append(wrong, failure.Error())
	}
	for _, dropped := range r.api.Dropped() {
		wrong = append(wrong, fmt.Sprintf("function %s failed for %s: %v", dropped.Function, dropped.Payload, dropped.Err))
	}
	for name, log := range r.logs() {
		if _, err := cloudwatch.ReadMetrics(r.metrics[name], log); err != nil {
			wrong = append(wrong, fmt.Sprintf("function %s writes metrics that CloudWatch would reject: %v", name, err))
		}
		for line := range strings.SplitSeq(log, "\n") {
			if strings.Contains(line, `"level":"ERROR"`) {
				wrong = append(wrong, fmt.Sprintf("function %s logged %s", name, line))
			}
		}
	}
	for _, request := range r.requests() {
		unknown := request.Route == "" && request.Status == http.StatusNotFound
		if text := request.Method + " " + request.Path; unknown && text != nowhere {
			wrong = append(wrong, "no function has a route for "+text)
		}
	}
	return lines(wrong)
}

// lines returns one error with all texts, sorted and without duplicates.
func lines(texts []string) error {
	slices.Sort(texts)
	var errs []error
	for _, text := range slices.Compact(texts) {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// Unneeded returns an error with the permissions and the routes that no request
// needed.
func (r *Running) Unneeded() error {
	var wrong []string
	for name, log := range r.logs() {
		// The function that counts logs only failures, and Lambda logs its
		// invocations.
		if log == "" && name != usageName {
			continue
		}
		// Lambda itself needs these permissions when a function logs.
		stream := r.logGroups[name] + ":log-stream:2026/01/01/[$LATEST]0123456789abcdef"
		for _, action := range []string{"logs:CreateLogStream", "logs:PutLogEvents"} {
			if err := r.roles[name].Judge(iam.Call{Action: action, Resource: stream}); err != nil {
				wrong = append(wrong, fmt.Sprintf("function %s: %v", name, err))
			}
		}
	}
	for name, f := range r.stack.Functions {
		if f.Failures == "" {
			continue
		}
		// Lambda itself needs this permission when a request fails.
		calls := []iam.Call{{Action: "sqs:SendMessage", Resource: f.Failures}}
		if key := r.stack.Outputs[settings.OutputKey]; key != "" {
			through := map[string][]string{"kms:ViaService": {"sqs." + r.stack.Region + ".amazonaws.com"}}
			calls = append(calls, iam.Call{Action: "kms:Decrypt", Resource: key, Keys: through},
				iam.Call{Action: "kms:GenerateDataKey", Resource: key, Keys: through})
		}
		for _, c := range calls {
			if err := r.roles[name].Judge(c); err != nil {
				wrong = append(wrong, fmt.Sprintf("function %s: %v", name, err))
			}
		}
	}
	wrong = append(wrong, r.Account.Unused()...)
	for _, key := range r.Gateway.Unasked() {
		wrong = append(wrong, fmt.Sprintf("route %s: no request needs it", key))
	}
	requests := r.requests()
	for _, routes := range [][]httpapi.Route{metadata.Routes(), web.Routes(), publishapi.Routes()} {
		for _, path := range httpapi.Paths(routes) {
			// The log has the page for the path of its Markdown.
			if !strings.HasSuffix(path, ".md") && !slices.ContainsFunc(requests, func(r logged) bool { return r.Route == path }) {
				wrong = append(wrong, fmt.Sprintf("path %s: no request needs it", path))
			}
		}
	}
	return lines(wrong)
}

// logged is a request in the log of a function. Its route is empty if the function
// has none for its path, or did not look for one.
type logged struct {
	Message, Method, Path, Route string
	Status                       int
}

func (r *Running) requests() (all []logged) {
	for _, log := range r.logs() {
		for line := range strings.Lines(log) {
			var request logged
			if json.Unmarshal([]byte(line), &request) == nil && request.Message == "request" {
				all = append(all, request)
			}
		}
	}
	return all
}
