package inventory

import "time"

// Property is one named value. On an update, Null marks a name to be removed.
type Property struct {
	Name, Value string
	Null        bool
}

// Positions of the DMI service names in DMINames.
const (
	DMIService = iota
	DMIDataService
	DMIModelService
	DMIDatajobsRead
	DMIDatajobsWrite
	dmiCount
)

// DMINames are the five DMI plugin names of a registration.
type DMINames [dmiCount]Text

// Handle is a CM handle in the one form that every step shares. It is
// normalized once, at the edge: ids and tags are trimmed, none is "", and
// properties are sorted by name without duplicates. Handles are values to the
// planner: it replaces slices and pointers, it never writes through them.
type Handle struct {
	ID             string
	AlternateID    string
	ModuleSetTag   string
	DataProducerID string
	DMI            DMINames
	Public         []Property // sorted by name
	Private        []Property // sorted by name; never leaves the store
	State          CompositeState
}

// TrustLevel is how far a handle's data may be trusted. A handle without a
// stored level is Complete: that is NCMP's default at registration.
type TrustLevel string

// NCMP's two levels; TrustUnset is no level given.
const (
	TrustUnset    TrustLevel = ""
	TrustNone     TrustLevel = "NONE"
	TrustComplete TrustLevel = "COMPLETE"
)

// timeFormat is NCMP's: milliseconds and a numeric offset without a colon.
const timeFormat = "2006-01-02T15:04:05.000-0700"

// FormatTime writes t as NCMP does, in UTC: 2026-02-03T04:05:06.007+0000.
func FormatTime(t time.Time) string { return t.UTC().Format(timeFormat) }

// ParseTime reads a stored time: NCMP's form, which is ours, or RFC 3339.
func ParseTime(text string) (t time.Time, ok bool) {
	for _, layout := range [...]string{timeFormat, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
