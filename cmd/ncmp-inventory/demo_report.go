package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// demoResult is what --json prints.
type demoResult struct {
	Handles    int                `json:"handles"`
	Registered int                `json:"registered"`
	Ready      int                `json:"ready"`
	Updated    int                `json:"updated"`
	Removed    int                `json:"removed"`
	LCMEvents  int                `json:"lcmEvents"`
	Lost       int                `json:"lost"`
	Doubled    int                `json:"doubled"`
	OutOfOrder int                `json:"outOfOrder"`
	Seconds    float64            `json:"seconds"` // from the first event sent to the last one read
	Rates      map[string]float64 `json:"rates"`   // a second
	// Problems are the first faults in words.
	Problems []string `json:"problems,omitempty"`

	steps []demoStep
}

// demoStep is a row of the table.
type demoStep struct {
	what  string
	count int
	took  time.Duration
}

// step notes that a step reached so many handles (or events) after a while.
func (r *demoResult) step(what, name string, n int, took time.Duration) {
	r.steps = append(r.steps, demoStep{what, n, took})
	r.Rates[name] = rate(n, took)
}

func (r *demoResult) wrong() bool {
	return r.Lost+r.Doubled+r.OutOfOrder+len(r.Problems) > 0
}

// rate is how many a second, with as many digits as mean something.
func rate(n int, took time.Duration) float64 { return round(float64(n)/took.Seconds(), 1) }

func round(x float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}

// grouped writes a number for people: 1234567 is 1,234,567.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func (d *demo) print() error {
	r := &d.result
	if d.options.json {
		if err := json.MarshalWrite(d.stdout, r, json.Deterministic(true)); err != nil {
			return err
		}
		_, err := fmt.Fprintln(d.stdout)
		return err
	}
	t := newTable(d.stdout, "", "COUNT", "SECONDS", "PER SECOND")
	for _, s := range r.steps {
		t.row(s.what, grouped(s.count), fmt.Sprintf("%.2f", s.took.Seconds()), grouped(int(rate(s.count, s.took))))
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintf(d.stdout, "\nproof: %s of %s followed: %d lost, %d doubled, %d out of order\n",
		counted(r.LCMEvents, "LCM event"), counted(r.Handles, "CM handle"), r.Lost, r.Doubled, r.OutOfOrder)
	if len(r.Problems) == 0 {
		fmt.Fprintf(d.stdout, "       rows equal events: %s READY after the update, none after the removal\n"+
			"       nothing waits to be published, every invariant of the store holds\n", counted(r.Ready, "CM handle"))
	}
	for _, p := range r.Problems {
		fmt.Fprintln(d.stdout, "       "+printable(p))
	}
	return nil
}

// program is how the reader of the output calls this program again.
func program() string {
	path, err := os.Executable()
	if err != nil || strings.Contains(path, "go-build") {
		return "go run ./cmd/ncmp-inventory"
	}
	return path
}
