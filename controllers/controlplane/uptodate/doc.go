// Package uptodate compares machines with the settings in the spec of their
// control plane. Each machine has an annotation with the settings that it was
// created from.
package uptodate
