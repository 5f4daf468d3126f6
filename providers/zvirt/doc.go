// Package zvirt drives zVirt and oVirt engines for controllers/machine and
// controllers/cluster.
//
// There is one session for each engine and identity. One list every nine
// seconds serves all machines of it; VMs that are worked on are looked at more
// often, many with one request (ovirt.Mirror). Observe reads what these have
// brought and sends nothing at rest.
//
// A VM is one POST that carries its hardware, placement, disks, first-boot
// document and mark. What a POST cannot carry is settled before the first boot,
// a request a step: interfaces, the growth of disks, data disks, affinity. Each
// step follows from what is observed, so a manager may be killed anywhere.
//
// A VM is ours when its comment holds the mark derived from its cluster and
// machine, and it has the machine's name or provider ID. Any other VM is never
// touched. A disk is ours when its name ends as our names do; any other is
// detached and kept when its VM goes.
//
// The package refuses to decide, to wait for the engine's work, and to read
// Secrets anywhere but in connect.go.
package zvirt
