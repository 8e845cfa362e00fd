// Package store keeps the inventory in PostgreSQL: CM handles as data nodes in
// CPS's tables, and beside them, in schema ncmp_inventory, what the worker
// needs to apply each record once and to publish each message. It knows neither
// Kafka nor CloudEvents.
//
//	fragment, anchor, …   CPS's; created leaner on an empty database, else left as found
//	reference             handle ids and alternate ids in use, one namespace; also the locks
//	position              how far each input partition is applied, and by whom
//	trust                 trust levels other than COMPLETE
//	outbox                messages that wait to be published, as bytes
//	relay                 who publishes now, and the publisher's transactional id
//	canary, migration     a row to write for a test; the schema's version
//
// # One transaction
//
// Transact applies a batch in three round trips, READ COMMITTED:
//
//	0  without a lock: alternate ids that removals would free, fragment ids
//	1  BEGIN; compare and move the position; lock every key; read
//	   plan, in memory
//	2  removals, new rows, changed leaves; trust; references; outbox; COMMIT
//
// Promises:
//
//   - Rows, messages, references and position change together or not at all. A
//     worker whose partition was claimed, or whose batch was applied before,
//     changes nothing: the position's compare-and-set comes first.
//   - Keys are locked by one statement in one order, and rows are read by a
//     later one: lanes on the same handles neither deadlock nor see a row from
//     before their wait.
//   - A key's lock is held until COMMIT and the sequence is drawn by the last
//     write: per handle, the order of sequences is the order of commits. Across
//     handles it is not: never read "above the last seen".
//   - Statements find data nodes by index whatever the planner thinks of the
//     table: arrays hide their length, look-ups stand in LATERALs.
//   - Errors are told apart by SQLSTATE alone (errors.go). Only the data of a
//     batch can make an inventory.ErrData, only an outage an ErrTransient.
//   - Nothing here logs or returns the server's detail text, a private value,
//     or a password.
//
// # Non-obvious
//
//   - A lost answer to COMMIT is settled by the position and by nothing else: a
//     plain read can show the old value while the server still commits.
//   - pgx sends a cancel request when it gives a connection up. During COMMIT
//     none may go out: a COMMIT that waits for a synchronous standby would stop
//     waiting and answer success. See link in connect.go.
//   - A COMMIT that comes with the warning that the wait for the standby was cut
//     short is taken as unknown; the next try finds the position moved and
//     confirms it by a later commit.
//   - Row ids are used only inside the transaction that read them under the lock.
//   - A value v of fragment_id_seq is the block v-99 to v, as for CPS.
//   - Rows of an older system can have xpaths with apostrophes that are not
//     doubled: children are found by parent and name, never by xpath.
//   - to_regclass answers from a session's cache: after a wait for an advisory
//     lock it can be wrong. The migrations read the catalog.
package store
