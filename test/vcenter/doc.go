// Package vcenter runs a vCenter for tests: govmomi's simulator behind its own
// TLS server, with fixes for the known bugs of the simulator.
//
// Differences from the bare simulator:
//
//   - A request that does not match the API is rejected before it has an effect:
//     an unknown version or property, a reference without a type, an abstract
//     device, a property that is missing or newer than the server. The check
//     is generic; Violations lists the rejected requests.
//   - Administrators create users of Single Sign-On, who can log in, and upload
//     the disks of OVAs.
//   - A role limits the account to its privileges, as the reference of the API
//     documents them.
//   - Hosts fail and enter maintenance. HA and DRS obey anti-affinity rules.
//   - Updates, and the data of guests, are late by option.
//   - Each host and datastore runs a limited number of clones at the same time. The
//     tasks of further clones stay queued.
//   - Tasks that have ended are listed for 10 minutes, 1,000 of them at most.
//   - CloneVM_Task applies the clone spec's config and powerOn, gives every
//     clone its own UUIDs and MAC addresses, and checks space and references.
//   - Tasks are visible while they run, have the duration that Delays sets, end
//     with the messages of vCenter, and reject a second task on a busy VM.
//   - The property collector is a new implementation: it compares the state that a
//     client has received with the current state, so no change is lost, a change is
//     sent at once, a repeated version gets the same response again, and a long
//     poll ends when its client disconnects.
//   - Power operations are passed on to Guests, so that real hosts boot; guests
//     report their addresses.
//   - Rules of a cluster obey vCenter's conditions, are never changed in place,
//     and no longer contain VMs that were deleted.
//   - Destroying a VM deletes every disk that is attached or in a snapshot, on any
//     datastore, and no other disk. A first-class disk in a snapshot cannot be
//     detached, and no disk can be detached from a suspended VM.
//   - VMs are migrated, registered again, copied with their UUIDs, disconnected
//     with their host, and hidden from the account.
//   - Requests are counted. Faults, outages and expired sessions can be set on
//     demand, also from another process (Control).
//
// One lock protects the inventory: every call except a long poll holds it, so
// no request reads an incomplete VM. The locks of the simulator itself are
// unchanged.
//
// A guest sees its BIOS UUID in DMI unchanged, in product_uuid as well as in
// product_serial. A real VMware VM of hardware version 13 or newer shows the
// first three groups of product_uuid with swapped bytes; only product_serial is
// the same everywhere. Code that has to work on both reads product_serial
// first.
//
// The package is not an ESXi host, does not keep its inventory over a restart,
// and does not distinguish clients.
package vcenter
