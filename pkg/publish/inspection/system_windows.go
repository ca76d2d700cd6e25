package inspection

import (
	"os/exec"
	"syscall"
)

// detach prevents Ctrl-C from reaching a child.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func limitBySystem(assignment) {}
