package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Finding is one kind of thing that the stored inventory should not hold.
type Finding struct {
	Check string // stable name, for example "state-missing"
	Text  string // for people
	// Notice marks what an older system left behind and the worker copes
	// with; everything else is wrong.
	Notice bool
	Count  int64
	// Examples are the first few, by xpath, key or name. They hold no private
	// value and no private property's name.
	Examples []string
}

// Report is what Verify found.
type Report struct {
	Handles, DataNodes int64
	Findings           []Finding
}

// Wrong reports whether there is a finding that is no mere notice.
func (r *Report) Wrong() bool {
	for _, f := range r.Findings {
		if !f.Notice {
			return true
		}
	}
	return false
}

const (
	mostExamples  = 10
	verifyTimeout = 30 * time.Minute
)

// sqlVerifySettings keeps the planner from nested loops: every check reads whole
// tables, and with statistics that lag behind one of them takes minutes where
// hashing takes a second.
const sqlVerifySettings = `
select set_config('statement_timeout', $1, true), set_config('enable_nestloop', 'off', true), set_config('work_mem', '64MB', true)`

// Verify checks every invariant of the stored inventory as of one moment. It
// reads all of it, with the server doing the comparing: memory here is bounded
// however many handles there are. It changes nothing.
func (s *Store) Verify(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	var r Report
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.pool, opts, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlVerifySettings, millis(verifyTimeout)); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, verifyCounts, s.anchor, s.root).Scan(&r.Handles, &r.DataNodes); err != nil {
			return err
		}
		for _, c := range checks {
			f, err := s.check(ctx, tx, c)
			if err != nil {
				return fmt.Errorf("check %s: %w", c.name, err)
			}
			if f.Count > 0 {
				r.Findings = append(r.Findings, f)
			}
		}
		return nil
	})
	return r, s.classify("verifying the inventory", err)
}

// check runs one check. Its statement yields an example per row.
func (s *Store) check(ctx context.Context, tx pgx.Tx, c check) (Finding, error) {
	f := Finding{Check: c.name, Text: c.text, Notice: c.notice}
	var args []any
	if strings.Contains(c.sql, "$1") {
		args = append(args, s.anchor)
	}
	if strings.Contains(c.sql, "$2") {
		args = append(args, s.root)
	}
	// The statement is planned for this one use, with the tables as they are.
	rows, err := tx.Query(ctx, c.sql, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
	if err != nil {
		return f, err
	}
	var example string
	_, err = pgx.ForEachRow(rows, []any{&example}, func() error {
		if f.Count++; len(f.Examples) < mostExamples {
			f.Examples = append(f.Examples, maskPrivate(example))
		}
		return nil
	})
	return f, err
}

// maskPrivate keeps the name of a private property to itself.
func maskPrivate(xpath string) string {
	if at := strings.Index(xpath, privateStep); at >= 0 {
		return xpath[:at] + "/cmHandleProperties[…]"
	}
	return xpath
}
