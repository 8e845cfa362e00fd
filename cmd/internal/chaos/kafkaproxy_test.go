package chaos

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kafkaProxy stands between workers and the broker, which names it as its own
// address. It knows where a request ends, and what it asks for.
type kafkaProxy struct {
	listener net.Listener
	wg       sync.WaitGroup
	closing  chan struct{}
	// linger is how long the broker does not learn that a client is gone. The
	// embedded broker needs it: a member that it cannot answer would stay in
	// its group for ever.
	linger time.Duration

	mu     sync.Mutex
	broker string // host:port, "" while there is none
	open   map[*kafkaConn]struct{}
	delay  time.Duration // of each request
}

// kafkaConn is one connection of a client and the one to the broker behind it.
type kafkaConn struct {
	client, broker net.Conn
	held           chan struct{} // nil, or closed when produce requests may go on
}

const keyProduce = 0

func startKafkaProxy(t *testing.T) *kafkaProxy {
	t.Helper()
	p := &kafkaProxy{open: map[*kafkaConn]struct{}{}, closing: make(chan struct{})}
	var err error
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		close(p.closing)
		p.listener.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *kafkaProxy) addr() string { return p.listener.Addr().String() }

// lead says where the broker is; to "" nobody gets through.
func (p *kafkaProxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broker = to
}

// cut ends all connections.
func (p *kafkaProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.client.Close()
	}
}

// slow delays each request from now on.
func (p *kafkaProxy) slow(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
}

// hold keeps back what the connections that are open now produce, until release:
// then it arrives, whether its sender still lives or not.
func (p *kafkaProxy) hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(chan struct{})
	for c := range p.open {
		c.held = held
	}
	return sync.OnceFunc(func() { close(held) })
}

func (p *kafkaProxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.broker
		p.mu.Unlock()
		broker, err := net.Dial("tcp", to)
		if err != nil {
			client.Close()
			continue
		}
		c := &kafkaConn{client: client, broker: broker}
		p.mu.Lock()
		p.open[c] = struct{}{}
		p.mu.Unlock()
		p.wg.Add(2)
		go func() {
			defer p.wg.Done()
			p.requests(c)
			client.Close()
			if p.linger > 0 {
				select {
				case <-time.After(p.linger):
				case <-p.closing:
				}
			}
			broker.Close()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.open, c)
		}()
		go func() {
			defer p.wg.Done()
			// A client that is gone leaves requests on their way.
			if _, err := io.Copy(client, broker); err != nil {
				_, _ = io.Copy(io.Discard, broker)
			}
			client.Close()
		}()
	}
}

// requests hands on whole requests.
func (p *kafkaProxy) requests(c *kafkaConn) {
	head := make([]byte, 6) // the size, and the API key that the rest starts with
	for {
		if _, err := io.ReadFull(c.client, head); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint32(head))
		if size < 2 || size > 64<<20 {
			return
		}
		request := make([]byte, 4+size)
		copy(request, head)
		if _, err := io.ReadFull(c.client, request[6:]); err != nil {
			return
		}
		p.mu.Lock()
		held, delay := c.held, p.delay
		p.mu.Unlock()
		if held != nil && binary.BigEndian.Uint16(head[4:]) == keyProduce {
			select {
			case <-held:
			case <-p.closing:
			}
		}
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-p.closing:
			}
		}
		if _, err := c.broker.Write(request); err != nil {
			return
		}
	}
}
