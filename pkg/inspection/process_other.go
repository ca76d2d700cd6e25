//go:build !linux

package inspection

import "os"

// program returns the path of this program.
func program() (string, error) { return os.Executable() }

// residentMemory is not known here; the child watches itself.
func residentMemory(int) int64 { return 0 }
