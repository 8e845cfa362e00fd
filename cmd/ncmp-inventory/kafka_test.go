package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

func newBroker(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// connect reads the cluster's metadata once.
func connect(t *testing.T, k config.Kafka) error {
	t.Helper()
	tr, err := newTransport(k)
	require.NoError(t, err)
	defer tr.CloseIdleConnections()
	_, err = clusterMetadata(t.Context(), newClient(k, tr), nil)
	return err
}

func secretFile(t *testing.T, text string) (string, config.Secret) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path, config.SecretIn(path)
}

func TestSASLPasswordsAreReadForEachConnection(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newBroker(t, kfake.EnableSASL(), kfake.Superuser(name, "worker", "right"))
			path, password := secretFile(t, "wrong\n")
			k := config.Kafka{Brokers: c.ListenAddrs(), SASL: config.SASL{Mechanism: name, Username: "worker", Password: password}}
			err := connect(t, k)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "wrong")
			require.NoError(t, os.WriteFile(path, []byte("right\n"), 0o600))
			require.NoError(t, connect(t, k))
		})
	}
}

func TestAMechanismTheBrokerLacksIsARefusal(t *testing.T) {
	t.Parallel()
	c := newBroker(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "worker", "right"))
	err := connect(t, config.Kafka{Brokers: c.ListenAddrs(), SASL: config.SASL{
		Mechanism: "OAUTHBEARER", OAuth: config.OAuth{TokenEndpoint: "http://127.0.0.1:1", ClientID: "a", ClientSecret: config.SecretOf("b")},
	}})
	require.ErrorIs(t, err, kafka.UnsupportedSASLMechanism)
	require.True(t, refused(err))
}

func TestAnAbsentBrokerIsNoRefusal(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	err = connect(t, config.Kafka{Brokers: []string{l.Addr().String()}})
	require.Error(t, err)
	require.False(t, refused(err), "%v", err)
}

// newCertificate writes a self-signed certificate and its key.
func newCertificate(t *testing.T) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafka"}, DNSNames: []string{"kafka"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, certPEM, 0o600))
	require.NoError(t, os.WriteFile(keyFile, keyPEM, 0o600))
	cert, err = tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	return cert, certFile, keyFile
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, certFile, keyFile := newCertificate(t)
	trusted := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	require.NoError(t, err)
	trusted.AddCert(leaf)
	c := newBroker(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: trusted, ClientAuth: tls.RequestClientCert}))
	good := config.TLS{Enabled: true, CAFile: certFile, CertFile: certFile, KeyFile: keyFile, ServerName: "kafka"}
	for name, test := range map[string]struct {
		change func(*config.TLS)
		works  bool
	}{
		"all given":           {func(*config.TLS) {}, true},
		"unknown authority":   {func(c *config.TLS) { c.CAFile = "" }, false},
		"another server name": {func(c *config.TLS) { c.ServerName = "elsewhere" }, false},
		"not verified":        {func(c *config.TLS) { c.CAFile, c.ServerName, c.Insecure = "", "", true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := config.Kafka{Brokers: c.ListenAddrs(), TLS: good}
			test.change(&k.TLS)
			err := connect(t, k)
			if test.works {
				require.NoError(t, err)
				return
			}
			require.True(t, refused(err), "%v", err)
		})
	}
}

func TestBadCertificateFilesAreConfigurationErrors(t *testing.T) {
	t.Parallel()
	path, _ := secretFile(t, "no certificate")
	for key, c := range map[string]config.TLS{
		"kafka.tls.ca-file":   {Enabled: true, CAFile: path},
		"kafka.tls.cert-file": {Enabled: true, CertFile: path, KeyFile: path},
	} {
		_, err := newTransport(config.Kafka{TLS: c})
		var fault *config.Error
		require.ErrorAs(t, err, &fault)
		require.Equal(t, key, fault.Key)
	}
}

func TestRightsAreReadFromTheBroker(t *testing.T) {
	t.Parallel()
	c := newBroker(t, kfake.SeedTopics(3, "in"))
	k := config.Kafka{Brokers: c.ListenAddrs()}
	tr, err := newTransport(k, "in")
	require.NoError(t, err)
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	md, err := clusterMetadata(ctx, newClient(k, tr), []string{"in", "missing"})
	require.NoError(t, err)
	byName := map[string]int16{}
	for _, topic := range md.Topics {
		byName[topic.Name] = topic.ErrorCode
		if topic.Name == "in" {
			require.Len(t, topic.Partitions, 3)
			require.NotEqual(t, noRights, topic.TopicAuthorizedOperations)
		}
	}
	require.Equal(t, map[string]int16{"in": 0, "missing": int16(kafka.UnknownTopicOrPartition)}, byName)
}
