package programs_test

import (
	"net"
	"os/exec"
	"strings"
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
