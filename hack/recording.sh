#!/usr/bin/env bash
# Records a real run of a command in a terminal:
#
#   hack/recording.sh NAME COMMAND
#
# docs/NAME.cast is the recording in the format asciicast v2, with the real
# times; asciinema plays it. docs/NAME.svg is an animation of it for the README,
# SPEED times as fast (4). If the command fails, nothing is written.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if (($# != 2)); then
	echo "recording.sh: want the name of the recording and the command" >&2
	exit 2
fi
name=$1 command=$2
# A larger image makes the README slow.
limit=$((300 * 1024))

. "$here/ensure-go.sh"
"$here/ensure-packages.sh" termtosvg script=bsdutils
cd "$here/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/run" <<-END
	#!/usr/bin/env bash
	printf '\033[1m$ %s\033[0m\n' '$command'
	$command
	echo \$? >'$work/code'
END
chmod +x "$work/run"
# termtosvg records only if it runs in a terminal, and does not return the exit
# code of the command.
script --quiet --command "termtosvg record $work/cast --screen-geometry 118x32 --command $work/run" /dev/null </dev/null
if [[ $(cat "$work/code") != 0 ]]; then
	echo "recording.sh: $command failed" >&2
	exit 1
fi

# The name of the user's home directory is of no use to a reader.
sed -i "s#$HOME/#~/#g" "$work/cast"
go run ./hack/recording "$command" 1 <"$work/cast" >"$work/real"
go run ./hack/recording "$command" "${SPEED:-4}" <"$work/cast" >"$work/fast"
termtosvg render "$work/fast" "$work/svg" --template gjm8 \
	--min-frame-duration 250 --max-frame-duration 2000 --loop-delay 8000 2>/dev/null
# Not every viewer of SVG reads the style that keeps spaces.
sed -i 's/<svg id="screen"/& xml:space="preserve"/' "$work/svg"
size=$(stat -c %s "$work/svg")
if ((size > limit)); then
	echo "recording.sh: the animation has $size bytes, more than $limit: raise SPEED" >&2
	exit 1
fi
install -m 644 "$work/real" "docs/$name.cast"
install -m 644 "$work/svg" "docs/$name.svg"
echo "recording: docs/$name.cast $(stat -c %s "docs/$name.cast") bytes, docs/$name.svg $size bytes"
