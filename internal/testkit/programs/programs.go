// Package programs finds and starts the programs that tests need, and reserves
// addresses for them to listen on.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
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
		if err = refuses(ctx, address); err == nil {
			reserved.Store(address, held)
			return address, nil
		}
		_ = held.Close()
	}
	return "", err
}

// CloseListener closes a listener. Its address is free when CloseListener
// returns. After only Close, a process that starts meanwhile has a copy of the
// listener until its program runs.
func CloseListener(ctx context.Context, l net.Listener) error {
	err := l.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for err == nil && refuses(ctx, l.Addr().String()) != nil {
		time.Sleep(time.Millisecond)
		err = ctx.Err()
	}
	return err
}

// refuses returns an error unless connections to an address are refused. A
// listener would be a surer test, but see [CloseListener].
func refuses(ctx context.Context, address string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		_ = conn.Close()
		err = fmt.Errorf("a program listens on %s", address)
	}
	return err
}
