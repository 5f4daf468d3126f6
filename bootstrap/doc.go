// Package bootstrap renders the bootstrap data of a machine from an Input, for
// cloud-init or for Ignition.
//
// Everything that the machine is to do is in one file, the configuration of its
// host agent (package hostagent/nodeconfig): the document only writes it and
// starts the agent. So the setup is the same in both formats, and the agent
// finds the values that are known only at boot: the address and the provider
// ID.
//
// The #cloud-config document is plain: no jinja and no MIME parts, so that the
// same bytes work as VMware's guestinfo and behind the document that an oVirt
// engine prepends. It has only the keys bootcmd, write_files and runcmd, so that
// no key replaces one of an engine. The configuration is compressed: a
// hypervisor limits the size of the document.
//
// The package is pure. It uses no clients, contexts, clocks and random numbers:
// the same input always gives the same bytes.
package bootstrap
