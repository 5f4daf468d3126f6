# Restores a snapshot of etcd, so that kubeadm init finds etcd's data and goes
# on from it. Runs as the last command before kubeadm.
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

# find_etcd sets ETCD, which is in the image that kubeadm will run: another
# version could leave what that one does not read. It sets ETCDUTL to the node's
# own, or to the one in the image.
find_etcd() {
  image=$(kubeadm config images list --config "$restore/cluster.yaml" | grep '/etcd:') || die "kubeadm names no image of etcd"
  # Pulled by kubeadm, which goes through containerd's mirrors and logins.
  if [ -z "$(ctr --namespace k8s.io images list --quiet "name==$image")" ]; then
    kubeadm config images pull --config "$restore/cluster.yaml" || die "image $image cannot be pulled"
  fi
  mkdir -p "$image_dir"
  ctr --namespace k8s.io images mount "$image" "$image_dir" >/dev/null || die "image $image cannot be mounted"
  ETCD=$image_dir/usr/local/bin/etcd
  ETCDUTL=$(command -v etcdutl) || ETCDUTL=$image_dir/usr/local/bin/etcdutl
  [ -x "$ETCDUTL" ] || die "image $image has no etcdutl"
}

# ask asks the restored etcd about alarms, over a socket that nobody else may
# open. Its image may have no etcdctl.
ask() {
  (cd "$work" && curl --silent --show-error --fail --noproxy '*' --max-time 60 --unix-socket client:0 \
    --data "$1" http://localhost/v3/maintenance/alarm)
}

# stop ends the restored etcd.
stop() {
  kill "$pid" 2>/dev/null || true
  wait "$pid" || true
}

# disarm takes back the alarms that came with the snapshot: the members that
# they were raised for are no more, and etcd would take no writes, not even
# kubeadm's. It raises its own again if it still has reason to.
disarm() {
  if [ ! -x "$ETCD" ]; then
    echo "Image $image has no etcd at its usual place: alarms of the snapshot, if there are any, stay"
    return
  fi
  (cd "$work" && exec "$ETCD" --data-dir restored --name "$NODE_NAME" --log-level warn \
    --listen-client-urls unix://client:0 --advertise-client-urls unix://client:0 --listen-peer-urls unix://peer:0) \
    >"$work/etcd.log" 2>&1 &
  pid=$!
  # What is large takes long to be read.
  left=600
  until raised=$(ask '{"action":"GET"}' 2>"$work/ask.log"); do
    left=$((left - 1))
    if [ "$left" -eq 0 ] || ! kill -0 "$pid" 2>/dev/null; then
      stop
      cat "$work/ask.log"
      tail -n 20 "$work/etcd.log"
      die "etcd does not start with what was restored"
    fi
    sleep 1
  done
  # Each alarm is a word like "memberID":"123","alarm":"NOSPACE".
  for alarm in $(echo "$raised" | tr -d ' \n' | tr '{}' '\n\n' | grep '"alarm":"'); do
    echo "Taking back an alarm of the snapshot: $alarm"
    ask '{"action":"DEACTIVATE",'"$alarm"'}' >/dev/null || { stop; die "the alarm cannot be taken back"; }
  done
  stop
}

[ ! -e "$DATA_DIR/member" ] || die "$DATA_DIR holds a member of etcd already"
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
# The URL is a secret for a while, so it is not in the command line.
curl --config "$restore/curl" --output "$work/snapshot.db" || die "snapshot $SNAPSHOT cannot be downloaded"
echo "$SHA256  $work/snapshot.db" | sha256sum --check --status || die "snapshot $SNAPSHOT is not what was verified: its hash differs"

find_etcd
# As kubeadm names the member and its peer.
address=${NODE_IP%%,*}
case $address in
*:*) address="[$address]" ;;
esac
# Revisions go on far behind those that were ever given out, and everybody who
# watches is told to list anew: nobody takes what comes now for what he knows.
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
