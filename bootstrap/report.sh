# Functions that report the progress of the first boot to the hypervisor.
# bootstrap.sh and restarted.sh source this file. Every user who can see the VM
# can read the report, so it contains no credentials.

# dmi prints a field of the machine's DMI, or nothing.
dmi() {
  cat "/sys/class/dmi/id/$1" 2>/dev/null || true
}

# scrub removes credentials and binary data from a log.
scrub() {
  tr -cd '\11\12\40-\176' | sed -E \
    -e '/-----BEGIN [A-Z ]+-----/,/-----END [A-Z ]+-----/d' \
    -e 's/^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z //' \
    -e 's/^[IWEF][0-9]{4} [0-9:.]+ +[0-9]+ [^ ]+\] //' \
    -e 's/((bearer|basic) +)[a-z0-9._~+\/=-]{8,}/\1***/gI' \
    -e 's/eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]+/***/g' \
    -e 's/\b[a-z0-9]{6}\.[a-z0-9]{16}\b/***/g' \
    -e 's#://[^/@ ]+@#://***@#g' \
    -e "s/((password|passwd|passphrase|token|secret|credentials?|api-?_?key|certificate-?_?key|client-key-data)[a-z_-]*[\"']? *[:= ] *)(\"[^\"]*\"|'[^']*'|[^ ,;|]{6,})/\1***/gI" \
    -e 's/[A-Za-z0-9+\/]{60,}={0,2}/***/g' \
    -e '/To see the stack trace of this error/d'
}

# last_lines prints the last lines of the log on one line, with at most this
# number of characters.
last_lines() {
  tail -n 200 "$log" | scrub | awk -v most="$1" '
    NF { line[++n] = $0 }
    END {
      for (i = n; i > 0 && n - i < 10; i--) {
        text = substr(line[i], 1, most)
        if (out != "" && length(out) + length(text) + 3 > most) break
        out = out == "" ? text : text " | " out
      }
      print out
    }'
}

# report reports a stage (running, retrying, failed, or unfinished after
# kubeadm) and a step. A failure is reported with the end of the log; done
# clears the report. A failure to report does not stop the script.
report() (
  set +e
  # A script that ends because the machine reboots has not failed.
  [ ! -e "$dir/restarting" ] || return 0
  case $(dmi sys_vendor) in
  VMware*) most=1800 send=report_vmware ;;
  oVirt* | zVirt* | "Red Hat"* | RHEV*) most=230 send=report_ovirt ;;
  Proxmox*) most=1000 send=report_ovirt ;;
  *) return 0 ;;
  esac
  text=
  if [ "$1" != done ]; then
    text=$(printf 'nova: %s: %s' "$1" "$2" | scrub | cut -c "1-$most")
    if [ "$1" != running ]; then
      left=$((most - ${#text} - 4))
      [ "$left" -lt 20 ] || text="$text || $(last_lines "$left")"
    fi
  fi
  $send "$text" >/dev/null 2>&1
  return 0
)

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

# report_ovirt writes the report to the system variant in os-release: it is the
# only field of ours that the guest agent reports and an engine shows.
report_ovirt() {
  release=/etc/os-release
  kept=/etc/os-release.nova
  if [ -z "$1" ]; then
    # A link exists even if its target does not.
    if [ -e $kept ] || [ -L $kept ]; then
      mv -f $kept $release
    fi
    return
  fi
  [ -e $kept ] || [ -L $kept ] || cp -a $release $kept
  # Characters that are special for a shell must not be between double quotes.
  { grep -v '^VARIANT=' $kept; printf 'VARIANT="%s"\n' "$(printf %s "$1" | tr '"\\$`' "'/''")"; } >$release.new
  chmod 644 $release.new
  mv -f $release.new $release
}
