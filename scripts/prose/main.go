// Command prose checks the project's prose with vale: Markdown files, and the
// comments and messages of Go files. The rules are in .vale.ini and .vale.
//
//	prose VALE [FILE...]
//
// VALE is the path of vale. Without files it checks those that git tracks. It
// prints each finding as FILE:LINE: message, and exits with status 1 if there is
// one.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/larder-registry/larder/pkg/client/git"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: prose VALE [FILE...]")
		os.Exit(2)
	}
	found, err := check(context.Background(), os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	for _, finding := range found {
		fmt.Println(finding)
	}
	if len(found) > 0 {
		fmt.Printf("%d findings\n", len(found))
		os.Exit(1)
	}
}

// check returns what vale finds in files, or in all tracked files if there are
// none.
func check(ctx context.Context, vale string, files []string) ([]string, error) {
	vale, err := filepath.Abs(vale)
	if err != nil {
		return nil, err
	}
	config, err := filepath.Abs(".vale.ini")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		checkout, err := git.Open(ctx, ".")
		if err != nil {
			return nil, err
		}
		out, err := checkout.Run(ctx, "ls-files", "*.go", "*.md", ":!*/testdata/*", ":!*/templates/*")
		if err != nil {
			return nil, err
		}
		files = strings.Fields(string(out))
	}
	dir, err := os.MkdirTemp("", "prose-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, file := range files {
		if err := convert(file, filepath.Join(dir, file)); err != nil {
			return nil, err
		}
	}
	return run(ctx, dir, vale, config)
}

// convert writes the prose of a file as Markdown, on the same lines as in the
// file.
func convert(from, to string) error {
	text, err := os.ReadFile(from) //nolint:gosec // git lists the file, or the caller names it
	if errors.Is(err, os.ErrNotExist) {
		return nil // git tracks it until its removal is committed
	}
	if err != nil {
		return err
	}
	if filepath.Ext(from) == ".go" {
		if text, err = markdown(from, text); err != nil {
			return err
		}
		to += ".md"
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil { //nolint:gosec // in a temporary folder
		return err
	}
	return os.WriteFile(to, text, 0o600) //nolint:gosec // in a temporary folder
}

// finding matches a line of vale's output: file, line, column, rule, message.
var finding = regexp.MustCompile(`^(.+?)(?:\.go)?\.md:(\d+):\d+:([\w.]+):(.*)$`)

// run returns vale's findings in a folder, with the names of the files that were
// converted.
func run(ctx context.Context, dir, vale, config string) ([]string, error) {
	//nolint:gosec // the caller names the program
	cmd := exec.CommandContext(ctx, vale, "--config", config, "--output=line", "--no-global", ".")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		return nil, fmt.Errorf("vale: %w: %s", err, stderr.Bytes())
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		match := finding.FindStringSubmatch(line)
		if match == nil {
			return nil, fmt.Errorf("vale prints %q", line)
		}
		file := strings.TrimSuffix(line[:strings.Index(line, ".md:")+len(".md")], ".md")
		if filepath.Ext(file) != ".go" {
			file += ".md"
		}
		found = append(found, fmt.Sprintf("%s:%s: %s (%s)", file, match[2], match[4], match[3]))
	}
	return found, nil
}
