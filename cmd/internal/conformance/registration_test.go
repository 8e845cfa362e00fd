package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

const (
	advised = `{"alternateId":"","dataSyncEnabled":null,"dataProducerIdentifier":"","cmHandleState":"ADVISED","moduleSetTag":"","cmHandleProperties":{}}`
	// madeOf is how a creation's event shows an alternate id and nothing else.
	madeOf   = `{"alternateId":%q,"dataSyncEnabled":null,"dataProducerIdentifier":"","cmHandleState":"ADVISED","moduleSetTag":"","cmHandleProperties":{}}`
	exists   = "109 cm-handle already exists"
	notFound = "100 cm handle reference(s) not found"
	notReady = "101 cm handle(s) not ready"
	badID    = "110 cm handle reference has an invalid character(s) in id"
)

// Each case is events applied one after the other, and what the last one tells.
func TestRegistrationRules(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for name, c := range map[string]struct {
		before []inventory.Record
		event  string
		want   []string
	}{
		"create": {nil, `{"createdCmHandles":[{"cmHandle":"a"}]}`, []string{"a create " + advised, "e: 1 ok"}},
		"create: the same id was accepted earlier in the list, whatever the content": {
			nil, `{"createdCmHandles":[{"cmHandle":"a"},{"cmHandle":"a"},{"cmHandle":"a","alternateId":"/x"},{"cmHandle":"b","alternateId":"/x"}]}`,
			[]string{"a create " + advised, "b create " + fmt.Sprintf(madeOf, "/x"), "e: 2 ok; create a " + exists + "; create a " + exists},
		},
		"create: the same id twice after a repeat": {
			[]inventory.Record{created(`"cmHandle":"a"`)}, `{"createdCmHandles":[{"cmHandle":"a"},{"cmHandle":"a"}]}`,
			[]string{"e: 1 ok; create a " + exists},
		},
		"create: a refused entry of the same id does not count": {
			nil, `{"createdCmHandles":[{"cmHandle":"a","trustLevel":"x"},{"cmHandle":"a"}]}`,
			[]string{"a create " + advised, `e: 1 ok; create a 108 trustLevel: unknown trust level "x", want NONE or COMPLETE`},
		},
		"create: id is another handle's alternate id": {
			[]inventory.Record{created(`"cmHandle":"a","alternateId":"b"`)}, `{"createdCmHandles":[{"cmHandle":"b"}]}`,
			[]string{"e: 0 ok; create b " + exists},
		},
		"create: alternate id is another handle's id": {
			[]inventory.Record{created(`"cmHandle":"a"`)}, `{"createdCmHandles":[{"cmHandle":"b","alternateId":"a"}]}`,
			[]string{"e: 0 ok; create b " + exists},
		},
		"create: alternate id is another handle's alternate id, trimmed": {
			[]inventory.Record{created(`"cmHandle":"a","alternateId":"/x "`)}, `{"createdCmHandles":[{"cmHandle":"b","alternateId":" /x"}]}`,
			[]string{"e: 0 ok; create b " + exists},
		},
		"create: one alternate id for two of a list": {
			nil, `{"createdCmHandles":[{"cmHandle":"a","alternateId":"/x"},{"cmHandle":"b","alternateId":"/x"}]}`,
			[]string{"a create " + fmt.Sprintf(madeOf, "/x"), "e: 1 ok; create b " + exists},
		},
		"create: its own id as alternate id": {
			nil, `{"createdCmHandles":[{"cmHandle":"a","alternateId":"a"}]}`,
			[]string{"a create " + fmt.Sprintf(madeOf, "a"), "e: 1 ok"},
		},
		"create: what an entry before it claims counts, what it was refused does not": {
			[]inventory.Record{created(`"cmHandle":"o","alternateId":"/o"`)},
			`{"createdCmHandles":[{"cmHandle":"a","alternateId":"/o"},{"cmHandle":"b","alternateId":"a"},{"cmHandle":"a"}]}`,
			[]string{"b create " + fmt.Sprintf(madeOf, "a"), "e: 1 ok; create a " + exists + "; create a " + exists},
		},
		"update: unknown, also when its alternate id is taken; it claims nothing": {
			[]inventory.Record{created(`"cmHandle":"a","alternateId":"/x"`, `"cmHandle":"b"`)},
			`{"updatedCmHandles":[{"cmHandle":"ghost","alternateId":"/x"},{"cmHandle":"ghost","alternateId":"/y"},{"cmHandle":"b","alternateId":"/y"}]}`,
			[]string{`b update {"alternateId":""} {"alternateId":"/y"}`, "e: 1 ok; update ghost " + notFound + "; update ghost " + notFound},
		},
		"update: a different alternate id is stored, nothing of the entry is applied": {
			[]inventory.Record{created(`"cmHandle":"a","alternateId":"/x"`)},
			`{"updatedCmHandles":[{"cmHandle":"a","alternateId":"/y","dataProducerIdentifier":"p","publicCmHandleProperties":{"n":"v"}}]}`,
			[]string{"e: 0 ok; update a " + exists},
		},
		"update: the alternate id belongs to another, nothing of the entry is applied": {
			[]inventory.Record{created(`"cmHandle":"a"`, `"cmHandle":"b","alternateId":"/x"`)},
			`{"updatedCmHandles":[{"cmHandle":"a","alternateId":"/x","dataProducerIdentifier":"p"},{"cmHandle":"a","alternateId":"b"}]}`,
			[]string{"e: 0 ok; update a " + exists + "; update a " + exists},
		},
		"update: its own id as alternate id": {
			[]inventory.Record{created(`"cmHandle":"a"`)}, `{"updatedCmHandles":[{"cmHandle":"a","alternateId":"a"}]}`,
			[]string{`a update {"alternateId":""} {"alternateId":"a"}`, "e: 1 ok"},
		},
		"update: the stored alternate id again, and blanks, leave it": {
			[]inventory.Record{created(`"cmHandle":"a","alternateId":"/x"`)},
			`{"updatedCmHandles":[{"cmHandle":"a","alternateId":"/x"},{"cmHandle":"a","alternateId":""},{"cmHandle":"a","alternateId":"   "},{"cmHandle":"a","alternateId":" "},{"cmHandle":"a","alternateId":null}]}`,
			[]string{"e: 5 ok"},
		},
		"update: null removes, another text is a text, the rest stays": {
			[]inventory.Record{created(`"cmHandle":"a","publicCmHandleProperties":{"p1":"1","p2":"2","p3":"3","p4":"4"}`)},
			`{"updatedCmHandles":[{"cmHandle":"a","publicCmHandleProperties":{"p1":null,"p2":"~","p3":"","unknown":null}}]}`,
			[]string{`a update {"cmHandleProperties":{"p1":"1","p2":"2","p3":"3","p4":"4"}} {"cmHandleProperties":{"p2":"~","p3":"","p4":"4"}}`, "e: 1 ok"},
		},
		"update: an absent, null or empty map leaves all": {
			[]inventory.Record{created(`"cmHandle":"a","publicCmHandleProperties":{"p":"1"},"cmHandleProperties":{"s":"1"}`)},
			`{"updatedCmHandles":[{"cmHandle":"a"},{"cmHandle":"a","publicCmHandleProperties":{},"cmHandleProperties":{}},{"cmHandle":"a","publicCmHandleProperties":null,"cmHandleProperties":null}]}`,
			[]string{"e: 3 ok"},
		},
		"update: a change of private properties is told to nobody": {
			[]inventory.Record{created(`"cmHandle":"a"`)}, `{"updatedCmHandles":[{"cmHandle":"a","cmHandleProperties":{"s":"1"}}]}`,
			[]string{"e: 1 ok"},
		},
		"update: data producer id to any value but blank": {
			[]inventory.Record{created(`"cmHandle":"a"`)},
			`{"updatedCmHandles":[{"cmHandle":"a","dataProducerIdentifier":"p1"},{"cmHandle":"a","dataProducerIdentifier":"p1"},{"cmHandle":"a","dataProducerIdentifier":""},{"cmHandle":"a","dataProducerIdentifier":" "},{"cmHandle":"a","dataProducerIdentifier":"p2"}]}`,
			[]string{
				`a update {"dataProducerIdentifier":""} {"dataProducerIdentifier":"p1"}`,
				`a update {"dataProducerIdentifier":"p1"} {"dataProducerIdentifier":"p2"}`, "e: 5 ok",
			},
		},
		"update: tag, trust level, DMI names and status are ignored": {
			[]inventory.Record{created(`"cmHandle":"a"`)},
			`{"dmiPlugin":"http://other","updatedCmHandles":[{"cmHandle":"a","moduleSetTag":"T","trustLevel":"NONE","cmHandleStatus":"READY","more":1}]}`,
			[]string{"e: 1 ok"},
		},
		"update: all of an entry is one event": {
			[]inventory.Record{created(`"cmHandle":"a"`)},
			`{"updatedCmHandles":[{"cmHandle":"a","alternateId":"/x","dataProducerIdentifier":"p","publicCmHandleProperties":{"n":"v"},"cmHandleProperties":{"s":"1"}}]}`,
			[]string{`a update {"alternateId":"","dataProducerIdentifier":"","cmHandleProperties":{}} {"alternateId":"/x","dataProducerIdentifier":"p","cmHandleProperties":{"n":"v"}}`, "e: 1 ok"},
		},
		"remove: unknown, also with forbidden characters": {
			[]inventory.Record{created(`"cmHandle":"a"`)}, `{"removedCmHandles":["ghost","bad id!","a"]}`,
			[]string{`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"DELETING"}`, "a delete", "e: 1 ok; remove ghost " + notFound + "; remove bad id! " + notFound},
		},
		"remove: the same id again in the list is one success": {
			[]inventory.Record{created(`"cmHandle":"a"`)}, `{"removedCmHandles":["a","a","a"]}`,
			[]string{`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"DELETING"}`, "a delete", "e: 1 ok"},
		},
		"remove: from READY the flag is not shown": {
			[]inventory.Record{created(`"cmHandle":"a"`), to("READY", "a")}, `{"removedCmHandles":["a"]}`,
			[]string{`a update {"cmHandleState":"READY"} {"cmHandleState":"DELETING"}`, "a delete", "e: 1 ok"},
		},
		"remove: frees id and alternate id for the same event": {
			[]inventory.Record{created(`"cmHandle":"a","alternateId":"/x"`)},
			`{"removedCmHandles":["a"],"createdCmHandles":[{"cmHandle":"b","alternateId":"/x"},{"cmHandle":"c","alternateId":"a"}]}`,
			[]string{
				`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"DELETING"}`, "a delete",
				"b create " + fmt.Sprintf(madeOf, "/x"), "c create " + fmt.Sprintf(madeOf, "a"), "e: 3 ok",
			},
		},
		"lists apply in NCMP's order, each entry on what the ones before left": {
			[]inventory.Record{created(`"cmHandle":"a","publicCmHandleProperties":{"old":"1"}`), to("READY", "a")},
			`{"upgradedCmHandles":{"cmHandles":["a"],"moduleSetTag":"T"},"updatedCmHandles":[{"cmHandle":"a","publicCmHandleProperties":{"n":"v"}}],"createdCmHandles":[{"cmHandle":"a"}],"removedCmHandles":["a"]}`,
			[]string{
				`a update {"cmHandleState":"READY"} {"cmHandleState":"DELETING"}`, "a delete", "a create " + advised,
				`a update {"cmHandleProperties":{}} {"cmHandleProperties":{"n":"v"}}`, "e: 3 ok; upgrade a " + notReady,
			},
		},
		"upgrade": {
			[]inventory.Record{created(`"cmHandle":"a"`, `"cmHandle":"b","moduleSetTag":"T2"`, `"cmHandle":"c"`, `"cmHandle":"d"`), to("READY", "a", "b", "d"), to("LOCKED", "d")},
			`{"removedCmHandles":["c"],"createdCmHandles":[{"cmHandle":"n"}],"upgradedCmHandles":{"cmHandles":["a","b","c","d","n","ghost","bad id!","a"],"moduleSetTag":"T2"}}`,
			[]string{
				`c update {"cmHandleState":"ADVISED"} {"cmHandleState":"DELETING"}`, "c delete", "n create " + advised,
				`a update {"cmHandleState":"READY"} {"cmHandleState":"LOCKED"}`,
				"e: 4 ok; upgrade c " + notFound + "; upgrade d " + notReady + "; upgrade n " + notReady + "; upgrade ghost " + notFound + "; upgrade bad id! " + notFound + "; upgrade a " + notReady,
			},
		},
		"upgrade: an empty tag refreshes a handle without one": {
			[]inventory.Record{created(`"cmHandle":"a"`), to("READY", "a")}, `{"upgradedCmHandles":{"cmHandles":["a"],"moduleSetTag":null}}`,
			[]string{`a update {"cmHandleState":"READY"} {"cmHandleState":"LOCKED"}`, "e: 1 ok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.wipe(t)
			w.send(t, c.before...)
			require.Equal(t, c.want, w.send(t, register(c.event)))
			w.requireSound(t)
		})
	}
}

func TestIDsThatNCMPForbidsAreRefusedOnCreate(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for _, c := range "=! \"#$%&'()*+,./\\:;<>?@[]^`{|}~" {
		require.Equal(t, []string{fmt.Sprintf("e: 0 ok; create a%cb %s", c, badID)}, w.send(t, created(fmt.Sprintf(`"cmHandle":%q`, "a"+string(c)+"b"))))
	}
	require.Equal(t, []string{"e: 0 ok; create  " + badID + "; create  " + badID}, w.send(t, created(`"cmHandle":""`, `"alternateId":"x"`)))
	long := strings.Repeat("ö", 128)
	require.Equal(t, []string{"e: 1 ok; create " + long + "… " + badID}, w.send(t, created(`"cmHandle":"`+long+`"`, `"cmHandle":"`+long+`x"`))[1:])
	require.Empty(t, w.stored(t, "a/b"))
	w.requireSound(t)
}

// A producer may repeat itself: an entry equal to what is stored writes
// nothing and tells nothing; any other registered field makes it another one.
func TestRepeatedCreation(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	const names = `"dmiPlugin":"http://a","dmiDataPlugin":"http://b","dmiModelPlugin":"http://c","dmiDatajobsReadPlugin":"http://d","dmiDatajobsWritePlugin":"http://e"`
	const entry = `"cmHandle":"a","alternateId":"/x","moduleSetTag":"T","dataProducerIdentifier":"p","publicCmHandleProperties":{"n":"v"},"cmHandleProperties":{"s":"v"}`
	body := func(names, entry string) inventory.Record {
		return register(`{` + names + `,"createdCmHandles":[{` + entry + `}]}`)
	}
	w.send(t, body(names, entry))
	w.send(t, to("READY", "a"))
	before := w.versions(t)
	require.Equal(t, []string{"e: 1 ok"}, w.send(t, body(names, entry)))
	require.Equal(t, []string{"e: 1 ok"}, w.send(t, body(names, entry+`,"trustLevel":"NONE"`)), "the trust level is no registered field")
	require.Equal(t, []string{"e: 1 ok"}, w.send(t, body(names, strings.ReplaceAll(entry, `"/x"`, `" /x "`))))
	for _, other := range []inventory.Record{
		body(strings.Replace(names, "http://a", "http://z", 1), entry),
		body(strings.Replace(names, "http://b", "http://z", 1), entry),
		body(strings.Replace(names, "http://c", "http://z", 1), entry),
		body(strings.Replace(names, "http://d", "http://z", 1), entry),
		body(strings.Replace(names, `"http://e"`, `""`, 1), entry),
		body(strings.Replace(names, `"http://e"`, "null", 1), entry),
		body(names, strings.Replace(entry, `"/x"`, `""`, 1)),
		body(names, strings.Replace(entry, `"T"`, `""`, 1)),
		body(names, strings.Replace(entry, `"p"`, `"q"`, 1)),
		body(names, strings.Replace(entry, `{"n":"v"}`, `{"n":"w"}`, 1)),
		body(names, strings.Replace(entry, `{"s":"v"}`, `{"s":"v","t":""}`, 1)),
	} {
		require.Equal(t, []string{"e: 0 ok; create a " + exists}, w.send(t, other))
	}
	require.Equal(t, before, w.versions(t), "no row was written again")
	w.requireSound(t)
}

// What an absent DMI name and an empty one are stored as differs, and so they do.
func TestAbsentDMINameIsNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, register(`{"dmiPlugin":null,"createdCmHandles":[{"cmHandle":"a"}]}`))
	require.NotContains(t, w.stored(t, "a")[""], "dmi-service-name")
	require.Contains(t, w.stored(t, "a")[""], `"dmi-data-service-name": ""`)
	require.Equal(t, []string{"e: 0 ok; create a " + exists}, w.send(t, register(`{"createdCmHandles":[{"cmHandle":"a"}]}`)))
	require.Equal(t, []string{"e: 1 ok"}, w.send(t, register(`{"dmiPlugin":null,"createdCmHandles":[{"cmHandle":"a"}]}`)))
}

func TestDetailsNameTheOwnerOfATakenName(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"a","alternateId":"/x"`, `"cmHandle":"b"`))
	for _, data := range []string{
		`{"createdCmHandles":[{"cmHandle":"c","alternateId":"/x"}]}`, `{"createdCmHandles":[{"cmHandle":"c","alternateId":"a"}]}`,
		`{"updatedCmHandles":[{"cmHandle":"b","alternateId":"/x"}]}`,
	} {
		_, err := w.apply.Apply(t.Context(), w.first.batch(register(data)))
		require.NoError(t, err)
		all := w.take(t)
		require.Len(t, all, 1)
		require.Regexp(t, `"details":"[^"]*belongs to cm-handle a"`, all[0].value)
	}
	w.send(t, created(`"cmHandle":"d","alternateId":"e"`))
	_, err := w.apply.Apply(t.Context(), w.first.batch(created(`"cmHandle":"e"`)))
	require.NoError(t, err)
	require.Regexp(t, `"details":"[^"]*alternate id of cm-handle d"`, w.take(t)[0].value)
}

// An event that a producer sends twice is two events: it is applied twice, and
// the second time changes nothing.
func TestEventSentTwice(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	create := created(`"cmHandle":"a","alternateId":"/x"`)
	require.Len(t, w.send(t, create), 2)
	require.Equal(t, []string{"e: 1 ok"}, w.send(t, create))
	w.send(t, to("READY", "a"))
	upgrade := register(`{"upgradedCmHandles":{"cmHandles":["a"],"moduleSetTag":"T"}}`)
	require.Len(t, w.send(t, upgrade), 2)
	require.Equal(t, []string{"e: 0 ok; upgrade a " + notReady}, w.send(t, upgrade))
	remove := register(`{"removedCmHandles":["a"]}`)
	require.Len(t, w.send(t, remove), 3)
	require.Equal(t, []string{"e: 0 ok; remove a " + notFound}, w.send(t, remove))
}

// An existing id costs its entry, not its neighbours, however long the list.
func TestOneKnownIDAmongManyNewOnes(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"ch-5","moduleSetTag":"other"`))
	var entries []string
	for i := range 650 {
		entries = append(entries, fmt.Sprintf(`"cmHandle":"ch-%d"`, i))
	}
	told := w.send(t, created(entries...))
	require.Len(t, told, 649+1)
	require.Equal(t, "e: 649 ok; create ch-5 "+exists, told[649])
	require.Equal(t, []string{"650"}, w.column(t, `select count(*)::text from fragment where xpath like '/dmi-registry/cm-handles[%]'`))
	w.requireSound(t)
}

// Lists far beyond any number of bind parameters.
func TestManyThousandIDsInOneEvent(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"ch-7"`, `"cmHandle":"ch-69999"`))
	told := w.send(t, register(`{"removedCmHandles":[`+ids("ch-%d", 0, 70_000)+`]}`))
	require.Len(t, told, 5)
	require.True(t, strings.HasPrefix(told[4], "e: 2 ok; remove ch-0 "+notFound+"; remove ch-1 "+notFound), told[4][:100])
	// An outcome names as many failures as its topic takes and counts the rest.
	said := strings.Count(told[4], notFound)
	require.Greater(t, said, 5000)
	require.True(t, strings.HasSuffix(told[4], fmt.Sprintf("; %d more", 69_998-said)))
	require.Empty(t, w.column(t, `select key from ncmp_inventory.reference`))
}

func TestBadDMINameCostsTheCreatedEntriesOnly(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"a"`, `"cmHandle":"b"`), to("READY", "b"))
	_, err := w.apply.Apply(t.Context(), w.first.batch(register(`{"dmiDataPlugin":"ftp://dmi","removedCmHandles":["a"],"createdCmHandles":[{"cmHandle":"c"},{"cmHandle":"d"}],
		"updatedCmHandles":[{"cmHandle":"b","dataProducerIdentifier":"p"}],"upgradedCmHandles":{"cmHandles":["b"]}}`)))
	require.NoError(t, err)
	all := w.take(t)
	var told []string
	for _, m := range all {
		told = append(told, m.text(t))
	}
	const why = "108 Invalid DMI plugin URL for dmiDataPlugin"
	require.Equal(t, []string{
		`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"DELETING"}`, "a delete",
		`b update {"dataProducerIdentifier":""} {"dataProducerIdentifier":"p"}`, `b update {"cmHandleState":"READY"} {"cmHandleState":"LOCKED"}`,
		"e: 3 ok; create c " + why + "; create d " + why,
	}, told)
	require.Contains(t, all[4].value, `"details":"Only http or https schemes are allowed, got: ftp://dmi"`)
}
