// Package consumer turns Kafka records into ordered batches of decoded events
// and has them applied, each exactly once.
//
//	group member --assignment--> lanes, one for each partition
//	                               |  claim, start, gaps, policies
//	fetcher --record batches--> mailbox --> cut, decode --> Applier --> hint
//	one loop for each broker    bounded     whatever waits  one tx      group offset
//
// # Promises
//
//   - The stored position, claimed before the first fetch, is the truth; the
//     group's offset is a hint for lag tools, and tells by its metadata which
//     database it came from.
//   - Partitions are known and fetched by topic id: a topic created anew never
//     passes for the old one.
//   - Records come in order, committed ones only; the position also moves over
//     offsets that hold nothing to see.
//   - What is missing (retention, truncation, another topic, a database that
//     went back) halts that partition or is passed over loudly, by policy.
//   - Memory is bounded: a partition is left out of fetches while it holds its
//     share.
//   - After a stop or a revocation nothing new begins; what is in hand
//     finishes within a bound. Cutting it off loses nothing: the claim of the
//     next owner fences it.
//
// # Non-obvious
//
//   - kafka-go does connections, TLS, SASL and most requests. Its consumer
//     group forgets its member id with every failed dial and beats no heart
//     while batches finish, its reader hands out aborted records; hence a
//     member and a fetch of our own. See wire.go for how they share the
//     transport.
//   - Record batches wait as they came and are decompressed and decoded only
//     when their lane gets to them. Records, headers and events of a batch
//     live in slices that the lane uses again: nothing may keep them after
//     Apply returned.
//   - Every rebalance stops all lanes. That is simple, and cheap because
//     assignments are sticky, heartbeats go on and joining takes milliseconds.
//   - A topic that cannot be seen right now is no change of the topics: a
//     broker that just started may not know it yet.
package consumer
