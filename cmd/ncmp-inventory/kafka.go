package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

const (
	// clientID is what brokers show in their logs and quotas.
	clientID = "ncmp-inventory"
	// metadataTTL is how old the transport's picture of the cluster may be: a
	// moved leader costs at most as long. Brokers answer it from memory.
	metadataTTL = 2 * time.Second
	// dialTimeout bounds TCP, TLS and SASL together; OAUTHBEARER may have to
	// fetch a token first.
	dialTimeout = 15 * time.Second
	// requestTimeout bounds requests that do not wait for records.
	requestTimeout = 30 * time.Second
)

// newTransport makes the process's one connection pool to Kafka. Its metadata
// is limited to topics; none given means all of the cluster. The caller closes
// its idle connections.
func newTransport(c config.Kafka, topics ...string) (*kafka.Transport, error) {
	t := &kafka.Transport{
		ClientID:       clientID,
		DialTimeout:    dialTimeout,
		MetadataTTL:    metadataTTL,
		MetadataTopics: topics,
	}
	if c.InstanceID != "" {
		t.ClientID = c.InstanceID
	}
	var err error
	if t.TLS, err = newTLS(c.TLS); err != nil {
		return nil, err
	}
	t.SASL = newMechanism(c.SASL)
	return t, nil
}

func newClient(c config.Kafka, t *kafka.Transport) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(c.Brokers...), Timeout: requestTimeout, Transport: t}
}

// newTLS reads the certificates once, so that a wrong file is told at start,
// and the client's again for each connection, so that a renewed one is used.
func newTLS(c config.TLS) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	t := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         c.ServerName,
		InsecureSkipVerify: c.Insecure, //nolint:gosec // asked for by name
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, &config.Error{Key: "kafka.tls.ca-file", Reason: err.Error()}
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &config.Error{Key: "kafka.tls.ca-file", Reason: c.CAFile + " holds no PEM certificate"}
		}
	}
	if c.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, &config.Error{Key: "kafka.tls.cert-file", Reason: err.Error()}
		}
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return t, nil
}

// mechanism is a SASL mechanism whose secret is looked up for each connection.
type mechanism struct {
	name  string
	start func(ctx context.Context) (sasl.StateMachine, []byte, error)
}

func (m *mechanism) Name() string { return m.name }

func (m *mechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	return m.start(ctx)
}

func newMechanism(c config.SASL) sasl.Mechanism {
	withPassword := func(name string, with func(password string) (sasl.Mechanism, error)) sasl.Mechanism {
		return &mechanism{name, func(ctx context.Context) (sasl.StateMachine, []byte, error) {
			password, err := c.Password.Reveal()
			if err != nil {
				return nil, nil, err
			}
			m, err := with(password)
			if err != nil {
				return nil, nil, errors.New("the password cannot be used with " + name) // err may quote it
			}
			return m.Start(ctx)
		}}
	}
	switch c.Mechanism {
	case "PLAIN":
		return withPassword(c.Mechanism, func(p string) (sasl.Mechanism, error) {
			return plain.Mechanism{Username: c.Username, Password: p}, nil
		})
	case "SCRAM-SHA-256":
		return withPassword(c.Mechanism, func(p string) (sasl.Mechanism, error) {
			return scram.Mechanism(scram.SHA256, c.Username, p)
		})
	case "SCRAM-SHA-512":
		return withPassword(c.Mechanism, func(p string) (sasl.Mechanism, error) {
			return scram.Mechanism(scram.SHA512, c.Username, p)
		})
	case "OAUTHBEARER":
		return newOAuthBearer(c.OAuth)
	}
	return nil
}

// rightsRequest is a Metadata request that goes to a broker: the transport
// answers ordinary ones from its cache, and the cache knows no rights.
type rightsRequest struct {
	metadata.Request
	response *metadata.Response
}

// Required is part of protocol.RawExchanger.
func (*rightsRequest) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange asks in version 8, which all supported brokers know.
func (r *rightsRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	const version = 8
	if err := protocol.WriteRequest(rw, version, version, clientID, &r.Request); err != nil {
		return nil, err
	}
	_, res, err := protocol.ReadResponse(rw, protocol.Metadata, version)
	if err != nil {
		return nil, err
	}
	r.response = res.(*metadata.Response)
	return r, nil
}

// noRights is what a broker answers that does not say what we may do.
const noRights = int32(math.MinInt32)

// clusterMetadata asks a broker for topics, and what we may do with them.
func clusterMetadata(ctx context.Context, c *kafka.Client, topics []string) (*metadata.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r := &rightsRequest{Request: metadata.Request{TopicNames: topics, IncludeTopicAuthorizedOperations: true}}
	if _, err := c.Transport.RoundTrip(ctx, c.Addr, r); err != nil {
		return nil, fmt.Errorf("read cluster metadata: %w", err)
	}
	return r.response, nil
}

// refused reports whether err means that the brokers or the token endpoint do
// not want us, which waiting does not mend.
func refused(err error) bool {
	var (
		code        kafka.Error
		cert        *tls.CertificateVerificationError
		notTLS      tls.RecordHeaderError
		alert       *net.OpError
		credentials *credentialsError
	)
	if errors.As(err, &code) {
		return slices.Contains([]kafka.Error{
			kafka.SASLAuthenticationFailed, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState,
			kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed,
			kafka.TransactionalIDAuthorizationFailed, kafka.SecurityDisabled,
		}, code)
	}
	// An alert of the broker's is how it refuses our certificate.
	return errors.As(err, &cert) || errors.As(err, &notTLS) || errors.As(err, &credentials) ||
		errors.As(err, &alert) && alert.Op == "remote error"
}

// unreachable says what to try for a connection that cannot be made.
func unreachable(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "check the host name"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "something closes the connection: check whether it expects TLS (kafka.tls.enabled), SASL (kafka.sasl.mechanism) or another password"
	case errors.Is(err, context.DeadlineExceeded):
		return "check that a broker listens there, and whether it expects TLS (kafka.tls.enabled)"
	}
	return "check that a broker listens there and that the network lets this host through"
}
