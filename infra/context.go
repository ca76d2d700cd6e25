package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/jsonfile"
)

// The keys of CDK context that this app reads. All others belong to the CDK.
const (
	contextSettings  = "settings"
	contextAllowDrop = "allow-drop"
)

// The files from which the CDK reads context. It writes only the first.
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

// readContext reads the choices from CDK context. Before settings.json,
// releases stored the settings there. readContext moves the settings that it
// can move, and returns an error if there are any.
func readContext(context map[string]any) (choices, error) {
	c := choices{file: defaultFile}
	if file, ok := context[contextSettings]; ok {
		if c.file, ok = file.(string); !ok || c.file == "" {
			return c, fmt.Errorf("cannot use context %s: %q is not the name of a file", contextSettings,
				fmt.Sprint(file))
		}
	}
	inContextFile, err := contextOf(contextFile)
	if err != nil {
		return c, err
	}
	inAppFile, err := contextOf(appFile)
	if err != nil {
		return c, err
	}
	if allowed, ok := context[contextAllowDrop]; ok {
		for name, has := range map[string]map[string]json.RawMessage{contextFile: inContextFile, appFile: inAppFile} {
			if _, there := has[contextAllowDrop]; there {
				return c, fmt.Errorf("cannot use context %s: it is valid for one command only: remove it from %s",
					contextAllowDrop, name)
			}
		}
		for kind := range strings.SplitSeq(fmt.Sprint(allowed), ",") {
			if kind = strings.TrimSpace(kind); !slices.Contains(dropKinds, kind) {
				return c, fmt.Errorf("cannot use context %s: %s", contextAllowDrop, jsonfile.Unknown("kind", kind, dropKinds))
			}
			c.allowed = append(c.allowed, kind)
		}
	}
	var old []setting
	own := make(map[string]bool)
	for _, s := range defaultSettings().keys() {
		own[s.key] = true
		if _, there := context[s.key]; there {
			old = append(old, s)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(context)) {
		known := key == contextSettings || key == contextAllowDrop || own[key]
		if !known && !ofCDK(key) {
			all := slices.AppendSeq([]string{contextSettings, contextAllowDrop}, maps.Keys(own))
			slices.Sort(all)
			return c, fmt.Errorf("cannot use CDK context: %s (settings are in %s)", jsonfile.Unknown("key", key, all), c.file)
		}
	}
	if len(old) == 0 {
		return c, nil
	}
	m := mover{to: c.file, context: context, inContextFile: inContextFile, inAppFile: inAppFile, write: replaceFile}
	return c, m.move(old)
}

// ofCDK reports whether a context key belongs to the CDK.
func ofCDK(key string) bool {
	return strings.HasPrefix(key, "@") || strings.Contains(key, ":") ||
		key == "cli-telemetry" || key == "acknowledged-issue-numbers"
}

// contextOf returns the context in a file of the CDK. It returns nil if the
// file does not exist.
func contextOf(name string) (map[string]json.RawMessage, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read context: %w", err)
	}
	var all map[string]json.RawMessage
	err = json.Unmarshal(text, &all)
	if err == nil && name == appFile {
		context := all["context"]
		all = nil
		if context != nil {
			err = json.Unmarshal(context, &all)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read context: %s: %w", name, err)
	}
	return all, nil
}

// mover moves settings from CDK context to the file of settings.
type mover struct {
	to                       string
	context                  map[string]any
	inContextFile, inAppFile map[string]json.RawMessage
	write                    func(name string, text []byte) error
}

// move moves the settings in cdk.context.json to the settings file, unless that
// exists and differs. It always returns an error, which lists the settings that
// it moved and the steps that are left. If it is interrupted, each setting is
// in at least one of the two files.
func (m mover) move(old []setting) error {
	var steps []string
	has := make(map[string]json.RawMessage)
	current, err := os.ReadFile(m.to)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return fmt.Errorf("cannot read the settings: %w", err)
	}
	if !fresh {
		if err := json.Unmarshal(current, &has); err != nil {
			_, err = parseFile(m.to, current)
			return err
		}
	}
	var moved, same, missing, inApp, onLine []setting
	for _, s := range old {
		line, here := m.inContextFile[s.key]
		switch _, app := m.inAppFile[s.key]; {
		case here && fresh:
			moved = append(moved, s)
		case here && equalJSON(has[s.key], typed(s, decoded(line))):
			same = append(same, s)
		case here:
			missing = append(missing, s)
		case app:
			inApp = append(inApp, s)
		default:
			onLine = append(onLine, s)
		}
	}
	if len(moved) > 0 {
		if err := m.write(m.to, m.file(moved)); err != nil {
			return fmt.Errorf("cannot move settings from %s to %s: %w", contextFile, m.to, err)
		}
	}
	if gone := append(moved, same...); len(gone) > 0 {
		if err := m.remove(gone); err != nil {
			return fmt.Errorf("cannot remove settings from %s, which are now in %s: %w", contextFile, m.to, err)
		}
	}
	add := func(of []setting, format string, args ...any) {
		if len(of) > 0 {
			steps = append(steps, fmt.Sprintf(format, args...))
		}
	}
	add(moved, "Moved from %s to %s: %s.", contextFile, m.to, names(moved))
	add(same, "Removed from %s, since %s has the same values: %s.", contextFile, m.to, names(same))
	add(missing, "%s exists and was not changed. Add or change these lines in it, and remove the keys from %s:\n%s",
		m.to, contextFile, m.lines(missing))
	add(inApp, "Add or change these lines in %s, and remove the keys from %s:\n%s", m.to, appFile, m.lines(inApp))
	add(onLine, "Add or change these lines in %s instead of using -c:\n%s", m.to, m.lines(onLine))
	return fmt.Errorf("cannot read settings from CDK context: they belong in the file %s.\n%s\n"+
		"Review %s, commit it, and run the command again", m.to, strings.Join(steps, "\n"), m.to)
}

// value returns the value of a setting in context, as the type that the
// settings file needs.
func (m mover) value(s setting) any {
	if line, here := m.inContextFile[s.key]; here {
		return typed(s, decoded(line))
	}
	return typed(s, m.context[s.key])
}

// lines returns settings as lines of the settings file.
func (m mover) lines(of []setting) string {
	var lines []string
	for _, s := range of {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("  ", "  ")
		if err := e.Encode(m.value(s)); err != nil {
			panic(err) // the value was decoded from JSON
		}
		lines = append(lines, fmt.Sprintf("  %q: %s", s.key, bytes.TrimSpace(out.Bytes())))
	}
	return strings.Join(lines, ",\n")
}

func (m mover) file(of []setting) []byte {
	schema := ""
	if filepath.Dir(m.to) == "." {
		schema = "  \"$schema\": \"./settings.schema.json\",\n"
	}
	return []byte("{\n" + schema + m.lines(of) + "\n}\n")
}

// remove removes settings from cdk.context.json.
func (m mover) remove(gone []setting) error {
	rest := maps.Clone(m.inContextFile)
	for _, s := range gone {
		delete(rest, s.key)
	}
	text, err := json.MarshalIndent(rest, "", "  ")
	if err != nil {
		return err
	}
	return m.write(contextFile, append(text, '\n'))
}

func names(of []setting) string {
	var all []string
	for _, s := range of {
		all = append(all, s.key)
	}
	return strings.Join(all, ", ")
}

func decoded(line json.RawMessage) any {
	var v any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(err) // the line is valid JSON
	}
	return v
}

func equalJSON(line json.RawMessage, v any) bool {
	if line == nil {
		return false
	}
	text, err := json.Marshal(v)
	return err == nil && reflect.DeepEqual(decoded(line), decoded(text))
}

// typed converts text to the type of its setting, if it is a valid value of
// that type. All values of a command line are text.
func typed(s setting, v any) any {
	text, ok := v.(string)
	if !ok {
		return v
	}
	switch s.into.(type) {
	case *string:
		return text
	case *int:
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	default: // true, false or an object
		if json.Valid([]byte(text)) {
			return decoded(json.RawMessage(text))
		}
	}
	return text
}

// replaceFile replaces a file atomically: a reader sees the old content or the
// new content.
func replaceFile(name string, text []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	if _, err := temporary.Write(text); err != nil {
		return err
	}
	if err := errors.Join(temporary.Sync(), temporary.Chmod(0o644), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
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
