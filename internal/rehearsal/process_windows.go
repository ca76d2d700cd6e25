package rehearsal

import "os/exec"

// The emulators are single processes on Windows. This function lets the command
// line's tests compile.
func inGroup(*exec.Cmd) {}
