package main

import (
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/smalldisk"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// fill fills the disk of a folder to the last byte.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "fill"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
}

// On a full disk, people can still revoke and withdraw. That frees space.
func TestReserve(t *testing.T) {
	t.Parallel()
	for name, served := range map[string]bool{"served": true, "folder": false} {
		t.Run(name, func(t *testing.T) { // one after the other, because both use much memory
			disk := smalldisk.New(t, "tmpfs", "size=257m")
			data := filepath.Join(disk, "data")
			larder(t, "init", "--store", data)
			content, err := io.ReadAll(io.LimitReader(rand.Reader, 12<<20))
			if err != nil {
				t.Fatal(err)
			}
			publishModule(t, data, "acme/large/aws", "1.0.0", map[string]string{
				"main.tf": withOutput("1")["main.tf"], "random.bin": string(content),
			})
			publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1"))
			larder(t, "token", "create", "--name", "ci", "--scope", "read:**", "--store", data)
			key := filepath.Join(t.TempDir(), "key.asc")
			signing := signingKey(t, "Ed25519")
			if err := os.WriteFile(key, signing.Public, 0o600); err != nil {
				t.Fatal(err)
			}
			id := strings.TrimSpace(larder(t, "key", "add", "acme", key, "--store", data, "--quiet"))
			if served {
				s := serve(t, data)
				t.Cleanup(func() { s.stop(t) }) // before the disk is unmounted
			}
			// Others fill the disk again after each command.
			fill(t, disk)
			larder(t, "token", "revoke", "ci", "--store", data)
			fill(t, disk)
			larder(t, "key", "remove", "acme", id, "--store", data)
			fill(t, disk)
			module := t.TempDir()
			writeFiles(t, module, withOutput("2"))
			if out := fails(t, failure.ExitFailed, "publish", "module", module, "acme/vpc/aws", "2.0.0", "--store", data); !strings.Contains(
				out, "the disk is full") {
				t.Errorf("publish prints %s", out)
			}
			before := free(t, disk)
			larder(t, "withdraw", "acme/large/aws", "1.0.0", "--reason", "leak", "--yes", "--store", data)
			if freed := free(t, disk) - before; freed < 8<<20 {
				t.Errorf("withdraw frees %d bytes of 12 MiB", freed)
			}
			larder(t, "verify", "--store", data)
			if err := os.Remove(filepath.Join(disk, "fill")); err != nil {
				t.Fatal(err)
			}
			larder(t, "publish", "module", module, "acme/vpc/aws", "2.0.0", "--store", data)
			larder(t, "verify", "--at-rest", "--store", data)
			if info, err := os.Stat(filepath.Join(data, "reserve")); err != nil || info.Size() != 8<<20 {
				t.Errorf("the reserve is not complete again: %v, %v", info, err)
			}
			if listed := larder(t, "token", "list", "--quiet", "--store", data); listed != "" {
				t.Errorf("the token is still listed: %s", listed)
			}
		})
	}
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}
