package consumer

import (
	"bytes"
	"context"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/consumer"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/segmentio/kafka-go/protocol/syncgroup"
	"go.uber.org/zap"
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

// joinGroup asks for a place in the group. kafka-go's client makes room for as
// many topics as another member's metadata claims to have, gigabytes at a word
// of four bytes; here such a member is one that has nothing.
func (m *member) joinGroup(ctx context.Context, q *kafka.JoinGroupRequest) (*kafka.JoinGroupResponse, error) {
	req := &joingroup.Request{
		GroupID: q.GroupID, MemberID: q.MemberID, GroupInstanceID: q.GroupInstanceID, ProtocolType: q.ProtocolType,
		SessionTimeoutMS: int32(q.SessionTimeout.Milliseconds()), RebalanceTimeoutMS: int32(q.RebalanceTimeout.Milliseconds()),
	}
	for _, p := range q.Protocols {
		md := consumer.Subscription{Version: consumer.MaxVersionSupported, Topics: p.Metadata.Topics, UserData: p.Metadata.UserData}
		md.OwnedPartitions = topicPartitions(p.Metadata.OwnedPartitions)
		b, err := protocol.Marshal(consumer.MaxVersionSupported, md)
		if err != nil {
			return nil, err
		}
		req.Protocols = append(req.Protocols, joingroup.RequestProtocol{Name: p.Name, Metadata: b})
	}
	answer, err := m.k.client.Transport.RoundTrip(ctx, m.k.client.Addr, req)
	if err != nil {
		return nil, err
	}
	r := answer.(*joingroup.Response)
	res := &kafka.JoinGroupResponse{GenerationID: int(r.GenerationID), ProtocolName: r.ProtocolName, LeaderID: r.LeaderID, MemberID: r.MemberID}
	if r.ErrorCode != 0 {
		res.Error = kafka.Error(r.ErrorCode)
	}
	for _, other := range r.Members {
		j := kafka.JoinGroupResponseMember{ID: other.MemberID, GroupInstanceID: other.GroupInstanceID}
		j.Metadata, err = readSubscription(other.Metadata)
		if err != nil {
			m.log.Warn("the metadata of another member of the group cannot be read", zap.String("group", q.GroupID), zap.String("member", other.MemberID))
		}
		res.Members = append(res.Members, j)
	}
	return res, nil
}

// readSubscription reads a member's metadata of version 1, and of later ones
// what version 1 knows.
func readSubscription(b []byte) (s kafka.GroupProtocolSubscription, err error) {
	r := &wireReader{r: bytes.NewReader(b), n: len(b)}
	version := r.i16()
	for n := r.count(); n > 0 && r.err == nil; n-- {
		s.Topics = append(s.Topics, r.str())
	}
	s.UserData = r.bytes()
	if version > 0 {
		s.OwnedPartitions = readTopicPartitions(r)
	}
	if r.err != nil {
		return kafka.GroupProtocolSubscription{}, r.err
	}
	return s, nil
}

// readAssignment reads what the group's leader gives to a member.
func readAssignment(b []byte) (map[string][]int, error) {
	r := &wireReader{r: bytes.NewReader(b), n: len(b)}
	if len(b) == 0 { // a member that gets nothing
		return map[string][]int{}, nil
	}
	r.i16() // the version
	mine := readTopicPartitions(r)
	return mine, r.err
}

func readTopicPartitions(r *wireReader) map[string][]int {
	out := map[string][]int{}
	for n := r.count(); n > 0 && r.err == nil; n-- {
		topic := r.str()
		for p := r.count(); p > 0 && r.err == nil; p-- {
			out[topic] = append(out[topic], int(r.i32()))
		}
	}
	return out
}

func topicPartitions(parts map[string][]int) []consumer.TopicPartition {
	out := make([]consumer.TopicPartition, 0, len(parts))
	for topic, indexes := range parts {
		tp := consumer.TopicPartition{Topic: topic}
		for _, p := range indexes {
			tp.Partitions = append(tp.Partitions, int32(p))
		}
		out = append(out, tp)
	}
	return out
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
		a := consumer.Assignment{Version: consumer.MaxVersionSupported, AssignedPartitions: topicPartitions(topics)}
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
	return readAssignment(r.Assignments)
}
