package local_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// What is wrong with an address is said in plain words, with what to do.
func TestAddressErrors(t *testing.T) {
	t.Parallel()
	for address, test := range map[string]struct{ reason, hint string }{
		"127.0.0.1:80a":      {`the port "80a" is not a number from 0 to 65535`, "such as 127.0.0.1:8443"},
		"127.0.0.1:65536":    {`the port "65536" is not a number from 0 to 65535`, "such as 127.0.0.1:8443"},
		"127.0.0.1:-1":       {`the port "-1" is not a number from 0 to 65535`, "such as 127.0.0.1:8443"},
		"127.0.0.1:https":    {`the port "https" is not a number from 0 to 65535`, "such as 127.0.0.1:8443"},
		"127.0.0.1":          {"the port is missing", "such as 127.0.0.1:8443"},
		"127.0.0.1:":         {"the port is missing", "such as 127.0.0.1:8443"},
		"8443":               {"the address before the port is missing", "Write 127.0.0.1:8443 for this machine alone."},
		"":                   {"the port is missing", "such as 127.0.0.1:8443"},
		":8443":              {"the address is missing", "0.0.0.0"},
		"::1:8443":           {"it is not an address and a port", "such as 127.0.0.1:8443"},
		"[::1]:8443":         {"it is an IPv6 address, and clients take no registry whose host has no dot", "IPv4"},
		"r.example.com:8443": {`"r.example.com" is not an IPv4 address`, "`--host`"},
		"0.0.0.0:0": {
			"other machines need a name to reach it by and a certificate that they trust",
			"Give `--host`, `--cert` and `--key`.",
		},
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			err := local.Options{Address: address}.Check(t.Context())
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("%v is not registry.ErrInvalid", err)
			}
			if want := "cannot listen on " + address + ": " + test.reason; err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
			if hint := registry.Hint(err); !strings.Contains(hint, test.hint) {
				t.Errorf("hint %q, want %q in it", hint, test.hint)
			}
		})
	}
}

// A port that cannot be had is said in plain words too.
func TestListenErrors(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	in := taken.Addr().String()
	err = local.Options{Address: in}.Check(t.Context())
	if want := "cannot listen on " + in + ": another program listens there"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if hint := registry.Hint(err); !strings.Contains(hint, "`--listen 127.0.0.1:0` picks a free one") {
		t.Errorf("hint %q", hint)
	}
	// An address for documentation, which no machine has.
	_, err = local.Listen(t.Context(), net.IPv4(192, 0, 2, 1), "0")
	if want := "cannot listen on 192.0.2.1:0: 192.0.2.1 is not an address of this machine"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if hint := registry.Hint(err); !strings.Contains(hint, "0.0.0.0 for all") {
		t.Errorf("hint %q", hint)
	}
	// Ports below 1024 are for privileged programs, which tests may be.
	err = local.ListenError("127.0.0.1:80", net.IPv4(127, 0, 0, 1), os.NewSyscallError("bind", syscall.EACCES))
	if want := "cannot listen on 127.0.0.1:80: this user may not use port 80"; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if hint := registry.Hint(err); !strings.Contains(hint, "below 1024") {
		t.Errorf("hint %q", hint)
	}
	// Anything else is without the name of a system call.
	err = local.ListenError("127.0.0.1:80", net.IPv4(127, 0, 0, 1), &net.OpError{Op: "listen", Err: os.NewSyscallError("socket", syscall.EMFILE)})
	if want := "cannot listen on 127.0.0.1:80: " + syscall.EMFILE.Error(); err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
