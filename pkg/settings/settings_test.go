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
		{Table: "t", Bucket: "b", PresignLifetime: time.Minute, Access: `{"public":["**"]}`, PathStyle: true},
	} {
		env := want.Environment()
		if got, err := settings.FromEnvironment(func(name string) string { return env[name] }); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}

func TestWrong(t *testing.T) {
	t.Parallel()
	good := settings.Settings{Table: "t", Bucket: "b", PresignLifetime: time.Hour}.Environment()
	for name, values := range map[string][]string{
		"LARDER_TABLE": {""}, "LARDER_BUCKET": {""}, "LARDER_S3_PATH_STYLE": {"yes", "1"},
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
	if _, err := settings.FromEnvironment(func(string) string { return "" }); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("nothing is set: %v", err)
	}
}
