package local

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/web/session"
)

// accessFile is the file with the access settings of a server. A server without
// one has no path, and the settings are empty.
type accessFile struct {
	path string
	log  *slog.Logger
	now  func() time.Time
	// apply makes the server use new settings.
	apply func(ctx context.Context, s access.Settings)
	// isValid is false while the file cannot be used.
	isValid atomic.Bool

	failure
	settings access.Settings
	// read is the content of the file when it was last used.
	read []byte
}

// openAccess reads the settings for the first time. It returns
// [registry.ErrInvalid] if the file cannot be used.
func openAccess(ctx context.Context, path string, log *slog.Logger) (*accessFile, error) {
	f := &accessFile{path: path, log: log, now: time.Now}
	f.isValid.Store(true)
	if path == "" {
		return f, nil
	}
	text, err := readFile(path, "")
	if err != nil {
		return nil, registry.Errorf(registry.ErrInvalid, "%w", err)
	}
	if f.settings, err = parseAccess(ctx, path, text); err != nil {
		return nil, err
	}
	f.read = text
	return f, nil
}

// parseAccess parses the text of a file, and reads the file of the web client's
// secret, if there is one.
func parseAccess(ctx context.Context, path string, text []byte) (access.Settings, error) {
	text, err := textfile.Decode(path, text)
	if err != nil {
		return access.Settings{}, err
	}
	s, err := access.ParseSettingsFile(path, text)
	if err != nil {
		if registry.Hint(err) == "" {
			err = registry.WithHint(err, "Run `larder help access` for a description of the file.")
		}
		return s, err
	}
	if secret := session.FileSecret(s.Login); secret != nil {
		if _, err := secret(ctx); err != nil {
			return s, registry.Errorf(registry.ErrInvalid,
				"cannot use secretFile %s in login.web of the access settings: %w", s.Login.Web.SecretFile, err)
		}
	}
	return s, nil
}

// update implements [reloaded].
func (f *accessFile) update(ctx context.Context) {
	if f.path == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var next access.Settings
	read, err := readFile(f.path, "")
	changed := err == nil && !bytes.Equal(read, f.read)
	if changed {
		next, err = parseAccess(ctx, f.path, read)
	}
	if err != nil {
		f.isValid.Store(false)
		if _, isDue := f.fail(err, f.now()); isDue {
			attrs := []any{slog.Any("error", err)}
			if hint := registry.Hint(err); hint != "" {
				attrs = append(attrs, slog.String("hint", hint))
			}
			f.log.Error("cannot use the changed access settings, continuing with the earlier ones", attrs...)
		}
		return
	}
	failed := f.end()
	f.isValid.Store(true)
	switch {
	case changed:
		f.use(ctx, next, read)
	case failed:
		f.log.Info("the access settings in use are in the file again", slog.String("file", f.path))
	}
}

// use makes the server use new settings, and logs how they differ.
func (f *accessFile) use(ctx context.Context, next access.Settings, text []byte) {
	earlier := f.settings
	f.apply(ctx, next)
	f.settings, f.read = next, text
	f.log.Info("using the changed access settings", slog.String("file", f.path))
	for _, c := range next.Changes(earlier) {
		f.log.LogAttrs(ctx, slog.LevelInfo, "access has changed", c.Attrs()...)
	}
	for _, warning := range next.Warnings() {
		if !slices.Contains(earlier.Warnings(), warning) {
			f.log.Warn(f.path + ": " + warning)
		}
	}
}
