# What the machine that initializes a cluster may do: have the certificates of a control
# plane machine signed, by the engines of its own cluster. The name of its role at the
# auth method is the cluster's.
path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/kubernetes/sign/apiserver" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/kubernetes/sign/apiserver-kubelet-client" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/kubernetes/sign/admin" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/kubernetes/sign/super-admin" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/kubernetes/sign/controller-manager" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/kubernetes/sign/scheduler" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/kubernetes/sign/kubelet-client" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/etcd/sign/etcd-server" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/etcd/sign/etcd-peer" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/etcd/sign/etcd-healthcheck-client" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/etcd/sign/apiserver-etcd-client" {
  capabilities = ["create", "update"]
}

path "MOUNT_PATH/{{identity.entity.aliases.NODES_ACCESSOR.metadata.role_name}}/front-proxy/sign/front-proxy-client" {
  capabilities = ["create", "update"]
}
