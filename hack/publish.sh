#!/usr/bin/env bash
# Publishes a release that "make release" has made:
#
#   hack/publish.sh DIR
#
# REGISTRY gets the images and the manifests of the providers, with signatures,
# SBOMs and provenance. URL, if it is set, gets the files for clusterctl: it is
# https://gitlab.HOST/api/v4/projects/PROJECT/packages/generic, and GITLAB_TOKEN
# is a token that may upload there. The login of the registry is that of "docker
# login". CA is a file with the CA of both servers, if the system does not trust it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
if (($# != 1)) || [[ -z ${REGISTRY:-} ]]; then
	echo "publish.sh: name the folder of a release, and set REGISTRY, such as registry.example.com/nova" >&2
	exit 2
fi
if [[ ! -e $1/SHA256SUMS ]]; then
	echo "publish.sh: there is no release in $1: run \"make release\" first" >&2
	exit 1
fi
(cd "$1" && sha256sum --quiet --check SHA256SUMS)
# Manifests and signatures name it.
if [[ $REGISTRY != "$(<"$1/registry")" ]]; then
	echo "publish.sh: the release in $1 is for the registry $(<"$1/registry"), not $REGISTRY: run \"make release REGISTRY=$REGISTRY\"" >&2
	exit 1
fi
release=$("$here/tools/build.sh" nova-release)
ca=(${CA:+-ca "$CA"})
"$release" push -layout "$1/images" "${ca[@]}" "$REGISTRY"
if [[ -n ${URL:-} ]]; then
	for version in $(find "$1/repository" -mindepth 2 -maxdepth 2 -printf '%f\n' | sort -uV); do
		"$release" upload -dir "$1/repository" -version "$version" "${ca[@]}" "$URL"
	done
fi
