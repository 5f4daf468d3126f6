# What nova-control-plane may do: make the engines, CAs and roles of clusters, and sign
# for its own users and for kubeconfigs. It may write no policies, and no role of nodes
# with another policy than nova-node.
path "sys/mounts/MOUNT_PATH/+/kubernetes" {
  capabilities       = ["create", "update"]
  allowed_parameters = { "type" = ["pki"], "description" = [], "config" = [] }
}

path "sys/mounts/MOUNT_PATH/+/etcd" {
  capabilities       = ["create", "update"]
  allowed_parameters = { "type" = ["pki"], "description" = [], "config" = [] }
}

path "sys/mounts/MOUNT_PATH/+/front-proxy" {
  capabilities       = ["create", "update"]
  allowed_parameters = { "type" = ["pki"], "description" = [], "config" = [] }
}

# The key of a CA is made in the engine, and never leaves it.
path "MOUNT_PATH/+/+/root/generate/internal" {
  capabilities = ["create", "update"]
}

# A rotation makes a second CA in the engine, lets it sign, and removes the first one. The
# key of a CA that was removed stays in the engine: only an administrator can delete it.
path "MOUNT_PATH/+/+/root/rotate/internal" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/+/+/issuers" {
  capabilities = ["list"]
}

path "MOUNT_PATH/+/+/issuer/+" {
  capabilities = ["read", "delete"]
}

path "MOUNT_PATH/+/+/config/issuers" {
  capabilities       = ["read", "create", "update"]
  allowed_parameters = { "default" = [] }
}

# While both sign, programs that know only the former CA need a certificate of the new one
# that the former one has signed. It can sign no other CA.
path "MOUNT_PATH/+/kubernetes/intermediate/cross-sign" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/+/kubernetes/issuer/+/sign-intermediate" {
  capabilities        = ["create", "update"]
  required_parameters = ["max_path_length"]
  allowed_parameters = {
    "common_name"          = ["kubernetes"]
    "exclude_cn_from_sans" = []
    "csr"                  = []
    "format"               = []
    "max_path_length"      = ["0"]
    "not_before_duration"  = []
    "ttl"                  = []
  }
}

path "MOUNT_PATH/+/+/roles/+" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/+/kubernetes/sign/managers" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/+/kubernetes/sign/permissions" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/+/kubernetes/sign/administrator" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/+/etcd/sign/etcd-managers" {
  capabilities = ["create", "update"]
}

path "auth/NODES_AUTH_PATH/role/+" {
  capabilities        = ["create", "update"]
  required_parameters = ["token_policies"]
  allowed_parameters = {
    "token_policies"          = ["nova-node"]
    "token_no_default_policy" = []
    "token_type"              = []
    "token_ttl"               = []
    "token_max_ttl"           = []
    "token_num_uses"          = []
    "secret_id_num_uses"      = []
    "bind_secret_id"          = []
  }
}
