package cloudwatch

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"time"
)

// condition is one condition of a filter pattern: a field has a text, or any
// text.
var condition = regexp.MustCompile(`^\(\$\.(\w+) = "(\*|\w+)"\)$`)

// Matches reports whether a filter pattern selects a line of a log. It supports
// alternatives of fields that have a text, or any text.
//
// Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html.
func Matches(pattern, line string) (bool, error) {
	inner, opened := strings.CutPrefix(pattern, "{ ")
	inner, closed := strings.CutSuffix(inner, " }")
	if !opened || !closed {
		return false, fmt.Errorf("pattern %q: no braces", pattern)
	}
	var fields map[string]any
	isJSON := json.Unmarshal([]byte(line), &fields) == nil
	matches := false
	for alternative := range strings.SplitSeq(inner, " || ") {
		found := condition.FindStringSubmatch(alternative)
		if found == nil {
			return false, fmt.Errorf("pattern %q: unsupported condition %q", pattern, alternative)
		}
		value, isText := fields[found[1]].(string)
		matches = matches || isJSON && isText && (found[2] == "*" || found[2] == value)
	}
	return matches, nil
}

// Subscribed returns the event with which CloudWatch invokes a function for
// lines of a log group that were logged at a time. It is empty if the pattern
// selects none.
//
// Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/SubscriptionFilters.html#LambdaFunctionExample.
func Subscribed(pattern, group string, at time.Time, lines []string) (json.RawMessage, error) {
	type event struct {
		ID        string `json:"id"`
		Timestamp int64  `json:"timestamp"`
		Message   string `json:"message"`
	}
	var events []event
	for i, line := range lines {
		matches, err := Matches(pattern, line)
		if err != nil {
			return nil, err
		}
		if matches {
			sum := fnv.New64a()
			fmt.Fprint(sum, group, i, line)
			events = append(events, event{fmt.Sprintf("%056d", sum.Sum64()), at.UnixMilli(), line})
		}
	}
	if len(events) == 0 {
		return nil, nil
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	err := json.NewEncoder(w).Encode(map[string]any{
		"messageType": "DATA_MESSAGE", "owner": "123456789012", "logGroup": group, "logStream": "2026/01/01/[$LATEST]0",
		"subscriptionFilters": []string{"usage"}, "logEvents": events,
	})
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"awslogs": map[string]any{"data": packed.Bytes()}})
}
