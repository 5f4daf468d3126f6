#!/usr/bin/env bash
# Generates what follows from the API types: deep copies and definitions.
#
#   hack/generate.sh [ROOT]
#
# ROOT is the work tree to write to, this one if not said.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
controller_gen=$("$here/tools/build.sh" controller-gen)
cd "${1:-$here/..}"

"$controller_gen" object paths=./api/...

# definitions GROUP PROVIDER writes the definitions of a group of kinds. What
# is not a kind any more goes.
definitions() {
	rm -f "config/$2/crd/bases"/*.yaml
	"$controller_gen" crd paths="./api/$1/..." output:crd:artifacts:config="config/$2/crd/bases"
}
definitions infrastructure nova-vsphere
definitions bootstrap nova-bootstrap
definitions controlplane nova-control-plane
