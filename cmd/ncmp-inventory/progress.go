package main

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress is a bar on a terminal and nothing elsewhere.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress starts a bar on stderr; total -1 is unknown.
func (a *app) newProgress(what string, total int) progress {
	if !isTerminal(a.stderr) {
		return progress{}
	}
	return progress{progressbar.NewOptions(total,
		progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))}
}

func (p progress) add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n)
	}
}

func (p progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

// describe says what goes on now, for work without a count.
func (p progress) describe(what string) {
	if p.bar != nil {
		p.bar.Describe(what)
	}
}
