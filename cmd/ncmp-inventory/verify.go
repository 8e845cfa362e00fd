package main

import (
	"fmt"
	"slices"
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
// findings, one for each topic.
func judgePositions(list []position) (found []store.Finding) {
	type group struct {
		finding store.Finding
		notes   []string // in the order in which they come
		at      map[string][]string
	}
	groups := map[string]*group{}
	var order []*group
	for _, p := range list {
		if p.Note == "" || p.Note == noteNone {
			continue
		}
		f := store.Finding{Check: "position-broker", Text: "positions that do not fit the topics"}
		if p.Note == noteUnused {
			f = store.Finding{Check: "position-unused", Text: "positions of partitions that are not consumed", Notice: true}
		}
		key := f.Check + " " + p.Topic
		g := groups[key]
		if g == nil {
			g = &group{finding: f, at: map[string][]string{}}
			groups[key], order = g, append(order, g)
		}
		if _, known := g.at[p.Note]; !known {
			g.notes = append(g.notes, p.Note)
		}
		g.at[p.Note] = append(g.at[p.Note], fmt.Sprintf("%s/%d", p.Topic, p.Partition))
		g.finding.Count++
	}
	for _, g := range order {
		for i, note := range g.notes {
			if i == mostNotes {
				g.finding.Examples = append(g.finding.Examples, fmt.Sprintf("and %d more reasons", len(g.notes)-i))
				break
			}
			g.finding.Examples = append(g.finding.Examples, clipped(g.at[note])+": "+note)
		}
		found = append(found, g.finding)
	}
	slices.SortStableFunc(found, func(a, b store.Finding) int { return strings.Compare(a.Check, b.Check) })
	return found
}

// mostNotes and mostNames bound a line: a topic can have thousands of partitions.
const (
	mostNotes = 3
	mostNames = 5
)

func clipped(names []string) string {
	if n := len(names) - mostNames; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), n)
	}
	return strings.Join(names, ", ")
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
