package store

import "github.com/jackc/pgx/v5/pgxpool"

// ReadWindow is the statement that reads the outbox, for a look at its plan.
const ReadWindow = readWindow

// OutboxPool is the publisher's connections.
func OutboxPool(o *Outbox) *pgxpool.Pool { return o.pool }
