# Sign-in by SSH: keys only.
class profile::ssh {
  file { '/etc/ssh/sshd_config.d':
    ensure => directory,
    mode   => '0755',
  }
  file { '/etc/ssh/sshd_config.d/50-puppet.conf':
    ensure  => file,
    mode    => '0600',
    content => "PasswordAuthentication no\nPermitRootLogin prohibit-password\nX11Forwarding no\n",
    notify  => Exec['reload sshd'],
  }
  exec { 'reload sshd':
    command     => 'systemctl try-reload-or-restart ssh.service sshd.service',
    path        => ['/usr/bin', '/bin'],
    refreshonly => true,
  }
}
