package rehearsal

import (
	"os"
	"os/exec"
)

// On Windows the emulators are single processes, and nothing is locked: it is there so that the command line's tests compile.

func startGroup(*exec.Cmd) {}

func endGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func tryLock(*os.File) bool { return true }
