// Package engine is one account at one engine: its session, what it shows of
// our VMs, what names stand for there, and what its refusals mean.
//
// It refuses to decide and to know more than one engine.
package engine
