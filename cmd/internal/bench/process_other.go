//go:build unix && !linux

package bench

import "syscall"

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func usageOf(int) (u usage, ok bool) { return u, false }

func treeUsage(int) (u usage, ok bool) { return u, false }

func forgetPeak(int) {}
