// Package vcenter runs a vCenter for tests: govmomi's simulator behind a TLS
// server of our own, with the simulator's known faults mended.
//
// What differs from the bare simulator:
//
//   - A request that does not fit the API is rejected before anything is done:
//     an unknown version or property, a reference without a type, an abstract
//     device, a property that is missing or newer than the server. The check
//     is generic; Violations lists the rejected requests.
//   - A role limits the account to its privileges, as the reference of the API
//     documents them.
//   - Hosts die and enter maintenance. HA and DRS obey anti-affinity rules.
//   - Updates, and the data of guests, are late by option.
//   - Each host and datastore runs a limited number of clones at the same time. The
//     tasks of further clones stay queued.
//   - Tasks that have ended are listed for 10 minutes, 1,000 of them at most.
//   - CloneVM_Task applies the clone spec's config and powerOn, gives every
//     clone its own UUIDs and MAC addresses, and checks space and references.
//   - Tasks are visible while they run, take as long as Delays says, end with
//     the words vCenter uses, and refuse a second task on a busy VM.
//   - The property collector is ours: it compares what a client was told with
//     what is true, so no change is lost, a change arrives at once, a repeated
//     version gets the same answer again, and a long poll ends when its client
//     goes.
//   - Power operations reach Guests, so that real hosts boot; guests report
//     their addresses back.
//   - Rules of a cluster keep vCenter's conditions, are never changed in place,
//     and lose the VMs that go.
//   - Destroying a VM takes every disk that is attached or in a snapshot,
//     wherever it lies, and no other. A first-class disk in a snapshot cannot
//     be taken off, and none can off a suspended VM.
//   - VMs migrate, are registered anew, copied with their UUIDs, cut off with
//     their host, and hidden from the account.
//   - Requests are counted, and faults, outages and expired sessions can be
//     had on demand, also from another process (Control).
//
// One lock covers the inventory: every call but a long poll runs under it, so
// nobody sees a half-made VM. Locks of the simulator itself are left alone.
//
// A guest sees its BIOS UUID in DMI as it is, in product_uuid as well as in
// product_serial. A real VMware VM of hardware version 13 or newer shows the
// first three groups of product_uuid with their bytes swapped; only
// product_serial is the same everywhere. Code that has to work on both reads
// product_serial first.
//
// The package refuses to be an ESXi host, to keep its inventory over a
// restart, and to know who asks it for anything.
package vcenter
