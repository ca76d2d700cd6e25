package cloudwatch

import (
	"encoding/xml"
	"net/http"
	"slices"
	"strings"
)

// Alarm is a metric alarm with the properties that determine notifications.
type Alarm struct {
	Name string `xml:"AlarmName"`
	// Actions are the ARNs of the targets that it notifies when it begins, unless
	// its actions are off.
	Actions []string `xml:"AlarmActions>member"`
	Enabled bool     `xml:"ActionsEnabled"`
}

// Alarms answers DescribeAlarms requests with names, instead of emulators that
// cannot. Like CloudWatch, it omits names without an alarm.
type Alarms []Alarm

func (a Alarms) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var names []string
	for key, values := range r.PostForm {
		if strings.HasPrefix(key, "AlarmNames.member.") {
			names = append(names, values...)
		}
	}
	var out struct {
		XMLName xml.Name `xml:"DescribeAlarmsResponse"`
		Found   []Alarm  `xml:"DescribeAlarmsResult>MetricAlarms>member"`
	}
	for _, alarm := range a {
		if slices.Contains(names, alarm.Name) {
			out.Found = append(out.Found, alarm)
		}
	}
	w.Header().Set("Content-Type", "text/xml")
	_ = xml.NewEncoder(w).Encode(out)
}
