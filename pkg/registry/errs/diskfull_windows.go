package errs

import "syscall"

// Source: https://learn.microsoft.com/windows/win32/debug/system-error-codes.
var diskFull = []syscall.Errno{
	39,   // ERROR_HANDLE_DISK_FULL
	112,  // ERROR_DISK_FULL
	1295, // ERROR_DISK_QUOTA_EXCEEDED
}
