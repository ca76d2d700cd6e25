package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/regularfile"
)

// hostFile has the servers that serve a folder, or the last one that did. It is for
// people, and nothing depends on it: a folder without it, or with one that is
// damaged, is as one that was never served.
const hostFile = "served.json"

const (
	// maxHost is more than a host and its port have, in bytes.
	maxHost = 300
	// maxHostFile bounds hostFile, in bytes, and maxServers the servers in it.
	maxHostFile = 16 << 10
	maxServers  = 20
)

// Running is a server of a folder.
type Running struct {
	// Host is what module addresses begin with.
	Host string `json:"host"`
	// Named means that somebody has named the host, and given its certificate: it is
	// not just an address.
	Named bool `json:"named"`
	// Address is where the server listens.
	Address string `json:"address"`
	// Open means that reading needs no credential.
	Open bool `json:"open"`
	// Process is the id of the server's process.
	Process int `json:"process"`
}

// hosts is the content of hostFile: servers, the newest last.
type hosts struct {
	Servers []Running `json:"servers"`
}

// readServers returns the servers that a folder has stored, the newest last.
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

// Host returns the host of the newest server whose process runs, one with a
// name before others. If none runs, it is that of the last one. It is empty if none
// is known.
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
// host must trust, if the registry in a folder was served at that host with a
// certificate of its own authority. It is empty otherwise.
func AuthorityOf(dir, host string) string {
	for _, r := range readServers(dir) {
		if r.Host == host && !r.Named {
			return authorityIn(dir)
		}
	}
	return ""
}

// authorityIn returns the file with the certificate authority of a folder, and
// nothing if it has none.
func authorityIn(dir string) string {
	path := filepath.Join(dir, "tls", caCertificateFile)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// remember stores the server as the newest of the folder, and returns the others
// that still serve it. It forgets those that do not.
func (s *Server) remember(ctx context.Context, dir string, named bool) (others []Running, err error) {
	for _, r := range readServers(dir) {
		if portOf(r.Address) != portOf(s.Address) && isProcess(r.Process) && isTaken(ctx, r.Address) {
			others = append(others, r)
		}
	}
	others = others[max(0, len(others)-maxServers+1):]
	own := Running{Host: s.Host, Named: named, Address: s.Address, Open: s.Open, Process: os.Getpid()}
	return others, writeServers(dir, append(slices.Clone(others), own))
}

// forget removes the server from the folder's, unless no other runs: then its host
// is the one by which the folder was served last.
func (s *Server) forget(dir string) {
	others := slices.DeleteFunc(readServers(dir), func(r Running) bool {
		return r.Address == s.Address || !isProcess(r.Process)
	})
	if len(others) > 0 {
		_ = writeServers(dir, others) // it is not needed
	}
}

func writeServers(dir string, servers []Running) error {
	text, err := json.Marshal(hosts{servers})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, hostFile)
	temporary := path + unfinishedHost + rand.Text()
	defer func() { _ = os.Remove(temporary) }()
	if err := os.WriteFile(temporary, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// unfinishedHost follows hostFile in the names of files that become it.
const unfinishedHost = "-unfinished-"

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// isTaken reports whether somebody listens at an address of this machine.
func isTaken(ctx context.Context, address string) bool {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err == nil {
		_ = listener.Close()
	}
	return isInUse(err)
}
