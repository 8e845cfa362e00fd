package consumer

import (
	"context"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// heartbeat tells the coordinator that a member lives. kafka-go's own message
// reads the answer's fields in the wrong order, so that a member never learns
// of a rebalance; hence version 3 by hand.
func (k *Cluster) heartbeat(ctx context.Context, group, member, instance string, generation int) error {
	var code int16
	c := &call{key: protocol.Heartbeat, version: 3, client: k.clientID, read: func(r *wireReader) {
		r.i32() // throttled for
		code = r.i16()
	}}
	w := &c.body
	w.str(group)
	w.i32(int32(generation))
	w.str(member)
	w.nullable(instance)
	if err := k.exchange(ctx, groupCall{c, group}); err != nil {
		return err
	}
	if code != 0 {
		return kafka.Error(code)
	}
	return nil
}
