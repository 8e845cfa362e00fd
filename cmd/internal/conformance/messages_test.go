package conformance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
)

func header(name, value string) inventory.Header {
	return inventory.Header{Key: name, Value: []byte(value)}
}

// sent applies records as one batch and returns its messages.
func (w *worker) sent(t *testing.T, records ...inventory.Record) []message {
	t.Helper()
	_, err := w.apply.Apply(t.Context(), w.first.batch(records...))
	require.NoError(t, err)
	return w.take(t)
}

// Whether an outcome is told: by the configuration, unless the event says so
// itself. A word that is none of the three is passed over.
func TestOutcomesAreToldAsAskedFor(t *testing.T) {
	t.Parallel()
	for configured, mode := range map[string]inventory.OutcomeMode{
		"": inventory.OutcomesDefault, "failures": inventory.OutcomesFailures, "all": inventory.OutcomesAll, "off": inventory.OutcomesOff,
	} {
		w := newWorker(t, func(s *settings) { s.planner.Outcomes = mode })
		for _, asked := range []string{"", "failures", "all", "off", "ALL"} {
			var more []inventory.Header
			if asked != "" {
				more = append(more, header("ce_outcome", asked))
			}
			holds := asked
			if asked == "" || asked == "ALL" {
				holds = configured
			}
			good := w.sent(t, event("good", registrationType, `{}`, more...))
			bad := w.sent(t, event("bad", registrationType, `{"removedCmHandles":["ghost"]}`, more...))
			dead := w.sent(t, event("dead", registrationType, `{`, more...))
			switch holds {
			case "all":
				require.Len(t, good, 1)
			default:
				require.Empty(t, good)
			}
			if holds == "off" {
				require.Empty(t, bad)
				require.Len(t, dead, 1)
			} else {
				require.Len(t, bad, 1)
				require.Len(t, dead, 2, "a dead letter that had an id has an outcome")
			}
		}
	}
}

func TestOutcomeSaysWhatBecameOfAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"a"`, `"cmHandle":"r"`))
	r := event("order-5", registrationType, `{"removedCmHandles":["r","ghost"],"createdCmHandles":[{"cmHandle":"r"},{"cmHandle":"a"},{"cmHandle":"bad id"}]}`,
		header("ce_subject", "the subject"), header("ce_correlationid", "c-1"))
	r.Key = []byte{0xff, 0}
	all := w.sent(t, r)
	m := all[len(all)-1]
	require.Equal(t, inventory.OutcomeEvent, m.kind)
	require.Equal(t, "\xff\x00", m.key, "the source record's, whatever it is")
	for name, want := range map[string]string{
		"ce_specversion": "1.0", "ce_source": "org.onap.ncmp", "ce_type": "org.onap.ncmp.inventory.outcome.v1",
		"ce_subject": "the subject", "ce_causationid": "order-5", "ce_causationsource": "/test", "ce_correlationid": "c-1", "content-type": "application/json",
	} {
		require.Equal(t, want, m.header(name), name)
	}
	offset := w.first.next - 1
	require.Equal(t, inventory.EventID(w.first.p, 0, offset, 0, 0, 0, inventory.StepOutcome).String(), m.header("ce_id"))
	var o outcome
	require.NoError(t, json.Unmarshal([]byte(m.value), &o))
	require.Equal(t, "in", o.Source.Topic)
	require.Zero(t, o.Source.Partition)
	require.Equal(t, offset, o.Source.Offset)
	require.Equal(t, "order-5", o.Source.ID)
	require.Equal(t, 3, o.Succeeded, "the removal, the creation after it and the repeat of a creation")
	require.Len(t, o.Failures, 2)
	require.Equal(t, "ghost", o.Failures[0].CmHandle)
	require.Equal(t, "bad id", o.Failures[1].CmHandle)
	require.Equal(t, "create", o.Failures[1].Operation)
	require.NotEmpty(t, o.Failures[1].Details)
}

func TestDeadLetterHasOneFailureInItsOutcome(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	require.Equal(t, []string{"dead letter bad-shape", "e: 0 ok;   108 want an array, got a number"}, w.send(t, register(`{"createdCmHandles":7}`)))
	noID := register(`{`)
	noID.Headers = noID.Headers[:1]
	require.Equal(t, []string{"dead letter missing-attribute"}, w.send(t, noID), "there is nobody to tell")
	w.requireSound(t)
}

// A record in the batched form is one step: an outcome for each element, and
// one element that cannot be read takes all of them with it.
func TestBatchedRecord(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	element := func(id, data string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/test","type":%q,"data":%s}`, id, registrationType, data)
	}
	record := func(elements ...string) inventory.Record {
		return inventory.Record{Key: []byte("k"), Value: []byte("[" + strings.Join(elements, ",") + "]"), Headers: []inventory.Header{header("content-type", "application/cloudevents-batch+json")}}
	}
	const create = `{"createdCmHandles":[{"cmHandle":"a"}]}`
	good := record(element("one", create), element("two", `{"updatedCmHandles":[{"cmHandle":"a","dataProducerIdentifier":"p"}]}`), element("three", `{"removedCmHandles":["ghost"]}`))
	all := w.sent(t, good)
	var told []string
	seen := map[string]bool{}
	for _, m := range all {
		told = append(told, m.text(t))
		require.False(t, seen[m.header("ce_id")], "each message has an id of its own")
		seen[m.header("ce_id")] = true
	}
	require.Equal(t, []string{
		"a create " + advised, "one: 1 ok", `a update {"dataProducerIdentifier":""} {"dataProducerIdentifier":"p"}`, "two: 1 ok",
		"three: 0 ok; remove ghost " + notFound,
	}, told)
	require.Equal(t, "two", all[2].header("ce_causationid"))

	require.Equal(t, []string{"dead letter bad-shape", "two: 0 ok;   108 want an array, got a number"},
		w.send(t, record(element("one", `{"removedCmHandles":["a"]}`), element("two", `{"removedCmHandles":7}`), element("three", create))))
	require.NotEmpty(t, w.stored(t, "a"), "no element was applied")
}

// Order is the log's. What an event says about its time is not believed.
func TestEventTimeDecidesNothing(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"a"`))
	for i, at := range []string{"2099-01-01T00:00:00Z", "2001-01-01T00:00:00.123456789+0000", "2031-01-01T00:00:00+01:00"} {
		r := event("e", registrationType, fmt.Sprintf(`{"updatedCmHandles":[{"cmHandle":"a","dataProducerIdentifier":"p%d"}]}`, i), header("ce_time", at))
		require.Len(t, w.send(t, r), 2)
	}
	h, err := w.store.GetHandle(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "p2", h.DataProducerID)
}

// With lcm.events: ncmp, and in the body's version v1, what has no place is
// left out or empty, and what changed stands at the top.
func TestEventsForConsumersOfNCMP(t *testing.T) {
	t.Parallel()
	life := []inventory.Record{
		created(`"cmHandle":"a","publicCmHandleProperties":{"n":"v"}`),
		register(`{"updatedCmHandles":[{"cmHandle":"a","alternateId":"/x"}]}`),
		register(`{"updatedCmHandles":[{"cmHandle":"a","publicCmHandleProperties":{"n":"w"}}]}`),
		register(`{"updatedCmHandles":[{"cmHandle":"a","dataProducerIdentifier":"p","publicCmHandleProperties":{"n":"x"}}]}`),
		to("READY", "a"), state(`"cmHandleState":"READY","dataSyncEnabled":true`), change(`{"cmHandle":"a","state":{"cmHandleState":"READY"},"moduleSetTag":"T"}`),
	}
	for _, c := range []struct {
		mode    inventory.EventMode
		version lcm.Version
		want    []string
	}{
		{inventory.EventsNCMP, lcm.V1, []string{
			`a create {"cmHandleState":"ADVISED","cmHandleProperties":[{"n":"v"}]}`, `a update {} {}`,
			`a update {"cmHandleState":"ADVISED"} {"dataSyncEnabled":false,"cmHandleState":"READY"}`,
		}},
		{inventory.EventsNCMP, lcm.V2, []string{
			`a create {"alternateId":"","dataSyncEnabled":null,"dataProducerIdentifier":"","cmHandleState":"ADVISED","moduleSetTag":"","cmHandleProperties":{"n":"v"}}`,
			`a update {"dataProducerIdentifier":""} {"dataProducerIdentifier":"p"}`,
			`a update {"dataSyncEnabled":null,"cmHandleState":"ADVISED"} {"dataSyncEnabled":false,"cmHandleState":"READY"}`,
		}},
		{inventory.EventsAll, lcm.V1, []string{
			`a create {"cmHandleState":"ADVISED","cmHandleProperties":[{"n":"v"}]}`, `a update {} {}`,
			`a update {"cmHandleProperties":[{"n":"v"}]} {"cmHandleProperties":[{"n":"w"}]}`,
			`a update {"cmHandleProperties":[{"n":"w"}]} {"cmHandleProperties":[{"n":"x"}]}`,
			`a update {"cmHandleState":"ADVISED"} {"dataSyncEnabled":false,"cmHandleState":"READY"}`,
			`a update {"dataSyncEnabled":false} {"dataSyncEnabled":true}`, `a update {} {}`,
		}},
	} {
		w := newWorker(t, func(s *settings) {
			s.planner.Events, s.planner.Outcomes, s.encoder.Version = c.mode, inventory.OutcomesOff, c.version
		})
		all := w.sent(t, life...)
		var told []string
		for _, m := range all {
			told = append(told, m.text(t))
		}
		require.Equal(t, c.want, told)
		if c.version == lcm.V1 {
			require.Contains(t, all[len(all)-1].value, `"alternateId":"/x"`)
			require.Contains(t, all[len(all)-1].value, `"dataProducerIdentifier":"p"`)
		}
	}
}

// Ids of events come from where the input stands, so a repeat has the same:
// also when the stored state makes one of an item's steps fall away.
func TestEventIDsComeFromTheInputsPlace(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"a"`))
	removal := inventory.EventID(w.first.p, 0, w.first.next, 0, inventory.OpRemove, 0, inventory.StepDelete).String()
	all := w.sent(t, register(`{"removedCmHandles":["a"]}`))
	require.Equal(t, removal, all[1].header("ce_id"))
	require.NotEqual(t, all[0].header("ce_id"), all[1].header("ce_id"))

	leftover := newWorker(t)
	leftover.seedState(t, "DELETING")
	leftover.first.next = w.first.next - 1
	leftover.exec(t, fmt.Sprintf(`update ncmp_inventory.position set next_offset = %d`, leftover.first.next))
	all = leftover.sent(t, register(`{"removedCmHandles":["a"]}`))
	require.Equal(t, "delete", all[0].header("ce_type")[len("org.onap.ncmp.cmhandle-lcm-event."):])
	require.Equal(t, removal, all[0].header("ce_id"), "the step is told by its kind, not by its number")
	id, err := uuid.Parse(removal)
	require.NoError(t, err)
	require.EqualValues(t, 5, id.Version())
}

// Names and values of private properties stand in the store, and in the dead
// letter of the record that they came in; nowhere else.
func TestPrivatePropertiesAreToldNowhere(t *testing.T) {
	t.Parallel()
	const name, value = "hidden-name", "hidden-value"
	w := newWorker(t, func(s *settings) { s.planner.MaxLCMBytes = 3000 })
	secret := `"cmHandleProperties":{"` + name + `":"` + value + `"}`
	for _, r := range []inventory.Record{
		created(`"cmHandle":"a",` + secret), created(`"cmHandle":"a",` + strings.ReplaceAll(secret, value, value+"2")),
		register(`{"updatedCmHandles":[{"cmHandle":"a","dataProducerIdentifier":"p","cmHandleProperties":{"` + name + `":"` + value + `3"}}]}`),
		register(`{"updatedCmHandles":[{"cmHandle":"ghost",` + secret + `}]}`),
		created(`"cmHandle":"b","cmHandleProperties":{"` + name + `":["` + value + `"]}`),
		created(`"cmHandle":"b","cmHandleProperties":{"` + name + strings.Repeat("x", 600) + `":"` + value + `"}`),
		created(`"cmHandle":"b",` + secret + `,"publicCmHandleProperties":{"big":"` + strings.Repeat("x", 4000) + `"}`),
		register(`{"createdCmHandles":[{"cmHandle":"b","cmHandleProperties":{"` + name + `":"` + value + `","` + name + `":"` + value + `"}}]}`),
		register(`{"createdCmHandles":[{"cmHandle":"b","cmHandleProperties":{"` + name + `":"` + value + `\u0000"}}]}`),
		register(`{"createdCmHandles":[{"cmHandle":"b","cmHandleProperties":{"` + name + `":"` + value + `\ud800"}}]}`),
		register(`{"createdCmHandles":[{"cmHandle":"b","cmHandleProperties":{"` + name + `":"` + value),
		register(`{"createdCmHandles":[{"cmHandle":"b","cmHandleProperties":{"` + name + `":` + value + `}}]}`),
		to("READY", "a"), register(`{"removedCmHandles":["a"]}`),
	} {
		for _, m := range w.sent(t, r) {
			for _, h := range m.headers {
				require.NotContains(t, string(h.Value), "hidden", h.Key)
			}
			if m.kind != inventory.DeadLetterRecord {
				require.NotContains(t, m.value, "hidden")
			}
		}
	}
}

func TestEntryWhoseEventIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(s *settings) { s.planner.MaxLCMBytes = 2500 })
	big := strings.Repeat("x", 1000)
	told := w.send(t, created(`"cmHandle":"a","publicCmHandleProperties":{"n":"`+big+`"}`, `"cmHandle":"b","publicCmHandleProperties":{"n":"`+big+big+`"}`))
	require.Len(t, told, 2)
	require.Equal(t, "e: 1 ok; create b 112 message too large", told[1])
	// An update tells old and new values: it can be twice what came in.
	require.Equal(t, []string{"e: 0 ok; update a 112 message too large"},
		w.send(t, register(`{"updatedCmHandles":[{"cmHandle":"a","dataProducerIdentifier":"p","publicCmHandleProperties":{"n":"`+strings.Repeat("y", 1000)+`"}}]}`)))
	require.NotContains(t, w.stored(t, "a")[""], `"p"`, "nothing of it was stored")
	require.Len(t, w.send(t, register(`{"removedCmHandles":["a"]}`)), 3, "a removal shows no properties")
}

// Records beyond the limits are dead letters, and nothing of them is applied.
func TestLimitsOfARecord(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(s *settings) { s.decoder = consumer.DecoderConfig{RecordBytes: 3000, HandlesPerEvent: 10} })
	require.Len(t, w.send(t, register(`{"removedCmHandles":[`+ids("x%d", 0, 10)+`]}`)), 1)
	require.Equal(t, "dead letter too-many-handles", w.send(t, register(`{"createdCmHandles":[{"cmHandle":"a"}],"removedCmHandles":[`+ids("x%d", 0, 10)+`]}`))[0])
	require.Equal(t, "dead letter too-large", w.send(t, created(`"cmHandle":"a","publicCmHandleProperties":{"n":"`+strings.Repeat("x", 3000)+`"}`))[0])
	require.Empty(t, w.stored(t, "a"))
}
