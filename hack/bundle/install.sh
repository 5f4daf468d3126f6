#!/bin/sh
# Pushes the images and charts of this bundle to a registry, and writes
# clusterctl.yaml, with which clusterctl installs everything from this folder and that
# registry, and fleet.yaml, the fleet page with its image there:
#
#   ./install.sh registry.example.com/nova [CA-FILE]
#
# The login is that of "docker login". Each image gets the path that it has in its
# own registry. The command can be repeated.
set -eu
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo "install.sh: name a registry, and a file with its CA if this system does not trust it" >&2
	exit 2
fi
registry=$1
ca=${2:+$(realpath "$2")}
cd "$(dirname "$0")"
here=$PWD
sha256sum --quiet --check SHA256SUMS
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*)
	echo "install.sh: there is no program for $(uname -m)" >&2
	exit 1
	;;
esac
"bin/nova-release-$arch" push -layout release/images ${ca:+-ca "$ca"} "$registry/@PATH@"
# Others may move the tags of their images.
"bin/nova-release-$arch" push -layout images -replace ${ca:+-ca "$ca"} "$registry"
[ ! -d charts ] || "bin/nova-release-$arch" push -layout charts -replace ${ca:+-ca "$ca"} "$registry/@PATH@"
# Characters that sed would interpret.
quoted=$(printf '%s\n' "$here" | sed 's/[&|\\]/\\&/g')
{
	sed "s|\${NOVA_REPOSITORY:=.*out/repository}|$quoted/repository|" release/clusterctl.yaml
	cat <<END
- name: cluster-api
  type: CoreProvider
  url: $here/repository/cluster-api/@CORE@/core-components.yaml
cert-manager:
  version: @CERT_MANAGER@
  url: $here/repository/cert-manager/@CERT_MANAGER@/cert-manager.yaml
images:
  all: {repository: $registry/@PATH@}
  cluster-api: {repository: $registry/cluster-api}
  cert-manager: {repository: $registry/jetstack}
END
} >clusterctl.yaml
sed "s|image: .*/nova-fleet:|image: $registry/@PATH@/nova-fleet:|" release/fleet.yaml >fleet.yaml
echo "install: charts and the catalogue of modules: oci://$registry/@PATH@"
echo "install: clusterctl init --config $here/clusterctl.yaml --core cluster-api:@CORE@ ..."
