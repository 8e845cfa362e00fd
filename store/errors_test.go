package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

func TestErrorsAreToldApartBySQLSTATE(t *testing.T) {
	t.Parallel()
	states := map[error][]string{
		inventory.ErrTransient: {"08006", "08P01", "40001", "40P01", "40003", "53300", "53200", "53100", "55P03", "57P01", "57P03", "25006", "25P03", "58030"},
		inventory.ErrData:      {"22021", "22P05", "22P02", "22003", "23502", "23514", "23505", "23503", "54000", "P0001", "XX000", "42P17", "57014"},
	}
	for class, codes := range states {
		for _, code := range codes {
			err := store.Classify(true, fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, Message: "message", Detail: "Key (name)=(hush)"}))
			require.ErrorIs(t, err, class, code)
			require.ErrorContains(t, err, code)
			require.NotContains(t, err.Error(), "hush")
		}
	}
	for _, code := range []string{"42501", "42P01", "42601", "0LP01", "3F000", ""} {
		err := store.Classify(true, &pgconn.PgError{Code: code, Detail: "hush"})
		require.NotErrorIs(t, err, inventory.ErrTransient, code)
		require.NotErrorIs(t, err, inventory.ErrData, code)
		require.NotContains(t, err.Error(), "hush")
	}
	for _, code := range []string{"28P01", "28000", "3D000"} {
		require.NotErrorIs(t, store.Classify(false, &pgconn.PgError{Code: code}), inventory.ErrTransient, "a refusal at start is a mistake")
		require.ErrorIs(t, store.Classify(true, &pgconn.PgError{Code: code}), inventory.ErrTransient, "a refusal later is an outage")
	}
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, pgconn.ErrConnClosed, &net.OpError{Op: "read", Err: errors.New("reset")}, context.DeadlineExceeded} {
		require.ErrorIs(t, store.Classify(true, fmt.Errorf("read: %w", err)), inventory.ErrTransient)
	}
	require.NotErrorIs(t, store.Classify(true, context.Canceled), inventory.ErrTransient)
	require.NotErrorIs(t, store.Classify(true, errors.New("a fault of ours")), inventory.ErrTransient)
	require.NoError(t, store.Classify(true, nil))
}
