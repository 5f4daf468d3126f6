# A node that receives the requests of clients.
class role::ingress {
  include profile::sysctl
}
