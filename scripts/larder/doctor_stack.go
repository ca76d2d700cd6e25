package main

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/examine/stackdoctor"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// examineStack examines a deployed stack and prints each step when it ends.
func examineStack(ctx context.Context, c *cli.Program, name string) (output.View, error) {
	configuration, pathStyle, err := place.AwsConfiguration(ctx)
	if err != nil {
		return nil, err
	}
	c.About = place.Place{Name: "stack:" + name, Stack: name}
	d := stackdoctor.Doctor{
		Stack:    name,
		Region:   configuration.Region,
		Services: stackdoctor.NewServices(configuration, pathStyle),
		Release:  version(),
		Fatal:    func(err error) bool { return place.CredentialsProblem(err) != "" },
		Found:    examining(c, "stack "+name+" in "+configuration.Region).found,
	}
	report, err := d.Examine(ctx)
	if err != nil {
		return nil, err
	}
	return newExaminedStackView(report)
}

// examinedStackView is the report about a deployed stack.
type examinedStackView struct {
	stackdoctor.Report
	// OK is true if no step is wrong or unknown.
	OK bool `json:"ok"`
}

// newExaminedStackView returns the report, and an error if a step is wrong or unknown.
// The error is an [failure.Unchecked] if no step is wrong.
func newExaminedStackView(report stackdoctor.Report) (output.View, error) {
	wrong, unknown := report.Count(doctor.Wrong), report.Count(doctor.Unknown)
	switch {
	case wrong > 0:
		return examinedStackView{report, false},
			fmt.Errorf("stack %s: %s wrong", report.Stack, english.Plural(wrong, "thing is", "things are"))
	case unknown > 0:
		return examinedStackView{report, false}, failure.Unchecked(
			fmt.Errorf("stack %s: nothing is wrong, but %s not be checked",
				report.Stack, english.Plural(unknown, "thing could", "things could")),
		)
	}
	return examinedStackView{report, true}, nil
}

// Text prints the summary after the steps.
func (v examinedStackView) Text(p output.Page) {
	if v.OK {
		p.Printf("\n%s\n", p.Wrap(fmt.Sprintf("Nothing is wrong with stack %s; %s.",
			v.Stack, english.Plural(v.Count(doctor.Warning), "warning", ""))))
	}
}
