package rehearsal

import "os/exec"

// On Windows the emulators are single processes: it is there so that the command line's tests compile.

func startGroup(*exec.Cmd) {}

func endGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
