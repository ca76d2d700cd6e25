package main

import (
	"cmp"
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

	"github.com/larder-registry/larder/pkg/deployed/metrics"
)

// The bounds of the alarms.
const (
	// lasting is the number of periods of five minutes for which a fault must
	// last, if clients' own retries can overcome it. A publish with files that
	// take longer than the gateway's timeout also ends in 503, but rarely for
	// so long.
	lasting = 3
	// watched is one period more, of which lasting must be bad. AWS reports
	// some values late, and until then a combined metric counts them as zero.
	watched = lasting + 1
	// slow is a third of the ten seconds that clients wait. It is longer than a
	// table call that times out once and is retried. A cold start does not
	// count, since Lambda's Duration begins after it.
	slow = 3000 // milliseconds
	// keyNotice is enough time to extend a key and to distribute it to everyone
	// concerned.
	keyNotice = 30 // days
	// waiting is longer than Lambda's two retries take if the attempts fail
	// quickly.
	waiting = 15 * 60_000 // milliseconds
)

// These are the pages that the alarms' descriptions refer to.
const (
	runbook   = "docs/runbook.md"
	incidents = "docs/runbook-incidents.md"
)

// alarm describes one alarm. Its name is the stack's name followed by name,
// which is also the heading of its section in the runbook.
type alarm struct {
	name, meaning string
	page          string // if empty, runbook
	metric        awscloudwatch.IMetric
	threshold     float64
	below         bool // whether values below the threshold are bad, instead of values at or above it
	periods       float64
	of            float64 // the number of periods to look at, at least periods
	keepsState    bool    // whether the alarm stays as it is without data, instead of ending
}

// monitoring creates the alarms and the dashboard of a stack.
type monitoring struct {
	*stack
	api *string
	// refused is the number of requests that the gateway refused with 429. It is
	// nil if the gateway does not log.
	refused awscloudwatch.IMetric
}

// newMonitoring creates the alarms and the dashboard that the settings select.
func (st *stack) newMonitoring(api awsapigatewayv2.HttpApi) {
	m := monitoring{stack: st, api: api.ApiId()}
	if st.accessLog != nil && (st.settings.Alarms || st.settings.Dashboard) {
		m.refused = m.throttled()
	}
	var alarms []interfacesawscloudwatch.IAlarmRef
	if st.settings.Alarms {
		st.topic = st.newTopic()
		action := awscloudwatchactions.NewSnsAction(st.topic)
		for _, a := range m.alarms() {
			comparison := awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD
			if a.below {
				comparison = awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD
			}
			missing := awscloudwatch.TreatMissingData_NOT_BREACHING // an idle registry has no data
			if a.keepsState {
				missing = awscloudwatch.TreatMissingData_IGNORE
			}
			name := st.settings.StackName + "-" + a.name
			made := awscloudwatch.NewAlarm(st.Stack, jsii.String("alarm-"+a.name), &awscloudwatch.AlarmProps{
				AlarmName:          &name,
				AlarmDescription:   jsii.String(fmt.Sprintf("%s What to do: %s#%s", a.meaning, cmp.Or(a.page, runbook), a.name)),
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
		m.newDashboard(alarms)
	}
}

// alarmARN returns the ARN of an alarm by its name. It does not use the
// resource's attributes, since some emulators of CloudFormation have no alarms.
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

// newTopic returns the topic for alarms: an existing one, or a new one. Without a
// key in the settings, a new one is not encrypted at rest, since CloudWatch cannot
// use SNS's own key. The messages contain only the names, descriptions and states
// of alarms.
//
// Source: https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html#compatibility-with-aws-services.
func (st *stack) newTopic() awssns.ITopic {
	if st.settings.AlarmTopicARN != "" {
		return awssns.Topic_FromTopicArn(st.Stack, jsii.String("Alarms"), &st.settings.AlarmTopicARN)
	}
	topic := awssns.NewTopic(st.Stack, jsii.String("Alarms"), &awssns.TopicProps{
		DisplayName: jsii.String("Larder"), // the sender of emails
		MasterKey:   st.key,
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

func (m monitoring) alarms() []alarm {
	var serving, readers []string
	for _, f := range m.settings.functions() {
		// A copy that fails because of its origin is an error of its function,
		// since Lambda then tries again. Other errors of that function become 5xx
		// responses of the mirror. Lost counts harm nobody.
		if !f.pulls && !f.counts {
			serving = append(serving, f.name)
		}
		// A request to the mirror can wait for an origin, which the registry cannot
		// make faster.
		if f.objects != nil && !f.invokesPull {
			readers = append(readers, f.name)
		}
	}
	alarms := []alarm{
		{
			name: "functions-fail", metric: m.ofFunctions("SUM", "Errors", "Sum", fiveMinutes(), serving), threshold: 1, periods: 1,
			meaning: "A function crashed, ran out of memory, or timed out.",
		},
		{
			name: "functions-throttled", metric: m.total("Throttles", oneMinute()), threshold: 1, periods: 1,
			meaning: "Lambda rejected invocations: the account's concurrency is used up.",
		},
		{
			name: "gateway-5xx", metric: m.gateway("5xx", "Sum"), threshold: 1, periods: lasting, of: watched,
			meaning: "In 15 of 20 minutes clients received 5xx responses.",
		},
		{
			name: "slow", metric: m.ofFunctions("MAX", "Duration", "p99", fiveMinutes(), readers), threshold: slow,
			periods: lasting, of: watched,
			meaning: fmt.Sprintf("In 15 of 20 minutes 1 in 100 requests, without those to the mirror, took %d seconds or more. "+
				"Clients give up after 10.", slow/1000),
		},
		{
			name: "table-throttled", threshold: 1, periods: lasting, of: watched,
			metric: combined("Throttles", "SUM", fiveMinutes(), map[string]awscloudwatch.IMetric{
				"reads": m.ofTable("ReadThrottleEvents"), "writes": m.ofTable("WriteThrottleEvents"),
			}),
			meaning: "In 15 of 20 minutes DynamoDB rejected reads or writes of the table.",
		},
		{
			name: "key-ends", page: incidents, threshold: keyNotice, below: true, periods: 1, keepsState: true,
			metric: m.own(metrics.Series{Name: metrics.SigningKeyDays}, "Minimum",
				awscdk.Duration_Days(jsii.Number(1))),
			meaning: fmt.Sprintf("The last signing key of a namespace expires in less than %d days, or has expired. "+
				"Nobody can publish there after that.", keyNotice),
		},
	}
	if m.functions[pullName] != nil {
		alarms = append(alarms, alarm{
			name: "copies-fail", page: incidents, metric: m.ofPull("AsyncEventsDropped", "Sum"), threshold: 1, periods: 1,
			meaning: "The mirror failed three times to copy a version, or to check for new versions.",
		}, alarm{
			name: "copies-wait", page: incidents, metric: m.ofPull("AsyncEventAge", "Maximum"), threshold: waiting, periods: 1,
			meaning: fmt.Sprintf("A version waited %d minutes or more for the mirror to copy it.", waiting/60_000),
		})
	}
	if m.refused != nil {
		alarms = append(alarms, alarm{
			name: "gateway-429", metric: m.refused, threshold: 1, periods: 1,
			meaning: "The stack's throttle rejected requests with 429. Some clients then end at once.",
		})
	}
	return alarms
}

// throttled returns the number of 429 responses in the gateway's log. The
// gateway's own metrics count them only among 4xx, and the functions never see
// them. AWS may not log all of them if they are very many. It bills the metric
// only for hours in which there are any.
//
// Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-logging.html.
func (m monitoring) throttled() awscloudwatch.IMetric {
	filter := awslogs.NewMetricFilter(m.Stack, jsii.String("throttled"), &awslogs.MetricFilterProps{
		LogGroup: m.accessLog,
		FilterPattern: awslogs.FilterPattern_StringValue(jsii.String("$.status"), jsii.String("="),
			jsii.String("429")),
		MetricNamespace: &m.settings.MetricsNamespace,
		MetricName:      jsii.String("Throttled"),
		MetricValue:     jsii.String("1"),
	})
	return filter.Metric(&awscloudwatch.MetricOptions{Statistic: jsii.String("Sum"), Period: oneMinute()})
}

// oneMinute is the period of faults that clients do not retry. Their alarms begin
// within two minutes.
func oneMinute() awscdk.Duration { return awscdk.Duration_Minutes(jsii.Number(1)) }

func fiveMinutes() awscdk.Duration { return awscdk.Duration_Minutes(jsii.Number(5)) }

func metric(
	namespace, name, statistic string, period awscdk.Duration, dimensions map[string]*string,
) awscloudwatch.IMetric {
	props := &awscloudwatch.MetricProps{Namespace: &namespace, MetricName: &name, Statistic: &statistic,
		Period: period}
	if len(dimensions) > 0 {
		props.DimensionsMap = &dimensions
	}
	return awscloudwatch.NewMetric(props)
}

func (m monitoring) own(series metrics.Series, statistic string, period awscdk.Duration) awscloudwatch.IMetric {
	dimensions := make(map[string]*string)
	if d := series.Dimension; d.Name != "" {
		dimensions[d.Name] = &d.Value
	}
	return metric(m.settings.MetricsNamespace, series.Name, statistic, period, dimensions)
}

func (m monitoring) gateway(name, statistic string) awscloudwatch.IMetric {
	return metric("AWS/ApiGateway", name, statistic, fiveMinutes(), map[string]*string{"ApiId": m.api})
}

func (m monitoring) ofTable(name string) awscloudwatch.IMetric {
	return metric("AWS/DynamoDB", name, "Sum", fiveMinutes(), map[string]*string{"TableName": m.table.TableName()})
}

// total returns the sum of a Lambda metric over all functions but the one that
// counts, for which nobody waits. Metric math has room for ten metrics.
func (m monitoring) total(name string, period awscdk.Duration) awscloudwatch.IMetric {
	var names []string
	for _, f := range m.settings.functions() {
		if !f.counts {
			names = append(names, f.name)
		}
	}
	return m.ofFunctions("SUM", name, "Sum", period, names)
}

// ofPull returns a metric of the asynchronous invocations of the function that
// fetches providers. AsyncEventsDropped counts the events that never succeeded,
// whether or not they went to the queue. AsyncEventAge is the time from an event
// to an attempt to handle it.
//
// Source: https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html.
func (m monitoring) ofPull(name, statistic string) awscloudwatch.IMetric {
	return metric("AWS/Lambda", name, statistic, fiveMinutes(),
		map[string]*string{"FunctionName": m.functions[pullName].FunctionName()})
}

// ofFunctions combines a Lambda metric of several functions, by a function of
// metric math.
func (m monitoring) ofFunctions(how, name, statistic string, period awscdk.Duration, names []string,
) awscloudwatch.IMetric {
	each := make(map[string]awscloudwatch.IMetric)
	for _, f := range names {
		// An id is unique within a graph.
		each[strings.ToLower(name)+"_"+f] = metric("AWS/Lambda", name, statistic, period,
			map[string]*string{"FunctionName": m.functions[f].FunctionName()})
	}
	return combined(name, how, period, each)
}

// combined combines several metrics into one. AWS records throttled requests
// only when there are any, so missing values count as zero. AWS bills an alarm
// on the combined metric as one alarm for each metric in it.
func combined(label, how string, period awscdk.Duration, of map[string]awscloudwatch.IMetric) awscloudwatch.IMetric {
	var filled []string
	for _, id := range slices.Sorted(maps.Keys(of)) {
		filled = append(filled, "FILL("+id+", 0)")
	}
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Label: &label, Expression: jsii.String(fmt.Sprintf("%s([%s])", how, strings.Join(filled, ", "))),
		UsingMetrics: &of, Period: period,
	})
}

// requestsOnly begins the queries of the request log.
const requestsOnly = `filter message = "request"`

// newDashboard creates a dashboard of three columns. It has fewer metrics than
// the limit for a free dashboard.
func (m monitoring) newDashboard(alarms []interfacesawscloudwatch.IAlarmRef) {
	var classes, downloads []awscloudwatch.IMetric
	for _, series := range metrics.All() {
		summed := m.own(series, "Sum", fiveMinutes())
		switch series.Name {
		case metrics.Requests:
			classes = append(classes, summed)
		case metrics.Downloads:
			downloads = append(downloads, summed)
		}
	}
	plain := func(name, statistic string) awscloudwatch.IMetric {
		return m.own(metrics.Series{Name: name}, statistic, fiveMinutes())
	}
	const width, height = 8, 6
	graph := func(title string, left ...awscloudwatch.IMetric) awscloudwatch.IWidget {
		return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
			Title: &title, Left: &left, Width: jsii.Number(width), Height: jsii.Number(height),
		})
	}
	query := func(title string, lines ...string) awscloudwatch.IWidget {
		return awscloudwatch.NewLogQueryWidget(&awscloudwatch.LogQueryWidgetProps{
			Title: &title, LogGroupNames: &m.logs, QueryLines: jsii.Strings(append([]string{requestsOnly},
				lines...)...),
			View:  awscloudwatch.LogQueryVisualizationType_TABLE,
			Width: jsii.Number(width), Height: jsii.Number(height),
		})
	}
	rows := []*[]awscloudwatch.IWidget{
		{
			graph("Requests", classes...),
			query("Requests by route and status",
				"stats count(*) as requests by route, status", "sort requests desc", "limit 50"),
			graph("Latency, milliseconds", m.gateway("Latency", "p50"), m.gateway("Latency", "p99")),
		}, {
			graph("Downloads", downloads...),
			query("Most downloaded", "filter ispresent(download)",
				"stats count(*) as downloads by address", "sort downloads desc", "limit 20"),
			graph("Rejected requests and cold starts", plain(metrics.Refusals, "Sum"),
				plain(metrics.ColdStarts, "Sum")),
		}, {
			graph("Table and bucket requests, milliseconds",
				plain(metrics.StoreLatency, "p50"), plain(metrics.StoreLatency, "p99")),
			graph("Function errors and throttles", m.total("Errors", fiveMinutes()), m.total("Throttles", fiveMinutes())),
			graph("Table: units and throttles",
				m.ofTable("ConsumedReadCapacityUnits"), m.ofTable("ConsumedWriteCapacityUnits"),
				m.ofTable("ReadThrottleEvents"), m.ofTable("WriteThrottleEvents")),
		},
	}
	if m.functions[pullName] != nil {
		rows = append(rows, &[]awscloudwatch.IWidget{
			graph("Mirror: versions to copy, failures and bounds", m.ofPull("AsyncEventsReceived", "Sum"),
				m.ofPull("AsyncEventsDropped", "Sum"), plain(metrics.MirrorBounds, "Sum")),
			graph("Mirror: oldest version to copy, milliseconds", m.ofPull("AsyncEventAge", "Maximum")),
			graph("Mirror: checks of origins, and failures", m.ofPull("Invocations", "Sum"), m.ofPull("Errors", "Sum")),
		})
	}
	rows = append(rows, &[]awscloudwatch.IWidget{m.limitGraph(width, height)})
	if len(alarms) > 0 {
		rows = append([]*[]awscloudwatch.IWidget{{awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
			Title: jsii.String("Alarms"), Alarms: &alarms, Width: jsii.Number(3 * width), Height: jsii.Number(2),
		})}}, rows...)
	}
	// Names of dashboards are unique in an account, over all its regions.
	name := awscdk.Fn_Join(jsii.String("-"), &[]*string{&m.settings.StackName, m.Region()})
	awscloudwatch.NewDashboard(
		m.Stack,
		jsii.String("Dashboard"),
		&awscloudwatch.DashboardProps{DashboardName: name, Widgets: &rows},
	)
}

// limitGraph shows the requests of all routes beside the throttle's limits, as the
// average of a minute, and how many it refused.
func (m monitoring) limitGraph(width, height float64) awscloudwatch.IWidget {
	perSecond := awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Label: jsii.String("Requests a second"), Expression: jsii.String("requests / PERIOD(requests)"),
		Period: oneMinute(), UsingMetrics: &map[string]awscloudwatch.IMetric{
			"requests": metric("AWS/ApiGateway", "Count", "Sum", oneMinute(), map[string]*string{"ApiId": m.api}),
		},
	})
	line := func(label string, at int) *awscloudwatch.HorizontalAnnotation {
		return &awscloudwatch.HorizontalAnnotation{Value: jsii.Number(float64(at)), Label: &label}
	}
	props := &awscloudwatch.GraphWidgetProps{
		Title: jsii.String("Requests a second, and the throttle"), Left: &[]awscloudwatch.IMetric{perSecond},
		LeftAnnotations: &[]*awscloudwatch.HorizontalAnnotation{
			line("limit of one route", m.settings.ThrottleRate), line("sum of all limits", m.settings.sum().rate),
		},
		Width: &width, Height: &height,
	}
	if m.refused != nil {
		props.Right = &[]awscloudwatch.IMetric{m.refused}
	}
	return awscloudwatch.NewGraphWidget(props)
}
