package lcm

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/segmentio/kafka-go"

	"ncmp-inventory/inventory"
)

// DefaultMaxMessageBytes is Kafka's own max.message.bytes.
const DefaultMaxMessageBytes = 1<<20 + 12

const (
	batchHeader    = 61 // of a record batch, format 2
	sequenceName   = "ce_sequence"
	sequenceDigits = 19
	// sequenceHeader is what the sequence adds to a record: two lengths of
	// one byte each, name and digits.
	sequenceHeader = 1 + len(sequenceName) + 1 + sequenceDigits
	// maxOverhead bounds what SizeOf adds to key, headers and value: batch
	// header, four record fields of at most 5+1+1+1 bytes, key and value
	// length of at most 5 each, the sequence, and a header count that it
	// makes a byte longer.
	maxOverhead = batchHeader + 8 + 10 + sequenceHeader + 1
)

// SizeOf is the size in bytes that a broker compares with the topic's
// max.message.bytes when m is alone in its batch and not compressed. For an
// LCM event it has the sequence header, which the publisher adds.
func SizeOf(m *inventory.Message) int {
	headers := len(m.Headers)
	if m.Kind == inventory.LCMEvent {
		headers += sequenceHeader
		if n, _ := binary.Varint(m.Headers); n == maxHeaders {
			headers++
		}
	}
	return batchHeader + framed(recordSize(len(m.Key), len(m.Value), m.Key == nil, m.Value == nil, headers, 0))
}

// PayloadLimit is how many bytes of key, headers and value together surely fit
// into one message of a topic with that max.message.bytes.
func PayloadLimit(maxMessageBytes int) int { return max(maxMessageBytes-maxOverhead, 1) }

// recordSize is the length of a record without its own length prefix.
func recordSize(key, value int, nullKey, nullValue bool, headers, delta int) int {
	return 1 + 1 + varintLen(int64(delta)) + // attributes, timestamp and offset delta
		nullable(key, nullKey) + nullable(value, nullValue) + headers
}

func framed(n int) int { return varintLen(int64(n)) + n }

func nullable(n int, null bool) int {
	if null {
		return 1
	}
	return varintLen(int64(n)) + n
}

// varintLen is the length of n as a zigzag varint.
func varintLen(n int64) int {
	u := uint64(n)<<1 ^ uint64(n>>63)
	l := 1
	for ; u >= 0x80; u >>= 7 {
		l++
	}
	return l
}

// MaxMessageBytes asks the cluster for a topic's max.message.bytes.
func MaxMessageBytes(ctx context.Context, client *kafka.Client, topic string) (int, error) {
	const name = "max.message.bytes"
	res, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{name},
		}},
	})
	if err != nil {
		return 0, fmt.Errorf("reading %s of topic %q: %w", name, topic, err)
	}
	for _, r := range res.Resources {
		if r.Error != nil {
			return 0, fmt.Errorf("reading %s of topic %q: %w", name, topic, r.Error)
		}
		for _, c := range r.ConfigEntries {
			if c.ConfigName != name {
				continue
			}
			n, err := strconv.Atoi(c.ConfigValue)
			if err != nil {
				return 0, fmt.Errorf("%s of topic %q: %w", name, topic, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("the cluster did not tell %s of topic %q", name, topic)
}
