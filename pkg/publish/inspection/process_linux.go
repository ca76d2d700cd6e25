package inspection

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// program returns the path of this program. The path remains valid after an
// upgrade replaces the file.
func program() (string, error) { return "/proc/self/exe", nil }

// residentMemory returns the memory of a process in bytes, or 0 if it is
// unknown. Source: proc(5), /proc/PID/statm.
func residentMemory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
