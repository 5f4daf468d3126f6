# Reports to the hypervisor that this machine was restarted during its
# bootstrap, which nothing continues. It contains no credentials.
set -u

dir=/run/nova
kept=/var/lib/nova
booting=$kept/booting
log=/var/log/nova-bootstrap.log
kubernetes=/etc/kubernetes
unit=nova-restarted.service

. $booting/report.sh

# The bootstrap starts again if its data is present: cloud-init may treat each
# boot as the first, or the script has rebooted the machine for kernel
# arguments.
[ ! -e $dir/bootstrap.sh ] || exit 0
if [ -e $kept/first-boot ] && systemctl is-enabled --quiet nova-bootstrap.service; then
  exit 0
fi

stage=$(cat $booting/stage)
# A kubelet with a certificate makes a worker a node without kubeadm.
if [ "$stage" = joining ] && [ -e $kubernetes/kubelet.conf ] && systemctl is-enabled --quiet kubelet.service; then
  stage=unfinished
fi
case $stage in
unfinished) report unfinished "The machine was restarted before its first boot was complete" ;;
*)
  # The machine is reported as failed, so its kubelet must not continue.
  if [ ! -e $kubernetes/kubelet.conf ]; then
    systemctl --quiet disable --now kubelet.service
    rm -f $kubernetes/bootstrap-kubelet.conf
  fi
  report failed "The machine was restarted before it became a node"
  ;;
esac
systemctl --quiet disable $unit
rm -rf $booting $kept/first-boot /etc/systemd/system/$unit
