#!/usr/bin/env bash
# Runs the Go benchmarks of two trees in turns and prints benchstat's table: a
# noisy machine then hurts both alike.
#
#   .ci/bench-compare.sh BASE    the commit BASE against the working tree
#
#   COUNT=6       how often each benchmark runs; fewer than 6 say little
#   BENCH=.       which benchmarks, as -bench has it
#   BENCHTIME=1s  how long each run takes
#   PKG=./...     of which packages
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:?which commit is the base?}
count=${COUNT:-6} bench=${BENCH:-.} benchtime=${BENCHTIME:-1s} pkg=${PKG:-./...}
head=$PWD

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 0711 "$work" # PostgreSQL of the benchmarks runs as another user
mkdir "$work/tree"
git archive "$(git rev-parse --verify "$base^{commit}")" | tar -x -C "$work/tree"

# build TREE NAME: a test binary for each package that has benchmarks.
build() {
  local dir
  (cd "$1" && go list -f '{{.Dir}}' "$pkg") | while read -r dir; do
    grep -qs '^func Benchmark' "$dir"/*_test.go || continue
    local name=${dir#"$1"}
    name=${name#/}
    (cd "$dir" && go test -c -o "$work/$2/${name//\//.}" .)
  done
}
build "$work/tree" base
build "$head" head

# run TREE NAME PACKAGE: one run of all its benchmarks.
run() {
  (cd "$1/${3//.//}" && "$work/$2/$3" -test.run '^$' -test.bench "$bench" -test.benchmem -test.benchtime "$benchtime") >>"$work/$2.txt"
}
for ((i = 1; i <= count; i++)); do
  for binary in "$work/head"/*; do
    package=$(basename "$binary")
    echo "round $i of $count: ${package//.//}" >&2
    [[ ! -x $work/base/$package ]] || run "$work/tree" base "$package"
    run "$head" head "$package"
  done
done
touch "$work/base.txt"
cd "$work"
"$head/.ci/tools.sh" benchstat base="$work/base.txt" head="$work/head.txt"
