#!/usr/bin/env bash
# Deletes files that this commit and work tree do not use from the cache of the
# project: tools at other versions, the managers of other work trees, and all
# images of hosts of a kind but the newest. A file that is needed later is built
# again.
#
#   hack/prune.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${NOVA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cluster-api-provider-nova}
if [[ ! -d $cache ]]; then
	echo "prune: $cache does not exist"
	exit
fi
cache=$(cd "$cache" && pwd -P)
# A test environment restarts its programs from here.
for process in /proc/[0-9]*; do
	if [[ $(readlink "$process/exe" 2>/dev/null || true) == "$cache"/* ]]; then
		echo "prune: process ${process#/proc/} runs a program of $cache. End test environments first: make quickstart-down" >&2
		exit 1
	fi
done
before=$(du -sm "$cache" | cut -f1)
used=$(NOVA_CACHE=$cache "$here/tools/build.sh" --folders)
# As buildPrograms in test/bed names it.
used+=$'\n'$cache/bin/$(printf %s "$(dirname "$here")" | sha256sum | cut -c1-8)
shopt -s nullglob
# A folder's name without the hash is its kind; the newest comes first.
declare -A newest=()
while read -r layer; do
	kind=${layer%-*}
	[[ -n ${newest[$kind]:-} ]] || newest[$kind]=$layer
done < <(ls -td "$cache"/host/*/)
for layer in "${newest[@]}"; do
	used+=$'\n'${layer%/}
done
for folder in "$cache"/tools/*/ "$cache"/bin/*/ "$cache"/host/*/; do
	grep -qxF "${folder%/}" <<<"$used" || rm -rf "$folder"
done
after=$(du -sm "$cache" | cut -f1)
echo "prune: deleted $((before - after)) MB, $after MB are left in $cache"
