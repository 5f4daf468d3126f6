# Functions that tell the hypervisor how far this machine's first boot is. It
# is read by bootstrap.sh and restarted.sh. What is told can be seen by whoever may see the VM,
# so no credentials are in it.

# dmi prints a field of the machine's DMI, or nothing.
dmi() {
  cat "/sys/class/dmi/id/$1" 2>/dev/null || true
}

# scrub leaves out of a log what looks like a credential, and what is no text.
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

# last_lines prints the last lines of the log on one line, in at most so many
# characters.
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

# report tells a stage (running, retrying, failed, or unfinished after kubeadm)
# and a step. What failed is told with the end of the log; done takes back what was told. That the
# hypervisor cannot be told stops nothing.
report() (
  set +e
  # What ends because the machine starts once more has not failed.
  [ ! -e "$dir/restarting" ] || return 0
  case $(dmi sys_vendor) in
  VMware*) most=1800 tell=tell_vmware ;;
  oVirt* | zVirt* | "Red Hat"* | RHEV*) most=230 tell=tell_ovirt ;;
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
  $tell "$text" >/dev/null 2>&1
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

# tell_vmware sets a setting of the VM.
tell_vmware() {
  rpc "info-set guestinfo.nova.report $1"
}

# clear_guestinfo clears the bootstrap data in the settings of a VMware VM. The
# manager removes it later, and vCenter writes the old value of a removed setting
# into its events. A change by the guest is no event. A failure stops nothing.
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

# tell_ovirt writes to where the guest's agent reads what variant of its system
# this is, the only text of ours that it passes on and an engine shows.
tell_ovirt() {
  release=/etc/os-release
  kept=/etc/os-release.nova
  if [ -z "$1" ]; then
    # A link is there though what it points at may be another's.
    if [ -e $kept ] || [ -L $kept ]; then
      mv -f $kept $release
    fi
    return
  fi
  [ -e $kept ] || [ -L $kept ] || cp -a $release $kept
  # What a shell would take for its own cannot stand between double quotes.
  { grep -v '^VARIANT=' $kept; printf 'VARIANT="%s"\n' "$(printf %s "$1" | tr '"\\$`' "'/''")"; } >$release.new
  chmod 644 $release.new
  mv -f $release.new $release
}
