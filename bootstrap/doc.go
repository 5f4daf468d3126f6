// Package bootstrap renders what a machine is told on its first boot: facts
// in, one #cloud-config document out.
//
// The document is plain: no jinja, no MIME parts, no compression, so that the
// same bytes work as VMware's guestinfo and behind the document that an oVirt
// engine puts in front. It has only the keys write_files and runcmd. What a
// machine can only know at boot, its address and its provider ID, the script
// in node.sh finds out.
//
// The package is pure. It refuses clients, contexts, clocks and random
// numbers: the same facts always make the same bytes.
package bootstrap
