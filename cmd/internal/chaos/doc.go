// Package chaos proves the guarantees under faults. It is for tests only: real
// worker processes, a real PostgreSQL and a broker work through a random but
// known stream of events while processes, servers and networks fail; afterwards
// a checker compares all that was stored and published with what a simple
// sequential model says that it has to be.
//
//	make chaos TIME=15m SEED=7
//
// # Parts
//
//   - A stream (stream.go, wire.go) is drawn from a seed: registrations,
//     updates, upgrades, removals, state changes, heartbeats, repeats and garbage.
//   - The model (model.go) applies events one after the other, by the published
//     rules. It shares no code with the worker, nor does the checker.
//   - The checker (check.go, linear.go) reads the input topics, the output
//     topics and the stored rows. mutants_test.go shows that it finds planted
//     bugs.
//   - The world (world_test.go and what it uses) runs the servers and workers,
//     and injects faults by a schedule that the seed decides as well.
//
// # Non-obvious
//
//   - Most handles are named by the events of one partition only: everything
//     about them is predicted exactly. Handles that several partitions name are
//     judged by a search for an order of the partitions' events that explains
//     what was observed: order between partitions is that of commit, which the
//     model cannot know.
//   - A fault's moment depends on the machine, what happens does not: the same
//     seed gives the same events and the same faults in the same order.
package chaos
