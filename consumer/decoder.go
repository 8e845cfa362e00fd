package consumer

import "ncmp-inventory/inventory"

// Decoder turns a record's key, value and headers into events. It sets exactly
// one of r.Events, r.Dead (Events may then hold the event's identity) and
// r.Empty, and r.Replay for a dead letter that was sent again, never fails otherwise, and may alias r's bytes: they stay untouched
// until the batch was applied. heartbeats says that the record came from the
// heartbeats topic, where every foreign type is a heartbeat. It is called from
// many goroutines.
type Decoder interface {
	Decode(r *inventory.Record, heartbeats bool)
}
