package arguments_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// The path of a command is explained only if it is the reason for the error.
func TestExplainPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	for _, name := range []string{"vpc/main.tf", "a/b/c/d/e/f/g/h"} {
		if err := os.MkdirAll(filepath.Dir(in(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("gone", in("link")); err != nil {
		t.Skip("LEFT OUT: this system has no symbolic links")
	}
	missing := errs.Errorf(registry.ErrInvalid, "%w", fs.ErrNotExist)
	invalid := errs.Errorf(registry.ErrInvalid, "it is odd")
	for name, test := range map[string]struct {
		use     string
		creates bool
		args    []string
		err     error
		want    error  // the kind of the result
		text    string // part of the error
		hint    string // part of the hint; "" for the hint of err
	}{
		"a near folder":        {use: "x DIR", args: []string{in("vcp")}, err: missing, want: registry.ErrNotFound, hint: "Did you mean " + in("vpc") + "?"},
		"a near file":          {use: "x FILE", args: []string{in("vpc/main.tff")}, err: missing, want: registry.ErrNotFound, hint: "Did you mean " + in("vpc/main.tf") + "?"},
		"no file for a folder": {use: "x DIR", args: []string{in("vpc/main")}, err: missing, want: registry.ErrNotFound, hint: "Check the path."},
		"a folder above":       {use: "x FILE", args: []string{in("no/such/file")}, err: missing, want: registry.ErrNotFound, text: in("no"), hint: "Check the path."},
		"a dangling link":      {use: "x FILE", args: []string{in("link")}, err: missing, want: registry.ErrNotFound, hint: "It is a symbolic link to gone"},
		"a file to create":     {use: "x FILE", creates: true, args: []string{in("new.tar")}, err: missing, want: registry.ErrInvalid},
		"no folder for it":     {use: "x FILE", creates: true, args: []string{in("no/new.tar")}, err: missing, want: registry.ErrNotFound, hint: "Create the folder"},
		"a file as folder":     {use: "x DIR", args: []string{in("vpc/main.tf")}, err: invalid, want: registry.ErrInvalid, hint: "Name the folder that contains it."},
		"a folder as file":     {use: "x FILE", args: []string{in("vpc")}, err: invalid, want: registry.ErrInvalid, hint: "Name a file in this folder."},
		"a folder to write to": {use: "x FILE", creates: true, args: []string{in("vpc")}, err: invalid, want: registry.ErrInvalid},
		"another hint": {
			use: "x FILE", args: []string{in("vpc")}, err: registry.WithHint(invalid, "Do that."), want: registry.ErrInvalid, hint: "Do that.",
		},
		"a mistake in the arguments": {use: "x FILE", args: []string{in("vpc")}, err: arguments.Errorf("too many"), text: "too many"},
		"another error":              {use: "x FILE", args: []string{in("no")}, err: fs.ErrPermission, want: fs.ErrPermission},
		"no path":                    {use: "x NAME", args: []string{in("no")}, err: missing, want: registry.ErrInvalid},
		"the content of a file":      {use: "x", args: []string{"--key", "secret\nof a/file"}, err: missing, text: "--key has the content of a file"},
	} {
		cmd := &cobra.Command{Use: test.use, Run: func(*cobra.Command, []string) {}}
		cmd.Flags().String("key", "", "`FILE` with a key")
		if test.creates {
			cmd.Annotations = map[string]string{arguments.CreatesPath: "yes"}
		}
		cmd.SetArgs(test.args)
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		err := arguments.ExplainPath(cmd, test.err)
		if test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: got the error %v, want %v", name, err, test.want)
		}
		if !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: the error %q does not contain %q", name, err, test.text)
		}
		if hint := registry.Hint(err); test.hint == "" != (hint == "") && test.text == "" || !strings.Contains(hint, test.hint) {
			t.Errorf("%s: the hint is %q, want %q", name, hint, test.hint)
		}
		if strings.Contains(err.Error()+registry.Hint(err), "secret") {
			t.Errorf("%s: the content is in the error: %v", name, err)
		}
	}
}
