package signedcall

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Alarm is a metric alarm of CloudWatch.
type Alarm struct {
	Name string `xml:"AlarmName"`
	// Actions are the ARNs of the targets that it notifies when it begins, if
	// ActionsEnabled is true.
	Actions        []string `xml:"AlarmActions>member"`
	ActionsEnabled bool
}

// DescribeAlarms returns those of at most 100 metric alarms that exist.
func DescribeAlarms(ctx context.Context, config aws.Config, names ...string) ([]Alarm, error) {
	in := url.Values{"AlarmTypes.member.1": {"MetricAlarm"}, "MaxRecords": {"100"}}
	for i, name := range names {
		in.Set(fmt.Sprintf("AlarmNames.member.%d", i+1), name)
	}
	var out struct {
		Alarms []Alarm `xml:"DescribeAlarmsResult>MetricAlarms>member"`
	}
	err := Query(ctx, config, CloudWatch, "DescribeAlarms", in, &out)
	return out.Alarms, err
}

// Subscription is a subscription to a topic of SNS.
type Subscription struct {
	// ARN is its ARN, or one of the states PendingConfirmation and Deleted.
	ARN      string `xml:"SubscriptionArn"`
	Endpoint string
}

// ListSubscriptions returns the subscriptions to the topic with an ARN.
func ListSubscriptions(ctx context.Context, config aws.Config, topic string) (all []Subscription, err error) {
	in := url.Values{"TopicArn": {topic}}
	err = pages(in, func() (next string, err error) {
		var out struct {
			Subscriptions []Subscription `xml:"ListSubscriptionsByTopicResult>Subscriptions>member"`
			Next          string         `xml:"ListSubscriptionsByTopicResult>NextToken"`
		}
		err = Query(ctx, config, SNS, "ListSubscriptionsByTopic", in, &out)
		all = append(all, out.Subscriptions...)
		return out.Next, err
	})
	return all, err
}

// Certificate is a certificate of ACM.
type Certificate struct {
	DomainName              string
	SubjectAlternativeNames []string
	Status                  string
	// NotAfter is its expiry in seconds since 1970, or 0 if it was not issued yet.
	NotAfter       float64
	RenewalSummary struct{ RenewalStatus, RenewalStatusReason string }
}

// Expires returns the expiry of the certificate, or the zero time if it was not
// issued yet.
func (c Certificate) Expires() time.Time {
	if c.NotAfter == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(c.NotAfter * 1000)).UTC()
}

// DescribeCertificate returns the certificate with an ARN.
func DescribeCertificate(ctx context.Context, config aws.Config, arn string) (Certificate, error) {
	var out struct{ Certificate Certificate }
	err := JSON(ctx, config, ACM, "DescribeCertificate", map[string]string{"CertificateArn": arn}, &out)
	return out.Certificate, err
}
