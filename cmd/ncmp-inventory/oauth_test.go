package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// tokenServer issues tokens t1, t2, … that live for life, to the secret it is told.
type tokenServer struct {
	*httptest.Server
	secret string
	life   string // JSON of expires_in
	down   bool
	issued int
	scope  string
}

func newTokenServer(t *testing.T, secret, life string) *tokenServer {
	t.Helper()
	s := &tokenServer{secret: secret, life: life}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, got, _ := r.BasicAuth()
		s.scope = r.FormValue("scope")
		switch {
		case s.down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case id != "client" || got != s.secret || r.FormValue("grant_type") != "client_credentials":
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s"}`, got)
		default:
			s.issued++
			fmt.Fprintf(w, `{"access_token":"t%d","token_type":"bearer","expires_in":%s}`, s.issued, s.life)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// bearer is a mechanism whose clock is turned by hand.
func (s *tokenServer) bearer(secret config.Secret) (*oauthBearer, *time.Time) {
	now := time.Unix(1_000_000, 0)
	o := newOAuthBearer(config.OAuth{TokenEndpoint: s.URL, ClientID: "client", ClientSecret: secret, Scope: "kafka"})
	o.now = func() time.Time { return now }
	return o, &now
}

func firstMessage(t *testing.T, o *oauthBearer) string {
	t.Helper()
	_, first, err := o.Start(t.Context())
	require.NoError(t, err)
	return string(first)
}

func TestTokensAreRenewedBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t, "s3cr3t", "100")
	o, now := s.bearer(config.SecretOf("s3cr3t"))
	require.Equal(t, "n,,\x01auth=Bearer t1\x01\x01", firstMessage(t, o))
	require.Equal(t, "kafka", s.scope)
	*now = now.Add(79 * time.Second)
	require.Contains(t, firstMessage(t, o), "t1")
	*now = now.Add(time.Second)
	require.Contains(t, firstMessage(t, o), "t2")
}

func TestATokenIsUsedWhileTheEndpointIsDown(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t, "s3cr3t", `"100"`)
	o, now := s.bearer(config.SecretOf("s3cr3t"))
	firstMessage(t, o)
	s.down = true
	*now = now.Add(99 * time.Second)
	require.Contains(t, firstMessage(t, o), "t1")
	*now = now.Add(time.Second)
	_, _, err := o.Start(t.Context())
	require.ErrorContains(t, err, "HTTP 503")
	require.False(t, refused(err), "an endpoint that is down is waited for")
}

func TestAWrongClientSecretIsARefusalAndNotQuoted(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t, "right", "100")
	path, secret := secretFile(t, "wr0ng")
	o, _ := s.bearer(secret)
	_, _, err := o.Start(t.Context())
	require.ErrorContains(t, err, "HTTP 401 (invalid_client)")
	require.True(t, refused(err))
	require.NotContains(t, err.Error(), "wr0ng")
	require.NoError(t, os.WriteFile(path, []byte("right\n"), 0o600))
	require.Contains(t, firstMessage(t, o), "t1")
}

func TestTheBrokersRefusalOfATokenIsTold(t *testing.T) {
	t.Parallel()
	done, _, err := bearerSession{}.Next(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, done)
	_, _, err = bearerSession{}.Next(t.Context(), []byte(`{"status":"invalid_token"}`))
	require.ErrorContains(t, err, "invalid_token")
	require.True(t, refused(err))
}

func TestATokenWithoutALifeIsUsedOnce(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t, "s3cr3t", "0")
	o, _ := s.bearer(config.SecretOf("s3cr3t"))
	require.Contains(t, firstMessage(t, o), "t1")
	require.Contains(t, firstMessage(t, o), "t2")
}
