package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"go.uber.org/zap"
)

// member is this worker's membership in the consumer group. It differs from
// kafka-go's ConsumerGroup where that costs the most: the member id survives
// network errors (a restarted broker costs no rebalance), heartbeats go on
// while batches finish after a revocation, and a member may be static.
type member struct {
	cfg *Config
	k   *Cluster
	log *zap.Logger
	m   *metrics

	// serve owns the session's partitions until ctx ends, finishes what is
	// in hand and returns. Heartbeats go on until it did.
	serve func(ctx context.Context, s *session) error
	// found is called by the leader for topics it is about to assign, before
	// anyone owns them.
	found func(ctx context.Context, md *Metadata) error
	// stalled reports that a batch takes so long that the group should move
	// our partitions.
	stalled func() bool
	// note tells the status what the member is up to.
	note func(joined bool, generation int, err error)

	id     string
	owned  map[string][]int
	dealt  map[string]map[string][]int // what this member, as leader, last gave to whom
	joined bool                        // ever
}

// session is one generation of the membership.
type session struct {
	member     *member
	generation int
	id         string
	assigned   map[string][]int
	view       map[string]topicView // what the member saw when it joined
	rejoin     chan struct{}
	beat       chan chan error
	done       chan struct{}
}

// errLeft ends a session that the coordinator has given up.
var errLeft = errors.New("no longer a member of the group")

// fatal tells the answers that no retry mends.
func (m *member) fatal(err error) bool {
	for _, e := range []kafka.Error{kafka.FencedInstanceID, kafka.InconsistentGroupProtocol, kafka.InvalidSessionTimeout, kafka.InvalidGroupId} {
		if errors.Is(err, e) {
			return true
		}
	}
	if m.joined {
		return false // a right that was there may come back
	}
	for _, e := range []kafka.Error{kafka.GroupAuthorizationFailed, kafka.TopicAuthorizationFailed, kafka.SASLAuthenticationFailed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// run keeps the membership until ctx ends or serve fails, then leaves the
// group unless the member is static.
func (m *member) run(ctx context.Context) error {
	defer m.leave(context.WithoutCancel(ctx))
	for attempt := 0; ctx.Err() == nil; {
		s, err := m.join(ctx)
		if err == nil {
			attempt = 0
			m.joined = true
			m.note(true, s.generation, nil)
			err = m.hold(ctx, s)
			m.note(false, 0, err)
		}
		var serving *serveError
		switch {
		case ctx.Err() != nil && !errors.As(err, &serving):
			return nil
		case err == nil:
			m.m.rebalances.Inc()
			continue
		case errors.As(err, &serving):
			return serving.err
		case m.fatal(err):
			return fmt.Errorf("consumer group %s: %w", m.cfg.Group, err)
		case errors.Is(err, kafka.RebalanceInProgress):
			sleep(ctx, pauseFor(0)) // overtaken by the next rebalance
			continue
		case errors.Is(err, kafka.UnknownMemberId):
			m.id, m.owned = "", nil // evicted: only now the id is worthless
		case errors.Is(err, kafka.IllegalGeneration):
			m.owned = nil
		}
		m.note(false, 0, err)
		m.m.retries.WithLabelValues("group").Inc()
		m.log.Warn("consumer group", zap.String("group", m.cfg.Group), zap.Error(err))
		sleep(ctx, pauseFor(attempt))
		attempt++
	}
	return nil
}

// serveError is an error of serve: it ends the membership.
type serveError struct{ err error }

func (e *serveError) Error() string { return e.err.Error() }

func (m *member) leave(ctx context.Context) {
	if m.cfg.InstanceID != "" || m.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := m.k.client.LeaveGroup(ctx, &kafka.LeaveGroupRequest{GroupID: m.cfg.Group, Members: []kafka.LeaveGroupRequestMember{{ID: m.id}}})
	if err != nil {
		m.log.Warn("leaving the consumer group", zap.Error(err))
	}
}

// protocolName is ours alone: no foreign consumer can be given partitions.
const protocolName = "ncmp-inventory"

// join takes part in one rebalance.
func (m *member) join(ctx context.Context) (*session, error) {
	md, err := m.k.Metadata(ctx, m.cfg.Topics...)
	if err != nil {
		return nil, err
	}
	for _, t := range md.Topics {
		if !m.joined && errors.Is(t.Err, kafka.TopicAuthorizationFailed) {
			return nil, fmt.Errorf("topic %s: %w", t.Name, t.Err)
		}
	}
	view := md.view()
	owned := m.owned
	if m.cfg.InstanceID != "" {
		// A restarted static member must look as it did, or some brokers
		// rebalance; the leader remembers what it had.
		owned = nil
	}
	req := &kafka.JoinGroupRequest{
		GroupID: m.cfg.Group, MemberID: m.id, GroupInstanceID: m.cfg.InstanceID,
		SessionTimeout: m.cfg.SessionTimeout, RebalanceTimeout: m.cfg.RebalanceTimeout, ProtocolType: "consumer",
		Protocols: []kafka.GroupProtocol{{Name: protocolName, Metadata: kafka.GroupProtocolSubscription{
			Topics: m.cfg.Topics, OwnedPartitions: owned,
			// A changed view makes a rejoin a rebalance, whoever sees it
			// first; a mere rejoin of a follower would change nothing.
			UserData: viewText(view),
		}}},
	}
	// The coordinator answers when all members are there, or have been
	// given up.
	jctx, cancel := context.WithTimeout(ctx, m.cfg.RebalanceTimeout+requestTimeout)
	defer cancel()
	j, err := m.joinGroup(jctx, req)
	if err == nil && errors.Is(j.Error, kafka.MemberIDRequired) { // KIP-394
		m.id = j.MemberID
		req.MemberID = j.MemberID
		j, err = m.joinGroup(jctx, req)
	}
	if err == nil {
		err = j.Error
	}
	if err != nil {
		return nil, fmt.Errorf("joining: %w", err)
	}
	m.id = j.MemberID
	var dealt map[string]map[string][]int
	if j.LeaderID == m.id {
		if err := m.found(ctx, md); err != nil {
			return nil, fmt.Errorf("assigning: %w", err)
		}
		counts := map[string]int{}
		for _, t := range md.Topics {
			if t.Err == nil {
				counts[t.Name] = len(t.Leaders)
			}
		}
		for i := range j.Members {
			if mm := &j.Members[i]; len(mm.Metadata.OwnedPartitions) == 0 {
				mm.Metadata.OwnedPartitions = m.dealt[cmp.Or(mm.GroupInstanceID, mm.ID)]
			}
		}
		dealt = assign(j.Members, counts)
		m.dealt = make(map[string]map[string][]int, len(dealt))
		for _, mm := range j.Members {
			m.dealt[cmp.Or(mm.GroupInstanceID, mm.ID)] = dealt[mm.ID]
		}
	}
	sctx, cancel := context.WithTimeout(ctx, m.cfg.RebalanceTimeout+requestTimeout)
	defer cancel()
	mine, err := m.k.syncGroup(sctx, m.cfg.Group, m.id, m.cfg.InstanceID, j.GenerationID, j.ProtocolName, dealt)
	if err != nil {
		return nil, fmt.Errorf("getting the assignment: %w", err)
	}
	s := &session{
		member: m, generation: j.GenerationID, id: m.id, assigned: mine, view: view,
		rejoin: make(chan struct{}, 1), beat: make(chan chan error), done: make(chan struct{}),
	}
	// Nothing is claimed unless the coordinator still wants this generation.
	if err := m.heartbeat(ctx, s); err != nil {
		return nil, fmt.Errorf("first heartbeat: %w", err)
	}
	m.owned = s.assigned
	m.log.Info("partitions assigned", zap.String("group", m.cfg.Group), zap.Int("generation", s.generation), zap.Any("partitions", s.assigned))
	return s, nil
}

func (m *member) heartbeat(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, max(m.cfg.SessionTimeout/3, time.Second))
	defer cancel()
	return m.k.heartbeat(ctx, m.cfg.Group, s.id, m.cfg.InstanceID, s.generation)
}

// hold serves a session and keeps it alive until it ends: nil means that the
// group rebalances.
func (m *member) hold(ctx context.Context, s *session) error {
	defer close(s.done)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- m.serve(serving, s) }()

	var lost error
	var silent, troubled bool
	beat := func() error {
		// Heartbeats outlive ctx: they end with serve.
		err := m.heartbeat(context.WithoutCancel(ctx), s)
		switch {
		case err == nil:
			if troubled {
				troubled = false
				m.note(true, s.generation, nil)
			}
		case errors.Is(err, kafka.RebalanceInProgress):
			stop()
			err = nil // still a member
		case errors.Is(err, kafka.UnknownMemberId), errors.Is(err, kafka.IllegalGeneration), errors.Is(err, kafka.FencedInstanceID):
			lost = err
			stop()
		default: // network, or the coordinator moved: the session lives on
			troubled = true
			m.m.retries.WithLabelValues("heartbeat").Inc()
			m.note(true, s.generation, err)
		}
		return err
	}
	tick := time.NewTicker(m.cfg.HeartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-served:
			if err != nil {
				return &serveError{err}
			}
			return lost
		case <-s.rejoin:
			stop()
		case answer := <-s.beat:
			answer <- beat()
		case <-tick.C:
			if lost != nil {
				continue
			}
			if m.stalled() {
				if !silent {
					silent = true
					m.m.stalls.Inc()
					m.log.Error("a batch takes too long: heartbeats stop so that the group moves the partitions",
						zap.Duration("after", m.cfg.StallTimeout))
				}
				continue
			}
			silent = false
			_ = beat() // judged inside
		}
	}
}

// confirm reports whether this worker is a member by a heartbeat that began
// after the call. It asks until the answer is definite.
func (s *session) confirm(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		answer := make(chan error, 1)
		select {
		case s.beat <- answer:
		case <-s.done:
			return errLeft
		case <-ctx.Done():
			return ctx.Err()
		}
		err := <-answer
		switch {
		case err == nil:
			return nil
		case errors.Is(err, kafka.UnknownMemberId), errors.Is(err, kafka.IllegalGeneration), errors.Is(err, kafka.FencedInstanceID):
			return errLeft
		}
		if !sleep(ctx, pauseFor(attempt)) {
			return ctx.Err()
		}
	}
}

// reassign asks for a rebalance: the topics are no longer what they were.
func (s *session) reassign() {
	select {
	case s.rejoin <- struct{}{}:
	default:
	}
}

// commit stores offsets with their hints. It is fenced by the generation.
func (s *session) commit(ctx context.Context, offsets map[string][]kafka.OffsetCommit) error {
	if len(offsets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := s.member.k.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: s.member.cfg.Group, GenerationID: s.generation, MemberID: s.id, InstanceID: s.member.cfg.InstanceID, Topics: offsets,
	})
	if err != nil {
		return err
	}
	for _, ps := range r.Topics {
		for _, p := range ps {
			if p.Error != nil {
				return p.Error
			}
		}
	}
	return nil
}
