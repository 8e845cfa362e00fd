// Package bench measures the worker, and beside it what PostgreSQL itself can
// do with the same rows: the ceiling.
//
// # How it measures
//
//   - Workers are processes of their own, started from this program, and so is
//     the embedded broker: CPU and memory belong to one of them each.
//   - Worker and ceiling take turns, slice by slice, on two databases of one
//     server: a noisy neighbour hurts both alike. The rates themselves depend on
//     the machine; their ratio hardly does.
//   - The ceiling writes the same rows (data nodes, references, history,
//     position, outbox) by bare pgx in one round trip a transaction, in batches as large
//     as the worker's were, on as many connections. Everything it needs is
//     encoded before its clock starts.
//   - The worker's clock starts before the first event is sent and stops when
//     the last LCM event is on its topic. Events are encoded before.
//   - Data-node workloads (insert, leaves, delete, read) run in this process:
//     the store's primitive and a bare statement take turns, call by call.
//
// # Promises
//
//   - It works in databases and topics of its own, under names that start with
//     ncmp_inventory_bench_, and removes them. Given a database that holds CM
//     handles it refuses to load that server.
//   - Rows are counted after every phase: a rate of wrong results is an error.
package bench
