package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

const (
	// headerTimeout keeps clients that send nothing from holding connections.
	headerTimeout = 5 * time.Second
	// closeTimeout is what a scrape in progress gets to end.
	closeTimeout = time.Second
)

// probe tells whether one thing that the worker needs is there. check answers
// from what is known already: it must not block, it is called for each request.
type probe struct {
	name  string
	check func() error
}

// probes are what readiness depends on. Liveness depends on nothing: a restart
// mends no database.
type probes []probe

// missing names each thing that is not there, with the reason.
func (p probes) missing() []string {
	var out []string
	for _, one := range p {
		if err := one.check(); err != nil {
			out = append(out, one.name+": "+err.Error())
		}
	}
	return out
}

// newOpsHandler serves what orchestration and monitoring ask for.
func newOpsHandler(p probes, g prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if missing := p.missing(); len(missing) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, strings.Join(missing, "\n"))
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}

// newDebugHandler serves what only the worker's own people may see and change.
// Without a level there is none to change.
func newDebugHandler(level *zap.AtomicLevel) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if level != nil {
		mux.Handle("/log/level", level) // GET tells, PUT {"level":"debug"} sets
	}
	return mux
}

// serveHTTP listens on address until ctx ends, and returns after all requests
// have ended. bound, if not nil, is told the address that was taken.
func serveHTTP(ctx context.Context, address string, h http.Handler, bound func(net.Addr)) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	if bound != nil {
		bound(l.Addr())
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP on %s: %w", address, err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if srv.Shutdown(end) != nil {
		_ = srv.Close() // a profile may run for minutes; it is cut
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", address, err)
	}
	return nil
}
