# Parameters of the kernel, in addition to those of the host agent.
#
# @param values
#   The values by the names of the parameters.
class profile::sysctl (
  Hash[Pattern[/\A[a-z0-9_.-]+\z/], Integer] $values = {},
) {
  # The host agent's file sorts after this one, so its values win.
  file { '/etc/sysctl.d/80-puppet.conf':
    ensure  => file,
    mode    => '0644',
    content => $values.map |$name, $value| { "${name} = ${value}\n" }.join,
    notify  => Exec['apply sysctl'],
  }
  exec { 'apply sysctl':
    command     => 'sysctl --quiet --system',
    path        => ['/usr/sbin', '/sbin', '/usr/bin', '/bin'],
    refreshonly => true,
  }
}
