package insights_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/pkg/usage/insights"
)

// everything is a catalog that has every version except 9.9.9, and signs
// everything.
type everything struct{}

func (everything) SigningKeys(context.Context, string) ([]registry.SigningKey, error) {
	return nil, nil
}

func (everything) SignGet(context.Context, string) (string, error) {
	return "https://example.com/x", nil
}

// The versions of each kind.
type (
	allModules   struct{}
	allProviders struct{}
	allMirrored  struct{}
)

func (allModules) Listing(context.Context, registry.Module) (protocol.Document, error) {
	return protocol.Compress(protocol.ModuleListing{})
}

func (allModules) Get(_ context.Context, _ registry.Module, v registry.Version) (registry.ModuleVersion, error) {
	if v.Major == 9 {
		return registry.ModuleVersion{}, registry.ErrNotFound
	}
	return registry.ModuleVersion{Version: v, Object: "x"}, nil
}

func (allProviders) Listing(context.Context, registry.Provider) (protocol.Document, error) {
	return protocol.Compress(protocol.ProviderListing{})
}

func (allProviders) Get(_ context.Context, _ registry.Provider, v registry.Version) (registry.ProviderVersion, error) {
	linux := registry.ProviderPackage{Platform: registry.Platform{OS: "linux", Arch: "amd64"}}
	return registry.ProviderVersion{Version: v, Packages: []registry.ProviderPackage{linux}}, nil
}

func (allMirrored) Listing(context.Context, registry.MirrorAddress) (protocol.Document, error) {
	return protocol.Compress(protocol.MirrorListing{})
}

func (allMirrored) Get(
	_ context.Context, _ registry.MirrorAddress, v registry.Version,
) (registry.MirrorVersion, error) {
	if v.Major == 9 {
		return registry.MirrorVersion{}, registry.ErrNotFound
	}
	linux := registry.ProviderPackage{Platform: registry.Platform{OS: "linux", Arch: "amd64"}}
	return registry.MirrorVersion{Version: v, Packages: []registry.MirrorPackage{{ProviderPackage: linux}}}, nil
}

// logged requests paths, each as a caller, and returns what functions log about
// them on Lambda.
func logged(t *testing.T, requests ...string) []string {
	t.Helper()
	var out bytes.Buffer
	served := httpapi.Join(
		httpapi.Service{Routes: modules.Routes(), Handler: modules.New(allModules{}, everything{})},
		httpapi.Service{Routes: providers.Routes(), Handler: providers.New(allProviders{}, everything{}, everything{})},
		httpapi.Service{Routes: mirror.Routes(), Handler: mirror.New(allMirrored{}, everything{}, nil)},
	)
	h := httpapi.Wrap(slog.New(
		slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: lambdacontext.ReplaceAttr}),
	), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if caller := r.Header.Get("Caller"); caller != "" {
			requestlog.From(r.Context()).Caller = caller
		}
		served.ServeHTTP(w, r)
	}))
	for _, request := range requests {
		caller, request, _ := strings.Cut(request, " ")
		method, path, _ := strings.Cut(request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, "/v1/"+path, nil)
		r.Header.Set("Caller", caller)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// logOf returns a log of one group with lines.
func logOf(t *testing.T, in *cloudwatch.Insights, lines ...string) *insights.Log {
	t.Helper()
	in.Lines = func(group string) ([]string, bool) { return lines, group == "requests" }
	server := httptest.NewServer(in)
	t.Cleanup(server.Close)
	return insights.NewLog(awstest.Config(server.URL), 30*24*time.Hour, "requests")
}

func told(downloads []usage.Download) string {
	var all []string
	for _, d := range downloads {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", d.Count, d.Address.Path(), d.Version, d.Caller)))
	}
	return strings.Join(all, ", ")
}

func parse(t *testing.T, address string) registry.Address {
	t.Helper()
	a, err := registry.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Only responses that lead to a package count as downloads.
func TestCount(t *testing.T) {
	t.Parallel()
	lines := logged(t,
		"ci GET modules/acme/vpc/aws/1.2.0/download", "ci GET modules/acme/vpc/aws/1.2.0/download",
		"ada GET modules/acme/vpc/aws/1.2.0/download", "ada GET modules/acme/vpc/aws/1.2/download",
		"ci GET modules/acme/vpc/aws/1.3.0/download",
		" GET providers/acme/inventory/1.2.0/download/linux/amd64",
		"ci GET providers/acme/inventory/1.2.0-rc.1+b/download/linux/amd64",
		"ci GET mirror/registry.example.com/acme/inventory/1.2.0.json",
		// None of these is a download.
		"ci GET modules/acme/vpc/aws/versions", "ci HEAD modules/acme/vpc/aws/1.2.0/download",
		"ci GET modules/acme/vpc/aws/9.9.9/download", "ci GET modules/acme/vpc/aws/x/download",
		"ci GET providers/acme/inventory/versions", "ci GET providers/acme/inventory/1.2.0/download/linux/arm64",
		"ci GET mirror/registry.example.com/acme/inventory/index.json",
		"ci GET mirror/registry.example.com/acme/inventory/x.json",
		"ci GET mirror/registry.example.com/acme/inventory/9.9.9.json", "ci GET nowhere",
	)
	lines = append(lines, `{"time":"x"}`, "START RequestId", `{"message":"request"}`, "")
	// Older than the period of the query.
	lines = append(lines, strings.Replace(lines[0], `"timestamp":"2`, `"timestamp":"1`, 1))
	now := time.Now()
	log := logOf(t, &cloudwatch.Insights{Statuses: []string{"Scheduled"}}, lines...)
	two := registry.Version{Major: 1, Minor: 2}
	for _, test := range []struct {
		address string
		version *registry.Version
		want    string
	}{
		{
			"", nil,
			"4 modules/acme/vpc/aws 1.2.0, 1 mirror/registry.example.com/acme/inventory 1.2.0, 1 modules/acme/vpc/aws " +
				"1.3.0, 1 providers/acme/inventory 1.2.0, 1 providers/acme/inventory 1.2.0-rc.1+b",
		},
		{
			"acme/vpc/aws", nil,
			"2 modules/acme/vpc/aws 1.2.0 ada, 2 modules/acme/vpc/aws 1.2.0 ci, 1 modules/acme/vpc/aws 1.3.0 ci",
		},
		{"acme/vpc/aws", &two, "2 modules/acme/vpc/aws 1.2.0 ada, 2 modules/acme/vpc/aws 1.2.0 ci"},
		{"acme/inventory", nil, "1 providers/acme/inventory 1.2.0, 1 providers/acme/inventory 1.2.0-rc.1+b ci"},
		{"registry.example.com/acme/inventory", &two, "1 mirror/registry.example.com/acme/inventory 1.2.0 ci"},
		{"acme/other/aws", nil, ""},
	} {
		q := usage.Query{Version: test.version, From: now.Add(-time.Hour), To: now.Add(time.Minute)}
		if test.address != "" {
			q.Address = parse(t, test.address)
		}
		report, err := log.Count(t.Context(), q)
		if err != nil || told(report.Downloads) != test.want || report.Cut || !report.From.Equal(q.From) ||
			!report.To.Equal(q.To) {
			t.Errorf("%s %v: %s, %v; want %s", test.address, test.version, told(report.Downloads), err, test.want)
		}
		for _, d := range report.Downloads {
			if d.Last.Before(now.Add(-time.Minute)) || d.Last.After(now.Add(time.Minute)) {
				t.Errorf("%s: the last is of %s", test.address, d.Last)
			}
		}
	}
	// The period is limited to the events that the log still has.
	report, err := log.Count(t.Context(), usage.Query{From: now.AddDate(-1, 0, 0), To: now})
	if err != nil || !report.From.Equal(now.Add(-30*24*time.Hour)) {
		t.Errorf("from %s, %v", report.From, err)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	const want = `filter message = "request" and download = "module" and address = "acme/vpc/aws"
| stats count(*) as downloads, max(@timestamp) as last by download, address, version, caller
| sort downloads desc
| limit 10000`
	if got := insights.Text(usage.Query{Address: parse(t, "acme/vpc/aws")}); got != want {
		t.Error(got)
	}
	if got := insights.Text(usage.Query{}); !strings.Contains(got, "ispresent(download)") || strings.Contains(got, "caller") {
		t.Error(got)
	}
}

// No accepted address can end the quoted text in the query.
func FuzzText(f *testing.F) {
	f.Add("acme/vpc/aws")
	f.Add("registry.example.com/a/b")
	f.Add("a\"\n| limit 1/b/c")
	f.Fuzz(func(t *testing.T, address string) {
		a, err := registry.ParseAddress(address)
		if err != nil {
			return
		}
		text := insights.Text(usage.Query{Address: a})
		if strings.Count(text, `"`) != 2*3 || strings.Count(text, "\n") != 3 || strings.Count(text, "|") != 3 ||
			strings.Contains(text, `\`) {
			t.Error(text)
		}
	})
}

// Each failure of CloudWatch has a sentinel and a hint, and no query continues
// to run.
func TestFailures(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	q := usage.Query{From: time.Now().Add(-time.Hour), To: time.Now()}
	for _, test := range []struct {
		what, action, code string
		statuses           []string
		want               error
		named              string // what the error or its hint names
		stopped            int
	}{
		{
			what: "no permission to ask", action: "StartQuery", code: "AccessDeniedException", want: registry.ErrForbidden,
			named: "logs:StartQuery",
		},
		{
			what: "no permission to read", action: "GetQueryResults", code: "AccessDeniedException",
			want: registry.ErrForbidden, named: "logs:GetQueryResults", stopped: 1,
		},
		{what: "too many queries", action: "StartQuery", code: "LimitExceededException", want: registry.ErrUnavailable},
		{
			what: "a missing log group", action: "StartQuery", code: "ResourceNotFoundException",
			want: registry.ErrNotFound, named: "log group",
		},
		{what: "a query that fails", statuses: []string{"Running", "Failed"}, named: "Failed"},
		{what: "a cancelled query", statuses: []string{"Cancelled"}, named: "Cancelled"},
		{what: "a query that takes too long", statuses: []string{"Timeout"}, named: "Timeout"},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			in := &cloudwatch.Insights{Statuses: test.statuses, Refuse: func(action string) string {
				if action == test.action {
					return test.code
				}
				return ""
			}}
			_, err := logOf(t, in).Count(t.Context(), q)
			texts.Error(t, err)
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if shown := fmt.Sprint(err, "\n", registry.Hint(err)); !strings.Contains(shown, test.named) {
				t.Errorf("the error %q does not contain %q", shown, test.named)
			}
			if got := in.Stopped(); got != test.stopped {
				t.Errorf("%d queries were stopped, want %d", got, test.stopped)
			}
		})
	}
	// A throttled request is repeated.
	var asked atomic.Int64
	in := &cloudwatch.Insights{Refuse: func(action string) string {
		if action == "StartQuery" && asked.Add(1) == 1 {
			return "ThrottlingException"
		}
		return ""
	}}
	if report, err := logOf(t, in).Count(t.Context(), q); err != nil || len(report.Downloads) > 0 ||
		report.Downloads == nil {
		t.Errorf("throttled once: %+v, %v", report, err)
	}
	gone := insights.NewLog(awstest.Config("http://127.0.0.1:1"), 0, "requests")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gone.Count(ctx, q); !errors.Is(err, context.Canceled) {
		t.Errorf("a query after an interruption: got %v, want %v", err, context.Canceled)
	}
}

// An interrupted query is stopped.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	in := &cloudwatch.Insights{Statuses: []string{
		"Running", "Running", "Running", "Running", "Running", "Running",
	}, Refuse: func(action string) string {
		if action == "GetQueryResults" {
			cancel()
		}
		return ""
	}}
	if _, err := logOf(t, in).Count(
		ctx, usage.Query{From: time.Now().Add(-time.Hour), To: time.Now()},
	); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if in.Stopped() != 1 {
		t.Errorf("%d queries were stopped", in.Stopped())
	}
}
