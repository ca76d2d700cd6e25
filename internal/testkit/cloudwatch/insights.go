// Package cloudwatch reads the output of functions like CloudWatch does. It
// evaluates queries of CloudWatch Logs Insights and patterns of subscriptions,
// and reads metrics in the Embedded Metric Format.
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

// Insights evaluates queries of CloudWatch Logs Insights on log lines, instead
// of emulators that cannot. It supports only the commands of the queries in the
// documentation, and rejects all others.
//
// Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/CWL_QuerySyntax.html.
type Insights struct {
	// Lines returns the lines of a log group. ok is false if the group does not
	// exist.
	Lines func(group string) ([]string, bool)
	// Statuses are the statuses that a query has before it is complete, in
	// order.
	Statuses []string

	mu      sync.Mutex
	queries []*query
}

type query struct {
	rows     [][]map[string]string
	statuses []string
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
		i.queries = append(i.queries, &query{rows, slices.Clone(i.Statuses)})
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
		if len(q.statuses) > 0 {
			status, q.statuses = q.statuses[0], q.statuses[1:]
		}
		out := map[string]any{"status": status, "results": [][]map[string]string{}}
		if status == "Complete" && q.rows != nil {
			out["results"] = q.rows
		}
		_ = json.NewEncoder(w).Encode(out)
	default:
		fail("UnknownOperationException", action)
	}
}

// The supported parts of a query.
var (
	queryForm = regexp.MustCompile(`^filter (.+) \| stats count\(\*\) as (\w+), max\(@timestamp\) as (\w+) by (.+) ` +
		`\| sort (\w+) desc \| limit (\d+)$`)
	equalForm = regexp.MustCompile(`^(\w+) = "([^"]*)"$`)
	inForm    = regexp.MustCompile(`^(\w+) in \[(.*)\]$`)
	thereForm = regexp.MustCompile(`^ispresent\((\w+)\)$`)
)

// evaluate returns the result of a query: rows with the fields that have a
// value.
func evaluate(text string, lines []string, from, to time.Time) ([][]map[string]string, error) {
	form := queryForm.FindStringSubmatch(strings.Join(strings.Fields(text), " "))
	if form == nil {
		return nil, fmt.Errorf("unsupported query: %s", text)
	}
	by := strings.Split(form[4], ", ")
	limit, err := strconv.Atoi(form[6])
	if err != nil || form[5] != form[2] {
		return nil, fmt.Errorf("unsupported query: %s", text)
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
		wanted, err := meets(form[1], event)
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
		rows = append(rows, append(row, map[string]string{"field": form[2], "value": strconv.Itoa(g.count)},
			map[string]string{"field": form[3], "value": strconv.FormatInt(g.last.UnixMilli(), 10)}))
	}
	return rows, nil
}

func meets(conditions string, event map[string]any) (bool, error) {
	for condition := range strings.SplitSeq(conditions, " and ") {
		equal, in := equalForm.FindStringSubmatch(condition), inForm.FindStringSubmatch(condition)
		there := thereForm.FindStringSubmatch(condition)
		switch {
		case equal != nil:
			if field(event, equal[1]) != equal[2] {
				return false, nil
			}
		case in != nil:
			if values := strings.Split(strings.ReplaceAll(in[2], `"`, ""), ", "); !slices.Contains(values,
				field(event, in[1])) {
				return false, nil
			}
		case there != nil:
			if field(event, there[1]) == "" {
				return false, nil
			}
		default:
			return false, fmt.Errorf("unsupported condition: %s", condition)
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
