// Package bootstrap reconciles NovaConfigs: it writes what a machine is told
// on its first boot into a Secret that Cluster API hands on to the
// infrastructure, and keeps the credentials in it fresh until the machine is
// there. A second reconciler lets workers boot while their control plane comes
// up for the first time.
//
// Steps, a file each: owners, facts, mode, content, credentials, rendering,
// storing. What is due is a pure function of what is observed.
//
// It refuses to talk to tenant clusters, so a machine's data needs no running
// API server, and it never changes the data of a machine that exists.
package bootstrap
