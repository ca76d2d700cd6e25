package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/doctor"
	"github.com/larder-registry/larder/pkg/stackdoctor"
)

// A stack is examined by its name, and by nothing that is for a URL.
func TestDoctorStackUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "URL is missing\nGive the URL of the registry, such as https://registry.example.com, or the name of a stack with --stack."},
		{
			[]string{"--stack", "larder", "https://registry.example.com"},
			"--stack and https://registry.example.com both name what to examine",
		},
		{
			[]string{"--stack", "larder", "--module", "acme/vpc/aws", "--quiet"},
			"--module is for the URL of a registry, and not for --stack",
		},
		{[]string{"--stack", "larder", "--token-stdin"}, "--token-stdin is for the URL of a registry, and not for --stack"},
		{[]string{"--stack", ""}, "--stack needs the name of a stack"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"doctor"}, test.args...), &stdout, &stderr)
		if code != 2 {
			t.Errorf("%q: exit code %d", test.args, code)
		}
		if !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%q: want %q in\n%s", test.args, test.want, &stderr)
		}
	}
}

// What is wrong fails with 1, and what is unknown with another code, unless
// something is wrong besides. Warnings do not fail.
func TestDoctorStackReport(t *testing.T) {
	t.Parallel()
	fine := doctor.Step{Name: "stack", Outcome: doctor.OK, Result: "CREATE_COMPLETE"}
	warning := doctor.Step{Name: "certificate", Outcome: doctor.Warning, Result: "it expires in 13 days", Fix: "renew it"}
	wrong := doctor.Step{
		Name:    "table recovery",
		Outcome: doctor.Wrong,
		Request: "dynamodb:DescribeContinuousBackups of t",
		Result:  "it is off",
		Fix:     "switch it on",
	}
	unknown := doctor.Step{
		Name:    "alarms",
		Outcome: doctor.Unknown,
		Request: "cloudwatch:DescribeAlarms of a",
		Result:  "cannot check alarms: not allowed to cloudwatch:DescribeAlarms",
		Fix:     "attach the policy",
	}
	for _, test := range []struct {
		steps []doctor.Step
		code  int
		want  string
	}{
		{[]doctor.Step{fine}, 0, "Nothing is wrong with stack larder; 0 warnings."},
		{[]doctor.Step{fine, warning}, 0, "Nothing is wrong with stack larder; 1 warning."},
		{[]doctor.Step{fine, wrong}, exitFailed, "stack larder: 1 thing is wrong"},
		{[]doctor.Step{unknown}, exitUnchecked, "stack larder: nothing is wrong, but 1 thing could not be checked"},
		{[]doctor.Step{wrong, unknown}, exitFailed, "stack larder: 1 thing is wrong"},
	} {
		report := stackdoctor.Report{Stack: "larder", Region: "eu-central-1", Steps: test.steps}
		for _, machine := range []bool{false, true} {
			var out bytes.Buffer
			c := &cli{stdout: &out, json: machine}
			found, err := examinedStack(report)
			code := 0
			var failed *failure
			if err != nil {
				_, code = classify(err)
				failed = &failure{Error: err.Error()}
			}
			if err := c.show(found, failed); err != nil {
				t.Fatal(err)
			}
			if code != test.code {
				t.Errorf("%+v: exit code %d", test, code)
			}
			if machine {
				var got struct {
					stackdoctor.Report
					OK bool
				}
				if err := json.Unmarshal(
					out.Bytes(),
					&got,
				); err != nil || got.OK != (test.code == 0) || len(got.Steps) != len(test.steps) ||
					got.Stack != "larder" {
					t.Errorf("%v: %s", err, &out)
				}
				continue
			}
			if text := out.String(); !strings.Contains(text, test.want) && (err == nil || err.Error() != test.want) {
				t.Errorf("want %q in %v\n%s", test.want, err, text)
			}
		}
	}
	for width, want := range map[int]string{
		0: "unknown  alarms: cannot check alarms: not allowed to cloudwatch:DescribeAlarms\n" +
			"         tried: cloudwatch:DescribeAlarms of a\n         to do: attach the policy\n",
		50: "unknown  alarms: cannot check alarms: not allowed\n         to cloudwatch:DescribeAlarms\n" +
			"         tried: cloudwatch:DescribeAlarms of a\n         to do: attach the policy\n",
	} {
		for _, quiet := range []bool{false, true} {
			got := printed(func(p page) {
				steps := examinedSteps{page: p, problems: quiet}
				steps.found(unknown)
				if quiet {
					steps.found(fine)
				}
			}, width)
			if got != want {
				t.Errorf("at %d columns it prints\n%s", width, got)
			}
		}
	}
}
