package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/deployed/metrics"
	"github.com/larder-registry/larder/pkg/settings"
)

// referred is a metric that an alarm or a dashboard refers to.
type referred struct {
	namespace, name string
	dimensions      map[string]string
}

func (r referred) String() string { return fmt.Sprint(r.namespace, " ", r.name, " ", r.dimensions) }

// documented are AWS's own metrics, by namespace, with the only dimension that
// alarms and the dashboard use.
//
// Sources: https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html and
// https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-view.html,
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html.
var documented = map[string]struct {
	dimension string
	names     []string
	resource  string // the type of the resource that the dimension names
}{
	"AWS/Lambda": {"FunctionName",
		[]string{"Invocations", "Errors", "Throttles", "Duration", "ConcurrentExecutions",
			"AsyncEventsReceived", "AsyncEventAge", "AsyncEventsDropped"}, "AWS::Lambda::Function"},
	"AWS/ApiGateway": {"ApiId", []string{"4xx", "5xx", "Count", "IntegrationLatency", "Latency", "DataProcessed"},
		"AWS::ApiGatewayV2::Api"},
	"AWS/DynamoDB": {"TableName",
		[]string{"ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits", "ReadThrottleEvents",
			"WriteThrottleEvents"}, "AWS::DynamoDB::Table"},
}

// ofAlarm returns the metrics that an alarm refers to.
func ofAlarm(alarm resource) (found []referred) {
	add := func(namespace, name, dimensions any) {
		r := referred{templateText(namespace), templateText(name), map[string]string{}}
		all, _ := dimensions.([]any)
		for _, d := range all {
			r.dimensions[d.(map[string]any)["Name"].(string)] = templateText(d.(map[string]any)["Value"])
		}
		found = append(found, r)
	}
	if name := alarm.at("MetricName"); name != nil {
		add(alarm.at("Namespace"), name, alarm.at("Dimensions"))
	}
	several, _ := alarm.at("Metrics").([]any)
	for _, m := range several {
		if stat, ok := m.(map[string]any)["MetricStat"].(map[string]any); ok {
			metric := stat["Metric"].(map[string]any)
			add(metric["Namespace"], metric["MetricName"], metric["Dimensions"])
		}
	}
	return found
}

// widget is a widget of a dashboard.
type widget struct {
	Type       string
	Properties struct {
		Title, Query string
		Metrics      [][]any
		Alarms       []string
	}
}

func widgets(t *testing.T, tm template) []widget {
	t.Helper()
	var body struct{ Widgets []widget }
	if err := json.Unmarshal([]byte(templateText(tm.one(t, "AWS::CloudWatch::Dashboard").at("DashboardBody"))),
		&body); err != nil {
		t.Fatal(err)
	}
	return body.Widgets
}

// ofWidget returns the metrics that a widget refers to.
func ofWidget(w widget) (found []referred) {
	for _, m := range w.Properties.Metrics {
		var words []string
		for _, word := range m {
			if s, ok := word.(string); ok {
				words = append(words, s)
			}
		}
		if len(words) < 2 {
			continue // an expression
		}
		r := referred{words[0], words[1], map[string]string{}}
		for i := 2; i+1 < len(words); i += 2 {
			r.dimensions[words[i]] = words[i+1]
		}
		found = append(found, r)
	}
	return found
}

// refers returns all metrics that a template refers to.
func refers(t *testing.T, tm template) (alarms, dashboard []referred) {
	t.Helper()
	for _, a := range tm.all("AWS::CloudWatch::Alarm") {
		alarms = append(alarms, ofAlarm(a)...)
	}
	for _, w := range widgets(t, tm) {
		dashboard = append(dashboard, ofWidget(w)...)
	}
	return alarms, dashboard
}

// Alarms and the dashboard refer only to metrics that exist. The functions write
// them in their namespace, or AWS documents them for the stack's own resources.
func TestMetricsExist(t *testing.T) {
	for _, table := range []string{"", "restored-table"} {
		context := []string{"alarms", "true", "dashboard", "true", "stackName", "acme"}
		if table != "" {
			context = append(context, "tableName", table)
		}
		tm := synth(t, defaults(t, context...))
		for id, f := range tm.all("AWS::Lambda::Function") {
			variables, _ := f.at("Environment.Variables").(map[string]any)
			got := settings.MetricsNamespace(func(name string) string { return fmt.Sprint(variables[name]) })
			if got != "Larder/acme" {
				t.Errorf("%s writes metrics to %q", id, got)
			}
		}
		alarms, dashboard := refers(t, tm)
		shown := make(map[string]bool)
		for _, r := range slices.Concat(alarms, dashboard) {
			shown[r.String()] = true
			if len(r.dimensions) > 1 {
				t.Errorf("%v has several dimensions", r)
				continue
			}
			var d metrics.Dimension
			for d.Name, d.Value = range r.dimensions {
			}
			if filtered := tm.one(t, "AWS::Logs::MetricFilter").at("MetricTransformations"); r.name == "Throttled" &&
				text(filtered) == `[{"MetricName":"Throttled","MetricNamespace":"Larder/acme","MetricValue":"1"}]` {
				continue
			}
			if r.namespace == "Larder/acme" {
				if !slices.Contains(metrics.All(), metrics.Series{Name: r.name, Dimension: d}) {
					t.Errorf("no function writes %v", r)
				}
				continue
			}
			metric, ok := documented[r.namespace]
			if !ok || d.Name != metric.dimension || !slices.Contains(metric.names, r.name) {
				t.Errorf("AWS does not document %v", r)
			}
			own := tm.Resources[strings.Trim(d.Value, "${}")].Type == metric.resource && strings.HasPrefix(d.Value,
				"${")
			if adopted := table != "" && d.Name == "TableName"; adopted && d.Value != table || !adopted && !own {
				t.Errorf("%v does not belong to the stack", r)
			}
		}
		// A metric that nothing shows costs money for no use.
		for _, s := range metrics.All() {
			r := referred{"Larder/acme", s.Name, map[string]string{}}
			if s.Dimension.Name != "" {
				r.dimensions[s.Dimension.Name] = s.Dimension.Value
			}
			if !shown[r.String()] {
				t.Errorf("nothing shows %v", r)
			}
		}
		for _, w := range widgets(t, tm) {
			for _, arn := range w.Properties.Alarms {
				name, ok := strings.CutPrefix(arn,
					"arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:")
				if !ok || !slices.ContainsFunc(slices.Collect(maps.Values(tm.all("AWS::CloudWatch::Alarm"))),
					func(a resource) bool { return a.at("AlarmName") == name }) {
					t.Errorf("there is no alarm %s", arn)
				}
			}
			if w.Type == "alarm" && len(w.Properties.Alarms) != len(tm.all("AWS::CloudWatch::Alarm")) {
				t.Errorf("the dashboard has %d alarms", len(w.Properties.Alarms))
			}
		}
		// docs/costs.md has the costs of these numbers.
		if len(alarms) != 26 || len(dashboard) > 50 {
			t.Errorf("%d metrics of alarms, and %d of the dashboard", len(alarms), len(dashboard))
		}
	}
}

// Queries refer to existing log groups. Those of the functions' logs are also
// in a golden file. The tests of functions check the names in it against their
// logs.
func TestQueries(t *testing.T) {
	tm := synth(t, defaults(t, "dashboard", "true"))
	var queries []string
	for _, w := range widgets(t, tm) {
		if w.Type != "log" {
			continue
		}
		groups, query, _ := strings.Cut(w.Properties.Query, " | ")
		for strings.HasPrefix(query, "SOURCE ") {
			var group string
			group, query, _ = strings.Cut(query, " | ")
			groups += group
		}
		queries = append(queries, query)
		found := regexp.MustCompile(`SOURCE '\$\{(\w+)\}'`).FindAllStringSubmatch(groups, -1)
		for _, logical := range found {
			if tm.Resources[logical[1]].Type != "AWS::Logs::LogGroup" {
				t.Errorf("%s: %s is not a log group", w.Properties.Title, logical[1])
			}
		}
		if len(found) != len(functions()) {
			t.Errorf("%s: %s", w.Properties.Title, groups)
		}
	}
	slices.Sort(queries)
	text := pageText(t, runbook) + pageText(t, incidents)
	for _, block := range regexp.MustCompile("(?s)```text\n(.*?)\n```").FindAllStringSubmatch(text, -1) {
		switch of, query, _ := strings.Cut(block[1], "\n"); of {
		case "# the functions' logs":
			queries = append(queries, query)
		case "# the access log":
			by := strings.Split(regexp.MustCompile(` by (.*)`).FindStringSubmatch(query)[1], ", ")
			for _, name := range append(by, "status") {
				if !strings.Contains(query, name) || !strings.Contains(accessLogFormat(), `"`+name+`"`) {
					t.Errorf("the access log has no field %s: %s", name, query)
				}
			}
		case "# Lambda's own lines":
			// https://docs.aws.amazon.com/lambda/latest/dg/telemetry-schema-reference.html
			if strings.Contains(query, "platform.report") && !strings.Contains(query, "record.status") {
				t.Errorf("the query does not select one line for each request: %s", query)
			}
		default:
			t.Errorf("the query does not name its logs: %s", block[1])
		}
	}
	got := []byte(strings.Join(queries, "\n\n") + "\n")
	golden.Equal(t, "testdata/queries.golden.txt", got)
	if len(queries) < 5 {
		t.Errorf("%d queries", len(queries))
	}
}

// pageText returns the text of a page of the documentation.
func pageText(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sections returns the headings of a page within a part, with the page.
func sections(t *testing.T, page, part string) (names []string) {
	t.Helper()
	within := false
	for line := range strings.Lines(pageText(t, page)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			within = strings.TrimSpace(heading) == part
		}
		if heading, ok := strings.CutPrefix(line, "### "); ok && within {
			names = append(names, page+"#"+strings.TrimSpace(heading))
		}
	}
	return names
}

// Each alarm describes its meaning, refers to its section in the runbook, and
// notifies the topic when it begins and ends. The runbook has no other alarms.
func TestAlarms(t *testing.T) {
	tm := synth(t, defaults(t, "alarms", "true", "stackName", "acme"))
	var places []string
	for id, a := range tm.all("AWS::CloudWatch::Alarm") {
		name, _ := strings.CutPrefix(templateText(a.at("AlarmName")), "acme-")
		about := templateText(a.at("AlarmDescription"))
		_, place, _ := strings.Cut(about, " What to do: ")
		places = append(places, place)
		if !strings.HasSuffix(place, "#"+name) || len(about) > 1024 {
			t.Errorf("%s: %s", id, about)
		}
		// A metric without a value does not hide the others.
		several, _ := a.at("Metrics").([]any)
		for _, m := range several {
			id := m.(map[string]any)["Id"].(string)
			if _, measured := m.(map[string]any)["MetricStat"]; measured && !strings.Contains(text(several),
				"FILL("+id+", 0)") {
				t.Errorf("%s: %v", id, several)
			}
		}
		// An idle registry is healthy. A key expires even if there are no
		// requests.
		missing, periods := "notBreaching", "3 of 4"
		switch name {
		case "functions-fail", "copies-fail", "copies-wait":
			periods = "1 of 1"
		case "functions-throttled", "gateway-429": // these ring within two minutes
			periods = "1 of 1"
			if all := text(a.Properties); strings.Count(all, `"Period":60`) == 0 || strings.Contains(all, `"Period":300`) {
				t.Errorf("%s: its periods are not a minute: %s", id, all)
			}
		case "key-ends":
			missing, periods = "ignore", "1 of 1"
		}
		if got := fmt.Sprint(a.at("DatapointsToAlarm"), " of ", a.at("EvaluationPeriods")); got != periods {
			t.Errorf("%s: %s, want %s", id, got, periods)
		}
		if a.at("TreatMissingData") != missing || text(a.at("AlarmActions")) != text(a.at("OKActions")) ||
			!strings.Contains(text(a.at("AlarmActions")), `"Ref":"Alarms`) || a.at("InsufficientDataActions") != nil {
			t.Errorf("%s: %v", id, a.Properties)
		}
	}
	described := append(sections(t, runbook, "Alarms"), sections(t, incidents, "Alarms")...)
	slices.Sort(places)
	slices.Sort(described)
	if diff := cmp.Diff(described, places); diff != "" || len(places) == 0 {
		t.Errorf("the sections of the runbook, and where the alarms lead (-sections +alarms):\n%s", diff)
	}
}

func TestTopic(t *testing.T) {
	own := synth(t, defaults(t, "alarms", "true", "alarmEmail", "registry@example.com"))
	topic := own.one(t, "AWS::SNS::Topic")
	if topic.at("KmsMasterKeyId") != nil {
		t.Error("the topic is encrypted with a key that CloudWatch cannot use")
	}
	var rules []string
	for _, s := range statements(t, own.one(t, "AWS::SNS::TopicPolicy").at("PolicyDocument")) {
		rules = append(rules, s.Effect+" "+text(s.Action)+" "+text(s.Condition))
		if !strings.Contains(text(s.Resource), `"Ref":"Alarms`) {
			t.Errorf("%v", s)
		}
	}
	slices.Sort(rules)
	if want := []string{
		`Allow "sns:Publish" {"StringEquals":{"aws:SourceAccount":{"Ref":"AWS::AccountId"}}}`,
		`Deny "sns:Publish" {"Bool":{"aws:SecureTransport":"false"}}`,
	}; !slices.Equal(rules, want) {
		t.Errorf("the topic's policy has %q", rules)
	}
	s := own.one(t, "AWS::SNS::Subscription")
	if s.at("Protocol") != "email" || s.at("Endpoint") != "registry@example.com" {
		t.Errorf("subscription %v", s.Properties)
	}
	if own.Outputs[settings.OutputAlarmTopic].Value == nil {
		t.Error("there is no output for the topic")
	}

	const arn = "arn:aws:sns:eu-central-1:111122223333:pager"
	other := synth(t, defaults(t, "alarms", "true", "alarmTopicArn", arn))
	for id, r := range other.Resources {
		if strings.HasPrefix(r.Type, "AWS::SNS::") ||
			r.Type == "AWS::CloudWatch::Alarm" && text(r.at("AlarmActions")) != `["`+arn+`"]` {
			t.Errorf("%s: %v", id, r)
		}
	}
}

// The stack creates resources that cost money while idle only if the settings
// select them, and then only these.
func TestMonitoringIsOptional(t *testing.T) {
	kinds := []string{"AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard", "AWS::SNS::Topic",
		"AWS::SNS::TopicPolicy", "AWS::SNS::Subscription", "AWS::Logs::MetricFilter"}
	for _, test := range []struct {
		context []string
		counts  bool
		want    string
	}{
		{nil, false, "0 0 0 0 0 0"},
		{[]string{"metrics", "false"}, false, "0 0 0 0 0 0"},
		{[]string{"metrics", "true"}, true, "0 0 0 0 0 0"},
		{[]string{"alarms", "true"}, true, "9 0 1 1 0 1"},
		{[]string{"alarms", "true", "accessLog", "false"}, true, "8 0 1 1 0 0"},
		{[]string{"dashboard", "true"}, true, "0 1 0 0 0 1"},
		{[]string{"alarms", "true", "dashboard", "true", "alarmEmail", "a.b+c@example.com"}, true, "9 1 1 1 1 1"},
	} {
		tm := synth(t, defaults(t, test.context...))
		var got []string
		for _, kind := range kinds {
			got = append(got, fmt.Sprint(len(tm.all(kind))))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%q: %q", test.context, got)
		}
		for id, f := range tm.all("AWS::Lambda::Function") {
			variables, _ := f.at("Environment.Variables").(map[string]any)
			if _, counts := variables["LARDER_METRICS"]; counts != test.counts {
				t.Errorf("%q: %s has the variables %v", test.context, id, slices.Collect(maps.Keys(variables)))
			}
		}
	}
}

func TestMonitoringSettings(t *testing.T) {
	const arn = "arn:aws:sns:eu-central-1:111122223333:pager"
	texts := golden.New(t)
	for name, test := range map[string]struct {
		context map[string]any
		key     string // of the setting that the error names
	}{
		"metrics":             {map[string]any{"metrics": "yes"}, "metrics"},
		"alarms":              {map[string]any{"alarms": "1"}, "alarms"},
		"dashboard":           {map[string]any{"dashboard": "on"}, "dashboard"},
		"alarms, no metrics":  {map[string]any{"metrics": false, "alarms": true}, "metrics"},
		"graphs, no metrics":  {map[string]any{"metrics": "false", "dashboard": "true"}, "metrics"},
		"an email, no alarms": {map[string]any{"alarmEmail": "a@example.com"}, "alarmEmail"},
		"a topic, no alarms":  {map[string]any{"alarmTopicArn": arn}, "alarmTopicArn"},
		"an email and a topic": {
			map[string]any{"alarms": true, "alarmEmail": "a@example.com", "alarmTopicArn": arn}, "alarmEmail",
		},
		"an invalid email": {map[string]any{"alarms": true, "alarmEmail": "example.com"}, "alarmEmail"},
		"two emails":       {map[string]any{"alarms": true, "alarmEmail": "a@b, c@example.com"}, "alarmEmail"},
		"an invalid topic": {map[string]any{"alarms": true, "alarmTopicArn": "pager"}, "alarmTopicArn"},
		"a FIFO topic":     {map[string]any{"alarms": true, "alarmTopicArn": arn + ".fifo"}, "alarmTopicArn"},
		"another region": {
			map[string]any{"alarms": true, "alarmTopicArn": strings.Replace(arn, "eu-central-1", "us-east-1", 1)},
			"alarmTopicArn",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := settingsOf(t, test.context, "eu-central-1")
			checkSettingError(t, texts, err, test.key)
		})
	}
	s, err := settingsOf(t, map[string]any{"alarms": true, "alarmTopicArn": arn, "stackName": "acme"}, "")
	if err != nil || s.AlarmTopicARN != arn || s.MetricsNamespace != "Larder/acme" {
		t.Errorf("%+v, %v", s, err)
	}
}
