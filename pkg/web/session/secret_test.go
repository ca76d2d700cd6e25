package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/web/session"
)

// A secret in a file is read again for each login.
func TestFileSecret(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	path := filepath.Join(t.TempDir(), "secret")
	secret := session.FileSecret(&openid.Login{Web: &openid.WebClient{Client: "w", SecretFile: openid.Place(path)}})
	for _, test := range []struct {
		name, content, want string
	}{
		{"first", "s3cret\n", "s3cret"}, {"changed", "  other \r\n", "other"}, {"empty", "\n", ""},
		{"UTF-16", "\xFF\xFEo\x00k\x00\r\x00\n\x00", "ok"}, {"another encoding", "s3cret\xe9", ""},
		{"long", strings.Repeat("s3cret", 2000), ""}, {"missing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := os.WriteFile(path, []byte(test.content), 0o600)
			if test.name == "missing" {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := secret(t.Context())
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("%q, %v", got, err)
			}
			if err != nil {
				if errors.Is(err, registry.ErrInvalid) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("%v blames the caller, or has the secret", err)
				}
				texts.Error(t, err)
			}
		})
	}
	for _, none := range []*openid.Login{nil, {}, {Web: &openid.WebClient{Client: "w"}}} {
		if session.FileSecret(none) != nil {
			t.Errorf("a secret of %+v", none)
		}
	}
}
