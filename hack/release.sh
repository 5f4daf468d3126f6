#!/usr/bin/env bash
# Builds a release of all providers:
#
#   hack/release.sh DIR VERSION
#
#   repository/      the repository of clusterctl, with earlier releases in it
#   clusterctl.yaml  its configuration; NOVA_REPOSITORY is the path of repository/
#   bin/ARCH/        the managers
#   images/          their images, as archives that containerd and docker load
#   Dockerfile       the same for a builder
#   monitoring/      alerts and dashboards, and how Prometheus finds the managers
#   sbom/            the components of each manager (CycloneDX)
#   images.txt       all images that a closed network needs
#   SHA256SUMS       of all of it
#
# The build is reproducible. ARCH lists architectures (amd64), REGISTRY is the
# registry of the managers' images.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
if (($# != 2)) || [[ ! $2 =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "release.sh: name a folder and a version, such as v0.1.0 (a tag on this commit, or VERSION=)" >&2
	exit 2
fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)
version=$2
registry=${REGISTRY:-ghcr.io/nova-platform}
read -ra archs <<<"${ARCH:-amd64}"
cd "$here/.."
managers=(cmd/*)
managers=("${managers[@]#cmd/}")
# Another Go version would build other bytes.
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.mod)
export GOTOOLCHAIN
module=$(go list -m)
# The time of the commit is the time of the build.
epoch=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct)}
tools=$("$here/tools/build.sh" image cyclonedx-gomod)
{ read -r image; read -r sbom; } <<<"$tools"

rm -rf "$dir"/{bin,images,sbom,gitops,monitoring}
mkdir -p "$dir"/{images,sbom,repository,monitoring}
REGISTRY=$registry "$here/components.sh" "$dir/repository" "$version"
sed "s|$dir/repository|\${NOVA_REPOSITORY:=\${PWD}/out/repository}|" "$dir/repository/clusterctl.yaml" >"$dir/clusterctl.yaml"
rm "$dir/repository/clusterctl.yaml"
cp "$here/release/Dockerfile" "$dir/"
"$here/gitops.sh" "$dir/gitops" "$version"
cp -R config/monitoring/{*.yaml,dashboards} "$dir/monitoring/"
for arch in "${archs[@]}"; do
	mkdir -p "$dir/bin/$arch"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X $module/internal/manager.version=$version" -o "$dir/bin/$arch/" "${managers[@]/#/./cmd/}"
	for manager in "${managers[@]}"; do
		"$image" -binary "$dir/bin/$arch/$manager" -name "$registry/$manager:$version" -arch "$arch" \
			-version "$version" -epoch "$epoch" -output "$dir/images/$manager-$arch.tar"
		# The SBOM contains no user, time or machine of the build, so that it is
		# reproducible.
		"$sbom" bin -json -noserial -version "$version" -output - "$dir/bin/$arch/$manager" 2>/dev/null |
			sed '/^    "timestamp": /d' >"$dir/sbom/$manager-$arch.cdx.json"
	done
done
REGISTRY=$registry "$here/images.sh" "$version" "${managers[@]}" >"$dir/images.txt"
(cd "$dir" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
printf 'release: %s in %s\n' "$version" "$dir"
