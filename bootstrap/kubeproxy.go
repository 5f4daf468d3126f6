package bootstrap

import (
	"slices"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

const (
	kubeProxyVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kubeProxyPhase   = "addon/kube-proxy"
)

// usesKubeProxy reports whether the cluster has a kube-proxy.
func usesKubeProxy(in *Input) bool {
	return in.Platform.GetKubeProxyMode() != bootstrapv1.KubeProxyModeNone
}

// kubeProxyConfiguration is the configuration of kube-proxy on all nodes.
func kubeProxyConfiguration(platform *bootstrapv1.PlatformSpec) document {
	mode := platform.GetKubeProxyMode()
	content := map[string]any{"mode": string(mode)}
	if mode == bootstrapv1.KubeProxyModeIPVS {
		content["ipvs"] = map[string]any{"scheduler": string(platform.KubeProxy.GetScheduler())}
	}
	return newDocument(kubeProxyVersion, KubeProxyKind, content)
}

// skipKubeProxy makes kubeadm init skip kube-proxy. It runs after the user's
// patch, which may also set phases.
func skipKubeProxy(initConfiguration *document) {
	skipped, _ := initConfiguration.content["skipPhases"].([]any)
	if !slices.Contains(skipped, any(kubeProxyPhase)) {
		initConfiguration.content["skipPhases"] = append(skipped, kubeProxyPhase)
	}
}

// kubeProxyModules are the kernel modules that kube-proxy needs.
func kubeProxyModules(platform *bootstrapv1.PlatformSpec) []string {
	if platform.GetKubeProxyMode() != bootstrapv1.KubeProxyModeIPVS {
		return nil
	}
	return []string{"ip_vs", "ip_vs_" + string(platform.KubeProxy.GetScheduler()), "nf_conntrack"}
}
