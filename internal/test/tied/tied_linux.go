package tied

import (
	"os/exec"
	"syscall"
)

// tieToParent has the kernel signal the process when the thread that starts it ends.
func tieToParent(cmd *exec.Cmd, end syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = end
}
