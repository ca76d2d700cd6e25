// Package cloudwatch reads what functions print as CloudWatch does: queries of
// CloudWatch Logs Insights, and metrics in the Embedded Metric Format.
package cloudwatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Insights answers queries of CloudWatch Logs Insights from lines of logs, for emulators that cannot. It knows the commands that
// the command line's queries have; any other is refused, never guessed.
//
// Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/CWL_QuerySyntax.html.
type Insights struct {
	// Lines returns what is in a log group, and registry.ErrNotFound's answer, nil and false, where there is no such group.
	Lines func(group string) ([]string, bool)
	// Statuses are those with which a query answers before it is complete, one after the other.
	Statuses []string
	// Refuse returns the code of an error with which an action is answered, or nothing; it may be nil.
	Refuse func(action string) string

	mu      sync.Mutex
	queries []*query
	hold    chan struct{} // closed when a query is held
}

// HoldNext has the next query run until it is stopped. The channel is closed
// when somebody waits for its results.
func (i *Insights) HoldNext() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hold = make(chan struct{})
	return i.hold
}

type query struct {
	rows     [][]map[string]string
	statuses []string
	held     chan struct{} // nil, or it runs until it is stopped
	seen     sync.Once     // somebody waits for it
	stopped  bool
}

// Stopped counts the queries that were stopped.
func (i *Insights) Stopped() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	for _, q := range i.queries {
		if q.stopped {
			n++
		}
	}
	return n
}

func (i *Insights) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var in struct {
		LogGroupNames      []string `json:"logGroupNames"`
		QueryString        string   `json:"queryString"`
		StartTime, EndTime int64
		QueryID            string `json:"queryId"`
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	fail := func(code, message string) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": message})
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		fail("SerializationException", err.Error())
		return
	}
	if i.Refuse != nil {
		if code := i.Refuse(action); code != "" {
			fail(code, "refused")
			return
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if action == "StartQuery" {
		var lines []string
		for _, group := range in.LogGroupNames {
			more, there := i.Lines(group)
			if !there {
				fail("ResourceNotFoundException", "Log group '"+group+"' does not exist")
				return
			}
			lines = append(lines, more...)
		}
		rows, err := evaluate(in.QueryString, lines, time.Unix(in.StartTime, 0), time.Unix(in.EndTime, 0))
		if err != nil {
			fail("MalformedQueryException", err.Error())
			return
		}
		i.queries = append(i.queries, &query{rows: rows, statuses: slices.Clone(i.Statuses), held: i.hold})
		i.hold = nil
		_ = json.NewEncoder(w).Encode(map[string]string{"queryId": strconv.Itoa(len(i.queries) - 1)})
		return
	}
	at, err := strconv.Atoi(in.QueryID)
	if err != nil || at < 0 || at >= len(i.queries) {
		fail("ResourceNotFoundException", "there is no such query")
		return
	}
	q := i.queries[at]
	switch action {
	case "GetQueryResults":
		status := "Complete"
		switch {
		case q.held != nil:
			status = "Running"
			q.seen.Do(func() { close(q.held) })
		case len(q.statuses) > 0:
			status, q.statuses = q.statuses[0], q.statuses[1:]
		}
		out := map[string]any{"status": status, "results": [][]map[string]string{}}
		if status == "Complete" && q.rows != nil {
			out["results"] = q.rows
		}
		_ = json.NewEncoder(w).Encode(out)
	case "StopQuery":
		q.stopped = true
		_ = json.NewEncoder(w).Encode(map[string]bool{"success": true})
	default:
		fail("UnknownOperationException", action)
	}
}

// The parts of a query that are known.
var (
	queryForm = regexp.MustCompile(`^filter (.+) \| stats count\(\*\) as (\w+), max\(@timestamp\) as (\w+) by (.+) \| sort (\w+) desc \| limit (\d+)$`)
	equalForm = regexp.MustCompile(`^(\w+) = "([^"]*)"$`)
	inForm    = regexp.MustCompile(`^(\w+) in \[(.*)\]$`)
	thereForm = regexp.MustCompile(`^ispresent\((\w+)\)$`)
)

// evaluate answers a query: rows of fields with their values, those without a value left out.
func evaluate(text string, lines []string, from, to time.Time) ([][]map[string]string, error) {
	form := queryForm.FindStringSubmatch(strings.Join(strings.Fields(text), " "))
	if form == nil {
		return nil, fmt.Errorf("a query that it does not know: %s", text)
	}
	by := strings.Split(form[4], ", ")
	limit, err := strconv.Atoi(form[6])
	if err != nil || form[5] != form[2] {
		return nil, fmt.Errorf("a query that it does not know: %s", text)
	}
	type group struct {
		values []string
		count  int
		last   time.Time
	}
	groups := make(map[string]*group)
	for _, line := range lines {
		var event map[string]any
		if json.Unmarshal([]byte(line), &event) != nil {
			continue
		}
		at, err := time.Parse(time.RFC3339, fmt.Sprint(event["timestamp"]))
		if err != nil || at.Before(from) || at.After(to.Add(time.Second)) {
			continue
		}
		wanted, err := holds(form[1], event)
		if err != nil {
			return nil, err
		}
		if !wanted {
			continue
		}
		var values []string
		for _, name := range by {
			values = append(values, field(event, name))
		}
		key := strings.Join(values, "\n")
		if groups[key] == nil {
			groups[key] = &group{values: values}
		}
		g := groups[key]
		g.count++
		if at.After(g.last) {
			g.last = at
		}
	}
	var all []*group
	for _, g := range groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int { return b.count - a.count })
	var rows [][]map[string]string
	for _, g := range all[:min(limit, len(all))] {
		var row []map[string]string
		for i, name := range by {
			if g.values[i] != "" {
				row = append(row, map[string]string{"field": name, "value": g.values[i]})
			}
		}
		rows = append(rows, append(row, map[string]string{"field": form[2], "value": strconv.Itoa(g.count)}, map[string]string{"field": form[3], "value": strconv.FormatInt(g.last.UnixMilli(), 10)}))
	}
	return rows, nil
}

// holds says whether an event meets all conditions.
func holds(conditions string, event map[string]any) (bool, error) {
	for condition := range strings.SplitSeq(conditions, " and ") {
		equal, in, there := equalForm.FindStringSubmatch(condition), inForm.FindStringSubmatch(condition), thereForm.FindStringSubmatch(condition)
		switch {
		case equal != nil:
			if field(event, equal[1]) != equal[2] {
				return false, nil
			}
		case in != nil:
			if values := strings.Split(strings.ReplaceAll(in[2], `"`, ""), ", "); !slices.Contains(values, field(event, in[1])) {
				return false, nil
			}
		case there != nil:
			if field(event, there[1]) == "" {
				return false, nil
			}
		default:
			return false, fmt.Errorf("a condition that it does not know: %s", condition)
		}
	}
	return true, nil
}

func field(event map[string]any, name string) string {
	if event[name] == nil {
		return ""
	}
	return fmt.Sprint(event[name])
}
