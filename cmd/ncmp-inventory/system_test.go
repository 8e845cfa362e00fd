package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap/zaptest"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/storetest"
)

// system is a broker, a database and perhaps a worker.
type system struct {
	broker *kfake.Cluster
	db     *storetest.DB
	cfg    config.Config
	http   string // the worker's address
}

// newSystem starts broker and database; seed makes the topics.
func newSystem(t *testing.T, seed bool) *system {
	t.Helper()
	return newSystemOn(t, storetest.Open(t), seed)
}

func newSystemOn(t *testing.T, db *storetest.DB, seed bool) *system {
	t.Helper()
	s := &system{cfg: config.Defaults(), db: db}
	topics := s.cfg.Kafka.Topics
	var opts []kfake.Opt
	if seed {
		opts = append(opts, kfake.SeedTopics(3, append(topics.Inputs(), topics.LCMEvents, topics.InventoryEvents, topics.Outcomes, topics.DeadLetters)...))
	}
	s.broker = newBroker(t, opts...)
	s.cfg.Kafka.Brokers = s.broker.ListenAddrs()
	s.cfg.Database.URL = config.SecretOf(s.db.URL)
	s.cfg.HTTP.Address = "127.0.0.1:0"
	return s
}

// start runs a worker until the test ends or stop is called; stop gives what
// Run returned.
func (s *system) start(t *testing.T, change ...func(*worker)) (stop func() error) {
	t.Helper()
	w, err := newWorker(s.cfg, zaptest.NewLogger(t), prometheus.NewRegistry())
	require.NoError(t, err)
	for _, c := range change {
		c(w)
	}
	listening := make(chan string, 1)
	w.listening = func(_ string, a net.Addr) { listening <- a.String() }
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { require.NoError(t, stop()) })
	select {
	case s.http = <-listening:
	case err := <-ended:
		ended <- err
		require.FailNow(t, "the worker did not start", "%v", err)
	}
	return stop
}

// awaitReady waits until the worker does its work.
func (s *system) awaitReady(t *testing.T) {
	t.Helper()
	s.await(t, "/readyz", func(code int, _ string) bool { return code == http.StatusOK })
}

// await asks for a page until it is as wanted.
func (s *system) await(t *testing.T, path string, wanted func(code int, body string) bool) {
	t.Helper()
	last := ""
	require.Eventually(t, func() bool {
		var code int
		code, last = s.body(t, path)
		return wanted(code, last)
	}, time.Minute, 10*time.Millisecond, "%s stays at %q", path, &last)
}

// run runs a command against the system.
func (s *system) run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return runCommand(t, stdin, s.args(args)...)
}

func (s *system) args(args []string) []string {
	return append(args, "--kafka.brokers", strings.Join(s.cfg.Kafka.Brokers, ","), "--database.url", s.db.URL)
}

// body fetches a page of the worker's.
func (s *system) body(t *testing.T, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Get("http://" + s.http + path)
	require.NoError(t, err)
	defer res.Body.Close()
	var b strings.Builder
	_, err = io.Copy(&b, res.Body)
	require.NoError(t, err)
	return res.StatusCode, b.String()
}
