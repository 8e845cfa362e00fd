// Package lcm tells the world what was committed: it encodes LCM events,
// inventory events, outcomes and dead letters, and publishes them from the
// outbox to Kafka.
//
//	planner --Encoder--> messages --one transaction--> outbox --Relay--> topics
//
// Encoder is pure: a message is encoded once, before the commit, and every
// repeat has equal bytes. Only the sequence is added when an LCM event is
// published; it is the outbox row's id, and SizeOf leaves room for it.
//
// Relay is the publisher. Every worker runs one; a lease in the database lets
// one of them publish.
//
// # Promises
//
//   - A message is deleted from the outbox only after Kafka acknowledged it on
//     all in-sync replicas, and by its id, never by a range.
//   - First occurrences of a key's messages are in order. A repeat, after a
//     failure or a take-over, has an equal id and an equal sequence.
//   - Once a publisher has written to a partition, an older one cannot: its
//     producer epoch is fenced by Kafka. A lease that two workers believe to
//     hold is therefore harmless.
//   - A topic, a partition or a key in trouble waits alone.
//   - Memory is bounded: one window a kind, one batch a partition in flight.
//
// # Non-obvious
//
//   - One batch in flight a partition, sent again byte for byte until the
//     answer is definite: with two, a lost first one would be overtaken by the
//     second, and with other bytes the broker would not know the repeat.
//   - kafka-go cannot send a producer id in its own batches, so batches are
//     built here and sent raw. After an attempt without an answer its transport
//     may still be reading the buffer, which is then given up, never reused.
//   - "Out of order sequence" and "unknown producer" mean that the broker lost
//     its memory of this producer. Whether the batch arrived is then unknown
//     for good: a new epoch is taken and all that is not deleted goes out again.
//   - A fenced publisher never takes a new epoch by itself: it would fence its
//     successor. It steps back and competes for the lease like any other.
//   - A message without a key goes to partition 0: its hash in the outbox is 0,
//     so leaving out a blocked partition leaves out the same rows that are sent
//     there.
//   - Record timestamps are the time of publication: a row that waited longer
//     than the topic's retention must not be dropped on arrival.
package lcm
