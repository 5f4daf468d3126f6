# A node for the modules of the platform.
class role::infra {
  include profile::sysctl
}
