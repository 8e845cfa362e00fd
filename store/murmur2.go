package store

import "encoding/binary"

// hashOf is the hash by which Kafka's Java producer spreads keys over
// partitions: murmur2 without its sign. A record without key has hash 0.
func hashOf(key []byte) int32 {
	if key == nil {
		return 0
	}
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	h ^= h >> 15
	return int32(h & 0x7fffffff)
}
