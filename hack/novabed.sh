#!/usr/bin/env bash
# Builds the program of test environments and runs it.
#
#   hack/novabed.sh quickstart --hypervisor zvirt
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
cd "$here/.."
cache=${NOVA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cluster-api-provider-nova}
# As buildPrograms in test/bed names it, so that the program is linked once, with the same flags.
folder=$cache/bin/$(printf %s "$PWD" | sha256sum | cut -c1-8)
program=$folder/novabed
mkdir -p "$folder"
# In a terminal the line disappears when the program starts.
printf 'Building the program of test environments, which takes minutes the first time …' >&2
export NOVABED_BEGAN=$EPOCHSECONDS
flock "$folder/.lock" go build -buildvcs=false -ldflags "-s -w" -o "$program" ./test/cmd/novabed 2> >(grep -v '^go: downloading ' >&2)
if [[ -t 2 ]]; then
	printf '\r\033[K' >&2
else
	printf ' built in %dm%ds\n' $(((EPOCHSECONDS - NOVABED_BEGAN) / 60)) $(((EPOCHSECONDS - NOVABED_BEGAN) % 60)) >&2
fi
exec "$program" "$@"
