package config

import "time"

// Config is the effective configuration. The table in keys.go says what each
// field means, its key and its default.
type Config struct {
	Kafka       Kafka
	Database    Database
	Outbox      Outbox
	Batch       Batch
	Limits      Limits
	DeadLetters DeadLetters
	History     History
	LCM         LCM
	Outcomes    string
	HTTP        HTTP
	Trace       Trace
	Drain       time.Duration
	Log         Log
}

// Kafka is how to reach the brokers and what to do there.
type Kafka struct {
	Brokers           []string
	Group             string
	InstanceID        string
	SessionTimeout    time.Duration
	HeartbeatInterval time.Duration
	TLS               TLS
	SASL              SASL
	Topics            Topics
	Start             string
	OnGap             string
	RelayID           string
}

// TLS is the transport security of Kafka connections.
type TLS struct {
	Enabled    bool
	CAFile     string
	CertFile   string
	KeyFile    string
	ServerName string
	Insecure   bool
}

// SASL is the authentication of Kafka connections; an empty mechanism is none.
type SASL struct {
	Mechanism string
	Username  string
	Password  Secret
	OAuth     OAuth
}

// OAuth is where OAUTHBEARER tokens come from (client credentials).
type OAuth struct {
	TokenEndpoint string
	ClientID      string
	ClientSecret  Secret
	Scope         string
}

// Topics are the names of the input and output topics.
type Topics struct {
	Registrations   []string
	StateChanges    []string
	Heartbeats      []string
	LCMEvents       string
	InventoryEvents string
	Outcomes        string
	DeadLetters     string
}

// Inputs are all input topics, each once, in the order in which they are given.
func (t Topics) Inputs() []string {
	var all []string
	seen := map[string]bool{}
	for _, list := range [][]string{t.Registrations, t.StateChanges, t.Heartbeats} {
		for _, name := range list {
			if !seen[name] {
				seen[name] = true
				all = append(all, name)
			}
		}
	}
	return all
}

// Database is how to reach PostgreSQL.
type Database struct {
	URL            Secret
	Password       Secret
	MaxConnections int
	Migrate        bool
	OnRewind       string
}

// Outbox bounds what may wait to be published.
type Outbox struct {
	MaxBytes int64
	MaxAge   time.Duration
}

// Batch bounds one transaction.
type Batch struct {
	MaxRecords int
	MaxBytes   int64
	Linger     time.Duration
}

// Limits are bounds on input and memory.
type Limits struct {
	Memory          int64
	RecordBytes     int64
	HandlesPerEvent int
}

// DeadLetters says when dead letters mean that the producer or topic is wrong.
type DeadLetters struct{ HaltAfter int }

// History says whether changes of handles are kept, and for how long.
type History struct {
	Enabled    bool
	Keep       time.Duration
	KeepEvents int
}

// LCM is the shape of the LCM events.
type LCM struct {
	Version       string
	Events        string
	LegacyHeaders string
}

// HTTP are the addresses that the worker listens on; "" is none.
type HTTP struct {
	Address      string
	DebugAddress string
}

// Trace is where spans are exported to; an empty endpoint is off.
type Trace struct{ OTLPEndpoint string }

// Log is what is logged and how.
type Log struct {
	Level  string
	Format string
}
