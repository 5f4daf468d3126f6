#!/usr/bin/env bash
# Runs the linters of .golangci.yml on everything, or on what is named.
#
#   hack/lint.sh [ARGUMENTS OF golangci-lint run]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
cd "$here/.."
exec "$(hack/tools/build.sh golangci-lint)" run "${@:-./...}"
