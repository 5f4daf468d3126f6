#!/usr/bin/env bash
# Checks that generated files match their sources, that the modules are tidy,
# that the manifests render, that images have versions, that the links in
# documents point at files that exist, that texts are plain English, that the
# structure of the packages gets no worse, that the licenses of dependencies are
# allowed, and that the linters find nothing.
#
#   hack/verify.sh [RESULTS]
#
# RESULTS is a file that gets a line "pass" or "fail" for each check.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
cd "$here/.."
results=${1:-/dev/null}
failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check NAME COMMAND... runs a check, shows its output if it fails, and
# continues, so that one run shows all problems.
check() {
	local name=$1 started=$SECONDS
	shift
	if "$@" >"$scratch/out" 2>&1; then
		printf 'verify: %-28s ok in %d s\n' "$name" $((SECONDS - started))
		echo pass >>"$results"
	else
		printf 'verify: %-28s FAILED in %d s\n' "$name" $((SECONDS - started))
		sed 's/^/    /' "$scratch/out"
		echo fail >>"$results"
		failed=1
	fi
}

generated() {
	local copy=$scratch/tree folder stale=0
	mkdir -p "$copy" && git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
		tar -c --null --no-recursion --ignore-failed-read --files-from - 2>/dev/null | tar -x -C "$copy" &&
		hack/generate.sh "$copy" || return
	for folder in api bootstrap config docs/reference modules templates; do
		diff -r -u "$folder" "$copy/$folder" || stale=1
	done
	((stale)) || return 0
	echo 'run "make generate" and commit what it writes'
	return 1
}

tidy() {
	(cd "$1" && go mod tidy -diff) && return
	echo "run \"go mod tidy\" in $1"
	return 1
}

manifests() {
	hack/components.sh "$scratch/components" && clusterctl_templates
}

# clusterctl_templates parses every cluster template with the real clusterctl.
clusterctl_templates() {
	local clusterctl file
	clusterctl=$(hack/tools/build.sh clusterctl) || return
	for file in "$scratch"/components/infrastructure-*/*/cluster-template*.yaml; do
		"$clusterctl" generate yaml --from "$file" --list-variables || return
	done
}

# pinned fails for images without a version: in rendered components, in the
# rendered paths of the catalog, and in chart values, where the chart's version
# replaces a missing one. "manifests" has rendered the components.
pinned() {
	local name="[^:\$'\" ]+(:[0-9]+/[^:\$'\" ]+)?" variable='\$\{[A-Z_]+:?=[^:}]+\}' found
	found=$(grep -rnE "image: +['\"]*($name|$variable)['\"]*\$" "$scratch/components"
		grep -rnE "[a-z]Image: +['\"]*$name['\"]*\$" modules/catalogue
		grep -rnE ":latest\}?['\"]*\$" "$scratch/components" modules/catalogue)
	echo "$found"
	[[ -z $found ]]
}

# wording checks the texts of folders that were rewritten in plain English.
# providers/vsphere and the scripts of test/host have not been rewritten yet.
wording() {
	go run ./hack/prose api bootstrap cmd config controllers docs e2e hack/{*.sh,conditions,structure,testcount,tools} hostagent internal modules ovirtcsi providers templates test/{[!h]*,hostile} ./*.md
}

# structure checks the imports of the managers, and the figures of the packages.
structure() {
	go run ./hack/structure >"$scratch/structure" && return
	cat "$scratch/structure"
	return 1
}

# licenses checks all modules that are part of a manager.
licenses() {
	local tool
	tool=$(hack/tools/build.sh licenses) && "$tool" ./cmd/...
}

scripts() {
	local file
	while read -r file; do
		bash -n "$file" || return
	done < <(grep -rlE '^#!/(usr/bin/env |bin/)bash' hack .ci)
}

links() {
	local document target missing=0
	while IFS=: read -r document target; do
		target=${target#*](}
		target=${target%%[)#]*}
		[[ -z $target || $target == *://* || -e $(dirname "$document")/$target ]] && continue
		echo "$document points at $target, which does not exist"
		missing=1
	done < <(find *.md docs -name '*.md' | while read -r document; do
		# A text that looks like a link in code, such as a pattern, is not a
		# link.
		sed 's/`[^`]*`//g' "$document" | grep -oE '\]\([^)]+\)' | sed "s|^|$document:|"
	done)
	return $missing
}

check "generated files" generated
check "go.mod" tidy .
for module in hack/tools/*/ e2e/; do
	check "${module}go.mod" tidy "$module"
done
check "manifests and templates" manifests
check "versions of images" pinned
check "shell scripts" scripts
check "catalogue and facts" go test -vet=off ./modules/catalogue -run "Facts|Known|Listed"
check "links of documents" links
check "wording" wording
check "structure" structure
grep '^structure: ' "$scratch/structure"
check "licenses of dependencies" licenses
check "linters" hack/lint.sh
exit $failed
