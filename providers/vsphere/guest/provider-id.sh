# The first bytes of product_uuid are swapped from virtual hardware 13 on.
# The serial number always has vCenter's byte order.
hex=$(dmi product_serial | sed -n 's/^VMware-//p' | tr -d ' -' | tr 'A-F' 'a-f')
if [ "${#hex}" -eq 32 ]; then
  uuid=$(printf '%s' "$hex" | sed 's/^\(.\{8\}\)\(.\{4\}\)\(.\{4\}\)\(.\{4\}\)/\1-\2-\3-\4-/')
fi
