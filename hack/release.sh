#!/usr/bin/env bash
# Builds a release of all providers:
#
#   hack/release.sh DIR VERSION
#
#   repository/      the repository of clusterctl, with earlier releases in it
#   clusterctl.yaml  its configuration; NOVA_REPOSITORY is the path of repository/
#   clusterctl-url.yaml
#                    the same for the repository at URL
#   operator.yaml    the providers for Cluster API Operator, which reads them from
#                    the registry
#   bin/ARCH/        the managers
#   host-agent/      the program of the nodes, for platform.hostAgent
#   puppet/          the autosign policy for Puppet servers
#   images/          their images, with SBOMs, provenance and signatures, the manifests
#                    of the providers, and the catalogue of modules (OCI layout)
#   catalogue/       the sets of modules, and the manifests that they name
#   fleet.yaml       the fleet page
#   monitoring/      alerts and dashboards, and how Prometheus finds the managers
#   sbom/            the components of each manager (CycloneDX)
#   images.txt       all images that a closed network needs
#   registry         the registry that images and signatures name
#   CHANGELOG.md     the changes of all versions
#   SHA256SUMS       of all of it, written last
#
# Other files in DIR, such as bundles and node images, are left alone.
#
# The build is reproducible. It fails if the work tree changes during the build,
# because the provenance names one commit. ARCH lists architectures (amd64 arm64),
# REGISTRY is the registry of the managers' images, URL the address of the
# repository, and KEY a file with the private key that signs images and SHA256SUMS.
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
key=${KEY:+$(realpath "$KEY")}
read -ra archs <<<"${ARCH:-amd64 arm64}"
cd "$here/.."
# Programs that run on machines, as files, by the folder of the release.
declare -A files=([nova-host-agent]=host-agent [nova-autosign]=puppet)
managers=()
for program in cmd/*; do
	[[ ${files[${program#cmd/}]:-} ]] || managers+=("${program#cmd/}")
done
# Another Go version would build other bytes.
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.mod)
export GOTOOLCHAIN
module=$(go list -m)
# The folder of the release may be in the work tree, without being ignored there.
own=()
[[ $dir != "$PWD"/* ]] || own=(":(exclude)${dir#"$PWD"/}")

# state prints the commit, and the checksum of each file of the work tree. It prints
# errors too: a file that was deleted, or a link to nothing.
state() {
	printf '%s  HEAD\n' "$(git -c safe.directory='*' rev-parse HEAD)"
	git -c safe.directory='*' ls-files -z --cached --others --exclude-standard -- . "${own[@]}" |
		xargs -0 sha256sum 2>&1 || true
}
began=$(state)
# The time of the commit is the time of the build.
revision=$(git -c safe.directory='*' rev-parse HEAD)
epoch=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct)}

# operator reads the configuration of clusterctl, and prints the same providers
# for Cluster API Operator.
operator() {
	local key value kind name file namespace
	while read -r key value; do
		case $key in
		type:) kind=$value ;;
		url:)
			file=${value/latest/$version}
			name=$(basename "${value%/latest/*}")
			namespace=$(grep -om1 'nova-[a-z-]*-system' "$file")
			printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n' "$namespace"
			printf -- '---\napiVersion: operator.cluster.x-k8s.io/v1alpha2\nkind: %s\nmetadata:\n  name: %s\n  namespace: %s\nspec:\n  version: %s\n  fetchConfig:\n    oci: %s/%s:%s\n' \
				"$kind" "${name#"${name%%nova*}"}" "$namespace" "$version" "$registry" "$name" "$version"
			;;
		esac
	done
}

# sbom NAME FILE ARCH writes the SBOM of a program. cyclonedx-gomod reads the
# architecture in the names of modules from its environment. The SBOM contains no
# user, time or machine of the build, so that it is reproducible; the part "tools"
# would have checksums of cyclonedx-gomod's own executable.
sbom() {
	local log
	log=$(mktemp)
	GOOS=linux GOARCH=$3 "$cyclonedx" bin -json -noserial -version "$version" -output - "$2" 2>"$log" |
		sed -e '/^    "timestamp": /d' -e '/^    "tools": \[$/,/^    \],\{0,1\}$/d' >"$dir/sbom/$1.cdx.json" || {
		echo "release.sh: no SBOM of $1:" >&2
		cat "$log" >&2
		exit 1
	}
	rm "$log"
}

tools=$("$here/tools/build.sh" nova-release cyclonedx-gomod kubectl)
{ read -r release; read -r cyclonedx; read -r kubectl; } <<<"$tools"

# The checksums first: without them, a build that broke off is no release.
rm -f "$dir"/SHA256SUMS{,.sig}
entries=(bin "${files[@]}" images sbom catalogue gitops monitoring fleet.yaml clusterctl.yaml clusterctl-url.yaml operator.yaml digests images.txt registry CHANGELOG.md)
rm -rf "${entries[@]/#/$dir/}"
mkdir -p "${files[@]/#/$dir/}" "$dir"/{sbom,repository,catalogue,monitoring}
for arch in "${archs[@]}"; do
	mkdir -p "$dir/bin/$arch"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X $module/internal/manager.version=$version -X main.version=$version" -o "$dir/bin/$arch/" "${managers[@]/#/./cmd/}"
	for manager in "${managers[@]}"; do
		sbom "$manager-$arch" "$dir/bin/$arch/$manager" "$arch"
	done
	for program in "${!files[@]}"; do
		file=$dir/${files[$program]}/$program-linux-$arch
		CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$file" "./cmd/$program"
		sbom "$program-$arch" "$file" "$arch"
	done
done
facts=(-dir "$dir" -version "$version" -registry "$registry" -revision "$revision" -epoch "$epoch" ${key:+-key "$key"})
"$release" images "${facts[@]}"
REGISTRY=$registry DIGESTS=$dir/digests "$here/components.sh" "$dir/repository" "$version"
sed "s|$dir/repository|\${NOVA_REPOSITORY:=\${PWD}/out/repository}|" "$dir/repository/clusterctl.yaml" >"$dir/clusterctl.yaml"
if [[ -n ${URL:-} ]]; then
	# A GitLab does not list versions for clusterctl, so the configuration names
	# this one.
	sed -E "s|$dir/repository/([^/]+)/latest/|${URL%/}/\1/$version/|" "$dir/repository/clusterctl.yaml" >"$dir/clusterctl-url.yaml"
fi
operator <"$dir/repository/clusterctl.yaml" >"$dir/operator.yaml"
rm "$dir/repository/clusterctl.yaml"
"$kubectl" kustomize config/nova-fleet/default |
	sed -E "s|image: [^ ]+/nova-fleet:[^ ]+|image: $registry/nova-fleet:$version@$(awk '$1 == "nova-fleet" {print $2}' "$dir/digests")|" >"$dir/fleet.yaml"
# The sources and the tests of the sets are not part of it.
for folder in modules/catalogue/*/; do
	case $(basename "$folder") in
	facts | groups | testdata) ;;
	*) cp -R "$folder" "$dir/catalogue/" ;;
	esac
done
# Our own programs among the modules are those of this release.
while read -r program digest; do
	sed -zEi "s|\"ghcr\.io\" (\.facts\.images\.registry\)[[:space:]]+)\"/nova-platform/$program:v0\.0\.0\"|\"${registry%%/*}\" \1\"/${registry#*/}/$program:$version@$digest\"|g" "$dir"/catalogue/sets/*.yaml
done <"$dir/digests"
if grep -r 'v0\.0\.0' "$dir/catalogue"; then
	echo "release.sh: the catalogue has programs without a version" >&2
	exit 1
fi
"$release" manifests "${facts[@]}"
"$here/gitops.sh" "$dir/gitops" "$version"
cp -R config/monitoring/{*.yaml,dashboards} "$dir/monitoring/"
cp CHANGELOG.md "$dir/"
REGISTRY=$registry "$here/images.sh" "$version" "${managers[@]}" >"$dir/images.txt"
printf '%s\n' "$registry" >"$dir/registry"
changed=$({ diff <(printf '%s\n' "$began") <(state) || true; } |
	sed -nE 's/^[<>] (sha256sum: (.*): [^:]*|[^ ]+  (.*))$/\2\3/p' | sort -u)
if [[ -n $changed ]]; then
	printf 'release.sh: the work tree changed during the build: %s\n' "$(paste -sd, <<<"$changed")" >&2
	echo "release.sh: build a clone that nothing else changes, or run it again" >&2
	exit 1
fi
(
	cd "$dir"
	for entry in repository "${entries[@]}"; do
		[[ ! -e $entry ]] || find "$entry" -type f -print0
	done | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS.new
	mv SHA256SUMS.new SHA256SUMS
)
if [[ -n $key ]]; then
	"$release" sign -key "$key" "$dir/SHA256SUMS"
else
	echo 'release: not signed, because KEY names no private key' >&2
fi
printf 'release: %s in %s\n' "$version" "$dir"
