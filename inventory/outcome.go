package inventory

import (
	"errors"
	"fmt"
)

// Code is one of NCMP's response codes.
type Code string

// The codes that an entry can be refused with (NCMP's NcmpResponseStatus).
const (
	CodeNotFound     Code = "100"
	CodeNotReady     Code = "101"
	CodeUnknownError Code = "108"
	CodeExists       Code = "109"
	CodeInvalidID    Code = "110"
	CodeTooLarge     Code = "112"
)

// Text is NCMP's text of the code. 108 has none of its own: there NCMP puts
// the cause.
func (c Code) Text() string {
	switch c {
	case CodeNotFound:
		return "cm handle reference(s) not found"
	case CodeNotReady:
		return "cm handle(s) not ready"
	case CodeExists:
		return "cm-handle already exists"
	case CodeInvalidID:
		return "cm handle reference has an invalid character(s) in id"
	case CodeTooLarge:
		return "message too large"
	}
	return "Unknown error"
}

// Rejection is why one entry was refused. It is a value, not an error: the
// batch goes on.
type Rejection struct {
	Code    Code
	Text    string
	Details string // for people; never holds a private value
}

// Reject makes a Rejection with the code's own text.
func Reject(c Code, details string) *Rejection {
	return &Rejection{Code: c, Text: c.Text(), Details: details}
}

// Failure is one refused entry of an outcome.
type Failure struct {
	ID string
	Op Op
	Rejection
}

// The classes of error that a Ledger returns; compare with errors.Is.
var (
	// ErrTransient wraps whatever waiting can mend: an outage, a failover, a
	// deadlock. The same batch is tried again, for ever.
	ErrTransient = errors.New("transient")
	// ErrData wraps a refusal of the data itself: the batch is split until
	// the one to blame is found.
	ErrData = errors.New("data refused")
	// ErrFenced means that another worker has claimed the partition.
	ErrFenced = errors.New("partition was claimed by another worker")
	// ErrRewound means that the stored position lies below the lane's own:
	// the database went back (restored backup, lost commits).
	ErrRewound = errors.New("stored position went back")
)

// DataError is an ErrData that knows the SQLSTATE. It never carries the
// server's detail text: that can quote private values.
type DataError struct {
	SQLState string
	Op       string // what was being done
}

func (e *DataError) Error() string {
	return fmt.Sprintf("%s: refused by PostgreSQL (SQLSTATE %s)", e.Op, e.SQLState)
}

// Is makes errors.Is(err, ErrData) true.
func (e *DataError) Is(target error) bool { return target == ErrData }
