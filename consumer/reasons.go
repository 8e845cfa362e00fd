package consumer

// Reasons why a record becomes a dead letter at decoding. They are stable: they
// stand in the ncmp_reason header, in metrics and in alerts.
const (
	// ReasonTooLarge: key, value and headers exceed limits.record-bytes.
	ReasonTooLarge = "too-large"
	// ReasonTooManyHandles: the event names more handles than
	// limits.handles-per-event. A batched record counts as a whole.
	ReasonTooManyHandles = "too-many-handles"
	// ReasonNotCloudEvent: neither CloudEvents headers nor a JSON object with
	// a specversion member.
	ReasonNotCloudEvent = "not-a-cloudevent"
	// ReasonBadContentType: a content type that is not JSON, or a CloudEvents
	// format other than JSON.
	ReasonBadContentType = "bad-content-type"
	// ReasonDuplicateAttribute: a CloudEvents header stands twice.
	ReasonDuplicateAttribute = "duplicate-attribute"
	// ReasonMissingAttribute: specversion, id, source or type is absent or empty.
	ReasonMissingAttribute = "missing-attribute"
	// ReasonBadAttribute: an attribute of a structured event is no string, or
	// data and data_base64 stand side by side.
	ReasonBadAttribute = "bad-attribute"
	// ReasonUnsupportedSpecVersion: a specversion other than 1.0.
	ReasonUnsupportedSpecVersion = "unsupported-specversion"
	// ReasonBadTime: time is neither RFC 3339 nor in ONAP's form of it.
	ReasonBadTime = "bad-time"
	// ReasonUnknownType: no type of ours; the text names the nearest one.
	ReasonUnknownType = "unknown-type"
	// ReasonNoData: an event without data.
	ReasonNoData = "no-data"
	// ReasonBadBase64: data_base64 is not base64.
	ReasonBadBase64 = "bad-base64"
	// ReasonBadJSON: the value is no JSON.
	ReasonBadJSON = "bad-json"
	// ReasonTrailingData: something follows the JSON value.
	ReasonTrailingData = "trailing-data"
	// ReasonDuplicateMember: one JSON object has two members of one name.
	ReasonDuplicateMember = "duplicate-member"
	// ReasonInvalidUTF8: a JSON string or an attribute is no valid UTF-8.
	ReasonInvalidUTF8 = "invalid-utf8"
	// ReasonUnpairedSurrogate: an escape such as \ud800 without its other half.
	ReasonUnpairedSurrogate = "unpaired-surrogate"
	// ReasonNUL: U+0000 in a string, a member name or an attribute.
	ReasonNUL = "nul-character"
	// ReasonBadShape: a member that holds the event together has the wrong
	// type. A wrong type inside one entry rejects that entry only.
	ReasonBadShape = "bad-shape"
)

// reasonBatchTooLarge: a compressed batch of records grows beyond all bounds;
// it is set aside whole.
const reasonBatchTooLarge = "batch-too-large"

// DecodeReasons are all reasons above, for metrics that show a zero before the
// first dead letter.
var DecodeReasons = []string{
	ReasonTooLarge, ReasonTooManyHandles, ReasonNotCloudEvent, ReasonBadContentType,
	ReasonDuplicateAttribute, ReasonMissingAttribute, ReasonBadAttribute, ReasonUnsupportedSpecVersion,
	ReasonBadTime, ReasonUnknownType, ReasonNoData, ReasonBadBase64, ReasonBadJSON, ReasonTrailingData,
	ReasonDuplicateMember, ReasonInvalidUTF8, ReasonUnpairedSurrogate, ReasonNUL, ReasonBadShape,
}
