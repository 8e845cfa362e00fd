package lcm

import "ncmp-inventory/inventory"

// NCMP's attribute-value-change event: source, type and schema are its own, so
// that its consumers go on reading it.
const (
	avcSource = "NCMP"
	avcType   = "org.onap.cps.ncmp.events.avc.ncmp_to_client.AvcEvent"
	avcSchema = "urn:cps:org.onap.cps.ncmp.events:inventory-event:1.0.0"
)

// InventoryEvent encodes a change of a handle's trust level.
func (e *Encoder) InventoryEvent(t *inventory.TrustChange) inventory.Message {
	s := newScratch()
	defer s.free()
	s.key(t.ID)
	h := s.openHeaders()
	h.cloudEvent(&meta{
		id: s.uuid(t.EventID), at: t.At.UTC(), source: avcSource, kind: avcType, schema: avcSchema,
		correlation: t.ID,
	})
	h.cause(t.Cause, t.EventID)
	s.closeHeaders(h)

	b := append(s.b, `{"data":{"attributeValueChange":[{"attributeName":"trustLevel"`...)
	if t.Old != inventory.TrustUnset {
		b = append(b, `,"oldAttributeValue":`...)
		b = appendString(b, string(t.Old))
	}
	b = append(b, `,"newAttributeValue":`...)
	b = appendString(b, string(t.New))
	s.b = append(b, `}]}}`...)
	return s.message(inventory.InventoryEvent)
}
