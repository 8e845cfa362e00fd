//go:build mutants

package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// planted are bugs in the worker itself: a change of its source, for the build of
// one run.
var planted = []struct {
	bug, file, from, to string
}{
	{
		"no claim and no position is compared", "store/positions.go",
		"and owner_epoch = $3 and next_offset = $4`", "and $3::bigint is not null and $4::bigint is not null`",
	},
	{
		"the position moves in a transaction of its own", "store/transaction.go",
		"		t.queueMove(b)\n",
		"		alone := &pgx.Batch{}\n		t.queueMove(alone)\n		if err := t.s.pool.SendBatch(ctx, alone).Close(); err != nil {\n			return err\n		}\n",
	},
	{
		"the outbox is deleted by range", "store/outbox.go",
		"id = any($4::bigint[])", "id <= (select max(u) from unnest($4::bigint[]) u)",
	},
	{
		"keys are not locked", "store/references.go",
		"on conflict (key) do update set owner = excluded.owner where false", "on conflict (key) do nothing",
	},
	{
		"sequences are cached by each connection", "store/migrations/001_worker.sql",
		"outbox_sequence as bigint cache 1;", "outbox_sequence as bigint cache 50;",
	},
	{
		"messages are stored in the wrong order", "store/messages.go",
		"order by u.n`", "order by u.n desc`",
	},
	{
		"the publisher has no epoch", "lcm/producer.go",
		"TransactionalID: transactionalID, TransactionTimeoutMs", "TransactionalID: transactionalID[:0], TransactionTimeoutMs",
	},
	{
		"an answer that did not come counts as one", "lcm/partition.go",
		"	case !errors.As(err, &code):\n		return again\n", "	case !errors.As(err, &code):\n		return delivered\n",
	},
	{
		"event ids are drawn at random", "inventory/eventid.go",
		"	copy(id[:], sum[:])\n", "	copy(id[:], sum[:])\n	id = uuid.New()\n",
	},
	{
		"event ids are counted over what is published", "inventory/tell.go",
		"p.item.Op, p.item.Index, step)", "p.item.Op, int32(len(p.plan.Messages)), step)",
	},
	{
		"positions go by the topic's name in event ids", "inventory/eventid.go",
		"	copy(b[16:], p.TopicID[:])\n", "	copy(b[16:], p.Topic)\n",
	},
	{
		"a dead letter is dropped now and then", "inventory/planner.go",
		"	p.emit(p.enc.DeadLetter(", "	if r.Offset%7 == 0 {\n		return\n	}\n	p.emit(p.enc.DeadLetter(",
	},
	{
		"a removal leaves the trust level", "store/trust.go",
		"delete from ncmp_inventory.trust where handle = any($1::text[])", "delete from ncmp_inventory.trust where handle = any($1::text[]) and false",
	},
	{
		"a removal does not free the alternate id", "inventory/registration.go",
		"	p.free(h.AlternateID, h.ID)\n", "",
	},
	{
		"an update forgets what it does not name", "inventory/registration.go",
		"			merged = append(merged, stored[i])\n			i++\n		case c > 0:", "			i++\n		case c > 0:",
	},
	{
		"one refused entry refuses its event", "inventory/planner.go",
		"		v, rej := p.try(it)\n", "		v, rej := p.try(it)\n		if len(failures) > 0 && rej == nil {\n			rej = Reject(CodeUnknownError, \"\")\n		}\n",
	},
	{
		"read-only is held against the data", "store/errors.go",
		"	case \"25006\":", "	case \"25006\":\n		return classData\n	case \"25007\":",
	},
}

// Every planted bug is found by a run of seconds, or by one of a few.
func TestPlantedBugsInTheWorkerAreFound(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	for _, m := range planted {
		t.Run(m.bug, func(t *testing.T) {
			dir := t.TempDir()
			source := filepath.Join(root, m.file)
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), m.from), "%s has changed", m.file)
			changed, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), m.from, m.to, 1)), 0o600))
			list, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, list, 0o600))
			for seed := range uint64(4) {
				if found := infected(t, seed+1, overlay); found != "" {
					t.Log(found)
					return
				}
			}
			require.Fail(t, "not found")
		})
	}
}

// infected is what a run of the changed program finds, "" if nothing.
func infected(t *testing.T, seed uint64, overlay string) (found string) {
	t.Helper()
	t.Run("run", func(t *testing.T) {
		w := newWorld(t, options{
			seed: seed, duration: 15 * time.Second, rate: 200, session: 1500 * time.Millisecond, workers: 2,
			quiet: time.Second, patience: time.Minute, overlay: overlay,
		})
		r, _, err := w.live()
		switch {
		case r != nil && !r.OK():
			found = r.Faults[0]
		case err != nil:
			found = err.Error()
		case len(w.faults) > 0:
			found = w.faults[0]
		}
	})
	return found[:min(len(found), 300)]
}
