// Package apply applies objects by server-side apply and sends no request while
// nothing has changed.
//
// It does not depend on the kind of object, and it does not read: the caller
// passes the observed object.
package apply
