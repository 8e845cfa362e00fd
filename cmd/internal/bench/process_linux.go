package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// childAttr puts a child into a process group of its own, so that the
// terminal's Ctrl-C reaches only us, and ends it when we do.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// clockTick is the unit of CPU time in /proc: USER_HZ, 100 on every Linux.
const clockTick = time.Second / 100

// usageOf reads what a process has used so far. ok is false if the system does
// not tell.
func usageOf(pid int) (u usage, ok bool) {
	stat, err := readStat(pid)
	if err != nil {
		return u, false
	}
	u.cpu = stat.own
	u.rss = 1024 * memory(pid, "status", "VmRSS:")
	u.peak = 1024 * memory(pid, "status", "VmHWM:")
	return u, true
}

// treeUsage adds up a process and all below it, those that ended included. Memory
// shared among them counts once.
func treeUsage(root int) (u usage, ok bool) {
	stats := map[int]stat{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return u, false
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			stats[pid] = s
		}
	}
	if _, ok := stats[root]; !ok {
		return u, false
	}
	for pid, s := range stats {
		for above := pid; above > 1; above = stats[above].parent {
			if above != root {
				continue
			}
			u.cpu += s.own + s.ended
			u.rss += 1024 * memory(pid, "smaps_rollup", "Pss:")
			break
		}
	}
	u.peak = u.rss
	return u, true
}

// forgetPeak makes a process's peak memory count from now.
func forgetPeak(pid int) {
	// Where it is refused, the peak is that since the start.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200)
}

type stat struct {
	parent     int
	own, ended time.Duration // of the process, and of its children that ended
}

func readStat(pid int) (s stat, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	// The name, in brackets, can hold anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 15 {
		return s, fmt.Errorf("/proc/%d/stat is of an unknown form", pid)
	}
	number := func(i int) int {
		n, e := strconv.Atoi(string(fields[i]))
		if e != nil {
			err = e
		}
		return n
	}
	s.parent = number(1)
	s.own = time.Duration(number(11)+number(12)) * clockTick
	s.ended = time.Duration(number(13)+number(14)) * clockTick
	return s, err
}

// memory reads one line of a file below /proc/PID, in kB.
func memory(pid int, file, name string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == name {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return n
		}
	}
	return 0
}
