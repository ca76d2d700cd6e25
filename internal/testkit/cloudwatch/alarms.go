package cloudwatch

import (
	"io"
	"net/http"
	"slices"

	"github.com/aws/smithy-go/encoding/cbor"
)

// Alarm is a metric alarm with the properties that determine notifications.
type Alarm struct {
	Name string
	// Actions are the ARNs of the targets that it notifies when it begins.
	Actions []string
	// Muted means that its actions are off.
	Muted bool
}

// DescribeAlarmsPath is the path to which the AWS SDK sends the operation. It
// uses Smithy RPC v2 CBOR, which moto does not support.
const DescribeAlarmsPath = "/service/GraniteServiceVersion20100801/operation/DescribeAlarms"

// AlarmNames returns the names in the body of a DescribeAlarms request.
func AlarmNames(body []byte) ([]string, error) {
	v, err := cbor.Decode(body)
	if err != nil {
		return nil, err
	}
	in, _ := v.(cbor.Map)
	all, _ := in["AlarmNames"].(cbor.List)
	var names []string
	for _, v := range all {
		if name, ok := v.(cbor.String); ok {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// Alarms answers DescribeAlarms requests with names, instead of emulators that
// cannot. Like CloudWatch, it omits names without an alarm.
type Alarms []Alarm

func (a Alarms) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	names, err := AlarmNames(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	found := cbor.List{}
	for _, alarm := range a {
		if !slices.Contains(names, alarm.Name) {
			continue
		}
		actions := cbor.List{}
		for _, action := range alarm.Actions {
			actions = append(actions, cbor.String(action))
		}
		found = append(found, cbor.Map{
			"AlarmName": cbor.String(alarm.Name), "AlarmActions": actions, "ActionsEnabled": cbor.Bool(!alarm.Muted),
		})
	}
	writeCBOR(w, http.StatusOK, cbor.Map{"MetricAlarms": found})
}

// Deny writes CloudWatch's response to a denied request.
func Deny(w http.ResponseWriter) {
	w.Header().Set("X-Amzn-Query-Error", "AccessDenied;Sender")
	writeCBOR(
		w,
		http.StatusForbidden,
		cbor.Map{"__type": cbor.String("AccessDenied"), "message": cbor.String("not authorized")},
	)
}

func writeCBOR(w http.ResponseWriter, status int, v cbor.Value) {
	w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
	w.Header().Set("Content-Type", "application/cbor")
	w.WriteHeader(status)
	_, _ = w.Write(cbor.Encode(v))
}
