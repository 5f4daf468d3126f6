# What nova-bootstrap may do: sign the requests of nodes that it has approved, sign for
# its own users and for machines that join, and hand out the secret IDs of machines that
# initialize a cluster, wrapped.
path "MOUNT_PATH/+/+/roles/+" {
  capabilities = ["read"]
}

path "MOUNT_PATH/+/+/sign/+" {
  capabilities = ["create", "update"]
}

# The kubeconfig is nova-control-plane's.
path "MOUNT_PATH/+/kubernetes/sign/administrator" {
  capabilities = ["deny"]
}

path "auth/NODES_AUTH_PATH/role/+/role-id" {
  capabilities = ["read"]
}

path "auth/NODES_AUTH_PATH/role/+/secret-id" {
  capabilities     = ["create", "update"]
  min_wrapping_ttl = "1s"
  max_wrapping_ttl = "24h"
}
