// Package conformance holds the tests that run decoder, planner, encoder and
// PostgreSQL store together, without a broker: the golden cases of a real NCMP
// and the law of coalescing.
package conformance
