// Command ncmp-inventory is the event-driven inventory worker and its tools.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		// The first signal asks for a clean end. A second one ends the process
		// at once, with the code that shells give a process that it killed.
		second := <-signals
		os.Exit(128 + int(second.(syscall.Signal)))
	}()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
