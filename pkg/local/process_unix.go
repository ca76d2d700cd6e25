//go:build unix

package local

import (
	"errors"
	"syscall"
)

// isProcess reports whether there is a process with an id, of any user.
func isProcess(id int) bool {
	if id <= 0 {
		return false
	}
	err := syscall.Kill(id, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
