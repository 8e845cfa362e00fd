package store_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/store/storetest"
)

// proxy stands between a store and the server and reads what passes. It speaks
// no TLS.
type proxy struct {
	// toServer sees each message of a client before the server does, toClient
	// each of the server; false cuts both connections instead of passing it on.
	toServer, toClient seen
	// cancels counts cancel requests.
	cancels atomic.Int64

	network, address string // of the server
	listener         net.Listener
	wg               sync.WaitGroup
	mu               sync.Mutex
	open             map[net.Conn]struct{}
}

// seen is what a proxy asks about each message; nil lets all pass.
type seen func(kind byte, body []byte) bool

func startProxy(t *testing.T, db *storetest.DB, toServer, toClient seen) (*proxy, string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.URL)
	require.NoError(t, err)
	p := &proxy{toServer: toServer, toClient: toClient, open: map[net.Conn]struct{}{}, network: "tcp", address: net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))}
	if cfg.Host[0] == '/' {
		p.network, p.address = "unix", cfg.Host+"/.s.PGSQL."+strconv.Itoa(int(cfg.Port))
	}
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		p.listener.Close()
		p.mu.Lock()
		for c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	u := url.URL{Scheme: "postgres", Host: p.listener.Addr().String(), Path: cfg.Database, User: url.UserPassword(cfg.User, cfg.Password), RawQuery: "sslmode=disable"}
	return p, u.String()
}

func (p *proxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.address)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		cut := func() { client.Close(); server.Close() }
		p.wg.Add(2)
		go func() { defer p.wg.Done(); defer cut(); p.pass(client, server, true, p.toServer) }()
		go func() { defer p.wg.Done(); defer cut(); p.pass(server, client, false, p.toClient) }()
	}
}

func (p *proxy) pass(from, to net.Conn, startup bool, see seen) {
	for {
		var head []byte
		if startup {
			head = make([]byte, 4)
		} else {
			head = make([]byte, 5)
		}
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[len(head)-4:])-4)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		kind := byte(0)
		if startup {
			if bytes.HasPrefix(body, []byte{4, 210, 22, 46}) {
				p.cancels.Add(1)
			}
			startup = false
		} else if kind = head[0]; see != nil && !see(kind, body) {
			return
		}
		if _, err := to.Write(append(head, body...)); err != nil {
			return
		}
	}
}
