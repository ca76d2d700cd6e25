package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/settings"
)

// check is a question that only an AWS account answers. docs/first-deployment.md
// has the same questions.
type check struct {
	name, want string
	// run returns the result, and what it has seen. An error means that the
	// result differs.
	run func(ctx context.Context, r *Registry) (outcome, string, error)
}

// checks returns the checks of a deployed stack, in their order.
func (d *deployment) checks(stack *Stack) []check {
	all := []check{
		{"A plus sign in a path", "204 for + and for %2B, and clients install 1.0.0+a", plusCheck},
		{"%2F in a path", "401 without a token, 403 with another namespace's, and no 5xx with the right one; or 400 for all", slashCheck},
		{"LeadingKeys in a transaction that is allowed", "the publish function publishes", publishCheck},
		{"LeadingKeys in a transaction that is not allowed", "AccessDeniedException", d.deniedCheck(stack)},
		{"Concurrency of the account", "100 or more", d.concurrencyCheck},
	}
	if d.Throttle {
		all = append(all, d.throttleChecks(stack)...)
	}
	return all
}

// runChecks runs all checks, and adds them to the report. Its error names those
// that differ.
func (d *deployment) runChecks(ctx context.Context, r *Registry, checks []check) error {
	var wrong []error
	for _, c := range checks {
		begun := time.Now()
		fmt.Fprintf(d.Out, "checking: %s ...\n", c.name)
		result, seen, err := c.run(ctx, r)
		if err != nil {
			result, seen = differs, err.Error()
		}
		took := time.Since(begun)
		fmt.Fprintf(d.Out, "  %s: %s, %.1f s\n", result, seen, took.Seconds())
		d.report.checks = append(d.report.checks, reportedCheck{c.name, c.want, result, seen, took})
		if result == differs {
			wrong = append(wrong, fmt.Errorf("%s: %s, want %s", c.name, seen, c.want))
		}
	}
	return errors.Join(wrong...)
}

func judge(ok bool) outcome {
	if ok {
		return asExpected
	}
	return differs
}

// plusCheck publishes a version with build metadata, and requests it with both
// spellings of the plus sign.
func plusCheck(ctx context.Context, r *Registry) (outcome, string, error) {
	const version = "1.0.0+a"
	address := r.Namespace + "/plus/null"
	if err := r.publishModule(ctx, address, version, "plus"); err != nil {
		return "", "", err
	}
	token, err := r.readersToken(ctx)
	if err != nil {
		return "", "", err
	}
	ok := true
	var seen []string
	for _, spelling := range []string{version, url.QueryEscape(version)} {
		status, _, err := r.fetch(ctx, "/v1/modules/"+address+"/"+spelling+"/download", token)
		if err != nil {
			return "", "", err
		}
		ok = ok && status == http.StatusNoContent
		seen = append(seen, fmt.Sprintf("%d for %s", status, spelling))
	}
	installed := "clients install it"
	if err := r.installModule(ctx, address, version, "plus"); err != nil {
		ok, installed = false, err.Error()
	}
	return judge(ok), strings.Join(append(seen, installed), ", "), nil
}

// slashCheck requests the versions of the module of [plusCheck] with an escaped
// slash. The status shows which route gets the request.
func slashCheck(ctx context.Context, r *Registry) (outcome, string, error) {
	token, err := r.readersToken(ctx)
	if err != nil {
		return "", "", err
	}
	other, err := r.newToken(ctx, "elsewhere", "read:modules/other/*")
	if err != nil {
		return "", "", err
	}
	var got []int
	for _, credential := range []string{"", other, token} {
		status, _, err := r.fetch(ctx, "/v1/modules/"+r.Namespace+"%2Fplus/null/versions", credential)
		if err != nil {
			return "", "", err
		}
		got = append(got, status)
	}
	route := "another route than the one of modules"
	if got[2] == http.StatusOK {
		route = "the route of modules"
	}
	protected := got[0] == http.StatusUnauthorized && got[1] == http.StatusForbidden && got[2] < 500
	rejected := !slices.ContainsFunc(got, func(status int) bool { return status != http.StatusBadRequest })
	return judge(protected || rejected),
		fmt.Sprintf("%d, %d, %d: %s", got[0], got[1], got[2], route), nil
}

// publishCheck publishes through the publish function, whose role may write only
// some partitions of the table.
func publishCheck(ctx context.Context, r *Registry) (outcome, string, error) {
	namespace := r.Namespace + "-first"
	p, err := r.newPublisher(ctx, "first", "publish:modules/"+namespace+"/**")
	if err != nil {
		return "", "", err
	}
	dir, err := r.folder("output \"text\" {\n  value = \"first\"\n}\n")
	if err != nil {
		return "", "", err
	}
	err = p.larder(ctx, `"status": "published"`, "publish", "module", dir, namespace+"/first/null", "1.0.0", "--json")
	return asExpected, "published", err
}

// deniedCheck writes two items as the operator in one transaction. The
// operator's policy allows only the first one.
func (d *deployment) deniedCheck(stack *Stack) func(context.Context, *Registry) (outcome, string, error) {
	return func(ctx context.Context, r *Registry) (outcome, string, error) {
		config := d.Account.Copy()
		config.Credentials = credentials.StaticCredentialsProvider{Value: r.Operator}
		if r.AWS != "" {
			config.BaseEndpoint = &r.AWS
		}
		table := dynamodb.New(config, stack.Outputs[settings.OutputTable])
		err := table.Write(ctx,
			catalog.Change{Key: catalog.Key{Partition: "catalog/" + r.Namespace, Sort: "rehearsed"}, Data: []byte("{}")},
			catalog.Change{Key: catalog.Key{Partition: "sessions", Sort: "rehearsed"}, Data: []byte("{}")})
		if err == nil {
			return differs, "the transaction succeeded, and left the items rehearsed", nil
		}
		if failed, ok := errors.AsType[smithy.APIError](err); ok {
			return judge(failed.ErrorCode() == "AccessDeniedException"), failed.ErrorCode(), nil
		}
		return "", "", err
	}
}

func (d *deployment) concurrencyCheck(ctx context.Context, _ *Registry) (outcome, string, error) {
	n, err := signedcall.GetAccountConcurrency(ctx, d.Account)
	if failed, ok := errors.AsType[smithy.APIError](err); ok {
		return notChecked, failed.ErrorCode(), nil
	}
	if d.Endpoint != "" && err != nil {
		return notChecked, "the emulator does not return it", nil //nolint:nilerr // it lacks the call
	}
	if err != nil {
		return "", "", err
	}
	return judge(n >= settings.EnoughConcurrency), fmt.Sprint(n), nil
}

// The throttle of the stage while it is checked, in requests. It is low, so that
// few requests reach it from any machine.
const (
	checkedRate, checkedBurst = 100, 200
	// floodRequests is the number of requests that reach it, and floodWorkers
	// is how many of them run at once.
	floodRequests, floodWorkers = 3000, 64
	// alarmWait is how long the alarm may take.
	alarmWait = 2 * time.Minute
)

func (d *deployment) throttleChecks(stack *Stack) []check {
	var flooded time.Time
	return []check{
		{"The throttle", "429 for modules, and none for providers and discovery", func(ctx context.Context, r *Registry) (result outcome, seen string, err error) {
			d.extra = map[string]any{"throttleRate": checkedRate, "throttleBurst": checkedBurst}
			defer func() {
				d.extra = nil
				err = errors.Join(err, d.deploySource(context.WithoutCancel(ctx)))
			}()
			if err := d.deploySource(ctx); err != nil {
				return "", "", err
			}
			if d.Endpoint == "" { // API Gateway applies it after some seconds
				if err := sleep(ctx, 30*time.Second); err != nil {
					return "", "", err
				}
			}
			flooded = time.Now()
			tallies, err := r.flood(ctx)
			if err != nil {
				return "", "", err
			}
			result, seen = readThrottle(tallies)
			if result == notChecked {
				flooded = time.Time{}
			}
			return result, seen, nil
		}},
		{"The alarm of 429", "ALARM within two minutes", func(ctx context.Context, _ *Registry) (outcome, string, error) {
			if flooded.IsZero() {
				return notChecked, "the throttle was not reached", nil
			}
			return d.awaitAlarm(ctx, stack, flooded)
		}},
	}
}

// tally counts the responses of one path.
type tally struct{ sent, throttled, failed int }

func (t tally) share() float64 { return float64(t.throttled) / float64(max(t.sent, 1)) }

func (t tally) String() string {
	return fmt.Sprintf("%d of %d with 429, %d with 5xx", t.throttled, t.sent, t.failed)
}

// These are the paths of a flood. The requests have no token, so that
// functions reject them without reading the table.
const (
	floodModules   = "/v1/modules/rehearsal/absent/null/versions"
	floodProviders = "/v1/providers/rehearsal/absent/versions"
	floodDiscovery = "/.well-known/terraform.json"
)

// flood sends many requests for modules, and few others among them. It returns
// their responses by path.
func (r *Registry) flood(ctx context.Context) (map[string]tally, error) {
	var mu sync.Mutex
	var failed error
	tallies := make(map[string]tally)
	paths := make(chan string)
	var workers sync.WaitGroup
	for range floodWorkers {
		workers.Go(func() {
			for path := range paths {
				status, _, err := r.fetch(ctx, path, "")
				mu.Lock()
				t := tallies[path]
				t.sent++
				switch {
				case err != nil:
					failed = err
				case status == http.StatusTooManyRequests:
					t.throttled++
				case status >= http.StatusInternalServerError:
					t.failed++
				}
				tallies[path] = t
				mu.Unlock()
			}
		})
	}
	for i := range floodRequests {
		switch i % 50 {
		case 0:
			paths <- floodDiscovery
		case 1: // fewer than their own limit
			paths <- floodProviders
		default:
			paths <- floodModules
		}
	}
	close(paths)
	workers.Wait()
	return tallies, failed
}

// readThrottle finds out from the responses to a flood of modules whether other
// routes have buckets of their own.
func readThrottle(tallies map[string]tally) (outcome, string) {
	modules, providers, discovery := tallies[floodModules], tallies[floodProviders], tallies[floodDiscovery]
	result, reading := asExpected, "each route has a bucket of its own"
	switch {
	case modules.share() < 0.05:
		result, reading = notChecked, "the throttle was not reached"
	case discovery.throttled > 0:
		result, reading = differs, "discovery shares a bucket"
	case providers.throttled > 0:
		result, reading = differs, "providers share a bucket"
	}
	return result, fmt.Sprintf("%s. Modules: %s. Providers: %s. Discovery: %s.", reading, modules, providers, discovery)
}

// awaitAlarm waits for the alarm of 429. It reports how long after a flood it
// came.
func (d *deployment) awaitAlarm(ctx context.Context, stack *Stack, flooded time.Time) (outcome, string, error) {
	names := strings.Split(stack.Outputs[settings.OutputAlarms], ",")
	at := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "gateway-429") })
	if at < 0 {
		return differs, "there is no such alarm", nil
	}
	in := url.Values{
		"AlarmName": {names[at]}, "HistoryItemType": {"StateUpdate"}, "StartDate": {flooded.UTC().Format(time.RFC3339)},
	}
	for {
		// The alarm can have ended meanwhile.
		var history struct {
			Items []struct {
				HistorySummary string
				Timestamp      time.Time
			} `xml:"DescribeAlarmHistoryResult>AlarmHistoryItems>member"`
		}
		err := signedcall.Query(ctx, d.Account, signedcall.CloudWatch, "DescribeAlarmHistory", in, &history)
		if err != nil {
			return "", "", err
		}
		for _, item := range history.Items {
			if strings.HasSuffix(item.HistorySummary, "to ALARM") {
				took := item.Timestamp.Sub(flooded)
				return judge(took <= alarmWait), fmt.Sprintf("ALARM after %s", took.Round(time.Second)), nil
			}
		}
		if time.Since(flooded) > 2*alarmWait {
			return differs, fmt.Sprintf("none within %s", 2*alarmWait), nil
		}
		if err := sleep(ctx, 10*time.Second); err != nil {
			return "", "", err
		}
	}
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}
