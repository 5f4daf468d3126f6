// Package engine implements a session of one user at one engine: it caches VMs,
// resolves names, and classifies the errors of the engine.
//
// It makes no decisions, and a session knows one engine only.
package engine
