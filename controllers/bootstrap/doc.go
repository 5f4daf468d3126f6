// Package bootstrap reconciles NovaConfigs: it writes what a machine is told
// on its first boot into a Secret that Cluster API hands on to the
// infrastructure, and keeps the credentials in it fresh until the machine is
// there. A second reconciler lets workers boot while their control plane comes
// up for the first time. A third looks into tenants and judges what their nodes
// ask certificates for.
//
// Steps, a file each: owners, facts, mode, content, credentials, rendering,
// storing. What is due is a pure function of what is observed.
//
// It refuses to ask a tenant for what a machine is told, so that data needs no
// running API server; only where the cluster's authority has no key here, a
// bootstrap token is made there. The data of a machine that has joined is
// replaced by a note and never made again.
package bootstrap
