#!/bin/sh
# Prepares a StarVault for the clusters of Nova Container Platform: policies, the auth
# method of nodes, and the roles of the managers at the auth method approle.
#
#   VAULT_ADDR=https://vault.example.com VAULT_TOKEN=... ./starvault-setup.sh
#
# CLI is the command line of the vault. MOUNT_PATH, NODES_AUTH_PATH and AUTH_PATH are
# those of the NovaStarVaultIdentity. It can be run again.
set -eu

cli=${CLI:-vault}
mount_path=${MOUNT_PATH:-nova}
nodes=${NODES_AUTH_PATH:-nova-nodes}
auth=${AUTH_PATH:-approle}
here=$(cd "$(dirname "$0")" && pwd)

enable() {
	"$cli" read -field=accessor "sys/auth/$1" 2>/dev/null || {
		"$cli" auth enable -path="$1" approle >&2
		"$cli" read -field=accessor "sys/auth/$1"
	}
}

accessor=$(enable "$nodes")
enable "$auth" >/dev/null
for policy in nova-control-plane nova-bootstrap nova-node; do
	sed -e "s|NODES_AUTH_PATH|$nodes|g; s|NODES_ACCESSOR|$accessor|g; s|MOUNT_PATH|$mount_path|g" "$here/$policy.hcl" |
		"$cli" policy write "$policy" -
done
for manager in nova-control-plane nova-bootstrap; do
	"$cli" write "auth/$auth/role/$manager" token_policies="$manager" token_no_default_policy=true token_ttl=1h token_max_ttl=24h
done
