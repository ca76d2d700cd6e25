package settings_test

import (
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/settings"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []settings.Settings{
		{Table: "t", Bucket: "b", PresignLifetime: time.Hour, Access: "{}"},
		{Table: "t", Bucket: "b", PresignLifetime: time.Minute, Access: `{"public":["**"]}`, PathStyle: true, ReadOnly: true},
		{Table: "t", Bucket: "b", PresignLifetime: time.Hour, Access: "{}", IPv6: true},
	} {
		env := want.Environment()
		if got, err := settings.FromEnvironment(func(name string) string { return env[name] }); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	// Without access settings, nobody may read without a token.
	env := settings.Settings{Table: "t", Bucket: "b", PresignLifetime: time.Hour}.Environment()
	if got, err := settings.FromEnvironment(func(name string) string { return env[name] }); err != nil ||
		got.Access != "{}" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Without settings for logging in, there is no variable.
func TestLogin(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"", `{"issuer":"https://a.example.com","client":"c"}`} {
		env := settings.LoginEnvironment(want)
		if got := settings.Login(func(name string) string { return env[name] }); got != want {
			t.Errorf("%v: %s, want %s", env, got, want)
		}
		if (len(env) == 0) != (want == "") {
			t.Errorf("the environment is %v for %q", env, want)
		}
	}
}

// The functions find the one that fetches providers, which finds its settings.
func TestPull(t *testing.T) {
	t.Parallel()
	for _, want := range []settings.Pull{{Copies: 2}, {Folder: "/tmp/larder", Release: "v1.2.3", Copies: 1000}} {
		env := want.Environment()
		got, err := settings.PullFromEnvironment(func(name string) string { return env[name] })
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	for _, copies := range []string{"0", "1001", "x"} {
		_, err := settings.PullFromEnvironment(func(name string) string {
			return map[string]string{"LARDER_PULL_COPIES": copies}[name]
		})
		if err == nil || !strings.Contains(err.Error(), "LARDER_PULL_COPIES") {
			t.Errorf("%s copies: %v", copies, err)
		}
	}
	for _, want := range []string{"", "larder-pull"} {
		env := settings.PullFunctionEnvironment(want)
		if got := settings.PullFunction(func(name string) string { return env[name] }); got != want {
			t.Errorf("function %q, want %q", got, want)
		}
	}
	if settings.PullBytes >= settings.PullStorageMiB<<20 {
		t.Error("the packages of a version do not fit into the temporary storage")
	}
}

func TestWrong(t *testing.T) {
	t.Parallel()
	good := settings.Settings{Table: "t", Bucket: "b", PresignLifetime: time.Hour}.Environment()
	for name, values := range map[string][]string{
		"LARDER_TABLE": {""}, "LARDER_BUCKET": {""}, "LARDER_S3_PATH_STYLE": {"yes", "1"},
		"LARDER_READ_ONLY":       {"yes", "1"},
		"LARDER_PRESIGN_SECONDS": {"", "x", "0", "59", "-1", "43201", "3600s", "99999999999999999999"},
	} {
		for _, value := range values {
			_, err := settings.FromEnvironment(func(n string) string {
				if n == name {
					return value
				}
				return good[n]
			})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
	_, err := settings.FromEnvironment(func(string) string { return "" })
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("nothing is set: %v", err)
	}
}

func TestPublishLimits(t *testing.T) {
	t.Parallel()
	read := func(env map[string]string) (settings.PublishLimits, error) {
		return settings.PublishLimitsFromEnvironment(func(name string) string { return env[name] })
	}
	for _, want := range []settings.PublishLimits{
		settings.DefaultPublishLimits, settings.MinPublishLimits, settings.MaxPublishLimits,
		{FileBytes: 2 << 20, Files: 3, Uploads: 4, Inspections: 5, AllInspections: 6},
	} {
		if got, err := read(want.Environment()); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	if got, err := read(nil); err != nil || got != settings.DefaultPublishLimits {
		t.Errorf("nothing is set: %+v, %v", got, err)
	}
	for name, values := range map[string][]string{
		"LARDER_PUBLISH_FILE_BYTES": {
			"x", "0", "-1", "1048575", "5368709121", "1e9", "+2097152", " 2097152", "99999999999999999999",
		},
		"LARDER_PUBLISH_FILES":           {"0", "501", "010", "1.5"},
		"LARDER_PUBLISH_UPLOADS":         {"0", "101", "4294967297"},
		"LARDER_PUBLISH_INSPECTIONS":     {"0", "101", "x"},
		"LARDER_PUBLISH_ALL_INSPECTIONS": {"0", "1001", "x"},
	} {
		for _, value := range values {
			if _, err := read(map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
	_, err := read(map[string]string{
		"LARDER_PUBLISH_FILE_BYTES": "x", "LARDER_PUBLISH_FILES": "x", "LARDER_PUBLISH_UPLOADS": "x",
	})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three are wrong: %v", err)
	}
}
