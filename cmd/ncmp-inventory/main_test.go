package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"ncmp-inventory/store/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(runAsProgram) != "" {
		main()
	}
	storetest.Main(m)
}

// result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// runCommand runs the program in this process.
func runCommand(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, nil, strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// runUntil runs a command that follows something until done says so.
func runUntil(t *testing.T, out *watched, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out.stop = cancel
	var errs bytes.Buffer
	code := run(ctx, args, nil, strings.NewReader(""), out, &errs)
	return result{code, out.buf.String(), errs.String()}
}

// watched is an output that ends its command when it holds enough.
type watched struct {
	buf  bytes.Buffer
	done func(string) bool
	stop context.CancelFunc
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.buf.Write(b)
	if w.done(w.buf.String()) {
		w.stop()
	}
	return n, err
}
