package consumer

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// requestTimeout bounds every exchange that does not wait by design.
const requestTimeout = 10 * time.Second

// Cluster speaks to a Kafka cluster through kafka-go's transport. It is safe
// for concurrent use and starts nothing; closing the transport's idle
// connections is its owner's business.
type Cluster struct {
	client   *kafka.Client
	clientID string

	mu       sync.Mutex
	versions map[int32]int16 // highest Fetch version by broker
}

// NewCluster uses t, which holds TLS and SASL, to reach the brokers at addr
// (see kafka.TCP).
func NewCluster(addr net.Addr, t *kafka.Transport) *Cluster {
	return &Cluster{
		client:   &kafka.Client{Addr: addr, Transport: t},
		clientID: t.ClientID,
		versions: map[int32]int16{},
	}
}

func (k *Cluster) exchange(ctx context.Context, req protocol.Message) error {
	_, err := k.client.Transport.RoundTrip(ctx, k.client.Addr, req)
	return err
}

// fetchVersion asks a broker once which Fetch versions it speaks: by topic id
// (13) since Kafka 3.1, by name (12) before.
func (k *Cluster) fetchVersion(ctx context.Context, broker int32) (int16, error) {
	k.mu.Lock()
	v, ok := k.versions[broker]
	k.mu.Unlock()
	if ok {
		return v, nil
	}
	var code int16
	c := &call{key: protocol.ApiVersions, client: k.clientID, read: func(r *wireReader) {
		code = r.i16()
		for n := r.count(); n > 0; n-- {
			key, _, most := r.i16(), r.i16(), r.i16()
			if protocol.ApiKey(key) == protocol.Fetch {
				v = most
			}
		}
	}}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := k.exchange(ctx, brokerCall{c, broker})
	if err == nil && code != 0 {
		err = kafka.Error(code)
	}
	if err != nil {
		return 0, fmt.Errorf("asking broker %d for its versions: %w", broker, err)
	}
	if v < 12 {
		return 0, fmt.Errorf("broker %d speaks Fetch up to version %d, 12 is needed (Kafka 2.8)", broker, v)
	}
	v = min(v, 13)
	k.mu.Lock()
	k.versions[broker] = v
	k.mu.Unlock()
	return v, nil
}

// forgetVersion makes the next fetch ask again: the broker may come back older
// or newer.
func (k *Cluster) forgetVersion(broker int32) {
	k.mu.Lock()
	delete(k.versions, broker)
	k.mu.Unlock()
}
