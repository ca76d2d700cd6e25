package errs_test

import "syscall"

const (
	full  = syscall.Errno(112)
	quota = syscall.Errno(1295)
)
