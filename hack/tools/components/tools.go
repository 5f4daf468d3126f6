//go:build tools

// Package tools pins the programs around a cluster, such as Cluster API, Flux
// and CoreDNS. In one module the packages that they share have one version, so
// each is compiled once. sops and age encrypt for Flux, with the version of sops
// that Flux decrypts with.
package tools

import (
	_ "filippo.io/age/cmd/age-keygen"
	_ "github.com/coredns/coredns"
	_ "github.com/fluxcd/helm-controller"
	_ "github.com/fluxcd/kustomize-controller"
	_ "github.com/fluxcd/source-controller"
	_ "github.com/getsops/sops/v3/cmd/sops"
	_ "github.com/kube-vip/kube-vip"
	_ "github.com/prometheus/prometheus/cmd/promtool"
	_ "sigs.k8s.io/cluster-api/bootstrap/kubeadm"
	_ "sigs.k8s.io/cluster-api/cmd/clusterctl"
	_ "sigs.k8s.io/cluster-api/controlplane/kubeadm"
	_ "sigs.k8s.io/cluster-api/core"
)
