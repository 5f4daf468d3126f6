# Makes the files that the platform's settings left on this machine count. Runs
# before the commands of the NovaConfig.
set -eu

nova=/etc/nova
containerd=/etc/containerd

# trust puts the authorities into the system's store.
trust() {
  for store in /usr/local/share/ca-certificates:update-ca-certificates /etc/pki/ca-trust/source/anchors:update-ca-trust /etc/pki/trust/anchors:update-ca-certificates; do
    command -v "${store#*:}" >/dev/null && [ -d "$(dirname "${store%%:*}")" ] || continue
    mkdir -p "${store%%:*}"
    cp $nova/ca/*.crt "${store%%:*}/"
    "${store#*:}" && return 0
    echo "the system's store does not take the authorities" >&2
    return 1
  done
  echo "no store of authorities is known on this system" >&2
  return 1
}

# look_into_certs_d has containerd look into the folder with the mirrors. Newer
# ones do by themselves, unless their configuration says otherwise.
look_into_certs_d() {
  config=$containerd/config.toml
  if [ ! -e "$config" ]; then
    ! containerd --version | grep -q ' v*2\.' || return 0
    printf 'version = 2\n' >"$config"
  fi
  ! grep -q '^ *config_path *= *.*certs\.d' "$config" || return 0
  plugin=io.containerd.grpc.v1.cri
  ! grep -q '^ *version *= *3' "$config" || plugin=io.containerd.cri.v1.images
  sed '/^ *\[.*\.registry\] *$/,/^ *\[/{/^ *config_path *=/d;}' "$config" >"$config.new"
  if grep -q '^ *\[.*\.registry\] *$' "$config.new"; then
    sed 's|^ *\[.*\.registry\] *$|&\n  config_path = "/etc/containerd/certs.d"|' "$config.new" >"$config"
  else
    printf '\n[plugins."%s".registry]\n  config_path = "/etc/containerd/certs.d"\n' "$plugin" >>"$config"
  fi
  rm -f "$config.new"
}

# follow_clocks tells whichever program sets the clock.
follow_clocks() {
  if command -v chronyd >/dev/null; then
    file=/etc/chrony.conf
    [ -e "$file" ] || file=/etc/chrony/chrony.conf
    sed -i '/^ *\(pool\|server\|sourcedir\) /d' "$file"
    sed 's/.*/server & iburst/' $nova/ntp >>"$file"
    systemctl restart chronyd || systemctl restart chrony
  else
    mkdir -p /etc/systemd/timesyncd.conf.d
    printf '[Time]\nNTP=%s\n' "$(tr '\n' ' ' <$nova/ntp)" >/etc/systemd/timesyncd.conf.d/90-nova.conf
    systemctl restart systemd-timesyncd
  fi
}

if [ -e $nova/proxy.env ]; then
  sed -i "s|__NOVA_NODE_IP__|$NODE_IP|g" $nova/proxy.env
  systemctl daemon-reload
fi
if [ -e $nova/ca ]; then
  trust || exit 1
fi
if [ -e $nova/mirrors ]; then
  look_into_certs_d
fi
if [ -e $nova/ntp ]; then
  follow_clocks || echo "no program that sets the clock is known on this system" >&2
fi
if [ -e $nova/proxy.env ] || [ -e $nova/ca ] || [ -e $nova/mirrors ]; then
  systemctl restart containerd
fi
