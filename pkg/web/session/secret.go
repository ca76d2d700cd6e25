package session

import (
	"context"
	"errors"
	"strings"

	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/files/textfile"
)

// maxSecret bounds the file with a secret, in bytes.
const maxSecret = 8 << 10

// FileSecret returns a function that reads the secret of a login's web client
// from its file, without white space around it. It returns nil if the client has
// no secret in a file. The file is read at each login, so a new secret is used
// at once.
func FileSecret(l *openid.Login) func(context.Context) (string, error) {
	if l == nil || l.Web == nil || l.Web.SecretFile == "" {
		return nil
	}
	return func(context.Context) (string, error) {
		text, err := textfile.Read(string(l.Web.SecretFile), maxSecret)
		if err != nil {
			// not registry.ErrInvalid, because it is not the caller's mistake
			return "", errors.New(err.Error())
		}
		secret := strings.TrimSpace(string(text))
		if secret == "" {
			return "", errors.New("the file is empty")
		}
		return secret, nil
	}
}
