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

// loginTimeout is the timeout of a login. Clients themselves wait without end.
const loginTimeout = time.Minute

var (
	style        = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	authorizeURL = regexp.MustCompile(`(https?://\S+[?&]response_type=code\S*)\s*\n`)
)

// Login logs a client in to a host like a person at a terminal. It returns all
// output, without colors. It answers yes to the prompt about storing the token.
//
// visit acts as the person's browser. It is called with the URL that the client
// prints, and must send a response to the client. Login returns an error if
// visit or the client fails.
func (s Session) Login(ctx context.Context, host string, visit func(authorizeURL string) error) (output string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	cmd, err := s.command(ctx, s.Home, "login", host)
	if err != nil {
		return "", err
	}
	// Terraform stores the token there, and fails if the folder does not exist.
	if err := os.MkdirAll(filepath.Join(s.Home, ".terraform.d"), 0o700); err != nil {
		return "", err
	}
	// Both clients look on PATH for a program that opens a browser. Without
	// one, they only print the URL.
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(s.Home, "no-programs"))
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 8192}) // wide enough that no URL wraps
	if err != nil {
		return "", fmt.Errorf("cannot run %s login in a terminal: %w", s.Client.Name, err)
	}
	defer terminal.Close()

	var visited chan error
	var raw bytes.Buffer
	var printed string
	var answered bool
	for chunk := make([]byte, 4096); ; {
		n, err := terminal.Read(chunk)
		raw.Write(chunk[:n])
		printed = style.ReplaceAllString(strings.ReplaceAll(raw.String(), "\r\n", "\n"), "")
		if err != nil {
			break // no process has the terminal open
		}
		if !answered && strings.Contains(printed, "Enter a value:") {
			answered = true
			_, _ = terminal.WriteString("yes\n") // if the client has exited, the next Read fails too
		}
		if found := authorizeURL.FindStringSubmatch(printed); found != nil && visited == nil {
			visited = make(chan error, 1)
			go func() {
				err := visit(found[1])
				if err != nil {
					cancel() // otherwise the client would wait without end
				}
				visited <- err
			}()
		}
	}
	timedOut := ctx.Err()
	err = cmd.Wait()
	if visited != nil {
		if visitErr := <-visited; visitErr != nil {
			return printed, fmt.Errorf("%s login %s: %w:\n%s", s.Client.Name, host, visitErr, printed)
		}
	} else if err == nil {
		err = errors.New("it printed no URL")
	}
	if errors.Is(timedOut, context.DeadlineExceeded) {
		err = timedOut // instead of the error that it was killed
	}
	if err != nil {
		return printed, fmt.Errorf("%s login %s: %w:\n%s", s.Client.Name, host, err, printed)
	}
	return printed, nil
}
