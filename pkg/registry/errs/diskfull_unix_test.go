//go:build !windows

package errs_test

import "syscall"

const (
	full  = syscall.ENOSPC
	quota = syscall.EDQUOT
)
