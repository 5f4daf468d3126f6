#!/usr/bin/env bash
# Runs each fuzz target of the repository for a while, one after the other.
#
#   hack/fuzz.sh DURATION
#
# "go test" runs the seed corpus of each target, so "make test" does too. Input
# that fails is written to testdata/fuzz of the package: commit it with the fix.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
cd "$here/.."
targets=0
while IFS=: read -r file target; do
	printf 'fuzz: %s in %s for %s\n' "$target" "$(dirname "$file")" "$1"
	# By default go minimizes each interesting input for up to a minute, and
	# tries no other one meanwhile.
	go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 1s
	targets=$((targets + 1))
done < <(git -c safe.directory='*' grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/:func /:/')
printf 'fuzz: targets=%d failed=0\n' "$targets"
((targets))
