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

# find_etcdutl sets ETCDUTL: the node's own, or the one in the image of etcd
# that kubeadm will run.
find_etcdutl() {
  if ETCDUTL=$(command -v etcdutl); then
    return
  fi
  image=$(kubeadm config images list --config "$restore/cluster.yaml" | grep '/etcd:') || die "kubeadm names no image of etcd"
  # Pulled by kubeadm, which goes through containerd's mirrors and logins.
  if [ -z "$(ctr --namespace k8s.io images list --quiet "name==$image")" ]; then
    kubeadm config images pull --config "$restore/cluster.yaml" || die "image $image cannot be pulled"
  fi
  mkdir -p "$image_dir"
  ctr --namespace k8s.io images mount "$image" "$image_dir" >/dev/null || die "image $image cannot be mounted"
  ETCDUTL=$image_dir/usr/local/bin/etcdutl
  [ -x "$ETCDUTL" ] || die "image $image has no etcdutl"
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

find_etcdutl
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
mv "$work/restored/member" "$DATA_DIR/member"
rm -rf "$work"
if [ -d "$image_dir" ]; then
  ctr --namespace k8s.io images unmount --rm "$image_dir" >/dev/null || true
fi
rm -rf "$restore"
echo "Restored snapshot $SNAPSHOT"
