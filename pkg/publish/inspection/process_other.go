//go:build !linux

package inspection

import "os"

func program() (string, error) { return os.Executable() }

// residentMemory returns 0 for unknown. The child checks its own memory.
func residentMemory(int) int64 { return 0 }
