# Imports the archives in $ARCHIVES into a fresh containerd data directory
# $DATA with the containerd of $ROOT. Runs in mount and pid namespaces of its
# own: whatever happens, no process and no mount outlives it.
mount --bind "$DATA" "$ROOT/mnt"
mount --bind "$ARCHIVES" "$ROOT/srv"
mount -t proc proc "$ROOT/proc"
mount -t tmpfs tmpfs "$ROOT/run"
mount -t tmpfs tmpfs "$ROOT/tmp"
mount --rbind /dev "$ROOT/dev"
printf 'version = 3\ndisabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]\n' >"$ROOT/tmp/config.toml"
chroot "$ROOT" /usr/bin/containerd --config /tmp/config.toml --root /mnt --state /run/containerd --log-level warn &
containerd=$!
tries=0
until chroot "$ROOT" ctr version >/dev/null 2>&1; do
	tries=$((tries + 1))
	if [ "$tries" -gt 300 ] || ! kill -0 "$containerd" 2>/dev/null; then
		echo "containerd did not come up" >&2
		exit 1
	fi
	sleep 0.1
done
for archive in "$ARCHIVES"/*.tar; do
	chroot "$ROOT" ctr --namespace k8s.io images import --snapshotter overlayfs "/srv/${archive##*/}"
done
kill "$containerd"
wait "$containerd" || true
