package main

import (
	"context"
	"fmt"
	"time"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

// groupTTL is how long after its last word a consumer group is taken to work on
// a database; groupEvery is how often it says so.
const (
	groupTTL   = 15 * time.Second
	groupEvery = groupTTL / 3
)

// holdGroup tells the database this worker's consumer group. While another group
// works on it, that is an error that waiting can mend.
func holdGroup(ctx context.Context, s *store.Store, group string) error {
	other, err := s.HoldGroup(ctx, group, groupTTL)
	if err == nil && other != "" {
		return &rivalError{ours: group, other: other}
	}
	return err
}

// rivalError is another consumer group on the same database.
type rivalError struct{ ours, other string }

func (e *rivalError) Error() string {
	return fmt.Sprintf("consumer group %q works on this database, kafka.group is %q: its workers have to stop first", e.other, e.ours)
}

func (e *rivalError) Is(target error) bool { return target == inventory.ErrTransient }
