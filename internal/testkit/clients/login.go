package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/creack/pty"
)

// loginTimeout is how long a login may take, since a client waits for its user for ever.
const loginTimeout = time.Minute

var (
	style        = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	authorizeURL = regexp.MustCompile(`(https?://\S+[?&]response_type=code\S*)\s*\n`)
)

// Login logs a client in to a host as a person does at a terminal, and returns all it printed, without colours. It answers
// yes to where the client says it will keep the token. visit is the person's browser: it is called with the URL that the
// client prints, and must come back to the client. Login fails where visit or the client does.
func (s Session) Login(ctx context.Context, host string, visit func(authorizeURL string) error) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	cmd, err := s.command(ctx, s.Home, "login", host)
	if err != nil {
		return "", err
	}
	// Terraform keeps the token there, and fails where the folder is not there yet.
	if err := os.MkdirAll(filepath.Join(s.Home, ".terraform.d"), 0o700); err != nil {
		return "", err
	}
	// Both clients look on PATH for what opens a browser. Where there is nothing, they print the URL alone.
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(s.Home, "no-programs"))
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 8192}) // so wide that no URL wraps
	if err != nil {
		return "", fmt.Errorf("%s login in a terminal: %w", s.Client.Name, err)
	}
	defer terminal.Close()

	var visited chan error
	var raw bytes.Buffer
	var said string
	var answered bool
	for chunk := make([]byte, 4096); ; {
		n, err := terminal.Read(chunk)
		raw.Write(chunk[:n])
		said = style.ReplaceAllString(strings.ReplaceAll(raw.String(), "\r\n", "\n"), "")
		if err != nil {
			break // nobody has the terminal open any more
		}
		if !answered && strings.Contains(said, "Enter a value:") {
			answered = true
			_, _ = terminal.WriteString("yes\n") // to a client that has ended; then so does the next Read
		}
		if found := authorizeURL.FindStringSubmatch(said); found != nil && visited == nil {
			visited = make(chan error, 1)
			go func() {
				err := visit(found[1])
				if err != nil {
					cancel() // or the client would wait for ever
				}
				visited <- err
			}()
		}
	}
	timedOut := ctx.Err()
	err = cmd.Wait()
	if visited != nil {
		if visitErr := <-visited; visitErr != nil {
			return said, fmt.Errorf("%s login %s: %w:\n%s", s.Client.Name, host, visitErr, said)
		}
	} else if err == nil {
		err = errors.New("it printed no URL to open")
	}
	if errors.Is(timedOut, context.DeadlineExceeded) {
		err = timedOut // and not that it was killed
	}
	if err != nil {
		return said, fmt.Errorf("%s login %s: %w:\n%s", s.Client.Name, host, err, said)
	}
	return said, nil
}
