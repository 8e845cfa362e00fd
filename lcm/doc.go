// Package lcm tells the world what was committed: it encodes LCM events,
// inventory events, outcomes and dead letters, and publishes them from the
// outbox to Kafka.
package lcm
