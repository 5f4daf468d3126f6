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
