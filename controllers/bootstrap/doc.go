// Package bootstrap reconciles NovaConfigs: it writes the bootstrap data of a machine into a Secret,
// which Cluster API passes on to the infrastructure provider, and renews the credentials in it until
// the machine has joined. A second reconciler allows workers to boot while their control plane is
// initialized for the first time. Package approver decides the certificate requests of the nodes in
// workload clusters.
//
// The steps, one file each, are: owners, facts, mode, content, credentials, rendering, storing. The
// due step is a pure function of the observed state.
//
// The package reads nothing from a workload cluster to create bootstrap data, so that bootstrap data
// needs no running API server. The only exception is a cluster whose CA key is not available here: a
// bootstrap token is created in it. The data of a machine that has joined is replaced by a note and
// never created again.
package bootstrap
