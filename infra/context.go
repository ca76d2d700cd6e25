package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/files/jsonfile"
)

// The keys of CDK context that this app reads. All others belong to the CDK.
const (
	contextSettings  = "settings"
	contextAllowDrop = "allow-drop"
)

// The files from which the CDK reads context.
const (
	contextFile = "cdk.context.json"
	appFile     = "cdk.json"
)

// defaultFile is the settings file unless context names another one.
const defaultFile = "settings.json"

// choices are the options of a command line.
type choices struct {
	// file is the settings file. It must exist unless it is the default one.
	file string
	// allowed are the kinds of resources that a deploy may drop.
	allowed []string
}

func readContext(context map[string]any) (choices, error) {
	c := choices{file: defaultFile}
	if file, ok := context[contextSettings]; ok {
		if c.file, ok = file.(string); !ok || c.file == "" {
			return c, fmt.Errorf("cannot use context %s: %q is not the name of a file", contextSettings,
				fmt.Sprint(file))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(context)) {
		if own := []string{contextAllowDrop, contextSettings}; !slices.Contains(own, key) && !ofCDK(key) {
			return c, fmt.Errorf("cannot use CDK context: %s (settings are in %s)", jsonfile.Unknown("key", key, own), c.file)
		}
	}
	allowed, ok := context[contextAllowDrop]
	if !ok {
		return c, nil
	}
	for kind := range strings.SplitSeq(fmt.Sprint(allowed), ",") {
		if kind = strings.TrimSpace(kind); !slices.Contains(dropKinds, kind) {
			return c, fmt.Errorf("cannot use context %s: %s", contextAllowDrop, jsonfile.Unknown("kind", kind, dropKinds))
		}
		c.allowed = append(c.allowed, kind)
	}
	return c, checkFiles()
}

func ofCDK(key string) bool {
	return strings.HasPrefix(key, "@") || strings.Contains(key, ":") ||
		key == "cli-telemetry" || key == "acknowledged-issue-numbers"
}

// checkFiles returns an error if allow-drop is in a file of the CDK, where it
// would apply to all deploys.
func checkFiles() error {
	for _, name := range []string{appFile, contextFile} {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var context map[string]any
		if err == nil {
			err = json.Unmarshal(text, &context)
		}
		if err != nil {
			return fmt.Errorf("cannot read context: %s: %w", name, err)
		}
		if name == appFile {
			context, _ = context["context"].(map[string]any)
		}
		if _, there := context[contextAllowDrop]; there {
			return fmt.Errorf("cannot use context %s: it is valid for one command only: remove it from %s",
				contextAllowDrop, name)
		}
	}
	return nil
}

// loadSettings reads the settings file. The default file may be missing.
func loadSettings(c choices, region string) (Settings, error) {
	text, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) && c.file == defaultFile {
		return parseSettings(nil, region)
	}
	if err != nil {
		return Settings{}, fmt.Errorf("cannot read the settings: %w", err)
	}
	file, err := parseFile(c.file, text)
	if err != nil {
		return Settings{}, err
	}
	return parseSettings(file, region)
}
