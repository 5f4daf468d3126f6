// Package prober repeats a probe and records the times without a response. An
// outage begins with the first failed probe and ends with the start of a later
// successful one.
package prober
