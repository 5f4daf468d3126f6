// Package kit contains the common parts of the infrastructure providers: the
// conditions and reasons for failures of a hypervisor, and the check that a
// cluster stays on its hypervisor. Its subpackages resolve credentials, keep
// sessions and send HTTP requests.
//
// It imports no SDK and knows no API of a hypervisor. The bootstrap, control plane and
// add-on managers do not link it.
package kit
