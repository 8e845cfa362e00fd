//go:build kafka

package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ncmp-inventory/cmd/internal/kafkaapache"
	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// principal is the user, common name and subject that all mechanisms know.
const principal = "ncmp-inventory"

// secured is an Apache Kafka that asks who is there, and lets each do what ACLs
// say. Whoever comes in plain text is the test, and may do all.
type secured struct {
	*kafkaapache.Broker
	authority *authority
	client    pair
	passwords map[string]string // by mechanism
	tokens    *httptest.Server
}

// theSecured is started by the first test that needs it, and shared.
var theSecured struct {
	sync.Mutex
	users int
	one   *secured
	dir   string
}

// newSecured gives a test the shared broker, which goes with its last user.
func newSecured(t *testing.T) *secured {
	t.Helper()
	theSecured.Lock()
	defer theSecured.Unlock()
	if theSecured.one == nil {
		theSecured.dir = startSecured(t)
	}
	theSecured.users++
	s := theSecured.one
	t.Cleanup(func() {
		theSecured.Lock()
		defer theSecured.Unlock()
		if theSecured.users--; theSecured.users > 0 {
			return
		}
		theSecured.one = nil
		s.tokens.Close()
		require.NoError(t, s.Stop(true))
		require.NoError(t, os.RemoveAll(theSecured.dir))
	})
	return s
}

func startSecured(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "secured-") //nolint:usetesting // it outlives the test that starts it
	require.NoError(t, err)
	s := &secured{authority: newAuthority(t, dir), passwords: map[string]string{}}
	s.client = s.authority.issue(t, dir, principal)
	server := s.authority.issue(t, dir, "kafka")
	keystore := filepath.Join(dir, "keystore.pem")
	require.NoError(t, os.WriteFile(keystore, append(server.key, server.cert...), 0o600))
	for _, m := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"} {
		s.passwords[m] = "pw-" + rand.Text()
	}
	keys := filepath.Join(dir, "jwks.json")
	s.tokens = newIssuer(t, keys, s.passwords["OAUTHBEARER"])
	scram := func(m string) string { return fmt.Sprintf("%s=[name=%s,password=%s]", m, principal, s.passwords[m]) }
	s.Broker, err = kafkaapache.Prepare(t.Context(), kafkaapache.Config{
		Dir: dir, Listeners: map[string]string{"SASL": "SASL_SSL", "MUTUAL": "SSL"},
		JVM:    []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://" + keys},
		Format: []string{"--add-scram", scram("SCRAM-SHA-256"), "--add-scram", scram("SCRAM-SHA-512")},
		Properties: []string{
			"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users=User:ANONYMOUS",
			"ssl.keystore.type=PEM", "ssl.keystore.location=" + keystore,
			"ssl.truststore.type=PEM", "ssl.truststore.location=" + s.authority.file,
			"listener.name.mutual.ssl.client.auth=required",
			"listener.name.mutual.ssl.principal.mapping.rules=RULE:^CN=(.*?)$/$1/",
			"listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
			"listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_" + principal + `="` + s.passwords["PLAIN"] + `";`,
			"listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
			"listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
			"listener.name.sasl.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
			"listener.name.sasl.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
			"listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://" + keys,
			"listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.audience=kafka",
		},
	})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	theSecured.one = s
	return dir
}

// newIssuer is a token endpoint: it gives any client that knows the secret a
// token which names the client. The key to check them with is in a file.
func newIssuer(t *testing.T, file, secret string) *httptest.Server {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	base := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": base(key.N.Bytes()), "e": base(big.NewInt(int64(key.E)).Bytes()),
	}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, set, 0o600))
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, got, _ := r.BasicAuth()
		if got != secret {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
			return
		}
		now := time.Now().Unix()
		signed := base([]byte(`{"alg":"RS256","kid":"1","typ":"JWT"}`)) + "." +
			base(fmt.Appendf(nil, `{"sub":%q,"aud":%q,"scope":"kafka","iat":%d,"exp":%d}`, id, r.FormValue("scope"), now, now+600))
		sum := sha256.Sum256([]byte(signed))
		signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, `{"access_token":"%s.%s","token_type":"bearer","expires_in":600}`, signed, base(signature))
	}))
}

// lab makes topics on the broker, and a configuration that comes by a mechanism;
// flags are what lab.flags leaves out.
func (s *secured) lab(t *testing.T, mechanism string) (l *lab, flags []string) {
	t.Helper()
	l = newLabOn(t, []string{s.Addr()}, 1)
	return l, s.by(l, mechanism, principal)
}

// by lets the lab's workers come by a mechanism, as somebody.
func (s *secured) by(l *lab, mechanism, who string) (flags []string) {
	l.config.Kafka.Brokers = []string{s.AddrOf("SASL")}
	flags = []string{"--kafka.tls.enabled", "on", "--kafka.tls.ca-file", s.authority.file}
	switch mechanism {
	case "mutual TLS":
		l.config.Kafka.Brokers = []string{s.AddrOf("MUTUAL")}
		return append(flags, "--kafka.tls.cert-file", s.client.certFile, "--kafka.tls.key-file", s.client.keyFile)
	case "OAUTHBEARER":
		return append(flags, "--kafka.sasl.mechanism", mechanism, "--kafka.sasl.oauth.token-endpoint", s.tokens.URL, "--kafka.sasl.oauth.client-id", who,
			"--kafka.sasl.oauth.client-secret", s.passwords[mechanism], "--kafka.sasl.oauth.scope", "kafka")
	}
	return append(flags, "--kafka.sasl.mechanism", mechanism, "--kafka.sasl.username", who, "--kafka.sasl.password", s.passwords[mechanism])
}

// acl is a line of the page.
type acl struct {
	operation kmsg.ACLOperation
	kind      kmsg.ACLResourceType
	name      string
	pattern   kmsg.ACLResourcePatternType
}

// String is how people are told of it.
func (r acl) String() string {
	return fmt.Sprintf("%s on %s %s", r.operation, strings.ToLower(r.kind.String()), r.name)
}

// rights are those of a block of the page, for the names of a lab. The commands
// are understood as kafka-acls.sh understands them, without a Java machine each.
func (l *lab) rights(block string) []acl {
	l.Helper()
	var all []acl
	for line := range strings.Lines(shownBlock(l.T, "console", block)) {
		words := words(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		require.Equal(l, "kafka-acls.sh", words[0])
		f := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
		f.String("bootstrap-server", "", "")
		add := f.Bool("add", false, "")
		who, operation := f.String("allow-principal", "", ""), f.String("operation", "", "")
		pattern := f.String("resource-pattern-type", "literal", "")
		names := map[kmsg.ACLResourceType]*string{
			kmsg.ACLResourceTypeTopic: f.String("topic", "", ""), kmsg.ACLResourceTypeGroup: f.String("group", "", ""),
			kmsg.ACLResourceTypeTransactionalId: f.String("transactional-id", "", ""),
		}
		require.NoError(l, f.Parse(words[1:]))
		require.True(l, *add && f.NArg() == 0, line)
		require.Regexp(l, `^User:ncmp-(inventory|tools)$`, *who)
		var r acl
		var err error
		r.operation, err = kmsg.ParseACLOperation(*operation)
		require.NoError(l, err)
		r.pattern, err = kmsg.ParseACLResourcePatternType(*pattern)
		require.NoError(l, err)
		maps.DeleteFunc(names, func(_ kmsg.ACLResourceType, name *string) bool { return *name == "" })
		require.Len(l, names, 1, line)
		for kind, name := range names {
			r.kind, r.name = kind, *name
		}
		switch {
		case r.kind == kmsg.ACLResourceTypeGroup:
			require.Equal(l, config.Defaults().Kafka.Group, r.name)
			r.name = l.config.Kafka.Group
		case r.kind == kmsg.ACLResourceTypeTopic && r.name != "*":
			r.name = l.named(r.name)
		}
		all = append(all, r)
	}
	return all
}

// grant gives a principal rights, and returns when the broker knows.
func (s *secured) grant(t *testing.T, who string, rights []acl) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(s.Addr()))
	require.NoError(t, err)
	defer c.Close()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, r := range rights {
		one := kmsg.NewCreateACLsRequestCreation()
		one.ResourceType, one.ResourceName, one.ResourcePatternType = r.kind, r.name, r.pattern
		one.Principal, one.Host, one.Operation, one.PermissionType = "User:"+who, "*", r.operation, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, one)
	}
	res, err := req.RequestWith(t.Context(), c)
	require.NoError(t, err)
	for _, r := range res.Results {
		require.NoError(t, kerr.ErrorForCode(r.ErrorCode))
	}
	ask := kmsg.NewPtrDescribeACLsRequest()
	ask.ResourceType, ask.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	ask.Operation, ask.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	require.Eventually(t, func() bool {
		known, err := ask.RequestWith(t.Context(), c)
		return err == nil && knows(known, who, rights)
	}, patience, 20*time.Millisecond)
}

// knows reports whether all rights of a principal are among those that are told.
func knows(told *kmsg.DescribeACLsResponse, who string, rights []acl) bool {
	given := map[acl]bool{}
	for _, r := range told.Resources {
		for _, a := range r.ACLs {
			if a.Principal == "User:"+who {
				given[acl{a.Operation, r.ResourceType, r.ResourceName, r.ResourcePatternType}] = true
			}
		}
	}
	return !slices.ContainsFunc(rights, func(r acl) bool { return !given[r] })
}
