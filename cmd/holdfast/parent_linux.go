package main

import "syscall"

// endWithParent has the kernel send TERM to the command if we are killed: nobody
// would renew its lease any more.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
