package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"github.com/larder-registry/larder/pkg/metrics"
)

// The bounds of the alarms.
const (
	// lasting is for how many periods of five minutes something must be wrong that clients' own retries may ride out.
	// A publish whose files take longer than the gateway waits is answered with some 503 too, but hardly for so long.
	lasting = 3
	// watched is one period more, of which lasting must be wrong. What AWS counts late is zero in a metric of several until then.
	watched = lasting + 1
	// slow is a third of the ten seconds that clients wait, and more than a call of the table takes that is given up once and
	// sent again. A cold start does not count, since Lambda's Duration begins after it.
	slow = 3000 // milliseconds
	// keyNotice is what it takes to prolong a key, and have everyone concerned take the new one, without haste.
	keyNotice = 30 // days
)

// runbook is where an alarm's description sends its reader.
const runbook = "infra/RUNBOOK.md"

// alarm is one alarm. Its name is that of its section in the runbook, and comes behind the stack's.
type alarm struct {
	name, meaning string
	metric        awscloudwatch.IMetric
	threshold     float64
	below         bool // the threshold, and not at it or above
	periods       float64
	of            float64 // these, or as many as periods where it is none
	keeps         bool    // its state where nothing was measured, which otherwise ends it
}

// signals are the metrics that alarms and the dashboard refer to.
type signals struct {
	*stack
	api *string
}

// newSignals makes the alarms and the dashboard, as far as the settings ask for them.
func (st *stack) newSignals(api awsapigatewayv2.HttpApi) {
	s := signals{st, api.ApiId()}
	var alarms []interfacesawscloudwatch.IAlarmRef
	if st.settings.Alarms {
		st.topic = st.newTopic()
		action := awscloudwatchactions.NewSnsAction(st.topic)
		for _, a := range s.alarms() {
			comparison := awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD
			if a.below {
				comparison = awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD
			}
			missing := awscloudwatch.TreatMissingData_NOT_BREACHING // nobody asks an idle registry for anything
			if a.keeps {
				missing = awscloudwatch.TreatMissingData_IGNORE
			}
			name := st.settings.StackName + "-" + a.name
			made := awscloudwatch.NewAlarm(st.Stack, jsii.String("alarm-"+a.name), &awscloudwatch.AlarmProps{
				AlarmName:          &name,
				AlarmDescription:   jsii.String(fmt.Sprintf("%s What to do: %s#%s", a.meaning, runbook, a.name)),
				Metric:             a.metric,
				Threshold:          &a.threshold,
				ComparisonOperator: comparison,
				DatapointsToAlarm:  &a.periods,
				EvaluationPeriods:  jsii.Number(max(a.periods, a.of)),
				TreatMissingData:   missing,
			})
			made.AddAlarmAction(action)
			made.AddOkAction(action)
			st.alarms = append(st.alarms, name)
			alarms = append(
				alarms,
				awscloudwatch.Alarm_FromAlarmArn(st.Stack, jsii.String("shown-"+a.name), st.alarmARN(name)),
			)
		}
	}
	if st.settings.Dashboard {
		s.newDashboard(alarms)
	}
}

// alarmARN returns the ARN of an alarm by its name: emulators of CloudFormation
// that have no alarms do not know their attributes either.
func (st *stack) alarmARN(name string) *string {
	return st.FormatArn(
		&awscdk.ArnComponents{
			Service:      jsii.String("cloudwatch"),
			Resource:     jsii.String("alarm"),
			ResourceName: &name,
			ArnFormat:    awscdk.ArnFormat_COLON_RESOURCE_NAME,
		},
	)
}

// newTopic makes the topic that alarms go to, unless there is one. It is not encrypted at rest: CloudWatch cannot use the key
// that SNS has for that, and one that it can use costs a dollar a month. What passes are the alarms' names, descriptions and
// states.
//
// Source: https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html#compatibility-with-aws-services.
func (st *stack) newTopic() awssns.ITopic {
	if st.settings.AlarmTopicARN != "" {
		return awssns.Topic_FromTopicArn(st.Stack, jsii.String("Alarms"), &st.settings.AlarmTopicARN)
	}
	topic := awssns.NewTopic(st.Stack, jsii.String("Alarms"), &awssns.TopicProps{
		DisplayName: jsii.String("Larder"), // whom a mail is from
		EnforceSSL:  jsii.Bool(true),
	})
	topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid:        jsii.String("AlarmsOfThisAccount"),
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("cloudwatch.amazonaws.com"), nil)},
		Actions:    jsii.Strings("sns:Publish"),
		Resources:  &[]*string{topic.TopicArn()},
		Conditions: &map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": *st.Account()}},
	}))
	if st.settings.AlarmEmail != "" {
		awssns.NewSubscription(st.Stack, jsii.String("AlarmEmail"), &awssns.SubscriptionProps{
			Topic: topic, Protocol: awssns.SubscriptionProtocol_EMAIL, Endpoint: &st.settings.AlarmEmail,
		})
	}
	return topic
}

func (s signals) alarms() []alarm {
	var readers []string
	for _, f := range functions() {
		if f.objects != "" {
			readers = append(readers, f.name)
		}
	}
	all := []alarm{
		{name: "functions-fail", meaning: "A function crashed, ran out of memory, or took longer than it may.", metric: s.total("Errors"), threshold: 1, periods: 1},
		{name: "functions-throttled", meaning: "Lambda has refused to run functions in 15 of 20 minutes: the account's concurrency is used up.", metric: s.total("Throttles"), threshold: 1, periods: lasting, of: watched},
		{name: "gateway-5xx", meaning: "Clients have been answered with 5xx in 15 of 20 minutes.", metric: s.gateway("5xx", "Sum"), threshold: 1, periods: lasting, of: watched},
		{name: "slow", meaning: fmt.Sprintf("In 15 of 20 minutes the slowest of a hundred requests has taken %d seconds or more. Clients give up after ten.", slow/1000), metric: s.ofFunctions("MAX", "Duration", "p99", readers), threshold: slow, periods: lasting, of: watched},
		{name: "table-throttled", meaning: "DynamoDB has refused reads or writes of the table in 15 of 20 minutes.", metric: combined("Throttles", "SUM", map[string]awscloudwatch.IMetric{
			"reads": s.ofTable("ReadThrottleEvents"), "writes": s.ofTable("WriteThrottleEvents"),
		}), threshold: 1, periods: lasting, of: watched},
		{
			name: "key-ends", meaning: fmt.Sprintf("The last signing key of a namespace ends in less than %d days, or has ended. Nobody can publish there from then on.", keyNotice),
			metric: s.own(metrics.Series{Name: metrics.SigningKeyDays}, "Minimum", awscdk.Duration_Days(jsii.Number(1))), threshold: keyNotice, below: true, periods: 1, keeps: true,
		},
	}
	if s.accessLog != nil {
		all = append(all, alarm{
			name: "gateway-429", meaning: "The stack's throttle has refused clients with 429 in 15 of 20 minutes.",
			metric: s.throttled(), threshold: 1, periods: lasting, of: watched,
		})
	}
	return all
}

// throttled counts 429 in the gateway's log. The gateway's own metrics have them among 4xx, and the functions never see
// them. The metric exists, and is paid for, only in hours in which there are any.
func (s signals) throttled() awscloudwatch.IMetric {
	filter := awslogs.NewMetricFilter(s.Stack, jsii.String("throttled"), &awslogs.MetricFilterProps{
		LogGroup:        s.accessLog,
		FilterPattern:   awslogs.FilterPattern_StringValue(jsii.String("$.status"), jsii.String("="), jsii.String("429")),
		MetricNamespace: &s.settings.MetricsNamespace,
		MetricName:      jsii.String("Throttled"),
		MetricValue:     jsii.String("1"),
	})
	return filter.Metric(&awscloudwatch.MetricOptions{Statistic: jsii.String("Sum"), Period: fiveMinutes()})
}

func fiveMinutes() awscdk.Duration { return awscdk.Duration_Minutes(jsii.Number(5)) }

func metric(namespace, name, statistic string, period awscdk.Duration, dimensions map[string]*string) awscloudwatch.IMetric {
	props := &awscloudwatch.MetricProps{Namespace: &namespace, MetricName: &name, Statistic: &statistic, Period: period}
	if len(dimensions) > 0 {
		props.DimensionsMap = &dimensions
	}
	return awscloudwatch.NewMetric(props)
}

// own is a metric that the functions write.
func (s signals) own(series metrics.Series, statistic string, period awscdk.Duration) awscloudwatch.IMetric {
	dimensions := make(map[string]*string)
	if d := series.Dimension; d.Name != "" {
		dimensions[d.Name] = &d.Value
	}
	return metric(s.settings.MetricsNamespace, series.Name, statistic, period, dimensions)
}

func (s signals) gateway(name, statistic string) awscloudwatch.IMetric {
	return metric("AWS/ApiGateway", name, statistic, fiveMinutes(), map[string]*string{"ApiId": s.api})
}

func (s signals) ofTable(name string) awscloudwatch.IMetric {
	return metric("AWS/DynamoDB", name, "Sum", fiveMinutes(), map[string]*string{"TableName": s.table.TableName()})
}

// total is the sum of what Lambda counts of all functions.
func (s signals) total(name string) awscloudwatch.IMetric {
	var names []string
	for _, f := range functions() {
		names = append(names, f.name)
	}
	return s.ofFunctions("SUM", name, "Sum", names)
}

// ofFunctions makes one metric of what Lambda counts of several functions, by a function of metric math.
func (s signals) ofFunctions(how, name, statistic string, names []string) awscloudwatch.IMetric {
	each := make(map[string]awscloudwatch.IMetric)
	for _, f := range names {
		// An id is one metric's in a graph.
		each[strings.ToLower(name)+"_"+f] = metric("AWS/Lambda", name, statistic, fiveMinutes(), map[string]*string{"FunctionName": s.functions[f].FunctionName()})
	}
	return combined(name, how, each)
}

// combined makes one metric of several, of which some may have no value for a time: AWS counts throttled requests only where there
// are any. An alarm on it is billed as one on each of them.
func combined(label, how string, of map[string]awscloudwatch.IMetric) awscloudwatch.IMetric {
	var filled []string
	for _, id := range slices.Sorted(maps.Keys(of)) {
		filled = append(filled, "FILL("+id+", 0)")
	}
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Label: &label, Expression: jsii.String(fmt.Sprintf("%s([%s])", how, strings.Join(filled, ", "))), UsingMetrics: &of, Period: fiveMinutes(),
	})
}

// requestsOnly begins the queries of the request log.
const requestsOnly = `filter message = "request"`

// newDashboard makes a dashboard of three columns, with fewer metrics than one may have that is free.
func (s signals) newDashboard(alarms []interfacesawscloudwatch.IAlarmRef) {
	var classes, downloads []awscloudwatch.IMetric
	for _, series := range metrics.All() {
		summed := s.own(series, "Sum", fiveMinutes())
		switch series.Name {
		case metrics.Requests:
			classes = append(classes, summed)
		case metrics.Downloads:
			downloads = append(downloads, summed)
		}
	}
	plain := func(name, statistic string) awscloudwatch.IMetric {
		return s.own(metrics.Series{Name: name}, statistic, fiveMinutes())
	}
	const width, height = 8, 6
	graph := func(title string, left ...awscloudwatch.IMetric) awscloudwatch.IWidget {
		return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{Title: &title, Left: &left, Width: jsii.Number(width), Height: jsii.Number(height)})
	}
	query := func(title string, lines ...string) awscloudwatch.IWidget {
		return awscloudwatch.NewLogQueryWidget(&awscloudwatch.LogQueryWidgetProps{
			Title: &title, LogGroupNames: &s.logs, QueryLines: jsii.Strings(append([]string{requestsOnly}, lines...)...),
			View: awscloudwatch.LogQueryVisualizationType_TABLE, Width: jsii.Number(width), Height: jsii.Number(height),
		})
	}
	rows := []*[]awscloudwatch.IWidget{
		{
			graph("Requests", classes...),
			query("Requests by route and status", "stats count(*) as requests by route, status", "sort requests desc", "limit 50"),
			graph("Latency, milliseconds", s.gateway("Latency", "p50"), s.gateway("Latency", "p99")),
		}, {
			graph("Downloads", downloads...),
			query("Most downloaded", "filter ispresent(download)", "stats count(*) as downloads by address", "sort downloads desc", "limit 20"),
			graph("Refusals and cold starts", plain(metrics.Refusals, "Sum"), plain(metrics.ColdStarts, "Sum")),
		}, {
			graph("Calls of the table and the bucket, milliseconds", plain(metrics.StoreLatency, "p50"), plain(metrics.StoreLatency, "p99")),
			graph("Functions' errors and throttles", s.total("Errors"), s.total("Throttles")),
			graph("Table: units and throttles", s.ofTable("ConsumedReadCapacityUnits"), s.ofTable("ConsumedWriteCapacityUnits"), s.ofTable("ReadThrottleEvents"), s.ofTable("WriteThrottleEvents")),
		},
	}
	if len(alarms) > 0 {
		rows = append([]*[]awscloudwatch.IWidget{{awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
			Title: jsii.String("Alarms"), Alarms: &alarms, Width: jsii.Number(3 * width), Height: jsii.Number(2),
		})}}, rows...)
	}
	// An account has its dashboards in all regions together.
	name := awscdk.Fn_Join(jsii.String("-"), &[]*string{&s.settings.StackName, s.Region()})
	awscloudwatch.NewDashboard(
		s.Stack,
		jsii.String("Dashboard"),
		&awscloudwatch.DashboardProps{DashboardName: name, Widgets: &rows},
	)
}
