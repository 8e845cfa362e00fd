package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
)

func newRegisterCommand(a *app) *cobra.Command {
	var (
		validate bool
		s        sending
	)
	cmd := &cobra.Command{
		Use:   "register FILE…",
		Short: "Sends registrations of CM handles",
		Long: `Sends DmiPluginRegistration bodies, as NCMP's POST /ncmpInventory/v1/ch takes
them, as registration events: one event for each JSON object in the files. A
file holds one object, or many one after the other (JSON lines); "-" is
standard input.

With --wait the command follows the outcomes, prints the entries that failed,
and exits with 3 if there are any.`,
		Example: `  ncmp-inventory register handles.json --wait
  jq -c '.[]' bodies.json | ncmp-inventory register -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if validate {
				c, err := a.load()
				if err != nil {
					return err
				}
				return a.validateRegistrations(newDecoder(c.Limits), files, s.json)
			}
			c, err := a.load("kafka.brokers")
			if err != nil {
				return err
			}
			return a.sendEvents(cmd.Context(), c, consumer.TypeRegistration, a.registrations(newDecoder(c.Limits), files, s.wait), s)
		},
	}
	cmd.Flags().BoolVar(&validate, "validate", false, "only check the files, send nothing")
	s.flags(cmd)
	cmd.Flags().Lookup("json").Usage += "; with --validate: one JSON object"
	return cmd
}

// registrations reads the bodies in the files as events. A body that no worker
// could read ends it: nothing behind it is sent.
func (a *app) registrations(d *consumer.EventDecoder, files []string, wait bool) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		for body, err := range a.bodies(files) {
			at := attributes(wait)
			e := event{id: at.ID}
			if err == nil {
				if e.Outgoing, err = d.NewRegistrationEvent(body.json, at); err != nil {
					err = fmt.Errorf("%s: %w", body.place, err)
				} else {
					a.warnEmpty(body)
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// body is one JSON object and where it was found.
type body struct {
	json  []byte
	place string
}

func (a *app) bodies(files []string) iter.Seq2[body, error] {
	return func(yield func(body, error) bool) {
		for _, name := range files {
			if !a.bodiesIn(name, yield) {
				return
			}
		}
	}
}

func (a *app) bodiesIn(name string, yield func(body, error) bool) bool {
	in, shown := a.stdin, "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return yield(body{}, err) && false
		}
		defer f.Close()
		in, shown = f, name
	}
	dec := jsontext.NewDecoder(in)
	for n := 1; ; n++ {
		place := fmt.Sprintf("%s, object %d", shown, n)
		v, err := dec.ReadValue()
		switch {
		case errors.Is(err, io.EOF):
			return true
		case err != nil:
			return yield(body{}, fmt.Errorf("%s: %s", place, syntaxText(err))) && false
		case v.Kind() != '{':
			return yield(body{}, fmt.Errorf("%s: want a JSON object, found %s", place, v.Kind())) && false
		}
		if !yield(body{bytes.Clone(v), place}, nil) {
			return false
		}
	}
}

// problem is an entry that the worker would refuse.
type problem struct {
	place, operation, id string
	entry                int32
	inventory.Rejection
}

// validateRegistrations decodes the bodies as the worker does and prints what
// it would refuse before it looks at the stored inventory.
func (a *app) validateRegistrations(d *consumer.EventDecoder, files []string, asJSON bool) error {
	var (
		bodies, entries int
		problems        []problem
	)
	for body, err := range a.bodies(files) {
		if err != nil {
			return err
		}
		bodies++
		items, dead := d.CheckRegistration(body.json)
		if dead != nil {
			problems = append(problems, problem{place: body.place, operation: "event", entry: -1,
				Rejection: inventory.Rejection{Text: dead.Text, Details: dead.Reason}})
		}
		entries += len(items)
		if dead == nil {
			a.warnEmpty(body)
		}
		for _, it := range items {
			if it.Reject != nil {
				problems = append(problems, problem{body.place, it.Op.String(), it.ID, it.Index, *it.Reject})
			}
		}
	}
	fmt.Fprintf(a.stderr, "%d bodies with %d entries checked, %d would be refused\n", bodies, entries, len(problems))
	if err := a.printProblems(bodies, entries, problems, asJSON); err != nil {
		return err
	}
	if len(problems) > 0 {
		return &exitError{code: exitWrong}
	}
	return nil
}

// validatedJSON is what --validate found, for programs.
type validatedJSON struct {
	Bodies  int           `json:"bodies"`
	Entries int           `json:"entries"`
	Refused []problemJSON `json:"refused"`
}

type problemJSON struct {
	Place     string `json:"where"`
	Operation string `json:"operation"`
	Entry     int32  `json:"entry,omitzero"` // from 1; none if it is the whole body
	ID        string `json:"cmHandle,omitzero"`
	Code      string `json:"errorCode,omitzero"`
	Text      string `json:"errorText"`
	Details   string `json:"details,omitzero"`
}

func (a *app) printProblems(bodies, entries int, problems []problem, asJSON bool) error {
	if asJSON {
		v := validatedJSON{bodies, entries, []problemJSON{}}
		for _, p := range problems {
			v.Refused = append(v.Refused, problemJSON{p.place, p.operation, p.entry + 1, valid([]byte(p.id)), string(p.Code), p.Text, p.Details})
		}
		return writeJSON(a.stdout, v, jsontext.WithIndent("  "))
	}
	if len(problems) == 0 {
		return nil
	}
	t := newTable(a.stdout, "WHERE", "OPERATION", "ENTRY", "CM HANDLE", "CODE", "WHY")
	for _, p := range problems {
		entry := ""
		if p.entry >= 0 {
			entry = strconv.Itoa(int(p.entry) + 1)
		}
		t.row(p.place, p.operation, entry, p.id, string(p.Code), why(p.Text, p.Details))
	}
	return t.flush()
}

// why joins a code's text and its details, which often is the same again.
func why(text, details string) string {
	if details == "" || details == text {
		return text
	}
	return text + " (" + details + ")"
}
