// Package config is the worker's configuration: one table of keys, read from
// flags, environment, a YAML file and defaults, in this order of precedence.
//
// # Promises
//
//   - Nothing is ignored: an unknown key is an error that names the nearest
//     known one, and a bad value an error that says where it came from. All
//     of them are told at once.
//   - A secret has no way out but [Secret.Reveal]: printing, formatting and
//     encoding give a mask.
//   - A secret that comes from a file is read anew each time it is used, so
//     that a rotated one needs no restart.
//
// # Non-obvious
//
//   - Kubernetes injects variables such as NCMP_INVENTORY_PORT into every pod
//     beside a service of that name; those are not ours and are passed over.
//   - A key and its -file variant are one setting: the layer with the higher
//     precedence decides, and both in one layer are an error.
package config
