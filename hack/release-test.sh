#!/usr/bin/env bash
# Builds, signs, publishes and installs releases in a test environment. The last line
# has the results: "release: reproducible=true signed=true init=ok upgrade=ok
# closed=ok operator=ok". Arguments are passed to the test.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
cd "$here/.."
if [[ $(uname -s) != Linux ]] || ((EUID != 0)); then
	echo "The test needs network namespaces: run as root on Linux." >&2
	exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

hack/ensure-packages.sh dnsmasq=dnsmasq-base nsenter=util-linux git zstd || exit 1
NOVA_SUITES=full go test ./test/suites/release -vet=off -ldflags='-s -w' -count=1 -timeout 120m -v "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
grep -E '^release: reproducible=' "$log" | tail -n 1
exit "$status"
