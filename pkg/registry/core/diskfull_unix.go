//go:build !windows

package core

import "syscall"

var diskFull = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
