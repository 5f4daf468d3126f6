# Restores an etcd snapshot, so that kubeadm init starts with its data. Runs as
# the last command before kubeadm.
set -eu

restore=/run/nova/restore
# Sets DATA_DIR, SNAPSHOT and SHA256.
. "$restore/settings"

work=$DATA_DIR/.nova-restore
image_dir=$restore/image

die() {
  echo "Restoring etcd: $*"
  exit 1
}

# find_etcd sets ETCD to the etcd of the image that kubeadm will run: another
# version could write data that it cannot read. It sets ETCDUTL to the node's
# own etcdutl, or to that of the image.
find_etcd() {
  image=$(kubeadm config images list --config "$restore/cluster.yaml" | grep '/etcd:') || die "kubeadm lists no etcd image"
  # kubeadm pulls it through containerd's mirrors and credentials.
  if [ -z "$(ctr --namespace k8s.io images list --quiet "name==$image")" ]; then
    kubeadm config images pull --config "$restore/cluster.yaml" || die "image $image cannot be pulled"
  fi
  mkdir -p "$image_dir"
  ctr --namespace k8s.io images mount "$image" "$image_dir" >/dev/null || die "image $image cannot be mounted"
  ETCD=$image_dir/usr/local/bin/etcd
  ETCDUTL=$(command -v etcdutl) || ETCDUTL=$image_dir/usr/local/bin/etcdutl
  [ -x "$ETCDUTL" ] || die "image $image has no etcdutl"
}

# etcd_alarm calls the alarm API of the restored etcd, over a socket that only
# root can open. The image may have no etcdctl.
etcd_alarm() {
  (cd "$work" && curl --silent --show-error --fail --noproxy '*' --max-time 60 --unix-socket client:0 \
    --data "$1" http://localhost/v3/maintenance/alarm)
}

# stop ends the restored etcd.
stop() {
  kill "$pid" 2>/dev/null || true
  wait "$pid" || true
}

# disarm clears the alarms of the snapshot: the members that raised them no
# longer exist, and etcd rejects all writes while an alarm is raised, also those
# of kubeadm. etcd raises an alarm again if the reason persists.
disarm() {
  if [ ! -x "$ETCD" ]; then
    echo "Image $image has no etcd at the usual path: alarms of the snapshot are not disarmed"
    return
  fi
  (cd "$work" && exec "$ETCD" --data-dir restored --name "$NODE_NAME" --log-level warn \
    --listen-client-urls unix://client:0 --advertise-client-urls unix://client:0 --listen-peer-urls unix://peer:0) \
    >"$work/etcd.log" 2>&1 &
  pid=$!
  # etcd needs long to load large data.
  left=600
  until raised=$(etcd_alarm '{"action":"GET"}' 2>"$work/alarm.log"); do
    left=$((left - 1))
    if [ "$left" -eq 0 ] || ! kill -0 "$pid" 2>/dev/null; then
      stop
      cat "$work/alarm.log"
      tail -n 20 "$work/etcd.log"
      die "etcd does not start with the restored data"
    fi
    sleep 1
  done
  # Each alarm is one word such as "memberID":"123","alarm":"NOSPACE".
  for alarm in $(echo "$raised" | tr -d ' \n' | tr '{}' '\n\n' | grep '"alarm":"'); do
    echo "Disarming an alarm of the snapshot: $alarm"
    etcd_alarm '{"action":"DEACTIVATE",'"$alarm"'}' >/dev/null || { stop; die "the alarm cannot be disarmed"; }
  done
  stop
}

[ ! -e "$DATA_DIR/member" ] || die "$DATA_DIR already contains an etcd member"
mkdir -p "$DATA_DIR"
chmod 700 "$DATA_DIR"
# On the disk that etcd will use: it may not fit elsewhere.
rm -rf "$work"
mkdir -m 700 "$work"

echo "Downloading snapshot $SNAPSHOT"
if [ -r /etc/nova/proxy.env ]; then
  set -a
  . /etc/nova/proxy.env
  set +a
fi
# The URL is a temporary secret, so it is not in the command line.
curl --config "$restore/curl" --output "$work/snapshot.db" || die "snapshot $SNAPSHOT cannot be downloaded"
echo "$SHA256  $work/snapshot.db" | sha256sum --check --status || die "the SHA-256 of snapshot $SNAPSHOT differs from that of the verified snapshot"

find_etcd
# The member name and peer URL that kubeadm uses.
address=${NODE_IP%%,*}
case $address in
*:*) address="[$address]" ;;
esac
# Revisions continue far above all earlier ones, and watchers must list again: a
# client never mistakes new data for data in its cache.
"$ETCDUTL" snapshot restore "$work/snapshot.db" --data-dir "$work/restored" \
  --name "$NODE_NAME" --initial-cluster "$NODE_NAME=https://$address:2380" \
  --initial-advertise-peer-urls "https://$address:2380" \
  --bump-revision 1000000000 --mark-compacted || die "etcdutl failed"
disarm
mv "$work/restored/member" "$DATA_DIR/member"
rm -rf "$work"
if [ -d "$image_dir" ]; then
  ctr --namespace k8s.io images unmount --rm "$image_dir" >/dev/null || true
fi
rm -rf "$restore"
echo "Restored snapshot $SNAPSHOT"
