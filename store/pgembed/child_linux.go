package pgembed

import "syscall"

// childAttr puts a child into a process group of its own, so that the
// terminal's Ctrl-C reaches only us, and has the kernel shut it down when the
// thread that started it ends: that thread must live as long as the child.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
