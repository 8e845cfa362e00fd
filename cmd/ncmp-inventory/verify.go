package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ncmp-inventory/store"
)

func newVerifyCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Checks every invariant of the stored inventory",
		Long: `Checks the stored inventory as of one moment: parents, references, states,
counts, what waits to be published, and, if kafka.brokers is set, the stored
positions against the brokers. It changes nothing. It exits with 3 if something
is wrong; what an older system left behind, and a worker copes with, is a notice.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load("database.url")
			if err != nil {
				return err
			}
			s, err := a.openStore(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer s.Close()
			r, err := s.Verify(cmd.Context())
			if err != nil {
				return err
			}
			if len(c.Kafka.Brokers) == 0 {
				fmt.Fprintln(a.stderr, "kafka.brokers is not set: positions are not held against the brokers")
			} else {
				list, err := readPositions(cmd.Context(), c.Kafka, s)
				if err != nil {
					return err
				}
				r.Findings = append(r.Findings, judgePositions(list)...)
			}
			return a.printReport(&r, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// judgePositions turns what does not fit between positions and logs into
// findings of their own.
func judgePositions(list []position) []store.Finding {
	wrongs := store.Finding{Check: "position-broker", Text: "positions that do not fit the topics"}
	notices := store.Finding{Check: "position-unused", Text: "positions of partitions that are not consumed", Notice: true}
	for _, p := range list {
		f := &wrongs
		switch {
		case p.Note == "" || p.Note == noteNone:
			continue
		case p.Note == noteUnused:
			f = &notices
		}
		f.Count++
		f.Examples = append(f.Examples, fmt.Sprintf("%s/%d: %s", p.Topic, p.Partition, p.Note))
	}
	var found []store.Finding
	for _, f := range []store.Finding{wrongs, notices} {
		if f.Count > 0 {
			found = append(found, f)
		}
	}
	return found
}

// reportJSON is a report for programs.
type reportJSON struct {
	Handles   int64         `json:"handles"`
	DataNodes int64         `json:"dataNodes"`
	Wrong     bool          `json:"wrong"`
	Findings  []findingJSON `json:"findings"`
}

type findingJSON struct {
	Check    string   `json:"check"`
	Wrong    bool     `json:"wrong"`
	Count    int64    `json:"count"`
	Text     string   `json:"text"`
	Examples []string `json:"examples"`
}

func (a *app) printReport(r *store.Report, asJSON bool) error {
	if err := a.showReport(r, asJSON); err != nil {
		return err
	}
	if r.Wrong() {
		return &exitError{code: exitWrong}
	}
	return nil
}

func (a *app) showReport(r *store.Report, asJSON bool) error {
	if asJSON {
		v := reportJSON{Handles: r.Handles, DataNodes: r.DataNodes, Wrong: r.Wrong(), Findings: []findingJSON{}}
		for _, f := range r.Findings {
			v.Findings = append(v.Findings, findingJSON{f.Check, !f.Notice, f.Count, f.Text, f.Examples})
		}
		return writeJSON(a.stdout, v)
	}
	fmt.Fprintf(a.stderr, "%d CM handles, %d data nodes\n", r.Handles, r.DataNodes)
	if len(r.Findings) == 0 {
		_, err := fmt.Fprintln(a.stdout, "nothing is wrong")
		return err
	}
	t := newTable(a.stdout, "RESULT", "CHECK", "COUNT", "WHAT", "FOR EXAMPLE")
	for _, f := range r.Findings {
		result := "wrong"
		if f.Notice {
			result = "notice"
		}
		t.row(result, f.Check, strconv.FormatInt(f.Count, 10), f.Text, strings.Join(f.Examples, "  "))
	}
	return t.flush()
}
