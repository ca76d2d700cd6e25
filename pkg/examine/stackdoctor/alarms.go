package stackdoctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/settings"
)

// alarms examines the alarms and their subscribers. A stack may have no alarms.
func (e *examination) alarms(ctx context.Context) {
	if e.outputs[settings.OutputAlarms] == "" {
		e.skip("alarms", "the stack has no alarms")
		return
	}
	names := strings.Split(e.outputs[settings.OutputAlarms], ",")
	c := call{"alarms", "cloudwatch:DescribeAlarms", strings.Join(names, ", ")}
	there, err := signedcall.DescribeAlarms(ctx, e.Services.Config, names...)
	if err != nil {
		e.failed(c, err)
	} else {
		e.described(c, names, there)
	}
	e.subscribers(ctx, e.outputs[settings.OutputAlarmTopic])
}

// described compares the existing alarms with the stack's. Each must notify the
// stack's topic.
func (e *examination) described(c call, names []string, there []signedcall.Alarm) {
	byName := make(map[string]signedcall.Alarm)
	for _, a := range there {
		byName[a.Name] = a
	}
	topic := e.outputs[settings.OutputAlarmTopic]
	wrong := false
	for _, name := range names {
		a, found := byName[name]
		var result string
		switch {
		case !found:
			result = "the alarm " + name + " does not exist"
		case len(a.Actions) == 0:
			result = "it notifies no one, because it has no action"
		case !slices.Contains(a.Actions, topic):
			result = "it does not notify " + topic + "; its actions are " + strings.Join(a.Actions, ", ")
		case !a.ActionsEnabled:
			result = "it notifies no one, because its actions are turned off"
		default:
			continue
		}
		wrong = true
		e.wrong("alarm "+name, c.action+" of "+name, result, revert)
	}
	if !wrong {
		e.ok(c.step, fmt.Sprintf("all %d alarms notify the topic", len(names)))
	}
}

// subscribers examines the subscriptions to the alarm topic. SNS does not list
// those of a topic in another account.
func (e *examination) subscribers(ctx context.Context, topic string) {
	c := call{"alarm subscribers", "sns:ListSubscriptionsByTopic", topic}
	if owner, err := awsarn.Parse(topic); err == nil && owner.AccountID != e.arn.AccountID {
		e.skip(c.step, "the topic belongs to another account, "+owner.AccountID)
		return
	}
	all, err := signedcall.ListSubscriptions(ctx, e.Services.Config, topic)
	switch {
	case code(err) == "NotFound":
		e.wrong(c.step, c.String(), "there is no topic "+topic, revert)
		return
	case err != nil:
		e.failed(c, err)
		return
	}
	var confirmed, pending []string
	for _, s := range all {
		switch s.ARN {
		case "PendingConfirmation":
			pending = append(pending, s.Endpoint)
		case "Deleted":
		default:
			confirmed = append(confirmed, s.Endpoint)
		}
	}
	const confirm = "confirm the subscription with the link in the mail from AWS; " +
		"the link expires after three days, then subscribe again"
	switch {
	case len(pending) > 0 && len(confirmed) == 0:
		e.wrong(c.step, c.String(),
			"no one is notified: "+strings.Join(pending, ", ")+" has the status PendingConfirmation", confirm)
	case len(pending) > 0:
		e.warn(c.step, c.String(), strings.Join(pending, ", ")+" has the status PendingConfirmation", confirm)
	case len(confirmed) == 0:
		e.warn(c.step, c.String(), "no one is subscribed, so alarms are only visible in the console",
			"set alarmEmail, or subscribe to the topic")
	default:
		e.ok(c.step, fmt.Sprintf("%d confirmed", len(confirmed)))
	}
}
