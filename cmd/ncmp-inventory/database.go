package main

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/inventory"
	"ncmp-inventory/schemas"
	"ncmp-inventory/store"
)

// passwordSource gives the password for each new connection when it is kept
// apart from the URL, or when the URL itself can change. Nil: the URL's.
func passwordSource(d config.Database) func(context.Context) (string, error) {
	switch {
	case d.Password.IsSet():
		return func(context.Context) (string, error) { return d.Password.Reveal() }
	case d.URL.FromFile():
		return func(context.Context) (string, error) {
			url, err := d.URL.Reveal()
			if err != nil {
				return "", err
			}
			c, err := pgconn.ParseConfig(url)
			if err != nil {
				return "", errors.New("database.url-file no longer holds a libpq URL or DSN") // err may quote it
			}
			return c.Password, nil
		}
	}
	return nil
}

// databaseFault puts an error of opening the database, which waiting cannot
// mend, into the words of the configuration. What the store refuses by itself
// says what to do already.
func databaseFault(err error) error {
	fault := &config.Error{Key: "database.url", Reason: err.Error(), Cause: err}
	try := ""
	var server *store.ServerError
	switch {
	case untrusted(err):
		try = "check sslrootcert, and that the host is one that the server's certificate names"
	case errors.Is(err, store.ErrNotMigrated):
		fault.Key, try = "database.migrate", "run ncmp-inventory migrate, or switch database.migrate on"
	case errors.As(err, &server):
		try = map[string]string{
			"28P01": "check user and password",
			"28000": "check the user, and what the server's pg_hba.conf lets in from here",
			"3D000": "create the database, or correct its name",
			"42501": "grant the right, or let a role that has it run ncmp-inventory migrate first",
		}[server.SQLState]
	}
	if try != "" {
		fault.Reason += "; " + try
	}
	return fault
}

// untrusted reports whether err means that a server could not prove who it is.
// Waiting does not mend that.
func untrusted(err error) bool {
	var cert *tls.CertificateVerificationError
	return errors.As(err, &cert)
}

// openStore opens the database for a command: it does not wait and does not
// migrate.
func (a *app) openStore(ctx context.Context, c *config.Loaded) (*store.Store, error) {
	sc, err := storeConfig(&c.Config, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	sc.Instance = "cli"
	sc.MaxConnections = 2
	s, err := store.Open(ctx, sc)
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, inventory.ErrTransient) && !untrusted(err), ctx.Err() != nil:
		return nil, err
	}
	return nil, databaseFault(err)
}

// storeConfig is what all commands open the database with; the codec lets
// leaves be written.
func storeConfig(c *config.Config, log *zap.Logger, reg prometheus.Registerer) (store.Config, error) {
	url, err := c.Database.URL.Reveal()
	if err != nil {
		return store.Config{}, &config.Error{Key: "database.url", Reason: err.Error()}
	}
	module := schemas.Inventory()
	model, err := module.Load()
	if err != nil {
		return store.Config{}, err
	}
	return store.Config{
		URL:            url,
		Password:       passwordSource(c.Database),
		MaxConnections: c.Database.MaxConnections,
		Model:          store.Model{Module: module.Name, Revision: module.Revision, Content: module.Content},
		Codec:          leafCodec{model},
		Logger:         log,
		Registerer:     reg,
	}, nil
}

// leafCodec shows the compiled model as the store wants to see it.
type leafCodec struct{ *schemas.Model }

// Leaf implements inventory.LeafCodec.
func (c leafCodec) Leaf(schemaPath string) (inventory.Leaf, error) { return c.Model.Leaf(schemaPath) }
