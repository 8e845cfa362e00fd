package consumer

import (
	"context"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/consumer"
	"github.com/segmentio/kafka-go/protocol/syncgroup"
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

// syncGroup hands the leader's assignments over and returns this member's own,
// by topic. kafka-go's client decodes the assignment before it looks at the
// error, and so hides the error behind an unexpected EOF.
func (k *Cluster) syncGroup(ctx context.Context, group, member, instance string, generation int, protocolName string, dealt map[string]map[string][]int) (map[string][]int, error) {
	req := &syncgroup.Request{
		GroupID: group, GenerationID: int32(generation), MemberID: member, GroupInstanceID: instance,
		ProtocolType: "consumer", ProtocolName: protocolName,
	}
	for id, topics := range dealt {
		a := consumer.Assignment{Version: consumer.MaxVersionSupported}
		for topic, parts := range topics {
			tp := consumer.TopicPartition{Topic: topic}
			for _, p := range parts {
				tp.Partitions = append(tp.Partitions, int32(p))
			}
			a.AssignedPartitions = append(a.AssignedPartitions, tp)
		}
		b, err := protocol.Marshal(consumer.MaxVersionSupported, a)
		if err != nil {
			return nil, err
		}
		req.Assignments = append(req.Assignments, syncgroup.RequestAssignment{MemberID: id, Assignment: b})
	}
	m, err := k.client.Transport.RoundTrip(ctx, k.client.Addr, req)
	if err != nil {
		return nil, err
	}
	r := m.(*syncgroup.Response)
	if r.ErrorCode != 0 {
		return nil, kafka.Error(r.ErrorCode)
	}
	mine := map[string][]int{}
	if len(r.Assignments) == 0 {
		return mine, nil
	}
	var a consumer.Assignment
	if err := protocol.Unmarshal(r.Assignments, consumer.MaxVersionSupported, &a); err != nil {
		return nil, err
	}
	for _, tp := range a.AssignedPartitions {
		for _, p := range tp.Partitions {
			mine[tp.Topic] = append(mine[tp.Topic], int(p))
		}
	}
	return mine, nil
}
