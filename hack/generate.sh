#!/usr/bin/env bash
# Generates what follows from the code: deep copies and definitions from the
# API types, roles from the markers of the reconcilers.
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

# role CONTROLLER PROVIDER NAME writes the role of a manager. The role of
# nova-vsphere is written by hand: its reconcilers serve every hypervisor.
role() {
	"$controller_gen" "rbac:roleName=$3" paths="./controllers/$1/..." output:rbac:dir="config/$2/rbac"
}
role controlplane nova-control-plane manager-role
