package logged_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/pkg/usage/logged"
)

var now = time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)

const tokenID = "0123456789ab"

// event returns the event of CloudWatch for lines of the last minutes.
func event(t *testing.T, first int, lines ...string) logged.Event {
	t.Helper()
	type one struct {
		ID        string `json:"id"`
		Timestamp int64  `json:"timestamp"`
		Message   string `json:"message"`
	}
	var all []one
	for i, line := range lines {
		at := now.Add(-time.Duration(i) * time.Minute)
		all = append(all, one{fmt.Sprintf("%056d", first+i), at.UnixMilli(), line})
	}
	return packed(t, map[string]any{
		"messageType": "DATA_MESSAGE", "owner": "123456789012", "logGroup": "larder-modules", "logEvents": all,
	})
}

func packed(t *testing.T, v any) (e logged.Event) {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := errors.Join(json.NewEncoder(w).Encode(v), w.Close()); err != nil {
		t.Fatal(err)
	}
	e.Logs.Data = out.Bytes()
	return e
}

func open(t *testing.T) *catalog.Catalog {
	t.Helper()
	table, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "t.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return catalog.New(table)
}

func counter(store logged.Store) (c *logged.Counter, log *bytes.Buffer) {
	log = &bytes.Buffer{}
	return logged.NewCounter(store, slog.New(slog.NewTextHandler(log, nil)), func() time.Time { return now }), log
}

// count returns the rows of a query of the last 30 days, such as
// "acme/vpc/aws 1.0.0 token ci: 2".
func count(t *testing.T, c *catalog.Catalog, q usage.Query) (rows []string) {
	t.Helper()
	q.From, q.To = now.Add(-30*24*time.Hour), now
	report, err := logged.NewReader(c).Count(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range report.Downloads {
		rows = append(rows, fmt.Sprintf("%s %s %s: %d at %s", d.Address, d.Version, d.Caller, d.Count, d.Last.Format(time.TimeOnly)))
	}
	return rows
}

const vpcLine = `{"message":"request","download":"module","address":"acme/vpc/aws","version":"1.0.0","caller":"token ci"}`

// Lines are counted by version, day and caller. The same batch again changes
// nothing, and lines that no release has logged are ignored.
func TestCount(t *testing.T) {
	t.Parallel()
	published := open(t)
	c, log := counter(published)
	lines := []string{
		vpcLine, vpcLine,
		strings.Replace(vpcLine, "1.0.0", "1.0", 1), strings.Replace(vpcLine, `,"caller":"token ci"`, "", 1),
		`{"message":"request","download":"provider","address":"acme/x","version":"2.0.0+a","token_id":"` + tokenID + `"}`,
		`{"message":"request","download":"mirror","address":"registry.opentofu.org/hashicorp/random","version":"3.0.0"}`,
		`{"message":"request","download":"mirror","address":"registry.opentofu.org/a/vpc/aws","version":"3.0.0"}`,
	}
	for range 2 {
		if _, err := c.Do(t.Context(), event(t, 1, lines...)); err != nil {
			t.Fatal(err)
		}
	}
	ignored := []string{
		"", "{", "null", "[]", "12", `"request"`, strings.Repeat("[", 10_000),
		strings.Replace(vpcLine, "request", "other", 1), strings.Replace(vpcLine, `"module"`, `"modules"`, 1),
		strings.Replace(vpcLine, "acme/vpc/aws", "../totals", 1), strings.Replace(vpcLine, "acme/vpc/aws", "a/b/c/d/e", 1),
		strings.Replace(vpcLine, "1.0.0", "../1.0.0", 1), strings.Replace(vpcLine, "1.0.0", "latest", 1),
		strings.Replace(vpcLine, "acme", "ac\\u0000me", 1), `{"message":"request","token_id":"../../tokens/x"}`,
		`{"message":"request","token_id":"0123456789AB0123456789"}`, `{"message":"request","download":7}`,
	}
	if _, err := c.Do(t.Context(), event(t, 100, ignored...)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"acme/vpc/aws 1.0.0 : 4 at 12:00:00",
		"registry.opentofu.org/a/vpc/aws 3.0.0 : 1 at 11:54:00",
		"registry.opentofu.org/hashicorp/random 3.0.0 : 1 at 11:55:00",
		"acme/x 2.0.0+a : 1 at 11:56:00",
	}
	if diff := cmp.Diff(want, count(t, published, usage.Query{})); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	want = []string{"acme/vpc/aws 1.0.0 token ci: 3 at 12:00:00", "acme/vpc/aws 1.0.0 : 1 at 11:57:00"}
	vpc := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	if diff := cmp.Diff(want, count(t, published, usage.Query{Address: vpc})); diff != "" {
		t.Errorf("of a module (-want +got):\n%s", diff)
	}
	other := registry.Version{Major: 2}
	if rows := count(t, published, usage.Query{Address: vpc, Version: &other}); len(rows) != 0 {
		t.Errorf("of another version: %q", rows)
	}
	uses, err := published.TokenUses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]time.Time{tokenID: now.Add(-4 * time.Minute)}, uses); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	if log.Len() != 0 {
		t.Errorf("logged: %s", log)
	}
}

// Nothing that CloudWatch could send makes the function fail or grow.
func TestUnreadableBatches(t *testing.T) {
	t.Parallel()
	bomb := map[string]any{"logEvents": []any{map[string]any{"message": strings.Repeat("x", 40<<20)}}}
	var many []string
	for i := range 1200 {
		many = append(many, strings.Replace(vpcLine, "1.0.0", fmt.Sprintf("1.0.%d", i), 1))
	}
	for name, test := range map[string]struct {
		event logged.Event
		want  string // in the log
	}{
		"empty":    {logged.Event{}, "cannot read a batch"},
		"no JSON":  {packed(t, "x"), "cannot read a batch"},
		"bomb":     {packed(t, bomb), "more than"},
		"control":  {packed(t, map[string]any{"messageType": "CONTROL_MESSAGE", "logEvents": []any{map[string]any{"message": "CWL"}}}), ""},
		"nothing":  {packed(t, map[string]any{}), ""},
		"too many": {event(t, 1, many...), "dropped=200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &failing{}
			c, log := counter(store)
			if _, err := c.Do(t.Context(), test.event); err != nil {
				t.Errorf("error %v", err)
			}
			if test.want == "" && log.Len() != 0 || !strings.Contains(log.String(), test.want) {
				t.Errorf("logged %q, want %q", log, test.want)
			}
			if store.calls > 1001 {
				t.Errorf("%d calls", store.calls)
			}
		})
	}
}

// failing is a store that fails with err.
type failing struct {
	err   error
	calls int
}

func (f *failing) AddDownloads(context.Context, string, registry.Address, registry.DailyDownloads) error {
	f.calls++
	return f.err
}

func (f *failing) AddTotal(context.Context, string, registry.Address, registry.Downloads) error {
	f.calls++
	return f.err
}

func (f *failing) UseToken(context.Context, string, time.Time) error {
	f.calls++
	return f.err
}

// If the store fails, Lambda tries again.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	store := &failing{err: registry.ErrUnavailable}
	c, _ := counter(store)
	line := vpcLine[:len(vpcLine)-1] + `,"token_id":"` + tokenID + `"}`
	if _, err := c.Do(t.Context(), event(t, 1, line)); !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
	if store.calls != 3 {
		t.Errorf("%d calls, want 3", store.calls)
	}
}

// The pattern selects the lines that count, as the functions log them.
func TestPattern(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		download requestlog.Download
		token    string
		status   int
		want     bool
	}{
		{"a listing", "", "", 200, false},
		{"a download", requestlog.MirrorDownload, "", 204, true},
		{"a failed download", requestlog.ModuleDownload, "", 404, false},
		{"the first use of a token", "", tokenID, 403, true},
	} {
		var log bytes.Buffer
		served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e := requestlog.From(r.Context())
			e.Caller, e.Download, e.Token = "token ci", test.download, test.token
			w.WriteHeader(test.status)
		})
		h := requestlog.Handler(slog.New(slog.NewJSONHandler(&log, nil)), served)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		got, err := cloudwatch.Matches(logged.Pattern(), log.String())
		if err != nil {
			t.Fatal(err)
		}
		if got != test.want {
			t.Errorf("%s: selected %t, want %t: %s", test.name, got, test.want, &log)
		}
	}
	if n := len(logged.Pattern()); n > 1024 {
		t.Errorf("the pattern has %d characters, more than CloudWatch allows", n)
	}
}

// Before the first download, a report covers no time.
func TestNothingCounted(t *testing.T) {
	t.Parallel()
	q := usage.Query{From: now.Add(-time.Hour), To: now}
	report, err := logged.NewReader(open(t)).Count(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	want := usage.Report{From: now, To: now, Retention: registry.DownloadTime, Downloads: []usage.Download{}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
}
