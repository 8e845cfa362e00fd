package chaos

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// pgProxy stands between workers and PostgreSQL and knows where a message ends.
// It speaks no TLS.
type pgProxy struct {
	server   string // host:port
	listener net.Listener
	wg       sync.WaitGroup

	// answers counts down the COMMITs whose answer is dropped, and commits
	// those that never reach the server; both connections are cut.
	answers, commits atomic.Int64

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// startPGProxy makes a proxy of the server that databaseURL names, and the URL
// that leads through it.
func startPGProxy(t *testing.T, databaseURL string) (*pgProxy, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	p := &pgProxy{server: u.Host, open: map[net.Conn]struct{}{}}
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u.Host = p.listener.Addr().String()
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		p.listener.Close()
		p.cut()
		p.wg.Wait()
	})
	return p, u.String()
}

// cut ends all connections.
func (p *pgProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
}

func (p *pgProxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		var both sync.WaitGroup
		both.Add(2)
		go func() { defer both.Done(); p.pass(client, server, true) }()
		go func() { defer both.Done(); p.pass(server, client, false) }()
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			both.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.open, client)
			delete(p.open, server)
		}()
	}
}

// pass hands on messages until one side ends, and then ends both.
func (p *pgProxy) pass(from, to net.Conn, toServer bool) {
	defer from.Close()
	defer to.Close()
	head := make([]byte, 5)
	var message []byte
	var known commits
	for start := toServer; ; start = false {
		n := 5
		if start { // the first message of a client has no type
			n = 4
		}
		if _, err := io.ReadFull(from, head[:n]); err != nil {
			return
		}
		message = append(message[:0], head[:n]...)
		body := int(binary.BigEndian.Uint32(head[n-4:n])) - 4
		message = append(message, make([]byte, body)...)
		if _, err := io.ReadFull(from, message[n:]); err != nil {
			return
		}
		switch body := message[n:]; {
		case start:
		case toServer && known.in(head[0], body) && take(&p.commits),
			!toServer && head[0] == 'C' && bytes.Equal(body, []byte("COMMIT\x00")) && take(&p.answers):
			return
		}
		if _, err := to.Write(message); err != nil {
			return
		}
	}
}

// commits are the prepared statements of a connection that commit.
type commits map[string]bool

// in says that a client's message asks for a COMMIT.
func (c *commits) in(kind byte, body []byte) bool {
	text := func() (string, bool) {
		s, rest, ok := bytes.Cut(body, []byte{0})
		body = rest
		return string(s), ok
	}
	first, _ := text()
	second, _ := text()
	isCommit := func(sql string) bool { return strings.EqualFold(strings.TrimSpace(sql), "commit") }
	switch kind {
	case 'Q':
		return isCommit(first)
	case 'P': // name, statement
		if isCommit(second) {
			if *c == nil {
				*c = commits{}
			}
			(*c)[first] = true
		}
	case 'B': // portal, name
		return (*c)[second]
	}
	return false
}

// take counts down to 0 and says whether it did.
func take(n *atomic.Int64) bool {
	for {
		left := n.Load()
		if left <= 0 {
			return false
		}
		if n.CompareAndSwap(left, left-1) {
			return true
		}
	}
}
