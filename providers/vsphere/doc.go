// Package vsphere drives vCenter for controllers/machine and
// controllers/cluster.
//
// There is one session for each vCenter and identity, and it belongs to one
// goroutine, which logs in, backs off and streams changes. Observe reads what
// the stream has brought and sends nothing. A VM is one CloneVM_Task; paths
// are resolved once.
//
// A VM is ours when its instance UUID is the one derived from its cluster and
// machine. Any other VM is never touched, whatever its name.
//
// The package refuses to decide, to wait for vCenter's work, and to read
// Secrets anywhere but in connect.go.
package vsphere
