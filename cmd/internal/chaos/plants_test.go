package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		"event ids come from the topic's name", "inventory/eventid.go",
		"	copy(b[16:], p.TopicID[:])\n", "	copy(b[16:], p.Topic)\n",
	},
	{
		"a dead letter is dropped now and then", "inventory/planner.go",
		"	p.emit(p.enc.DeadLetter(", "	if r.Offset%7 == 0 {\n		return\n	}\n	p.emit(p.enc.DeadLetter(",
	},
	{
		"a dead letter is written outside of the transaction", "store/transaction.go",
		"	if b, err = t.queueMessages(ctx, b, plan.Messages); err != nil {\n",
		`	var dead, rest []inventory.Message
	for _, m := range plan.Messages {
		if m.Kind == inventory.DeadLetterRecord {
			dead = append(dead, m)
		} else {
			rest = append(rest, m)
		}
	}
	defer func() {
		if rc.Commit > 0 && len(dead) > 0 {
			b, _ := t.queueMessages(ctx, &pgx.Batch{}, dead)
			_ = t.s.pool.SendBatch(ctx, b).Close()
		}
	}()
	if b, err = t.queueMessages(ctx, b, rest); err != nil {
`,
	},
	{
		"messages can be published before the commit", "store/messages.go",
		"func (t *transaction) queueMessages(ctx context.Context, b *pgx.Batch, ms []inventory.Message) (*pgx.Batch, error) {\n",
		`func (t *transaction) queueMessages(ctx context.Context, b *pgx.Batch, ms []inventory.Message) (*pgx.Batch, error) {
	alone, err := t.queueMessagesNow(ctx, &pgx.Batch{}, ms)
	if err == nil && alone.Len() > 0 {
		err = t.s.pool.SendBatch(ctx, alone).Close()
	}
	return b, err
}

func (t *transaction) queueMessagesNow(ctx context.Context, b *pgx.Batch, ms []inventory.Message) (*pgx.Batch, error) {
`,
	},
	{
		"rows are read before their keys are locked", "store/transaction.go",
		"	t.queueLock(b, keys)\n	t.queueReadHandles(b, t.need.Handles, t.need.Deep)\n",
		"	t.queueReadHandles(b, t.need.Handles, t.need.Deep)\n	t.queueLock(b, keys)\n",
	},
	{
		"a COMMIT whose answer is lost is taken for one that failed", "store/positions.go",
		"owner_epoch = $3 and next_offset = $4`", "owner_epoch = $3 and next_offset in ($4, $5)`",
	},
	{
		"positions go by the topic's name", "store/positions.go",
		"values ($1, $2, $3, $4, $5) on conflict (topic_id, partition) do nothing",
		"values ($1, $2, $3, $4, coalesce((select max(next_offset) from ncmp_inventory.position where topic = $3 and partition = $2), $5)) on conflict (topic_id, partition) do nothing",
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

// certain are the faults that some bugs need to show in seconds.
var certain = map[string]string{
	"positions go by the topic's name":                           topicsAnew,
	"the publisher has no epoch":                                 "produce held back",
	"a dead letter is written outside of the transaction":        "answer to COMMIT lost",
	"messages can be published before the commit":                "COMMIT lost",
	"a COMMIT whose answer is lost is taken for one that failed": "answer to COMMIT lost",
}

// A planted bug is a change of one place in the source as it is today.
func TestPlantedBugsFitTheSource(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range planted {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", m.file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.from), "%s: %s has changed", m.bug, m.file)
		names[m.bug] = true
	}
	require.Len(t, names, len(planted))
	for bug := range certain {
		require.True(t, names[bug], bug)
	}
}
