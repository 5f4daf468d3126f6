# The data of a role lists its class. Without it, a node would get the common classes
# only.
unless $trusted['extensions']['pp_role'] in ['control-plane', 'infra', 'ingress', 'worker'] {
  fail("node ${trusted['certname']} has no role that this repository knows")
}

lookup('classes', Array[String[1]], 'unique').include
