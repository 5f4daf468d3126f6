# Tells the hypervisor that this machine was started anew while it was being
# made a node: nobody goes on with that. It has no credentials.
set -u

dir=/run/nova
kept=/var/lib/nova
booting=$kept/booting
log=/var/log/nova-bootstrap.log
kubernetes=/etc/kubernetes
unit=nova-restarted.service

. $booting/report.sh

# Who was told all of it once more goes on by himself, be it since cloud-init
# takes each boot for the first, or since the kernel wanted to be started anew.
[ ! -e $dir/bootstrap.sh ] || exit 0
if [ -e $kept/first-boot ] && systemctl is-enabled --quiet nova-bootstrap.service; then
  exit 0
fi

stage=$(cat $booting/stage)
# A kubelet that has its certificate makes a worker a node without kubeadm.
if [ "$stage" = joining ] && [ -e $kubernetes/kubelet.conf ] && systemctl is-enabled --quiet kubelet.service; then
  stage=unfinished
fi
case $stage in
unfinished) report unfinished "The machine was started anew before all was done" ;;
*)
  # Nobody counts on what is told to have failed: its kubelet would go on.
  if [ ! -e $kubernetes/kubelet.conf ]; then
    systemctl --quiet disable --now kubelet.service
    rm -f $kubernetes/bootstrap-kubelet.conf
  fi
  report failed "The machine was started anew before it was a node"
  ;;
esac
systemctl --quiet disable $unit
rm -rf $booting $kept/first-boot /etc/systemd/system/$unit
