// Package controlplane holds the suite of what happens to control planes on
// hosts: they come up, scale, roll out, upgrade, lose hosts and quorum, and go.
// The suite needs root and Linux, and fails saying so where they are missing.
package controlplane
