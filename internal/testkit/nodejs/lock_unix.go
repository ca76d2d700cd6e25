//go:build unix

package nodejs

import (
	"os"
	"syscall"
)

// tryLock locks an open file, unless another process has locked it. Closing the
// file releases the lock.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
