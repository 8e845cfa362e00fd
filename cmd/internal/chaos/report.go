package chaos

import (
	"fmt"
	"slices"
)

// Report is what the checker found.
type Report struct {
	Records, Events, Effects, Outcomes, DeadLetters, Handles, Clusters int
	// Repeated counts published records that came again, byte by byte the same.
	Repeated int
	// Lost is what had to be there and is not; Doubled what is there and must
	// not be; OutOfOrder what is there at the wrong time; Wrong what is there
	// with the wrong content.
	Lost, Doubled, OutOfOrder, Wrong int
	// Faults are the first ones in words.
	Faults []string
}

// maxFaults bounds how many are told; all are counted.
const maxFaults = 40

func (r *Report) fault(count *int, format string, args ...any) {
	*count++
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
	}
}

// OK says that nothing is wrong.
func (r *Report) OK() bool { return r.Lost+r.Doubled+r.OutOfOrder+r.Wrong == 0 }

// compare holds what was published, in order, against what had to be: by id
// first, so that one lost message is one fault and not as many as stand behind
// it. same judges two of one id.
func compare[E, S any](r *Report, about string, want []E, got []S, wantID func(E) string, gotID func(S) string, same func(E, S) string) {
	at := make(map[string]int, len(got))
	for i, s := range got {
		at[gotID(s)] = i
	}
	known := make(map[string]bool, len(want))
	var places []int
	for _, e := range want {
		id := wantID(e)
		known[id] = true
		i, ok := at[id]
		if !ok {
			r.fault(&r.Lost, "%s: %+v (id %s) is missing", about, e, id)
			continue
		}
		places = append(places, i)
		if difference := same(e, got[i]); difference != "" {
			r.fault(&r.Wrong, "%s: id %s: %s", about, id, difference)
		}
	}
	for _, s := range got {
		if !known[gotID(s)] {
			r.fault(&r.Doubled, "%s: nobody asked for id %s", about, gotID(s))
		}
	}
	if !slices.IsSorted(places) {
		r.fault(&r.OutOfOrder, "%s: came in the order %v", about, places)
	}
}
