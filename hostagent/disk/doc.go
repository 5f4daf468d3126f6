// Package disk lets a file system use the space that its disk got while the machine
// ran: it extends the partition and then the file system, as cloud-init does on a first
// boot. Logical volumes are not extended.
package disk
