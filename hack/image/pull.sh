#!/bin/sh
# Pulls container images into the node image in $ROOT, with its own containerd:
#
#   ROOT=FOLDER unshare --mount --propagation private hack/image/pull.sh IMAGE...
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/packages.sh"
mount -t proc proc "$ROOT/proc"
mount -t tmpfs tmpfs "$ROOT/run"
mount -t tmpfs tmpfs "$ROOT/tmp"
mount_devices
rm -f "$ROOT/etc/resolv.conf"
cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
chroot "$ROOT" containerd --log-level warn &
containerd=$!
trap 'kill $containerd; wait $containerd || true; umount "$ROOT/dev" "$ROOT/tmp" "$ROOT/run" "$ROOT/proc"; rm "$ROOT/etc/resolv.conf"' EXIT
tries=0
until chroot "$ROOT" ctr version >/dev/null 2>&1; do
	tries=$((tries + 1))
	if [ $tries -gt 60 ] || ! kill -0 $containerd 2>/dev/null; then
		echo "containerd did not come up" >&2
		exit 1
	fi
	sleep 1
done
for image; do
	chroot "$ROOT" ctr --namespace k8s.io images pull --snapshotter overlayfs "$image" >/dev/null
done
