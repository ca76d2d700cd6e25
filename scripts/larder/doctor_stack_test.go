package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/examine/stackdoctor"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// --stack cannot be combined with arguments and flags for a URL.
func TestDoctorStackUsage(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, args := range map[string][]string{
		"nothing":        nil,
		"stack and URL":  {"--stack", "larder", "https://registry.example.com"},
		"module":         {"--stack", "larder", "--module", "acme/vpc/aws", "--quiet"},
		"token":          {"--stack", "larder", "--token-stdin"},
		"an empty stack": {"--stack", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), append([]string{"doctor"}, args...), &stdout, &stderr); code != failure.ExitUsage {
				t.Errorf("exit code %d", code)
			}
			texts.Text(t, stderr.String())
		})
	}
}

// The exit code is exitFailed if a step is wrong. Otherwise it is exitUnchecked
// if a step is unknown. Warnings do not change the exit code.
func TestDoctorStackReport(t *testing.T) {
	t.Parallel()
	fine := doctor.Step{Name: "stack", Outcome: doctor.OK, Result: "CREATE_COMPLETE"}
	warning := doctor.Step{
		Name:    "certificate",
		Outcome: doctor.Warning,
		Result:  "it expires in 13 days",
		Fix:     "renew it",
	}
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
		Result:  "cannot check alarms: no permission for cloudwatch:DescribeAlarms",
		Fix:     "attach the policy",
	}
	texts := golden.New(t)
	for name, test := range map[string]struct {
		steps []doctor.Step
		code  int
	}{
		"fine":              {[]doctor.Step{fine}, 0},
		"warning":           {[]doctor.Step{fine, warning}, 0},
		"wrong":             {[]doctor.Step{fine, wrong}, failure.ExitFailed},
		"unknown":           {[]doctor.Step{unknown}, failure.ExitUnchecked},
		"wrong and unknown": {[]doctor.Step{wrong, unknown}, failure.ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			report := stackdoctor.Report{Stack: "larder", Region: "eu-central-1", Steps: test.steps}
			found, err := newExaminedStackView(report)
			code := 0
			var failed any
			if err != nil {
				texts.Error(t, err)
				_, code = failure.Classify(err)
				failed = &failure.Failure{Error: err.Error()}
			}
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			texts.Text(t, printed(found.Text, 80))
			var out bytes.Buffer
			if err := (&output.Printer{Stdout: &out, JSON: true}).PrintJSON(found, failed); err != nil {
				t.Fatal(err)
			}
			var got examinedStackView
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(examinedStackView{report, test.code == 0}, got); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
		})
	}
	for _, width := range []int{0, 50} {
		t.Run(fmt.Sprintf("%d columns", width), func(t *testing.T) {
			all := printed(func(p output.Page) { examinedSteps{Page: p}.found(unknown) }, width)
			texts.Text(t, all)
			quiet := printed(func(p output.Page) {
				steps := examinedSteps{Page: p, problems: true}
				steps.found(unknown)
				steps.found(fine)
			}, width)
			if diff := cmp.Diff(all, quiet); diff != "" {
				t.Errorf("--quiet (-without +with):\n%s", diff)
			}
		})
	}
}
