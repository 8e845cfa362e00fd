package conformance_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// Ids, alternate ids, tags and property names are text, byte by byte: they are
// stored, found, told and removed as they came.
func TestNamesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for _, name := range []string{
		`/S=Europe/M=O'Brien "x" [1],@a=%2F_100% \ end`, `it's`, `it''s`, `it"s`, "/SubNetwork=Köln/ManagedElement=1", "/SubNetwork=Ko\u0308ln/ManagedElement=1",
		"zero\u200bwidth", "\u200fright to left", "\u00a0no break", "no break\u00a0", "\u2003em", "tab\tinside", `C:\u0000x`, "%", "_", "[not json", `ran:v1,{"a":1}`, "#", "null", "\U0001F600", "\x7f", "\u0085next line",
	} {
		t.Run(name, func(t *testing.T) {
			w.wipe(t)
			q := fmt.Sprintf("%q", name)
			if strings.ContainsAny(name, "\u200b\u200f\u00a0\u2003\x7f\u0085\t") || strings.Contains(q, `\U`) {
				q = `"` + strings.ReplaceAll(name, "\t", `\t`) + `"`
			}
			_, err := w.apply.Apply(t.Context(), w.first.batch(created(fmt.Sprintf(
				`"cmHandle":"a","alternateId":%[1]s,"moduleSetTag":%[1]s,"dataProducerIdentifier":%[1]s,"publicCmHandleProperties":{%[1]s:%[1]s},"cmHandleProperties":{%[1]s:%[1]s}`, q))))
			require.NoError(t, err)
			all := w.take(t)
			require.Len(t, all, 2)
			values := eventOf(t, all[0]).NewValues
			require.Equal(t, name, eventOf(t, all[0]).AlternateID)
			require.Equal(t, name, values["alternateId"])
			require.Equal(t, name, values["moduleSetTag"])
			require.Equal(t, name, values["dataProducerIdentifier"])
			require.Equal(t, map[string]any{name: name}, values["cmHandleProperties"])

			h, err := w.store.GetHandle(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, "a", h.ID)
			require.Equal(t, name, h.AlternateID)
			require.Equal(t, name, h.ModuleSetTag)
			require.Equal(t, []inventory.Property{{Name: name, Value: name}}, h.Public)
			require.Equal(t, []inventory.Property{{Name: name, Value: name}}, h.Private)
			w.requireSound(t)

			require.Equal(t, []string{"e: 0 ok; create b " + exists}, w.send(t, created(`"cmHandle":"b","alternateId":`+q)))
			require.Equal(t, []string{"e: 1 ok"}, w.send(t, created(fmt.Sprintf(
				`"cmHandle":"a","alternateId":%[1]s,"moduleSetTag":%[1]s,"dataProducerIdentifier":%[1]s,"publicCmHandleProperties":{%[1]s:%[1]s},"cmHandleProperties":{%[1]s:%[1]s}`, q))),
				"what is stored is what was registered")
			w.send(t, register(fmt.Sprintf(`{"updatedCmHandles":[{"cmHandle":"a","publicCmHandleProperties":{%[1]s:null},"cmHandleProperties":{%[1]s:"2"}}]}`, q)))
			h, err = w.store.GetHandle(t.Context(), "a")
			require.NoError(t, err)
			require.Empty(t, h.Public)
			require.Equal(t, []inventory.Property{{Name: name, Value: "2"}}, h.Private)
			w.send(t, register(`{"removedCmHandles":["a"]}`))
			require.Empty(t, w.column(t, `select key from ncmp_inventory.reference`))
			require.Equal(t, []string{"/dmi-registry"}, w.column(t, `select xpath from fragment`))
		})
	}
}

// Names that differ in one byte are two, and what matches one as a pattern is
// no stranger's.
func TestNamesThatLookAlikeAreDifferent(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	var entries, names []string
	for i, alike := range []string{"Köln-1", "Ko\u0308ln-1", "ch_1", "chA1", "CH_1", "ch\u200b_1", "ch_1\u200f", "ch-1"} {
		names = append(names, alike)
		entries = append(entries, `"cmHandle":"`+alike+`","alternateId":"/`+strconv.Itoa(i)+"/"+alike+`"`)
	}
	require.Len(t, w.send(t, created(entries...)), len(names)+1)
	for i, gone := range names {
		told := w.send(t, register(`{"removedCmHandles":["`+gone+`"]}`))
		require.Len(t, told, 3)
		for j, name := range names {
			require.Equal(t, j > i, len(w.stored(t, name)) > 0, "%s after %s went", name, gone)
		}
		w.requireSound(t)
	}
}

func TestTagsAreOpaque(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"a"`, `"cmHandle":"b","moduleSetTag":""`, `"cmHandle":"c","moduleSetTag":"not-specified"`, `"cmHandle":"d","moduleSetTag":"  "`), to("READY", "a", "b", "c", "d"))
	for id, tag := range map[string]string{"a": "", "b": "", "c": "not-specified", "d": ""} {
		require.Contains(t, w.stored(t, id)[""], `"module-set-tag": "`+tag+`"`)
	}
	told := w.send(t, register(`{"upgradedCmHandles":{"cmHandles":["a","b","c","d"]}}`))
	require.Len(t, told, 5)
	for _, id := range []string{"a", "b", "c", "d"} {
		require.Equal(t, `{"reason": "MODULE_UPGRADE", "details": "Upgrade to ModuleSetTag: "}`, w.stored(t, id)["/state/lock-reason"])
	}
}

// Digits survive: in properties, which are text, whatever their size.
func TestNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	const values = `{"big":616581622363398142,"beyond":10223372036854775807,"text":"10223372036854775807","low":-9223372036854775808,"dec":1.50,"exp":1E400000,"odd":9007199254740993,"five":5}`
	_, err := w.apply.Apply(t.Context(), w.first.batch(created(`"cmHandle":"a","publicCmHandleProperties":`+values)))
	require.NoError(t, err)
	want := map[string]any{"big": "616581622363398142", "beyond": "10223372036854775807", "text": "10223372036854775807", "low": "-9223372036854775808", "dec": "1.50", "exp": "1E400000", "odd": "9007199254740993", "five": "5"}
	require.Equal(t, want, eventOf(t, w.take(t)[0]).NewValues["cmHandleProperties"])
	w.send(t, register(`{"updatedCmHandles":[{"cmHandle":"a","publicCmHandleProperties":{"x":"y"}}]}`))
	h, err := w.store.GetHandle(t.Context(), "a")
	require.NoError(t, err)
	for _, p := range h.Public {
		if p.Name != "x" {
			require.Equal(t, want[p.Name], p.Value)
		}
	}
}
