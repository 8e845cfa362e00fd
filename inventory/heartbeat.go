package inventory

func (p *planner) heartbeat(it *Item) (verdict, *Rejection) {
	id := it.ID
	w := p.touch(id)
	if w.cur == nil && it.Fallback != "" {
		id = it.Fallback
		w = p.touch(id)
	}
	if w.cur == nil {
		return 0, Reject(CodeNotFound, "")
	}
	old := p.trustOf(id, w)
	if old == it.Trust {
		return unchanged, nil
	}
	w.trust = it.Trust
	p.tellTrust(id, old, it.Trust)
	return applied, nil
}

// trustOf is a handle's level now. What was stored before a removal in this
// batch does not count.
func (p *planner) trustOf(id string, w *working) TrustLevel {
	if w.trust != TrustUnset {
		return w.trust
	}
	if stored, ok := p.snap.Trust[id]; ok && !w.removed {
		return stored
	}
	return TrustComplete
}
