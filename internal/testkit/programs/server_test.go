package programs_test

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// A reserved address is free for a server, but not for another reservation.
func TestReserveAddress(t *testing.T) {
	address, err := programs.ReserveAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if held, err := config.ListenPacket(t.Context(), "udp4", address); err == nil {
		held.Close()
		t.Errorf("%s can be reserved again", address)
	}
}

// A closed listener's address is free while other processes start.
func TestCloseListener(t *testing.T) {
	var starting sync.WaitGroup
	defer starting.Wait()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 4 {
		starting.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
			}
		})
	}
	address, err := programs.ReserveAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	for i := range 2000 {
		l, err := config.Listen(t.Context(), "tcp4", address)
		if err != nil {
			t.Fatalf("listener %d: %v", i, err)
		}
		if err := programs.CloseListener(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
}

// A program that exits before it listens is an error with its output.
func TestServeExits(t *testing.T) {
	address, err := programs.ReserveAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = programs.Serve(t.Context(), exec.CommandContext(t.Context(), "sh", "-c", "echo unknown option; exit 3"), address)
	if err == nil || !strings.Contains(err.Error(), "exit status 3\nunknown option") {
		t.Error(err)
	}
}
