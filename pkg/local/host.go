package local

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// hostFile contains the servers that serve a folder, or the last one that did.
// It only serves to inform people. A folder with a missing or damaged hostFile
// counts as one that was never served.
const hostFile = "served.json"

const (
	// maxHost is the maximum length of a host with its port in bytes.
	maxHost = 300
	// maxHostFile is the maximum size of hostFile in bytes, and maxServers the
	// maximum number of servers in it.
	maxHostFile = 16 << 10
	maxServers  = 20
)

// Running is a server that serves a folder.
type Running struct {
	// Host is the host in module addresses, in the form for people.
	Host string `json:"host"`
	// Named reports whether the server was started with a host name and its
	// certificate.
	Named bool `json:"named"`
	// Address is the address and port that the server listens on.
	Address string `json:"address"`
	// Open reports whether reading needs no credential.
	Open bool `json:"open"`
	// Process is the ID of the server's process.
	Process int `json:"process"`
}

// hosts is the content of hostFile. The newest server is the last.
type hosts struct {
	Servers []Running `json:"servers"`
}

// readServers returns the servers of a folder, with the newest last.
func readServers(dir string) []Running {
	text, err := regularfile.Read(filepath.Join(dir, hostFile), maxHostFile)
	var read hosts
	if err != nil || json.Unmarshal(text, &read) != nil {
		return nil
	}
	return slices.DeleteFunc(read.Servers, func(r Running) bool {
		return r.Host == "" || r.Host != printable.Line(r.Host, maxHost)
	})
}

// Host returns the host of the newest running server, and prefers one with a
// host name. If none is running, it returns the host of the last one, or "".
func Host(dir string) (host string) {
	servers := readServers(dir)
	var named bool
	for i, r := range servers {
		if i == len(servers)-1 && host == "" {
			return r.Host
		}
		if isProcess(r.Process) && (r.Named || !named) {
			host, named = r.Host, r.Named
		}
	}
	return host
}

// AuthorityOf returns the file with the certificate authority that clients of a
// host must trust. It returns "" if the registry in a folder was not served at
// that host with its own authority.
func AuthorityOf(dir, host string) string {
	for _, r := range readServers(dir) {
		if r.Host == host && !r.Named {
			return authorityIn(dir)
		}
	}
	return ""
}

// authorityIn returns the file with the certificate authority of a folder, or
// "".
func authorityIn(dir string) string {
	path := filepath.Join(dir, "tls", caCertificateFile)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

func (r Running) isRunning(ctx context.Context) bool {
	return isProcess(r.Process) && isTaken(ctx, r.Address)
}

// CheckStopped returns [registry.ErrConflict] if a server of this machine serves
// a folder.
func CheckStopped(ctx context.Context, dir string) error {
	for _, r := range readServers(dir) {
		if r.isRunning(ctx) {
			return registry.WithHint(registry.Errorf(registry.ErrConflict, "a server serves %s on %s", dir, r.Address),
				"Stop the server first.")
		}
	}
	return nil
}

// register stores the server as the newest of the folder. It returns the others
// that are still running, and removes those that are not.
func (s *Server) register(ctx context.Context, dir string, named bool) (others []Running, err error) {
	for _, r := range readServers(dir) {
		if portOf(r.Address) != portOf(s.Address) && r.isRunning(ctx) {
			others = append(others, r)
		}
	}
	others = others[max(0, len(others)-maxServers+1):]
	own := Running{Host: s.Host, Named: named, Address: s.Address, Open: s.Open, Process: os.Getpid()}
	return others, writeServers(dir, append(slices.Clone(others), own))
}

// forget removes the server from the folder's servers. It leaves the last one,
// whose host then stays stored.
func (s *Server) forget(dir string) {
	others := slices.DeleteFunc(readServers(dir), func(r Running) bool {
		return r.Address == s.Address || !isProcess(r.Process)
	})
	if len(others) > 0 {
		_ = writeServers(dir, others) // the file is only informative
	}
}

func writeServers(dir string, servers []Running) error {
	text, err := json.Marshal(hosts{servers})
	if err != nil {
		return err
	}
	return replaceFile(dir, hostFile, append(text, '\n'))
}

// replaceFile writes a file in a registry's folder atomically. It does not make a
// folder that was removed.
func replaceFile(dir, name string, text []byte) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	return textfile.Replace(filepath.Join(dir, name), text)
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// isTaken reports whether a program listens on an address of this machine.
func isTaken(ctx context.Context, address string) bool {
	if path, isSocket := strings.CutPrefix(address, socketPrefix); isSocket {
		_, err := os.Lstat(path)
		return err == nil && !isUnusedSocket(ctx, path)
	}
	ip, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	listener, err := listen(ctx, ip, port)
	if err == nil {
		_ = listener.Close()
	}
	if !errors.Is(err, fs.ErrPermission) {
		return isInUse(err)
	}
	// Only the service may listen on a port such as 443.
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
