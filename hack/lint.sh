#!/usr/bin/env bash
# Runs the linters of .golangci.yml on all packages, or on the named ones.
#
#   hack/lint.sh [ARGUMENTS OF golangci-lint run]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
cd "$here/.."
linter=$(hack/tools/build.sh golangci-lint)
if (($#)); then
	exec "$linter" run "$@"
fi
failed=0
"$linter" run ./... || failed=1
# e2e is a separate module.
(cd e2e && "$linter" run --config ../.golangci.yml ./...) || failed=1
exit $failed
