package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"ncmp-inventory/inventory"
)

// ServerError is a refusal of PostgreSQL's that no waiting mends: a password, a
// right, a table that is missing. Message never quotes data.
type ServerError struct{ Op, SQLState, Message string }

func (e *ServerError) Error() string {
	return fmt.Sprintf("%s: PostgreSQL says %s (SQLSTATE %s)", e.Op, e.Message, e.SQLState)
}

// class is what a database error asks for.
type class uint8

const (
	classNone    class = iota
	classRetry         // deadlock or serialization: the same again, at once
	classReplan        // a race for a key was lost: plan again
	classWait          // an outage: the same again, later
	classSwitch        // as classWait, and this server takes no writes
	classData          // the data itself is refused
	classContext       // the caller's context ended
	classFatal
)

func (c class) String() string {
	return [...]string{"none", "retry", "replan", "wait", "switch", "data", "context", "fatal"}[c]
}

// classOf sorts an error by its SQLSTATE, never by its text.
func (s *Store) classOf(err error) class {
	var pe *pgconn.PgError
	switch {
	case err == nil:
		return classNone
	case errors.As(err, &pe):
		return s.classOfState(pe.Code)
	case errors.Is(err, context.Canceled):
		return classContext
	case errors.Is(err, inventory.ErrTransient):
		return classWait
	case errors.Is(err, inventory.ErrData):
		return classData
	}
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || pgconn.SafeToRetry(err) {
		return classWait
	}
	return classFatal
}

func (s *Store) classOfState(code string) class {
	switch code {
	case "40P01", "40001":
		return classRetry
	case "23505", "23503":
		return classReplan
	case "25006": // read-only: a primary that is one no more
		return classSwitch
	case "55P03", "25P03", "25P04", "0A000": // lock or idle time-out; a plan that was cached before a migration
		return classWait
	case "57014", "42P17": // the data made a statement too slow, or an expression refuse
		return classData
	}
	switch code[:min(2, len(code))] {
	case "08", "40", "53", "57", "58":
		return classWait
	case "28", "3D": // refused or no such database: an outage once it has worked
		if s.proven.Load() {
			return classWait
		}
	case "22", "23", "54", "P0", "XX": // P0: what somebody's trigger raises against a row
		return classData
	}
	return classFatal
}

// classify wraps a database error in the class that inventory knows. Of the
// server's own text only the SQLSTATE and, where it cannot quote data, the
// message survive: its detail can hold private values.
func (s *Store) classify(op string, err error) error {
	var pe *pgconn.PgError
	state := ""
	if errors.As(err, &pe) {
		state = pe.Code
	}
	switch s.classOf(err) {
	case classNone:
		return nil
	case classContext:
		return fmt.Errorf("%s: %w", op, err)
	case classData, classReplan:
		if state == "" {
			return fmt.Errorf("%s: %w", op, err)
		}
		return &inventory.DataError{SQLState: state, Op: op}
	case classFatal:
		if pe == nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		return &ServerError{Op: op, SQLState: pe.Code, Message: pe.Message}
	}
	if errors.Is(err, inventory.ErrTransient) {
		return fmt.Errorf("%s: %w", op, err)
	}
	if pe != nil {
		return fmt.Errorf("%s: %w: PostgreSQL says %s (SQLSTATE %s)", op, inventory.ErrTransient, pe.Message, pe.Code)
	}
	return fmt.Errorf("%s: %w: %w", op, inventory.ErrTransient, err)
}
