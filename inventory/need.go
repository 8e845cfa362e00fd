package inventory

import (
	"slices"
	"strings"
)

// NeedOf collects what a batch has to lock and read. Keys that an item only
// proposes (an alternate id) are locked as well, whether they exist or not:
// who owns a key can only be judged under its lock.
func NeedOf(b *Batch) Need {
	c := needCollector{keys: map[string]string{}, handles: map[string]bool{}, full: map[string]bool{}}
	for i := range b.Records {
		for j := range b.Records[i].Events {
			for k := range b.Records[i].Events[j].Items {
				c.item(&b.Records[i].Events[j].Items[k])
			}
		}
	}
	n := Need{Full: c.full, Frees: sorted(c.frees), Trust: sorted(c.trust), Replayed: b.replayed()}
	n.Keys = make([]string, 0, len(c.keys))
	for k := range c.keys {
		n.Keys = append(n.Keys, k)
	}
	slices.Sort(n.Keys)
	n.Owners = make([]string, len(n.Keys))
	for i, k := range n.Keys {
		n.Owners[i] = c.keys[k]
	}
	n.Handles = make([]string, 0, len(c.handles))
	for id := range c.handles {
		n.Handles = append(n.Handles, id)
	}
	slices.Sort(n.Handles)
	n.Deep = make([]bool, len(n.Handles))
	for i, id := range n.Handles {
		n.Deep[i] = c.handles[id]
	}
	return n
}

type needCollector struct {
	keys         map[string]string // key -> handle id it would belong to
	handles      map[string]bool   // whether they are needed deep
	full         map[string]bool
	frees, trust []string
}

func (c *needCollector) item(it *Item) {
	if it.Reject != nil || it.ID == "" {
		return
	}
	c.handle(it.ID, it.Op == OpUpgrade || it.Op == OpState && it.State.To != Deleted)
	switch it.Op {
	case OpCreate:
		if _, ok := c.full[it.ID]; !ok {
			c.full[it.ID] = false
		}
		c.alternate(it)
	case OpUpdate:
		c.full[it.ID] = true
		c.alternate(it)
	case OpRemove:
		c.frees = append(c.frees, it.ID)
	case OpState:
		if it.State.To == Deleted {
			c.frees = append(c.frees, it.ID)
		}
	case OpHeartbeat:
		c.trust = append(c.trust, it.ID)
		if it.Fallback != "" {
			c.handle(it.Fallback, false)
			c.trust = append(c.trust, it.Fallback)
		}
	}
}

func (c *needCollector) handle(id string, deep bool) {
	c.keys[id] = id
	c.handles[id] = c.handles[id] || deep
}

func (c *needCollector) alternate(it *Item) {
	alt := it.Fields.AlternateID
	if alt == "" {
		return
	}
	if _, ok := c.keys[alt]; !ok {
		c.keys[alt] = it.ID
	}
}

func sorted(ids []string) []string {
	slices.SortFunc(ids, strings.Compare)
	return slices.Compact(ids)
}
