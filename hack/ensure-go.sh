#!/usr/bin/env bash
# Makes sure that Go can build this project, or reports the problem in one
# sentence. Source it: it adds an installed Go to PATH, and sets the flags that
# everything is compiled with.
if ! command -v go >/dev/null && [[ -x /usr/local/go/bin/go ]]; then
	PATH=$PATH:/usr/local/go/bin
	export PATH
fi
if ! command -v go >/dev/null; then
	echo "Go 1.26 or newer is missing: get it from https://go.dev/dl/, Debian's own is too old." >&2
	exit 1
fi
# An older Go downloads the version of go.mod, unless that is disabled.
if ! go_version=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && go env GOVERSION 2>/dev/null) ||
	[[ $(printf '%s\n' go1.26 "$go_version" | sort -V | head -n 1) != go1.26 ]]; then
	echo "Go 1.26 or newer is missing: $(go version) is too old and could not fetch a newer one, get it from https://go.dev/dl/." >&2
	exit 1
fi
# Releases, pinned programs, tests and linters compile with the same flags, so
# that Go's cache shares the packages that they have in common.
export CGO_ENABLED=0 GOFLAGS="-trimpath${GOFLAGS:+ $GOFLAGS}"
