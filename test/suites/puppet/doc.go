// Package puppet runs a real Puppet server with the autosign policy nova-autosign
// and the sample control repository. Agents of nodes that do not exist get
// certificates, or are refused. A cluster on hosts gets its certificates and catalogs
// through the host agent. It runs with NOVA_SUITES=full.
package puppet
