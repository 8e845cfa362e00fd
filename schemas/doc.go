// Package schemas holds the shapes of everything that crosses the worker's
// border: the YANG modules behind the stored data nodes, and the JSON Schemas
// of the events that it takes and sends, with an example of each.
//
//   - Load compiles YANG modules to a Model: Model.Leaf finds the codec of one
//     leaf, Model.Nodes turns a JSON document into rows.
//   - Inventory and BenchDevice are the embedded modules; InventoryModel is the
//     first, compiled once.
//   - Schema, Example and Validate are the events.
//
// # Promises
//
//   - Load gives a Model or an error for any input. goyang overflows the stack
//     on loops of definitions, which no recover catches, and takes exponential
//     time on others; sources are vetted and bounded first. What goyang would
//     leave out in silence (refine, augment inside uses, pattern modifiers) is
//     refused with file:line:col. No file is read and no address is fetched.
//   - A value is stored as CPS stores it: integers and decimal64 as JSON
//     numbers with all their digits, leaf-lists as sets, sorted unless
//     ordered-by user; xpaths with sorted keys and doubled apostrophes.
//   - No error quotes a value: values may be private. Validate writes a member
//     below the private properties as cmHandleProperties[…].
//   - A Model and its leaves are read-only and safe for many goroutines.
//
// # Non-obvious
//
//   - This package imports none of the project's, and Model.Leaf returns a
//     *Leaf, so that the caller's port is one line away:
//     func (c codec) Leaf(p string) (inventory.Leaf, error) { return c.m.Leaf(p) }.
//     On an error that interface holds a nil *Leaf: look at the error first.
//   - As CPS does: a scalar's text counts, not its JSON type (7 for a string is
//     "7", "7" for an integer is 7); one object may stand for a list and [] for
//     a container; mandatory, must, when, unique and min-elements are not
//     enforced; defaults are not stored; an unknown word before a member's
//     colon is ignored.
//   - Unlike CPS: single-quoted or unquoted JSON is refused, and so are data
//     for anydata, anyxml and lists without key, which CPS drops with a
//     warning; list entries with equal keys are refused. Integers are decimal:
//     a leading zero could mean octal.
//   - Types for which CPS has no stable form are stored so: bits as an array in
//     the order of positions, identityref as "module:name", empty as [null],
//     binary and instance-identifier as strings.
//   - identityref chains look harmless, but goyang's search for derived
//     identities doubles with every generation.
//   - The JSON Schemas say what a producer should send. The worker's decoder is
//     the judge, entry by entry, and does not use them. NCMP's published
//     LCM schemas refuse NCMP's own events (version 2 allows no values at all),
//     so these are this project's, checked against events of a real NCMP.
package schemas
