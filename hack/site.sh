#!/usr/bin/env bash
# Builds the documents of this checkout as a static site with search:
#
#   hack/site.sh DIR VERSION
#
# DIR/VERSION is the site, DIR/index.html lists the versions in DIR, newest
# first. Sites of other versions in DIR stay. The site needs no server and loads
# nothing from other sites. The command fails if a page is missing in the
# navigation, or if a page links to a page that does not exist.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if (($# != 2)) || [[ ! $2 =~ ^[0-9A-Za-z][0-9A-Za-z.-]*$ ]]; then
	echo "site.sh: name a folder and a version, such as v0.1.0" >&2
	exit 2
fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)
version=$2
"$here/ensure-packages.sh" mkdocs
cd "$here/.."
# Files that are not documents are only in the repository.
source=$(sed -n 's|^module ||p' go.mod)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -R docs "$work/docs"
cp README.md "$work/docs/overview.md"
cp CHANGELOG.md "$work/docs/changelog.md"
cp CONTRIBUTING.md "$work/docs/contributing.md"
cp SECURITY.md "$work/docs/security-policy.md"
sed "s/VERSION/$version/" hack/site/mkdocs.yml >"$work/mkdocs.yml"
# Pages from the top of the repository are beside the others here.
sed -i -E 's#\]\(README\.md#](overview.md#g; s#\]\(docs/#](#g' "$work"/docs/{overview,changelog,contributing,security-policy}.md
sed -i -E 's#\]\(\.\./README\.md#](overview.md#g' "$work"/docs/*.md
find "$work/docs" -name '*.md' -print0 | xargs -0 sed -i -E \
	-e 's#\]\((\.\./)*CHANGELOG\.md#](changelog.md#g' \
	-e 's#\]\((\.\./)*CONTRIBUTING\.md#](contributing.md#g' \
	-e 's#\]\((\.\./)*SECURITY\.md#](security-policy.md#g' \
	-e "s#\]\((\.\./)*((LICENSE|config|e2e|hack|modules|templates|test)[/)][^)]*)#](https://$source/blob/$version/\2#g"

if ! mkdocs build --strict --config-file "$work/mkdocs.yml" >"$work/log" 2>&1; then
	cat "$work/log" >&2
	exit 1
fi
# Pages of a folder that are not in the navigation are reported only as a note.
if missing=$(sed -n '/not included in the "nav"/,$p' "$work/log" | grep -E '^ +- ' | grep -v ' adr/'); then
	printf 'site.sh: add to hack/site/mkdocs.yml:\n%s\n' "$missing" >&2
	exit 1
fi
rm -rf "${dir:?}/$version"
mv "$work/site" "$dir/$version"
{
	echo '<!doctype html><html lang="en"><meta charset="utf-8"><title>Cluster API providers for Nova</title>'
	echo '<h1>Cluster API providers for Nova</h1><ul>'
	find "$dir" -mindepth 2 -maxdepth 2 -name index.html -printf '%h\n' | xargs -n1 basename | sort -rV |
		sed 's#.*#<li><a href="&/index.html">&</a></li>#'
	echo '</ul></html>'
} >"$dir/index.html"
echo "site: $dir/$version"
