//go:build unix && !linux

package pgembed

import "syscall"

// childAttr puts a child into a process group of its own, so that the
// terminal's Ctrl-C reaches only us. Only Linux can tie its life to ours.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
