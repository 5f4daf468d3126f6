# rpc sends a command to the VMware host.
rpc() {
  if command -v vmware-rpctool >/dev/null; then
    vmware-rpctool "$1"
  else
    vmtoolsd --cmd "$1"
  fi
}

# report_vmware sets a guestinfo setting of the VM.
report_vmware() {
  rpc "info-set guestinfo.nova.report $1"
}

# clear_guestinfo clears the bootstrap data in the settings of a VMware VM. The
# manager removes the setting later, and vCenter writes the old value of a
# removed setting into its events. A change by the guest creates no event. A
# failure does not stop the script.
clear_guestinfo() (
  set +e
  case $(dmi sys_vendor) in
  VMware*) ;;
  *) return 0 ;;
  esac
  for key in guestinfo.userdata guestinfo.ignition.config.data; do
    [ -n "$(rpc "info-get $key" 2>/dev/null)" ] || continue
    rpc "info-set $key ---"
    rpc "info-set $key.encoding "
  done >/dev/null 2>&1
  return 0
)
