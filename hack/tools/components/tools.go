//go:build tools

// Package tools pins the programs around a cluster, such as Cluster API and
// CoreDNS. In one module the packages that they share have one version, so each
// is compiled once.
package tools

import (
	_ "github.com/coredns/coredns"
	_ "github.com/kube-vip/kube-vip"
	_ "github.com/prometheus/prometheus/cmd/promtool"
	_ "sigs.k8s.io/cluster-api/bootstrap/kubeadm"
	_ "sigs.k8s.io/cluster-api/cmd/clusterctl"
	_ "sigs.k8s.io/cluster-api/controlplane/kubeadm"
	_ "sigs.k8s.io/cluster-api/core"
)
