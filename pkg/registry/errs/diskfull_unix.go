//go:build !windows

package errs

import "syscall"

var diskFull = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
