package publish

import (
	"fmt"
	"path"
	"slices"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/content/secrets"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// AllowSecretsFlag adds --allow-secret to a command.
func AllowSecretsFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringArrayVar(paths, "allow-secret", nil,
		"`PATH` of a file or folder of the module that may have secrets; can be repeated")
}

// CheckAllowSecrets checks the values of --allow-secret, and cleans them: shells
// complete folders with a slash.
func CheckAllowSecrets(paths []string) error {
	for i, p := range paths {
		if p != "" {
			paths[i] = path.Clean(p)
		}
	}
	if err := secrets.CheckAllowed(paths); err != nil {
		return registry.WithHint(arguments.Errorf("--allow-secret: %w", err), "%s", registry.Hint(err))
	}
	return nil
}

// secretNotes describes secrets that do not prevent publishing.
func secretNotes(found []secrets.Finding) (notes []string) {
	for _, f := range found {
		notes = append(notes, f.String()+", which is published already")
	}
	return notes
}

// UnmatchedWarnings warns of paths where secrets are allowed without a file.
func UnmatchedWarnings(paths []string) (all []string) {
	for _, path := range paths {
		all = append(all, fmt.Sprintf("no file of the module is at or below %s, where secrets are allowed",
			arguments.Quoted(printable.Escape(path))))
	}
	return all
}

// InBoth returns the paths of a list that another has too.
func InBoth(paths, others []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return !slices.Contains(others, path) })
}
