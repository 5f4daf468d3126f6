#!/usr/bin/env bash
# Makes one file from which a network without access to the Internet installs a
# release:
#
#   hack/bundle.sh DIR VERSION FILE.tar.zst
#
# DIR has the release that "make release" has made. The file also contains:
#
#   images/      the images in IMAGES, a file with a list; if that is not set, those
#                in images.txt and those of the modules in the catalogue
#   repository/  Cluster API's core provider, and cert-manager
#   charts/      the charts in CHARTS, a folder with files NAME-VERSION.tgz, if that is
#                set (OCI layout)
#   docs/        the documents as a static site
#   install.sh   pushes images and charts, and configures clusterctl
#
# FROM is a registry that has all images below their paths, such as a cache; if it
# is not set, each image is pulled from its own registry. IMAGE_ARCH is the
# architecture of images that are pulled, amd64 unless set. CERT_MANAGER is the
# file cert-manager.yaml of the version that clusterctl installs. CA is a file
# with the CA of FROM. KEY is the private key that signs the file. WITHOUT_DOCS=1
# leaves the documents out.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
if (($# != 3)) || [[ ! -e $1/SHA256SUMS ]]; then
	echo "bundle.sh: name the folder of a release, its version, and the file to write" >&2
	exit 2
fi
dir=$(cd "$1" && pwd)
version=$2
(cd "$dir" && sha256sum --quiet --check SHA256SUMS)
# Images of the providers are named with the registry of the release.
registry=$(<"$dir/registry")
if ! grep -qxF "$registry/nova-bootstrap:$version" "$dir/images.txt"; then
	echo "bundle.sh: the release in $dir is not version \"$version\": $(grep -m1 /nova-bootstrap: "$dir/images.txt")" >&2
	exit 1
fi
file=$(realpath "$3")
ca=${CA:+$(realpath "$CA")}
images=${IMAGES:+$(realpath "$IMAGES")}
key=${KEY:+$(realpath "$KEY")}
charts=${CHARTS:+$(realpath "$CHARTS")}
cd "$here/.."
core=$(go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)
core_version=$(go list -m -f '{{.Version}}' sigs.k8s.io/cluster-api)
cert_manager=$(sed -nE 's/.*CertManagerDefaultVersion = "(.*)"/\1/p' "$core/cmd/clusterctl/client/config/cert_manager_client.go")
if [[ ! -e ${CERT_MANAGER:-} ]]; then
	echo "bundle.sh: set CERT_MANAGER to the file https://github.com/cert-manager/cert-manager/releases/download/$cert_manager/cert-manager.yaml" >&2
	exit 1
fi
cert_manager_file=$(realpath "$CERT_MANAGER")
"$here/ensure-packages.sh" zstd
tools=$("$here/tools/build.sh" nova-release kubectl)
{ read -r release; read -r kubectl; } <<<"$tools"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The files of the release, without others in its folder. The checksums are part of
# this bundle's own.
mkdir -p "$work"/{release,bin,repository/cluster-api/"$core_version",repository/cert-manager/"$cert_manager"}
cut -c 67- "$dir/SHA256SUMS" | grep -vE '^(bin|repository)/' | tar -C "$dir" --verbatim-files-from -T - -c | tar -C "$work/release" -x
# The other releases in the folder are not part of this one.
for folder in "$dir"/repository/*/"$version"; do
	provider=$(basename "$(dirname "$folder")")
	mkdir -p "$work/repository/$provider"
	cp -R "$folder" "$work/repository/$provider/"
done
"$kubectl" kustomize "$core/core/config/default" |
	sed -E -e "s|image: [^ ]+/cluster-api-controller:[^ ]+|image: registry.k8s.io/cluster-api/cluster-api-controller:$core_version|" \
		-e 's|imagePullPolicy: Always|imagePullPolicy: IfNotPresent|' >"$work/repository/cluster-api/$core_version/core-components.yaml"
cp "$core/metadata.yaml" "$work/repository/cluster-api/$core_version/"
cp "$cert_manager_file" "$work/repository/cert-manager/$cert_manager/cert-manager.yaml"
for arch in amd64 arm64; do
	(cd hack/tools/release && GOFLAGS=-mod=readonly GOARCH=$arch go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/bin/nova-release-$arch" ./novarelease)
done
if [[ -z $images ]]; then
	images=$work/images.list
	grep -v "/nova-[a-z-]*:$version\$" "$dir/images.txt" >"$images"
	sed -nE 's/^ *- ([a-z0-9.-]+\.[a-z]+\/[^ ]+)$/\1/p' modules/catalogue/facts/images/*.yaml modules/catalogue/facts/operators.yaml >>"$images"
	# The release has its own.
	sed -i '/^ghcr\.io\/nova-platform\//d' "$images"
	sort -u -o "$images" "$images"
	# kubeadm expects CoreDNS without the folder that it has in its registry.
	coredns=$(sed -nE 's|^registry.k8s.io/coredns/(coredns:.*)|& \1|p' "$images")
	echo "$coredns" >>"$images"
fi
"$release" pull -layout "$work/images" -arch "${IMAGE_ARCH:-amd64}" ${FROM:+-from "$FROM"} ${ca:+-ca "$ca"} "$images"
rm -f "$work/images.list"
if [[ -n $charts ]]; then
	"$release" charts -layout "$work/charts" "$charts"
fi
if [[ -z ${WITHOUT_DOCS:-} ]]; then
	"$here/site.sh" "$work/docs" "$version"
fi
sed -e "s|@PATH@|${registry#*/}|" -e "s|@CORE@|$core_version|" -e "s|@CERT_MANAGER@|$cert_manager|" hack/bundle/install.sh >"$work/install.sh"
chmod +x "$work/install.sh"
(cd "$work" && find . -type f ! -path ./SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)
rm -f "$file" "$file.sig"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" --transform "s|^\.|nova-$version|" -c . | zstd -q -f -T0 -o "$file"
if [[ -n ${KEY:-} ]]; then
	"$release" sign -key "$key" "$file"
fi
printf 'bundle: %s\n' "$file"
