package programs

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"time"
)

// Server is a program that serves on loopback.
type Server struct {
	cmd   *exec.Cmd
	out   bytes.Buffer
	ended chan struct{}
}

// Serve starts a command, which listens on an address from [ReserveAddress], and
// waits until it does. If the command exits before, or does not listen for minutes,
// the error has its output. The caller closes the server.
func Serve(ctx context.Context, cmd *exec.Cmd, address string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	s := &Server{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(s.ended)
	}()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return s, conn.Close()
		}
		select {
		case <-s.ended:
			return nil, fmt.Errorf("the program exited: %s\n%s", cmd.ProcessState, &s.out)
		case <-ctx.Done():
			s.Close()
			return nil, fmt.Errorf("the program does not listen: %w\n%s", ctx.Err(), &s.out)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Close ends the program with its command's Cancel.
func (s *Server) Close() {
	_ = s.cmd.Cancel()
	<-s.ended
}
