// Package programs finds and starts the programs that tests need, and reserves
// addresses for them to listen on.
package programs

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// Required reports whether all programs that scripts/tools builds must be
// present. Otherwise a test without its program is skipped.
func Required() bool { return os.Getenv("LARDER_REQUIRE_CLIENTS") != "" }

// InCheckout returns the path of a file in the checkout that contains the
// working directory. name is relative to the checkout's root.
func InCheckout(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			path := filepath.Join(dir, name)
			_, err := os.Stat(path)
			return path, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fs.ErrNotExist
		}
		dir = up
	}
}

// reserved has the sockets that reserve addresses.
var reserved sync.Map

// ReserveAddress returns a loopback address that no process listens on and that
// no other call returns, in any process, until this process ends. The port is
// below those that systems give to connections and to listeners on port 0.
func ReserveAddress(ctx context.Context) (string, error) {
	const first, last, attempts = 20000, 31999, 100
	var config net.ListenConfig
	var err error
	for range attempts {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first+1))
		// TCP and UDP have ports of their own. Only the exclusiveness of
		// the UDP port is used.
		var held net.PacketConn
		if held, err = config.ListenPacket(ctx, "udp4", address); err != nil {
			continue
		}
		var l net.Listener
		if l, err = config.Listen(ctx, "tcp4", address); err != nil {
			_ = held.Close()
			continue
		}
		reserved.Store(address, held)
		return address, l.Close()
	}
	return "", err
}
