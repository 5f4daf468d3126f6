#!/usr/bin/env bash
# Tests test/ovirtsim with the live test suite of go-ovirt-client, an independent
# client that works with any engine. The suite runs from a copy of the
# module outside of this tree. The last line has the result:
#
#   ovirtsim-conformance: passed=74 failed=3 skipped=1
#
# The command fails if fewer than 72 tests pass, or fewer than PASSES if it is
# set. RUN selects tests by a regular expression; then the number is not checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

client=github.com/ovirt/go-ovirt-client/v3@v3.2.0
sdk=github.com/ovirt/go-ovirt@v0.0.0-20220427092237-114c47f2835c
goal=${PASSES:-72}

work=$(mktemp -d)
server=
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	[ -z "$server" ] || wait "$server" 2>/dev/null || true
	chmod -R u+w "$work"
	rm -rf "$work"
}
trap finish EXIT

# Downloading needs a module, but not this one: the client is not a dependency.
mkdir "$work/fetch"
(cd "$work/fetch" && go mod init fetch >/dev/null 2>&1 && go mod download "$client" "$sdk")
source=$(cd "$work/fetch" && go mod download -json "$client" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
cp -r "$source" "$work/suite"
chmod -R u+w "$work/suite"

go build -o "$work/ovirtsim" ./test/cmd/ovirtsim
# A test requires that the disks of a VM are deleted together with the VM.
"$work/ovirtsim" -listen 127.0.0.1:0 -certs "$work/certs" -password conformance -language en -timing disk-remove=0s >"$work/server" 2>&1 &
server=$!
for _ in $(seq 100); do
	! grep -q OVIRT_CA_FILE "$work/server" || break
	kill -0 "$server" || { cat "$work/server"; exit 1; }
	sleep 0.1
done
set -a
# shellcheck disable=SC1091
. "$work/server"
OVIRT_PASSWORD=conformance
set +a

# Tests that wait for the end of an error take minutes: the client retries. They
# run in parallel.
(cd "$work/suite" && go test -mod=mod -vet=off -json -timeout 30m -parallel 24 -client=live ${RUN:+-run "$RUN"} ./... \
	>"$work/events" 2>"$work/errors") || true

go run ./test/ovirtsim/testsum "$work/events" >"$work/summary" || { cat "$work/errors"; exit 1; }
cat "$work/summary"
passed=$(sed -n 's/^total: passed=\([0-9]*\).*/\1/p' "$work/summary")
echo "ovirtsim-conformance: $(sed -n 's/^total: //p' "$work/summary")"
[ -n "${RUN:-}" ] || [ "$passed" -ge "$goal" ]
