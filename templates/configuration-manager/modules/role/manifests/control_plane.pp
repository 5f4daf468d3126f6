# A control plane node.
class role::control_plane {
}
