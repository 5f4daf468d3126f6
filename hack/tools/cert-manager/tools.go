// Package tools pins cert-manager. Its chart and its definitions are read from its module.
//
// Its programs are in Go modules of their own, which exist only in its repository. The folders here
// start the same controllers, webhook and checks, which the module contains, with the flags that the
// chart sets: only the start of the programs is ours. Some of these packages are internal, so the name
// of this module is below that of cert-manager.
package tools
