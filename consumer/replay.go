package consumer

import (
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"ncmp-inventory/inventory"
)

// The headers of a dead letter that is sent again: how often it was, where and
// when it stood first, and whether it may overwrite what came later.
const (
	HeaderReplayCount = "ncmp_replay_count"
	HeaderReplayOf    = "ncmp_replay_of"
	HeaderReplayTime  = "ncmp_replay_timestamp"
	HeaderReplayForce = "ncmp_replay_force"
)

const replayPrefix = "ncmp_replay_"

// ReplayOf reads the headers of a replay, and how often the record was sent
// again. Headers that no replay of ours writes are no replay: nil.
func ReplayOf(hs []inventory.Header) (r *inventory.Replay, count int) {
	var number, of, at, force string
	for i := range hs {
		if !strings.HasPrefix(hs[i].Key, replayPrefix) {
			continue
		}
		switch v := string(hs[i].Value); hs[i].Key {
		case HeaderReplayCount:
			number = v
		case HeaderReplayOf:
			of = v
		case HeaderReplayTime:
			at = v
		case HeaderReplayForce:
			force = v
		}
	}
	count, err := strconv.Atoi(number)
	parts := strings.Split(of, "/")
	if err != nil || count < 1 || len(parts) != 3 {
		return nil, 0
	}
	origin, err := ReadPlace(parts[0], parts[1], parts[2], at)
	if err != nil {
		return nil, 0
	}
	return &inventory.Replay{Origin: origin, Forced: force == "true"}, count
}

// ReadPlace reads a place from the texts of headers. A time that cannot be read
// is the zero time: anything may have come later.
func ReadPlace(topicID, partition, offset, at string) (p inventory.Place, err error) {
	id, err := uuid.Parse(topicID)
	if err != nil {
		return p, err
	}
	index, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		return p, err
	}
	if p.Offset, err = strconv.ParseInt(offset, 10, 64); err != nil {
		return p, err
	}
	p.TopicID, p.Index = id, int32(index)
	if t, err := time.Parse(time.RFC3339, at); err == nil && t.Unix() > 0 {
		p.Time = t
	}
	return p, nil
}
