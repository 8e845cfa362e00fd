//go:build unix

// Package pgembed runs a private PostgreSQL server as a child process: for
// tests, for the demo, for benchmarks. It is not meant for production data,
// but it treats every data directory as if it held some.
//
// # Promises
//
//   - No file of a data directory is ever deleted. A directory of another
//     major version is refused, not converted and not replaced.
//   - The server dies with its parent (on Linux, even if that is killed), and
//     never gets the terminal's Ctrl-C: its owner decides when it stops.
//   - Works as an ordinary user and as root. PostgreSQL refuses to run as
//     root, so its processes then run as the owner of the data directory, or
//     as the user postgres, or nobody.
//   - What the server says on stderr is kept to a bounded tail and stands in
//     the error when it does not start.
//
// # Non-obvious
//
//   - Without a TCP port the server listens on a unix socket in its data
//     directory, which only its owner may enter; there it trusts whoever gets
//     in. A TCP port listens on 127.0.0.1 alone and asks for a password that
//     was generated with the data directory.
package pgembed
