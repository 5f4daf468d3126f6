// Package controlplane holds the suite for the lifecycle of control planes on hosts: creation,
// scaling, rollout, upgrade, loss of hosts and quorum, and deletion. The suite needs root and
// Linux, and fails with a message if they are missing.
package controlplane
