package rehearsal

import (
	"context"
	_ "embed" // for sitecustomize.py
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// Moto is a moto_server, which emulates enough of AWS for the CDK to deploy to
// it.
type Moto struct {
	// URL has the host localhost, which the CDK needs.
	URL    string
	server *programs.Server
	dir    string // with sitecustomize.py
}

// sitecustomize is a Python file that lets moto update managed policies.
//
//go:embed moto/sitecustomize.py
var sitecustomize []byte

// ErrNoMoto means that moto_server is not on PATH.
var ErrNoMoto = errors.New("moto_server is not on PATH")

// StartMoto starts an empty account on a free port. It returns [ErrNoMoto] if
// there is no moto_server. The caller closes the result.
func StartMoto(ctx context.Context) (*Moto, error) {
	path, err := exec.LookPath("moto_server")
	if err != nil {
		return nil, ErrNoMoto
	}
	address, err := programs.ReserveAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	m := &Moto{URL: "http://localhost:" + port}
	if m.dir, err = os.MkdirTemp("", "moto-"); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(m.dir, "sitecustomize.py"), sitecustomize, 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(m.dir))
	}
	cmd := exec.CommandContext(ctx, path, "-H", "127.0.0.1", "-p", port)
	pythonPath := m.dir
	if others := os.Getenv("PYTHONPATH"); others != "" {
		pythonPath += string(filepath.ListSeparator) + others
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+pythonPath)
	inGroup(cmd) // it may be a script that starts the server
	if m.server, err = programs.Serve(ctx, cmd, address); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start moto_server: %w", err), os.RemoveAll(m.dir))
	}
	return m, nil
}

// Env returns environment variables with which programs use this account, and
// no other. They try often: moto answers 500 to a list of objects while another
// program stores one.
func (m *Moto) Env() []string {
	return []string{
		"AWS_MAX_ATTEMPTS=10",
		"AWS_ENDPOINT_URL=" + m.URL, "AWS_REGION=" + awstest.Region, "AWS_DEFAULT_REGION=" +
			awstest.Region, "AWS_ACCESS_KEY_ID=" + awstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + awstest.SecretKey,
		"AWS_SESSION_TOKEN=", "AWS_PROFILE=", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" +
			os.DevNull,
	}
}

// Close stops the server.
func (m *Moto) Close() {
	m.server.Close()
	_ = os.RemoveAll(m.dir)
}
