package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestReadinessNamesWhatIsMissingAndLivenessDoesNotCare(t *testing.T) {
	t.Parallel()
	var down error
	h := newOpsHandler(probes{
		{"postgresql", func() error { return down }},
		{"kafka", func() error { return nil }},
	}, prometheus.NewRegistry())
	code, body := get(h, "/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ready\n", body)
	down = errors.New("connection refused")
	code, body = get(h, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "postgresql: connection refused\n", body)
	code, _ = get(h, "/livez")
	require.Equal(t, http.StatusOK, code)
}

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	newLogger(config.Log{}, io.Discard, reg)
	code, body := get(newOpsHandler(nil, reg), "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "ncmp_inventory_log_lines_dropped_total 0")
}

func TestTheLogLevelChangesAtTheDebugAddress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, level := newLogger(config.Log{Level: "info", Format: "json"}, &out, prometheus.NewRegistry())
	h := newDebugHandler(&level)
	log.Debug("unheard")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/log/level", strings.NewReader(`{"level":"debug"}`)))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	log.Debug("heard")
	require.NotContains(t, out.String(), "unheard")
	require.Contains(t, out.String(), `"msg":"heard"`)
	code, _ := get(h, "/debug/pprof/cmdline")
	require.Equal(t, http.StatusOK, code)
}

func TestAFloodOfOneMessageIsCutAndCounted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	reg := prometheus.NewRegistry()
	log, _ := newLogger(config.Log{Level: "info", Format: "auto"}, &out, reg)
	for range logFirst + 5 {
		log.Warn("the same again")
	}
	log.Warn("another")
	require.Equal(t, logFirst+1, strings.Count(out.String(), "\n"))
	require.True(t, json.Valid(out.Bytes()[:bytes.IndexByte(out.Bytes(), '\n')]), "json on what is no terminal")
	n, err := testutil.GatherAndCount(reg, "ncmp_inventory_log_lines_dropped_total")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestServeHTTPEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	bound := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- serveHTTP(ctx, "127.0.0.1:0", newDebugHandler(new(zap.NewAtomicLevel())), func(a net.Addr) { bound <- a })
	}()
	address := (<-bound).String()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + address + "/log/level")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.ErrorContains(t, serveHTTP(ctx, address, nil, nil), "serve HTTP")
	cancel()
	require.NoError(t, <-ended)
}

func TestSIGHUPReadsTheLogLevelAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "worker.yaml")
	write := func(level string) { require.NoError(t, os.WriteFile(file, []byte("log: {level: "+level+"}\n"), 0o600)) }
	write("info")
	a := &app{}
	newRoot(a)
	a.file = file
	level := zap.NewAtomicLevel()
	core, lines := observer.New(zap.DebugLevel)
	defer a.reloadLevel(t.Context(), zap.New(core), level)()
	for _, want := range []zapcore.Level{zap.DebugLevel, zap.WarnLevel} {
		write(want.String())
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return level.Level() == want }, time.Minute, time.Millisecond)
	}
	write("loud")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	require.Eventually(t, func() bool { return lines.FilterLevelExact(zap.ErrorLevel).Len() == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, zap.WarnLevel, level.Level(), "a bad file changes nothing")
}
