#!/usr/bin/env bash
# Runs the attacks of test/hostile. The last line counts them:
# "hostile: attacks=<n> blocked=<n>". Arguments are passed to the test, for
# instance: hack/hostile.sh -ginkgo.focus 'A node'
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
cd "$here/.."
if [[ $(uname -s) != Linux ]] || ((EUID != 0)); then
	echo "The attacks need network namespaces: run as root on Linux." >&2
	exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

hack/ensure-packages.sh dnsmasq=dnsmasq-base nsenter=util-linux git || exit 1
go test ./test/hostile -count=1 -timeout 40m -v "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
grep -E '^hostile: attacks=[0-9]+ blocked=[0-9]+$' "$log" | tail -n 1
exit "$status"
