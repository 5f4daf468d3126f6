// Package puppet runs a real Puppet server for tests, with a CA of its own, the
// autosign policy nova-autosign and an environment. It needs Debian's puppetserver,
// and root, because the server runs as the user puppet.
package puppet
