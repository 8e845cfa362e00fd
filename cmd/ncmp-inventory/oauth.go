package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

const (
	// tokenTimeout bounds one fetch; it lies below dialTimeout.
	tokenTimeout = 10 * time.Second
	// tokenBytes bounds what an endpoint may answer. Tokens with many claims
	// have some kilobytes.
	tokenBytes = 1 << 20
	// tokenMargin is the part of a token's life that is left unused: a
	// connection opened at the last moment should not be closed at once.
	tokenMargin = 5
)

// credentialsError means that the token endpoint refuses the client, or the
// broker its token.
type credentialsError struct{ reason string }

func (e *credentialsError) Error() string { return e.reason }

// oauthBearer authenticates with a token (RFC 7628, KIP-768) that it fetches
// with the client-credentials grant (RFC 6749, 4.4) and keeps until a fifth of
// its life is left. Brokers that limit a connection to the token's life
// (KIP-368) close it then; the next connection brings a new token.
type oauthBearer struct {
	cfg  config.OAuth
	http *http.Client
	now  func() time.Time

	mu      sync.Mutex
	token   string
	refresh time.Time // fetch a new one from here on
	expiry  time.Time
}

func newOAuthBearer(c config.OAuth) *oauthBearer {
	return &oauthBearer{
		cfg: c, now: time.Now,
		// A transport of its own, without kept connections: tokens are
		// rare, and an idle connection would outlive the worker's Run.
		http: &http.Client{Timeout: tokenTimeout, Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		}},
	}
}

func (*oauthBearer) Name() string { return "OAUTHBEARER" }

func (o *oauthBearer) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := o.current(ctx)
	if err != nil {
		return nil, nil, err
	}
	return bearerSession{}, []byte("n,,\x01auth=Bearer " + token + "\x01\x01"), nil
}

type bearerSession struct{}

// Next ends the exchange. A broker that refuses the token answers with a
// challenge in JSON; only its status is told, the rest is the broker's own.
func (bearerSession) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	var refusal struct {
		Status string `json:"status"`
	}
	_ = json.Unmarshal(challenge, &refusal) // an unreadable refusal is still one
	return false, nil, &credentialsError{"the broker does not take the token" + safeCode(refusal.Status)}
}

func (o *oauthBearer) current(ctx context.Context) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if o.token != "" && now.Before(o.refresh) {
		return o.token, nil
	}
	token, life, err := o.fetch(ctx)
	if err != nil {
		if o.token != "" && now.Before(o.expiry) {
			return o.token, nil // the old one still works; try again next time
		}
		return "", err
	}
	o.token, o.expiry, o.refresh = token, now.Add(life), now.Add(life-life/tokenMargin)
	return token, nil
}

// fetch gets a token and how long it lives. Its errors hold nothing of the
// request or the answer but the OAuth error code.
func (o *oauthBearer) fetch(ctx context.Context) (string, time.Duration, error) {
	secret, err := o.cfg.ClientSecret.Reveal()
	if err != nil {
		return "", 0, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if o.cfg.Scope != "" {
		form.Set("scope", o.cfg.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.cfg.TokenEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, fmt.Errorf("fetch token: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(o.cfg.ClientID), url.QueryEscape(secret))
	res, err := o.http.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("fetch token: %w", err)
	}
	defer res.Body.Close()
	var answer struct {
		AccessToken string      `json:"access_token"`
		ExpiresIn   json.Number `json:"expires_in"`
		Error       string      `json:"error"`
	}
	bad := json.NewDecoder(io.LimitReader(res.Body, tokenBytes)).Decode(&answer) != nil
	switch {
	case res.StatusCode == http.StatusBadRequest || res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return "", 0, &credentialsError{fmt.Sprintf("the token endpoint refuses the client: HTTP %d%s", res.StatusCode, safeCode(answer.Error))}
	case res.StatusCode != http.StatusOK:
		return "", 0, fmt.Errorf("fetch token: the endpoint answers HTTP %d", res.StatusCode)
	case bad || answer.AccessToken == "":
		return "", 0, errors.New("fetch token: the endpoint's answer holds no access_token")
	case strings.ContainsAny(answer.AccessToken, "\x00\x01\r\n"):
		return "", 0, errors.New("fetch token: the token holds control characters")
	}
	// Without expires_in the token is used once: nothing says how long it is good.
	seconds, _ := answer.ExpiresIn.Float64()
	return answer.AccessToken, time.Duration(max(0, seconds) * float64(time.Second)), nil
}

var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// safeCode lets only words through that have the form of an OAuth error code.
func safeCode(code string) string {
	if errorCode.MatchString(code) {
		return " (" + code + ")"
	}
	return ""
}
