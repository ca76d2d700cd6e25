package rehearsal

import "os/exec"

// The emulators are single processes on Windows. These functions let the
// command line's tests compile.

func startGroup(*exec.Cmd) {}

func endGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
