package main

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/doctor"
	"github.com/larder-registry/larder/pkg/stackdoctor"
)

// uncheckedError means that nothing is wrong as far as it was possible to look.
type uncheckedError struct{ error }

// examineStack examines a deployed stack, and prints what it finds.
func (c *cli) examineStack(ctx context.Context, name string) error {
	configuration, pathStyle, err := awsConfiguration(ctx)
	if err != nil {
		return err
	}
	d := stackdoctor.Doctor{
		Stack:    name,
		Region:   configuration.Region,
		Services: stackdoctor.NewServices(configuration, pathStyle),
		Release:  version(),
	}
	if !c.json {
		c.printf("Examining stack %s in %s.\n\n", name, configuration.Region)
		d.Found = c.printStep
	}
	report, err := d.Examine(ctx)
	if err != nil {
		return err
	}
	return c.printStackReport(report)
}

// printStackReport prints what was found, but for the steps if they are printed
// already. It fails if something is wrong or unknown.
func (c *cli) printStackReport(report stackdoctor.Report) error {
	wrong, unknown := report.Count(doctor.Wrong), report.Count(doctor.Unknown)
	var failure error
	switch {
	case wrong > 0:
		failure = fmt.Errorf("stack %s: %s wrong", report.Stack, english.Plural(wrong, "thing is", "things are"))
	case unknown > 0:
		failure = uncheckedError{
			fmt.Errorf(
				"stack %s: nothing is wrong, but %s not be checked",
				report.Stack,
				english.Plural(unknown, "thing could", "things could"),
			),
		}
	}
	if c.json {
		if err := c.printJSON(struct {
			stackdoctor.Report
			OK bool `json:"ok"`
		}{report, failure == nil}); err != nil || failure == nil {
			return err
		}
		return printedError{failure}
	}
	if failure == nil {
		c.printf(
			"\nNothing is wrong with stack %s; %s.\n",
			report.Stack,
			english.Plural(report.Count(doctor.Warning), "warning", ""),
		)
	}
	return failure
}
