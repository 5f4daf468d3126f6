// Package puppet runs a real Puppet server with the autosign policy nova-autosign
// and the sample control repository, and real agents of nodes. It runs with
// NOVA_SUITES=full, because the server takes about a minute to start.
package puppet
