package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
)

// block returns the first bash block of the runbook that contains a text.
func block(t *testing.T, with string) string {
	t.Helper()
	data, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile("(?s)```bash\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
		if strings.Contains(found[1], with) {
			return found[1]
		}
	}
	t.Fatalf("no block has %q", with)
	return ""
}

// The runbook's shell function prints the result of a query over all log groups
// of the stack, once the query is complete.
func TestQueryLogs(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"aws", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the runbook's commands need %s: %v", tool, err)
		}
	}
	const query = `filter message = "request" | stats count(*) as requests, max(@timestamp) as last by route ` +
		`| sort requests desc | limit 9`
	now := time.Now().UTC()
	line := func(route string) string {
		return fmt.Sprintf(`{"timestamp":%q,"message":"request","route":%q}`,
			now.Add(-time.Minute).Format(time.RFC3339), route)
	}
	logs := map[string][]string{"modules-logs": {line("/a"), line("/b c")}, "providers-logs": {line("/a")}}
	for name, test := range map[string]struct {
		statuses []string
		want     []string // the output without the times
		stderr   string
	}{
		"at once": {nil, []string{"/a 2", "/b c 1"}, ""},
		"late":    {[]string{"Scheduled", "Running"}, []string{"/a 2", "/b c 1"}, ""},
		"never":   {[]string{"Running", "Failed"}, nil, "the query is Failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			insights := &cloudwatch.Insights{Statuses: test.statuses, Lines: func(group string) ([]string, bool) {
				lines, ok := logs[group]
				return lines, ok
			}}
			account := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Amz-Target") != "" {
					insights.ServeHTTP(w, r)
					return
				}
				var members strings.Builder
				for _, kind := range [][2]string{{"AWS::Logs::LogGroup", "modules-logs"},
					{"AWS::S3::Bucket", "bucket"}, {"AWS::Logs::LogGroup", "providers-logs"}} {
					fmt.Fprintf(&members, "<member><ResourceType>%s</ResourceType><PhysicalResourceId>%s</PhysicalResourceId>"+
						"</member>", kind[0], kind[1])
				}
				w.Header().Set("Content-Type", "text/xml")
				_, _ = fmt.Fprintf(w, "<ListStackResourcesResponse><ListStackResourcesResult>"+
					"<StackResourceSummaries>%s</StackResourceSummaries></ListStackResourcesResult>"+
					"</ListStackResourcesResponse>", members.String())
			}))
			defer account.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-c", block(t, "query_logs()")+"query_logs '"+query+"'")
			own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
			cmd.Env = append(own, "AWS_ENDPOINT_URL="+account.URL, "AWS_ACCESS_KEY_ID=id",
				"AWS_SECRET_ACCESS_KEY=secret", "AWS_DEFAULT_REGION=eu-central-1",
				"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "NO_PROXY=127.0.0.1")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var got []string
			for row := range strings.Lines(string(out)) {
				parts := strings.Split(strings.TrimSpace(row), "  ")
				got = append(got, strings.Join(parts[:len(parts)-1], " "))
			}
			if !slices.Equal(got, test.want) || stderr.String() != test.stderr || (err == nil) != (test.stderr == "") {
				t.Errorf("output %q, errors %q, %v; want %q and %q", out, &stderr, err, test.want, test.stderr)
			}
		})
	}
}
