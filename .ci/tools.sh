#!/usr/bin/env bash
# Tools that check the code, each in the version that the code was written for.
#
#   .ci/tools.sh NAME [ARGUMENT…]   runs golangci-lint, govulncheck or benchstat
#
# They are built once into .cache/bin of this project and are no part of go.mod.
set -euo pipefail
bin=$(cd "$(dirname "$0")/.." && pwd)/.cache/bin

case ${1:-} in
golangci-lint) module=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 ;;
govulncheck) module=golang.org/x/vuln/cmd/govulncheck@v1.9.0 ;;
benchstat) module=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da ;;
*)
  sed -n 's/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac

tool=$bin/$1-${module##*@}
if [[ ! -x $tool ]]; then
  mkdir -p "$bin"
  GOBIN=$bin GOFLAGS='' go install "$module" </dev/null >&2
  mv "$bin/$1" "$tool"
fi
shift
exec "$tool" "$@"
