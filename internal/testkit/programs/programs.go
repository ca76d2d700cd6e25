// Package programs finds the programs that tests start, and free addresses for
// them to listen on.
package programs

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
)

// Required reports whether all programs that scripts/test builds must be
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

// FreeAddress returns a loopback address with a port that no process listens
// on. The port is random and below those that systems give to connections and to
// listeners on port 0. Thus, the address stays free until a server uses it.
func FreeAddress(ctx context.Context) (string, error) {
	const first, last, attempts = 20000, 31999, 100
	var config net.ListenConfig
	var err error
	for range attempts {
		var l net.Listener
		port := first + rand.IntN(last-first+1)
		l, err = config.Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", err
}
