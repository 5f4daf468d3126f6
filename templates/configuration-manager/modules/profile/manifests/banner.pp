# The text that users see when they sign in.
class profile::banner {
  file { '/etc/motd':
    ensure  => file,
    mode    => '0644',
    content => epp('profile/motd.epp', {
      'cluster' => $trusted['extensions']['pp_cluster'],
      'role'    => $trusted['extensions']['pp_role'],
    }),
  }
}
