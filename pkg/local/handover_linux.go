package local

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Handover passes the listener of a service to its next process. systemd stores
// it meanwhile. So new connections wait while the service restarts, and none is
// refused. Without systemd, it does nothing.
type Handover struct {
	manager string     // the path of systemd's socket for messages
	passed  []*os.File // listeners of the last process, by their names
}

// NewHandover returns the listeners that systemd passed to this process. It
// removes their variables from the environment, which child processes inherit.
func NewHandover() *Handover {
	const firstPassed = 3
	h := &Handover{manager: os.Getenv("NOTIFY_SOCKET")}
	if os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
		count, _ := strconv.Atoi(os.Getenv("LISTEN_FDS"))
		for i := range min(count, len(names)) {
			syscall.CloseOnExec(firstPassed + i)
			h.passed = append(h.passed, os.NewFile(uintptr(firstPassed+i), names[i]))
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name)
	}
	return h
}

// listener returns the passed listener for an address, or nil. It ends the others
// of this program, so that their ports are free. It can be called again.
func (h *Handover) listener(address string) (found net.Listener) {
	if h == nil {
		return nil
	}
	name := nameOf(address)
	h.passed = slices.DeleteFunc(h.passed, func(file *os.File) bool {
		if found == nil && file.Name() == name {
			var err error
			if found, err = net.FileListener(file); err == nil {
				return false
			}
		}
		if strings.HasPrefix(file.Name(), namePrefix) {
			// It ends the copy of systemd too, also before systemd reads the message.
			_ = syscall.Shutdown(int(file.Fd()), syscall.SHUT_RDWR)
			_ = h.notify("FDSTOREREMOVE=1\nFDNAME="+file.Name(), nil)
		}
		_ = file.Close()
		return true
	})
	return found
}

// End ends the passed listeners, because this process cannot serve. Clients would
// wait for a server that does not start. Now their connections are refused.
func (h *Handover) End() { h.listener("") }

const namePrefix = "larder-"

// nameOf returns the name of the listener for an address. It is empty if the next
// process could not recognize it: the name of a host can lead to another address
// by then. A Unix socket has another name if its file was replaced.
func nameOf(address string) string {
	listener := address
	if path, isSocket := strings.CutPrefix(address, socketPrefix); isSocket {
		var file syscall.Stat_t
		if err := syscall.Lstat(path, &file); err != nil {
			return ""
		}
		listener = fmt.Sprint(address, file.Dev, file.Ino, file.Ctim)
	} else if host, _, err := net.SplitHostPort(address); err != nil || host != "" && host != "*" && net.ParseIP(host) == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(listener))
	return namePrefix + hex.EncodeToString(sum[:8])
}

// store makes systemd store the listener for an address, if systemd did not pass
// it.
func (h *Handover) store(address string, l net.Listener) error {
	name := nameOf(address)
	if h == nil || h.manager == "" || name == "" || len(h.passed) > 0 {
		return nil
	}
	if socket, ok := l.(*net.UnixListener); ok {
		socket.SetUnlinkOnClose(false)
	}
	raw, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = h.notify("FDSTORE=1\nFDNAME="+name, syscall.UnixRights(int(fd)))
	})
	if err != nil {
		return err
	}
	return failed
}

// notify sends a message to systemd, with the rights to a file or nil.
func (h *Handover) notify(message string, rights []byte) error {
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(socket) }()
	return syscall.Sendmsg(socket, []byte(message), rights, &syscall.SockaddrUnix{Name: h.manager}, 0)
}
