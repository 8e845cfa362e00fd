// Package inventory is the domain: CM handles, their states, and what one
// batch of input events does to them. It knows no Kafka, no SQL, no JSON and no
// clock of its own.
//
// The life of a handle (facts of ONAP NCMP; DELETED is never stored):
//
//	                 create
//	                   |
//	                   v     module sync ok
//	             +-> ADVISED ----------------> READY
//	 retry       |     | module sync failed      | upgrade, or a state event
//	             |     v                         |
//	             +-- LOCKED <--------------------+
//
//	any stored state --remove--> DELETING --> DELETED   (one transaction here)
//
// # Promises
//
//   - Planning is pure and total: the same batch, snapshot and time give the
//     same plan and the same event ids; a bad entry becomes a Rejection and
//     costs its neighbours nothing.
//   - Writes are coalesced, facts are not: however many items name a handle,
//     the plan holds one Change for it, and one Message for each transition.
//     Planning events as one batch gives the same rows (times and row ids
//     aside) and the same messages as planning them one by one.
//   - Nothing here holds on to an input buffer after Apply returned.
//
// # Non-obvious
//
//   - A removal announces DELETING and DELETED but stores neither: both happen
//     in one transaction, so no crash can leave a handle in DELETING. A stored
//     DELETING is always a leftover of an older system.
//   - Ids and alternate ids share one namespace, and who owns a key is decided
//     by the reference table under a lock, never by a cache.
//   - Event ids count input items, never emitted events: a re-plan after lost
//     commits must give each item the id it had before.
package inventory
