package bootstrap

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	kubeadmVersion = "kubeadm.k8s.io/v1beta4"
	kubeletVersion = "kubelet.config.k8s.io/v1beta1"

	containerdSocket     = "unix:///run/containerd/containerd.sock"
	patchesDir           = "/etc/kubernetes/patches"
	defaultAPIServerPort = int32(6443)
	defaultPullPolicy    = "IfNotPresent"

	// slowTimeout is kubeadm's timeout for steps that depend on the slowest
	// machine: images, the API server, the kubelet.
	slowTimeout = "30m0s"
	// etcdTimeout must be short: kubeadm retries each listed member until the
	// timeout, so a failed member would block all joining machines.
	etcdTimeout = "2m0s"
	// signingDuration is the validity of kubelet certificates. It limits how
	// long a stolen certificate is valid after its Machine was deleted.
	// Kubelets renew their certificates after 70 to 90 percent of it.
	signingDuration = "168h0m0s"
	// clusterCAFile is the CA that signs the serving certificates of kubelets.
	clusterCAFile = "/etc/kubernetes/pki/ca.crt"
)

// kubeadmDocuments are the documents of the machine's mode, with the user's
// patches. A patch for a document of another mode is left out: one template
// serves the machine that runs kubeadm init and those that join.
func kubeadmDocuments(in *Input) ([]document, error) {
	registration, err := nodeRegistration(in)
	if err != nil {
		return nil, err
	}
	documents := []document{joinConfiguration(in, registration)}
	if in.Mode == Init {
		documents = []document{
			initConfiguration(in, registration),
			clusterConfiguration(in),
			kubeletConfiguration(&in.Platform),
		}
		if usesKubeProxy(in) {
			documents = append(documents, kubeProxyConfiguration(&in.Platform))
		}
	}
	for i := range documents {
		if err := documents[i].patch(in.Spec.Kubeadm.ConfigPatches); err != nil {
			return nil, err
		}
	}
	if in.Mode == Init && !usesKubeProxy(in) {
		skipKubeProxy(&documents[0])
	}
	if in.Mode == Init {
		expectEtcdData(in, &documents[0], dataDir(documents[1]))
	}
	return documents, nil
}

// kubeletConfiguration is the configuration of all kubelets of the cluster.
func kubeletConfiguration(platform *bootstrapv1.PlatformSpec) document {
	content := map[string]any{}
	if platform.GetKubeletCertificates() == bootstrapv1.KubeletCertificatesCluster {
		// The provider approves the CSRs of kubelets then.
		content["serverTLSBootstrap"] = true
	}
	return newDocument(kubeletVersion, kubeletKind, content)
}

func initConfiguration(in *Input, registration map[string]any) document {
	content := map[string]any{
		// The phase that creates the permissions for joining nodes requires a
		// token; it expires after a second.
		"bootstrapTokens":  []any{map[string]any{"token": nodeconfig.Token, "ttl": "1s"}},
		"localAPIEndpoint": localAPIEndpoint(in),
		"nodeRegistration": registration,
		"timeouts": map[string]any{
			"controlPlaneComponentHealthCheck": slowTimeout,
			"kubeletHealthCheck":               slowTimeout,
			"kubernetesAPICall":                slowTimeout,
			"etcdAPICall":                      etcdTimeout,
		},
	}
	addPatchesDir(in, content)
	return newDocument(kubeadmVersion, InitKind, content)
}

func joinConfiguration(in *Input, registration map[string]any) document {
	content := map[string]any{
		"discovery":        map[string]any{"file": map[string]any{"kubeConfigPath": nodeconfig.DiscoveryFile}},
		"nodeRegistration": registration,
		"timeouts": map[string]any{
			"controlPlaneComponentHealthCheck": slowTimeout,
			"discovery":                        slowTimeout,
			"kubeletHealthCheck":               slowTimeout,
			"kubernetesAPICall":                slowTimeout,
			"tlsBootstrap":                     slowTimeout,
			"etcdAPICall":                      etcdTimeout,
		},
	}
	if in.Mode.controlPlane() {
		content["controlPlane"] = map[string]any{"localAPIEndpoint": localAPIEndpoint(in)}
	}
	addPatchesDir(in, content)
	return newDocument(kubeadmVersion, "JoinConfiguration", content)
}

func clusterConfiguration(in *Input) document {
	platform := &in.Platform
	networking := map[string]any{}
	addList(networking, "podSubnet", in.Network.Pods)
	addList(networking, "serviceSubnet", in.Network.Services)
	if in.Network.DNSDomain != "" {
		networking["dnsDomain"] = in.Network.DNSDomain
	}
	var verified []arg
	// If the serving certificate of a kubelet has expired, or is not signed
	// yet, the kubelet accepts no connection anyway. So the verification breaks
	// nothing else.
	if platform.GetKubeletCertificates() == bootstrapv1.KubeletCertificatesCluster {
		verified = []arg{{"kubelet-certificate-authority", clusterCAFile}}
	}
	volumes := platform.APIServer.ExtraVolumes
	if platform.Authentication.Used() {
		verified = append(verified, arg{"authentication-config", authenticationFile})
		volumes = append([]bootstrapv1.HostPathMount{{
			Name: "nova-authentication", HostPath: authenticationDir, MountPath: authenticationDir,
			ReadOnly: ptr.To(true), PathType: "DirectoryOrCreate",
		}}, volumes...)
	}
	apiServer := component(mergeArgs(verified, platform.APIServer.ExtraArgs), volumes, platform.APIServer.ExtraEnvs)
	if sans := platform.APIServer.CertSANs; len(sans) > 0 {
		apiServer["certSANs"] = sans
	}
	signing := []arg{{"cluster-signing-duration", signingDuration}}
	if in.Authorities != nil && in.Mode == Init {
		// It would not start with two CAs in one file, and nova-bootstrap signs.
		signing = append(signing, arg{"cluster-signing-cert-file", ""}, arg{"cluster-signing-key-file", ""})
	}
	content := map[string]any{
		"clusterName":          in.ClusterName,
		"kubernetesVersion":    in.Version,
		"controlPlaneEndpoint": in.Endpoint.String(),
		"imageRepository":      platform.GetImageRepository(),
		// Generated in a fraction of the time that RSA needs on a small
		// machine.
		"encryptionAlgorithm": "ECDSA-P256",
		"networking":          networking,
		"apiServer":           apiServer,
		"controllerManager": component(mergeArgs(signing, platform.ControllerManager.ExtraArgs),
			platform.ControllerManager.ExtraVolumes, platform.ControllerManager.ExtraEnvs),
		"scheduler": component(mergeArgs(nil, platform.Scheduler.ExtraArgs), platform.Scheduler.ExtraVolumes, platform.Scheduler.ExtraEnvs),
		"etcd":      etcdConfiguration(in),
	}
	if gates := featureGates(in); len(gates) > 0 {
		content["featureGates"] = gates
	}
	if days := platform.CertificateValidityPeriodDays; days != 0 {
		content["certificateValidityPeriod"] = fmt.Sprintf("%dh0m0s", int64(days)*24)
	}
	return newDocument(kubeadmVersion, ClusterKind, content)
}

// component returns kubeadm's settings of a control plane component.
func component(args []any, volumes []bootstrapv1.HostPathMount, envs []bootstrapv1.EnvVar) map[string]any {
	content := map[string]any{"extraArgs": args}
	addEnvs(content, envs)
	mounts := make([]any, 0, len(volumes))
	for _, v := range volumes {
		mount := map[string]any{"name": v.Name, "hostPath": v.HostPath, "mountPath": v.MountPath}
		if v.ReadOnly != nil && *v.ReadOnly {
			mount["readOnly"] = true
		}
		if v.PathType != "" {
			mount["pathType"] = string(v.PathType)
		}
		mounts = append(mounts, mount)
	}
	if len(mounts) > 0 {
		content["extraVolumes"] = mounts
	}
	return content
}

// localMode is the feature gate with which the kubelet of a control plane
// machine connects to its local API server: a kubelet must not be newer than
// its API server, and during an upgrade other API servers are older. It is off
// by default before 1.33.
const localMode = "ControlPlaneKubeletLocalMode"

// featureGates returns kubeadm's feature gates; the user's take precedence.
func featureGates(in *Input) map[string]any {
	gates := map[string]any{}
	if strings.HasPrefix(in.Version, "v1.31.") || strings.HasPrefix(in.Version, "v1.32.") {
		gates[localMode] = true
	}
	for name, on := range in.Platform.FeatureGates {
		gates[name] = on
	}
	return gates
}

func nodeRegistration(in *Input) (map[string]any, error) {
	var labels []string
	if in.Authorities != nil {
		// A Node has it from the beginning: without it, its machine would be replaced.
		labels = append(labels, nodeconfig.AuthoritiesLabel+"="+in.Authorities.ID)
	}
	args, err := kubeletArgs(in, labels...)
	if err != nil {
		return nil, err
	}
	controlPlane := in.Mode.controlPlane()
	registration := map[string]any{
		"name":             in.Machine,
		"criSocket":        containerdSocket,
		"imagePullPolicy":  pullPolicy(in),
		"kubeletExtraArgs": args,
		// Written even if empty: without the field kubeadm adds its own taint.
		"taints": append(taints(Roles(&in.Spec, controlPlane), controlPlane), ownTaints(&in.Spec)...),
	}
	if ignored := in.Spec.Kubeadm.IgnorePreflightErrors; len(ignored) > 0 {
		registration["ignorePreflightErrors"] = ignored
	}
	return registration, nil
}

func localAPIEndpoint(in *Input) map[string]any {
	return map[string]any{"advertiseAddress": nodeconfig.AdvertiseAddress, "bindPort": bindPort(in)}
}

// bindPort is the port of the machine's API server. kube-vip moves an address
// but translates no ports, so with kube-vip it is the endpoint's port.
func bindPort(in *Input) int32 {
	switch {
	case in.Network.APIServerPort != 0:
		return in.Network.APIServerPort
	case in.KubeVIP != nil:
		return in.Endpoint.Port
	default:
		return defaultAPIServerPort
	}
}

func pullPolicy(in *Input) string { return cmp.Or(in.Spec.Kubeadm.ImagePullPolicy, defaultPullPolicy) }

// skipPhases returns the phases that kubeadm's configuration skips. The agent
// repeats them on the command line, because the flag overrides the document.
func skipPhases(configuration document) []string {
	list, _ := configuration.content["skipPhases"].([]any)
	var phases []string
	for _, phase := range list {
		phases = append(phases, fmt.Sprint(phase))
	}
	return phases
}
