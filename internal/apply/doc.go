// Package apply applies objects by server-side apply and sends nothing while
// nothing changed.
//
// It refuses to know what it applies and to read: the caller has observed the
// object already.
package apply
