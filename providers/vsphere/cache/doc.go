// Package cache reads the objects of a vCenter and keeps them up to date. It
// knows no machines: its stream writes to a store, which belongs to the driver.
//
// The stream has two filters of the property collector. One covers the instance
// UUID and name of every VM that the account can see, and the recent tasks. The
// other covers the power state, addresses and further properties of those VMs
// whose UUID is derived; they are in a list view. So foreign VMs cause no
// updates, and a restarted manager finds all of its own VMs with the few
// requests that open the session. From these VMs the second filter continues to
// their hosts and compute clusters, including the DRS rules.
package cache
