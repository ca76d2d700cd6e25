package extract_test

import (
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/docs"
)

// A heading is a comment of its own. It counts up to the next one.
func TestHeadings(t *testing.T) {
	t.Parallel()
	const rule = "################################################################################\n"
	for name, test := range map[string]struct{ source, want string }{
		"none":            {"variable \"a\" {}\n", ""},
		"between rules":   {rule + "# Network\n" + rule + "\nvariable \"a\" {}\nvariable \"b\" {}\n", "Network"},
		"with signs":      {"### Network ###\n\nvariable \"a\" {}\n", "Network"},
		"dashes":          {"# ---- Network ----\nvariable \"a\" {}\n", "Network"},
		"a line apart":    {"# Network\n\nvariable \"a\" {}\n", "Network"},
		"slashes":         {"// Network\r\n\r\nvariable \"a\" {}\r\n", "Network"},
		"a long comment":  {"/*\n * ======\n * Network\n * ======\n */\nvariable \"a\" {}\n", "Network"},
		"the last one":    {"# Storage\n\n# Network\n\n# About a\nvariable \"a\" {}\n", "Network"},
		"text below":      {rule + "# Network\n# How it connects.\n" + rule + "variable \"a\" {}\n", "Network"},
		"another before":  {"# Storage\n\nlocals {\n  x = 1\n}\n\n## Network ##\nvariable \"a\" {}\n", "Network"},
		"above locals":    {"# Network\n\nlocals {}\nvariable \"a\" {}\n", "Network"},
		"attached":        {"# About a\nvariable \"a\" {}\n", ""},
		"a sentence":      {"# This file has inputs.\n\nvariable \"a\" {}\n", ""},
		"six words":       {"# We need these flags for lists\n\nvariable \"a\" {}\n", ""},
		"a file":          {rule + "# Copy of variables.tf\n" + rule + "variable \"a\" {}\n", ""},
		"two lines":       {"# This file has\n# the inputs\n\nvariable \"a\" {}\n", ""},
		"a license":       {rule + "# Copyright 2026 Acme\n" + rule + "\nvariable \"a\" {}\n", ""},
		"another license": {rule + "# Licensed under the Apache License\n" + rule + "\nvariable \"a\" {}\n", ""},
		"a task":          {"# " + strings.ToUpper("todo") + "\n\nvariable \"a\" {}\n", ""},
		"a setting":       {"# tfsec:ignore:aws-s3\n\nvariable \"a\" {}\n", ""},
		"a reference":     {"# module.vpc.id\n\nvariable \"a\" {}\n", ""},
		"an address":      {"# https://example.com/x\n\nvariable \"a\" {}\n", ""},
		"an interpreter":  {"#!/usr/bin/env bash\n\nvariable \"a\" {}\n", ""},
		"a colon":         {"# Network:\n\nvariable \"a\" {}\n", "Network"},
		"a region":        {"#region Network\n\nvariable \"a\" {}\n", "Network"},
		"the end of one":  {"# Network\n\nlocals {}\n# endregion\n\nvariable \"a\" {}\n", "Network"},
		"code":            {"# default = 1\n\nvariable \"a\" {}\n", ""},
		"signs only":      {rule + "\nvariable \"a\" {}\n", ""},
		"behind a block":  {"locals {} # Network\n\nvariable \"a\" {}\n", ""},
		"in a heredoc":    {"locals {\n  x = <<-EOT\n\n# Network\n\n  EOT\n}\nvariable \"a\" {}\n", ""},
		"in a block":      {"locals {\n\n# Network\n\n}\nvariable \"a\" {}\n", ""},
		"too long":        {"# " + strings.Repeat("x", 81) + "\n\nvariable \"a\" {}\n", ""},
		"81 bytes":        {"# " + strings.Repeat("x", 78) + "…\n\nvariable \"a\" {}\n", strings.Repeat("x", 78) + "…"},
		"after the block": {"variable \"a\" {}\n\n# Network\n\nvariable \"b\" {}\n", ""},
		"one long line":   {"/* Network */\n\nvariable \"a\" {}\n", "Network"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := extracted(t, map[string]string{"main.tf": "# Files\n\nlocals {}\n", "variables.tf": test.source})
			if got := inputNamed(t, d, "a").Heading; got != test.want {
				t.Errorf("heading %q, want %q", got, test.want)
			}
		})
	}
}

// An override changes no heading, and JSON has none.
func TestHeadingsElsewhere(t *testing.T) {
	t.Parallel()
	d := extracted(t, map[string]string{
		"variables.tf":          "# Network\n\nvariable \"a\" {}\nvariable \"b\" {}\n",
		"variables_override.tf": "# Storage\n\nvariable \"a\" {}\n",
		"more.tf.json":          `{"variable": {"c": {}}}`,
	})
	for name, want := range map[string]string{"a": "Network", "b": "Network", "c": ""} {
		if got := inputNamed(t, d, name).Heading; got != want {
			t.Errorf("%s has the heading %q, want %q", name, got, want)
		}
	}
}

func inputNamed(t *testing.T, d docs.Documentation, name string) docs.Input {
	t.Helper()
	for _, in := range d.Root.Inputs {
		if in.Name == name {
			return in
		}
	}
	t.Fatalf("there is no input %s", name)
	return docs.Input{}
}
