// Package scope has the state of one reconcile of a NovaControlPlane and the
// configuration that the parts of its reconciler share. It decides nothing.
package scope
