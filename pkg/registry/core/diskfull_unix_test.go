//go:build !windows

package core_test

import "syscall"

const (
	full  = syscall.ENOSPC
	quota = syscall.EDQUOT
)
