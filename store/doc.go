// Package store keeps the inventory in PostgreSQL: CM handles as data nodes in
// CPS's tables, and beside them, in schema ncmp_inventory, what the worker
// needs to apply each record once and to publish each message.
package store
