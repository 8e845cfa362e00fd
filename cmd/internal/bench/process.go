package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child that ends with this process.
type process struct {
	name string
	cmd  *exec.Cmd
	said *tail
	done chan struct{} // closed when it ended, err is set before
	err  error
}

// startProcess starts a child. What it says on stderr goes to log, and its end
// is kept for error messages; heard, if not nil, is told each line.
func startProcess(name string, cmd *exec.Cmd, log io.Writer, heard func(line string)) (*process, error) {
	p := &process{name: name, cmd: cmd, said: &tail{next: log, heard: heard}, done: make(chan struct{})}
	cmd.SysProcAttr = childAttr()
	cmd.Stderr = p.said
	cmd.WaitDelay = time.Second
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// live keeps one thread for the child's whole life: the kernel ends the child
// when the thread that started it ends, and the Go runtime ends idle threads.
func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// failure says why the process is not there any more, nil if it is.
func (p *process) failure() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %w: %s", p.name, errors.Join(p.err), p.said)
	default:
		return nil
	}
}

// stop asks for a clean end and waits; when ctx ends, it does not ask.
func (p *process) stop(ctx context.Context) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // if it is gone, done says so
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not stop in time", p.name)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, p.err, p.said)
	}
	return nil
}

// tailBytes is how much of a child's last words is kept.
const tailBytes = 4096

// tail passes output on, line by line to heard, and keeps its end.
type tail struct {
	next  io.Writer
	heard func(string)

	mu   sync.Mutex
	line strings.Builder
	kept []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	if t.heard != nil {
		for _, c := range b {
			if c != '\n' {
				t.line.WriteByte(c)
				continue
			}
			t.heard(t.line.String())
			t.line.Reset()
		}
	}
	return t.next.Write(b)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
