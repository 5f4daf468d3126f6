# Limits of the journal.
#
# @param max_use
#   The disk space of the journal, with the unit of journald.
class profile::journal (
  Pattern[/\A[1-9][0-9]*[KMGT]\z/] $max_use,
) {
  file { '/etc/systemd/journald.conf.d':
    ensure => directory,
    mode   => '0755',
  }
  file { '/etc/systemd/journald.conf.d/50-puppet.conf':
    ensure  => file,
    mode    => '0644',
    content => "[Journal]\nSystemMaxUse=${max_use}\n",
    notify  => Exec['restart journald'],
  }
  exec { 'restart journald':
    command     => 'systemctl try-restart systemd-journald.service',
    path        => ['/usr/bin', '/bin'],
    refreshonly => true,
  }
}
