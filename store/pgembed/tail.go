//go:build unix

package pgembed

import (
	"bytes"
	"io"
	"sync"
)

// tailBytes is enough for the server's last words; a server that floods its
// log must not fill our memory.
const tailBytes = 16 << 10

// tail keeps the end of what is written to it and passes everything on.
// Writing never fails: a full disk behind next must not stop the server.
type tail struct {
	next io.Writer // nil: nowhere
	mu   sync.Mutex
	buf  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		_, _ = t.next.Write(p)
	}
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = t.buf[:copy(t.buf, t.buf[over:])]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
