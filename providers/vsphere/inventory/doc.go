// Package inventory has the machines that the controller has observed, and
// their VMs in the cache: it is the store of the stream. It derives the state of
// a machine's VM from the objects in the cache and from the last action of the
// machine, and queues machines whose VMs look different. It sends no requests
// except to read the settings of a compute cluster again.
package inventory
