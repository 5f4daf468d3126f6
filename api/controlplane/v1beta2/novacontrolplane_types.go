package v1beta2

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// Finalizer keeps a NovaControlPlane until its machines are deleted.
const Finalizer = "controlplane.cluster.x-k8s.io/nova"

const (
	// SettingsAnnotation is set on a control plane Machine and records the fields
	// of the NovaControlPlane that the machine was created from, most of them
	// hashed. A machine is replaced when these fields change.
	SettingsAnnotation = "controlplane.cluster.x-k8s.io/nova-settings"
	// CreatedAnnotation is set on a control plane Machine and holds the time of its
	// creation, in the format of RFC 3339. clusterctl move creates Machines again,
	// and their creation timestamp is that of the move.
	CreatedAnnotation = "controlplane.cluster.x-k8s.io/nova-created"
	// CoreDNSSpreadAnnotation is set on a NovaControlPlane once the CoreDNS pods of
	// the workload cluster have been spread over nodes, which happens only once.
	CoreDNSSpreadAnnotation = "controlplane.cluster.x-k8s.io/nova-coredns-spread"
)

// Defaults of a NovaControlPlane.
const (
	// DefaultReplicas is the number of control plane machines.
	DefaultReplicas = int32(1)
	// DefaultKubeVIPImage is the image of the static pod that announces the endpoint.
	DefaultKubeVIPImage = "ghcr.io/kube-vip/kube-vip:v0.9.1"
)

// NovaControlPlane's Available condition and corresponding reasons.
const (
	// AvailableCondition is true while the control plane accepts requests: it is
	// initialized, its certificates exist, an API server responds and etcd has quorum.
	AvailableCondition = clusterv1.AvailableCondition

	// AvailableReason: the control plane accepts requests.
	//
	// Action: none.
	AvailableReason = clusterv1.AvailableReason

	// NotAvailableReason: the control plane does not accept requests. The message gives
	// the cause. Running pods of the workload cluster continue.
	//
	// Action: find the message in docs/controlplane.md#health. If etcd has lost its
	// quorum, start the lost hosts; if they are lost permanently, see
	// docs/etcd.md#it-is-down, and do not delete a machine before that.
	NotAvailableReason = clusterv1.NotAvailableReason

	// AvailableUnknownReason: the workload cluster has not been probed yet, for instance
	// after a move to another management cluster.
	//
	// Action: wait.
	AvailableUnknownReason = clusterv1.AvailableUnknownReason
)

// NovaControlPlane's Initialized condition and corresponding reasons.
const (
	// InitializedCondition is true once kubeadm init has completed. It never becomes false
	// again. Available depends on it.
	InitializedCondition = "Initialized"

	// InitializedReason: kubeadm init has completed.
	//
	// Action: none.
	InitializedReason = "Initialized"

	// NotInitializedReason: kubeadm init has not completed.
	//
	// Action: check the infrastructure machine of the first Machine:
	// VirtualMachineProvisioned, then NodeBootstrapped.
	NotInitializedReason = "NotInitialized"
)

// NovaControlPlane's CertificatesAvailable condition and corresponding reasons.
const (
	// CertificatesAvailableCondition is true while the CA certificates and keys of the
	// cluster exist. Available depends on it until the control plane is initialized.
	CertificatesAvailableCondition = "CertificatesAvailable"

	// CertificatesAvailableReason: the certificates exist.
	//
	// Action: none.
	CertificatesAvailableReason = clusterv1.AvailableReason

	// CertificatesNotAvailableReason: the certificates have not been created yet, or a
	// Secret of the running cluster is missing.
	//
	// Action: wait while the cluster is created. Restore a missing Secret from a backup;
	// the nodes would not trust a new certificate.
	CertificatesNotAvailableReason = clusterv1.NotAvailableReason

	// CertificatesInvalidReason: a Secret does not contain a valid certificate or key.
	//
	// Action: find the message in docs/controlplane.md#certificates. Before the cluster is
	// initialized, fix or delete the Secret that the message names.
	CertificatesInvalidReason = "Invalid"

	// CertificatesInternalErrorReason: reading or writing a certificate failed.
	//
	// Action: check the log of nova-control-plane.
	CertificatesInternalErrorReason = clusterv1.InternalErrorReason
)

// NovaControlPlane's EtcdMembersKnown condition and corresponding reasons.
const (
	// EtcdMembersKnownCondition is true while each member of etcd runs on a Machine of the
	// cluster.
	EtcdMembersKnownCondition = "EtcdMembersKnown"

	// EtcdMembersKnownReason: each member has its Machine.
	//
	// Action: none.
	EtcdMembersKnownReason = "Known"

	// EtcdForeignMembersReason: the members in the message have no Machine, for instance
	// after a restore of the management cluster from an old backup. No machine is created
	// beside them.
	//
	// Action: decide whether the members stay; see docs/day2.md#an-old-backup.
	EtcdForeignMembersReason = "ForeignMembers"
)

const (
	// ForeignMembersAnnotation is set on a NovaControlPlane by its administrator
	// and decides about members of etcd without a Machine. Until it is set, no
	// machine is created beside them.
	ForeignMembersAnnotation = "controlplane.cluster.x-k8s.io/nova-foreign-members"
	// ForeignMembersKeep has machines created beside the members.
	ForeignMembersKeep = "Keep"
	// ForeignMembersRemove has the members removed from etcd, one after another
	// and only while etcd keeps its quorum. Their VMs are left alone.
	ForeignMembersRemove = "Remove"
)

// NovaControlPlane's EtcdClusterHealthy condition and corresponding reasons.
const (
	// EtcdClusterHealthyCondition is true while etcd has a leader and every control plane
	// machine that joined is a started voting member. Available does not depend on it:
	// etcd works while a majority of its members does.
	EtcdClusterHealthyCondition = "EtcdClusterHealthy"

	// EtcdHealthyReason: all members are healthy.
	//
	// Action: none.
	EtcdHealthyReason = "Healthy"

	// EtcdNotHealthyReason: a member does not respond, is a learner, or an alarm is
	// raised; the message names the members.
	//
	// Action: none while a machine joins or is replaced. Otherwise find the message in
	// docs/controlplane.md#health.
	EtcdNotHealthyReason = "NotHealthy"

	// EtcdUnknownReason: no member can be inspected. While Available is true, etcd works.
	// The controller changes nothing meanwhile.
	//
	// Action: check the connection from the API servers to the kubelets, port 10250.
	EtcdUnknownReason = "InspectionFailed"
)

// NovaControlPlane's SettingsApplied condition and corresponding reasons.
const (
	// SettingsAppliedCondition is true while the settings of the NovaControlPlane and of
	// its Cluster are applied, or will be by the next machines.
	SettingsAppliedCondition = "SettingsApplied"

	// SettingsAppliedReason: all settings are applied.
	//
	// Action: none.
	SettingsAppliedReason = "Applied"

	// SettingsClusterNetworkChangedReason: spec.clusterNetwork of the Cluster changed after
	// kubeadm init. The change is not applied.
	//
	// Action: revert the change.
	SettingsClusterNetworkChangedReason = "ClusterNetworkChanged"

	// SettingsMachinesAlteredReason: another controller or an admission policy changed the
	// machines and fields in the message. The machines are not replaced for it.
	//
	// Action: exempt the machines there, then set rollout.after.
	SettingsMachinesAlteredReason = "MachinesAltered"

	// SettingsVersionUnknownReason: this version of the provider does not know the CoreDNS
	// version for this Kubernetes version. CoreDNS is not changed.
	//
	// Action: update the provider, or set dns.imageTag by a patch of ClusterConfiguration.
	SettingsVersionUnknownReason = "VersionUnknown"
)

// NovaControlPlane's AuthoritiesRotated condition and corresponding reasons. The condition
// is set if rollout.authoritiesAfter is set, or was.
const (
	// AuthoritiesRotatedCondition is true while all nodes trust only the current CAs of
	// the cluster. While it is false, the message has the stage of the rotation and the
	// nodes and machines that the next stage waits for. If a request to a StarVault
	// failed, its reason is that of the request.
	AuthoritiesRotatedCondition = "AuthoritiesRotated"

	// AuthoritiesRotatedReason: all nodes trust only the current CAs.
	//
	// Action: none.
	AuthoritiesRotatedReason = "Rotated"

	// AuthoritiesTrustingBothReason: nodes get the certificates of the new CAs beside those
	// of the former ones.
	//
	// Action: none. If it stays, look why the machines in the message are not replaced or
	// changed: the condition RollingOut, and the MachineDeployments. Delete a machine that
	// no MachineDeployment replaces, and a Node without a Machine.
	AuthoritiesTrustingBothReason = "TrustingBoth"

	// AuthoritiesIssuingNewReason: nodes get certificates that the new CAs have signed.
	//
	// Action: as for TrustingBoth.
	AuthoritiesIssuingNewReason = "IssuingNew"

	// AuthoritiesTrustingNewReason: nodes lose the certificates of the former CAs.
	//
	// Action: as for TrustingBoth.
	AuthoritiesTrustingNewReason = "TrustingNew"

	// AuthoritiesAbortingReason: rollout.authoritiesAfter was removed or moved to the
	// future during a rotation. Nodes get certificates of the former CAs again.
	//
	// Action: as for TrustingBoth.
	AuthoritiesAbortingReason = "Aborting"

	// AuthoritiesRefusedReason: the CAs cannot be rotated, for the cause in the message.
	//
	// Action: remove the cause, or rollout.authoritiesAfter.
	AuthoritiesRefusedReason = "RotationRefused"
)

// NovaControlPlane's MachinesReady condition and corresponding reasons.
const (
	// MachinesReadyCondition is true while all control plane machines are ready.
	MachinesReadyCondition = clusterv1.MachinesReadyCondition

	// MachinesReadyReason: all machines are ready.
	//
	// Action: none.
	MachinesReadyReason = clusterv1.ReadyReason

	// MachinesNotReadyReason: the machines in the message are not ready.
	//
	// Action: check the condition Ready of these Machines.
	MachinesNotReadyReason = clusterv1.NotReadyReason

	// MachinesReadyUnknownReason: Ready of the machines in the message is unknown.
	//
	// Action: check the condition Ready of these Machines.
	MachinesReadyUnknownReason = clusterv1.ReadyUnknownReason
)

// NovaControlPlane's MachinesUpToDate condition and corresponding reasons.
const (
	// MachinesUpToDateCondition is true while all control plane machines match the spec.
	MachinesUpToDateCondition = clusterv1.MachinesUpToDateCondition

	// MachinesUpToDateReason: all machines match the spec.
	//
	// Action: none.
	MachinesUpToDateReason = clusterv1.UpToDateReason

	// MachinesNotUpToDateReason: the machines in the message do not match the spec. A
	// rollout replaces them.
	//
	// Action: wait; RollingOut shows the progress.
	MachinesNotUpToDateReason = clusterv1.NotUpToDateReason

	// MachinesUpToDateUnknownReason: UpToDate of the machines in the message is unknown.
	//
	// Action: wait.
	MachinesUpToDateUnknownReason = clusterv1.UpToDateUnknownReason
)

// Aggregates of the machines: reasons of MachinesReady and MachinesUpToDate.
const (
	// MachinesNoReplicasReason: the control plane has no machines.
	//
	// Action: none.
	MachinesNoReplicasReason = clusterv1.NoReplicasReason

	// MachinesInternalErrorReason: the conditions of the machines could not be aggregated.
	//
	// Action: check the log of nova-control-plane.
	MachinesInternalErrorReason = clusterv1.InternalErrorReason
)

// NovaControlPlane's RollingOut condition and corresponding reasons.
const (
	// RollingOutCondition is true while machines do not match the spec. It has negative
	// polarity.
	RollingOutCondition = clusterv1.RollingOutCondition

	// RollingOutReason: the message names the outdated machines and fields, and the reason
	// why the next step waits.
	//
	// Action: wait, or find the message in
	// docs/controlplane.md#conditions-of-the-novacontrolplane. With strategy OnDelete,
	// delete the machines.
	RollingOutReason = clusterv1.RollingOutReason

	// RollingOutWaitingForSnapshotReason: an upgrade waits for a snapshot of etcd, which
	// spec.etcd.snapshots.beforeUpgrade requires. The message gives the cause.
	//
	// Action: see docs/etcd.md#before-an-upgrade.
	RollingOutWaitingForSnapshotReason = "WaitingForSnapshot"

	// RollingOutPausedReason: machines are not up to date, and spec.rollout.paused is
	// true. The message gives the changes in their order.
	//
	// Action: remove spec.rollout.paused to begin, or revert the spec.
	RollingOutPausedReason = "Paused"

	// NotRollingOutReason: all machines match the spec. If the message says that
	// certificatesExpiryDays is ignored, machines are not replaced before their
	// certificates expire.
	//
	// Action: none; for such a message set fewer days, see
	// docs/controlplane.md#certificates.
	NotRollingOutReason = clusterv1.NotRollingOutReason
)

// NovaControlPlane's ScalingUp condition and corresponding reasons.
const (
	// ScalingUpCondition is true while the control plane has fewer machines than replicas.
	// It has negative polarity.
	ScalingUpCondition = clusterv1.ScalingUpCondition

	// ScalingUpReason: machines are being created. The message gives the progress, and the
	// reason why the next step waits.
	//
	// Action: wait, or find the message in
	// docs/controlplane.md#conditions-of-the-novacontrolplane.
	ScalingUpReason = clusterv1.ScalingUpReason

	// NotScalingUpReason: no machine is missing.
	//
	// Action: none.
	NotScalingUpReason = clusterv1.NotScalingUpReason
)

// NovaControlPlane's ScalingDown condition and corresponding reasons.
const (
	// ScalingDownCondition is true while the control plane has more machines than
	// replicas. It has negative polarity.
	ScalingDownCondition = clusterv1.ScalingDownCondition

	// ScalingDownReason: machines are being deleted. The message gives the progress, and
	// the reason why the next step waits.
	//
	// Action: wait, or find the message in
	// docs/controlplane.md#conditions-of-the-novacontrolplane.
	ScalingDownReason = clusterv1.ScalingDownReason

	// NotScalingDownReason: no machine has to be deleted.
	//
	// Action: none.
	NotScalingDownReason = clusterv1.NotScalingDownReason
)

// NovaControlPlane's Deleting condition and corresponding reasons.
const (
	// DeletingCondition is true while the NovaControlPlane is being deleted. It has
	// negative polarity.
	DeletingCondition = clusterv1.DeletingCondition

	// DeletingReason: the controller waits until the workers in the message are deleted,
	// then deletes all machines at once.
	//
	// Action: none. If only the NovaControlPlane was deleted, delete these workers; see
	// docs/controlplane.md#deleting.
	DeletingReason = clusterv1.DeletingReason

	// NotDeletingReason: the NovaControlPlane is not being deleted.
	//
	// Action: none.
	NotDeletingReason = clusterv1.NotDeletingReason
)

// EndpointProvider is the provider of the API server's address.
// +kubebuilder:validation:Enum=KubeVIP;External
type EndpointProvider string

// Endpoint providers.
const (
	// EndpointProviderKubeVIP runs kube-vip as a static pod on each control
	// plane machine. The endpoint must be a free address of their network.
	EndpointProviderKubeVIP EndpointProvider = "KubeVIP"
	// EndpointProviderExternal uses a load balancer that is operated elsewhere.
	EndpointProviderExternal EndpointProvider = "External"
)

// NovaControlPlaneSpec is the desired state of the control plane of a workload
// cluster.
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.platform) && has(oldSelf.platform.dns) && has(oldSelf.platform.dns.baseDomain) && (!has(oldSelf.platform.dns.forwardZones) || !oldSelf.platform.dns.forwardZones.exists(z, z.name == oldSelf.platform.dns.baseDomain))) || (has(self.platform) && has(self.platform.dns) && has(self.platform.dns.baseDomain) && (!has(self.platform.dns.forwardZones) || !self.platform.dns.forwardZones.exists(z, z.name == self.platform.dns.baseDomain)))",message="Nova DNS serves the base domain of this cluster, and a cluster cannot move away from it to external DNS: keep platform.dns.baseDomain, and keep it out of platform.dns.forwardZones"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.platform) && has(oldSelf.platform.apiServerLoadBalancer)) || (has(self.platform) && has(self.platform.apiServerLoadBalancer))",message="platform.apiServerLoadBalancer cannot be removed: kube-proxy of the workload cluster relies on it"
// +kubebuilder:validation:XValidation:rule="self.version.split('.')[0] == oldSelf.version.split('.')[0] && int(self.version.split('.')[1]) <= int(oldSelf.version.split('.')[1]) + 1",message="version can go up by one minor version at a time: upgrade to the next minor version first"
// +kubebuilder:validation:XValidation:rule="!(has(self.rollout) && has(self.rollout.strategy) && has(self.rollout.strategy.rollingUpdate) && has(self.rollout.strategy.rollingUpdate.maxSurge) && self.rollout.strategy.rollingUpdate.maxSurge == 0) || (has(self.replicas) && self.replicas >= 3)",message="rollout.strategy.rollingUpdate.maxSurge 0 needs 3 replicas at least"
// +kubebuilder:validation:XValidation:rule="(has(self.etcd) && has(self.etcd.external)) == (has(oldSelf.etcd) && has(oldSelf.etcd.external))",message="etcd.external can be set only when the control plane is created: it cannot move between external etcd and its own"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.platform) && has(oldSelf.platform.pki)) || (has(self.platform) && has(self.platform.pki) && self.platform.pki.starVault.identityName == oldSelf.platform.pki.starVault.identityName)",message="platform.pki cannot be changed or removed once it is set: the keys of CAs do not leave a StarVault"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.platform) && has(oldSelf.platform.pki)) || !(has(self.platform) && has(self.platform.pki)) || (has(self.rollout) && has(self.rollout.authoritiesAfter))",message="platform.pki can be set for an existing control plane only together with rollout.authoritiesAfter, the time from which on CAs of the StarVault replace those in Secrets"
// +kubebuilder:validation:XValidation:rule="(has(self.platform) && has(self.platform.kubeletCertificates) ? self.platform.kubeletCertificates : 'Cluster') == (has(oldSelf.platform) && has(oldSelf.platform.kubeletCertificates) ? oldSelf.platform.kubeletCertificates : 'Cluster')",message="platform.kubeletCertificates is used when the cluster is created and cannot change: each kubelet keeps its own configuration"
// +kubebuilder:validation:XValidation:rule="(has(self.platform) && has(self.platform.kubeProxy) && has(self.platform.kubeProxy.mode) ? self.platform.kubeProxy.mode : 'iptables') == (has(oldSelf.platform) && has(oldSelf.platform.kubeProxy) && has(oldSelf.platform.kubeProxy.mode) ? oldSelf.platform.kubeProxy.mode : 'iptables') || ((has(self.platform) && has(self.platform.kubeProxy) && has(self.platform.kubeProxy.mode) ? self.platform.kubeProxy.mode : 'iptables') in ['iptables', 'nftables'] && (has(oldSelf.platform) && has(oldSelf.platform.kubeProxy) && has(oldSelf.platform.kubeProxy.mode) ? oldSelf.platform.kubeProxy.mode : 'iptables') != 'none')",message="platform.kubeProxy.mode can change to iptables or nftables only, and not from none: nodes load the kernel modules of ipvs when they are created, and kubeadm init installs kube-proxy"
// +kubebuilder:validation:XValidation:rule="(has(self.platform) && has(self.platform.kubeProxy) && has(self.platform.kubeProxy.mode) ? self.platform.kubeProxy.mode : 'iptables') != 'ipvs' || (has(oldSelf.platform) && has(oldSelf.platform.kubeProxy) && has(oldSelf.platform.kubeProxy.mode) ? oldSelf.platform.kubeProxy.mode : 'iptables') != 'ipvs' || (has(self.platform) && has(self.platform.kubeProxy) && has(self.platform.kubeProxy.scheduler) ? self.platform.kubeProxy.scheduler : 'rr') == (has(oldSelf.platform) && has(oldSelf.platform.kubeProxy) && has(oldSelf.platform.kubeProxy.scheduler) ? oldSelf.platform.kubeProxy.scheduler : 'rr')",message="platform.kubeProxy.scheduler cannot change: nodes load its kernel module when they are created"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas % 2 == 1 || (has(self.etcd) && has(self.etcd.external))",fieldPath=".replicas",message="replicas must be odd unless etcd.external is set: each control plane machine holds an etcd member, and an even number tolerates no more failures than one fewer"
type NovaControlPlaneSpec struct {
	// replicas is the number of control plane machines. It must be odd, because each
	// runs an etcd member, unless etcd.external is set. A change adds or deletes
	// machines. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	Replicas *int32 `json:"replicas,omitempty"`

	// version is the Kubernetes version, for instance v1.36.3. A change replaces control
	// plane machines. A Cluster with a topology then replaces its workers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^v(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)([-+][0-9A-Za-z.+-]+)?$')",message="version must be a full Kubernetes version such as v1.36.3"
	Version string `json:"version,omitempty"`

	// machineTemplate is the template of the machines. Each field documents whether a
	// change replaces control plane machines.
	// +required
	MachineTemplate NovaControlPlaneMachineTemplate `json:"machineTemplate,omitempty,omitzero"`

	// machineNaming sets the names of new machines. A change replaces nothing. If not
	// set, the name of a machine is that of the NovaControlPlane with a random suffix.
	// +optional
	MachineNaming MachineNamingSpec `json:"machineNaming,omitempty,omitzero"`

	// config configures control plane nodes. A change replaces control plane machines.
	// If not set, the nodes have the defaults.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.roles) || 'control-plane' in self.roles",message="roles of control plane machines must include control-plane"
	Config bootstrapv1.NodeConfigSpec `json:"config,omitempty,omitzero"`

	// platform holds the settings of the whole workload cluster, workers included. Each
	// field documents whether a change replaces control plane machines; workers are
	// not replaced by it. If not set, the defaults apply.
	// +optional
	Platform bootstrapv1.PlatformSpec `json:"platform,omitempty,omitzero"`

	// endpoint configures the provider of the API server's address. A change replaces
	// control plane machines. If not set, kube-vip announces it.
	// +optional
	Endpoint EndpointSpec `json:"endpoint,omitempty,omitzero"`

	// etcd selects where etcd runs, configures it and schedules its snapshots. Each
	// field documents whether a change replaces control plane machines. If not set,
	// etcd runs on the control plane machines and no snapshots are taken.
	// +optional
	Etcd EtcdSpec `json:"etcd,omitempty,omitzero"`

	// rollout configures when and how machines that differ from this spec are replaced.
	// A change replaces nothing by itself, except before and after. If not set, machines
	// are replaced one at a time, and each replacement is created first.
	// +optional
	Rollout NovaControlPlaneRolloutSpec `json:"rollout,omitempty,omitzero"`

	// remediation limits the replacement of machines that a MachineHealthCheck marked
	// unhealthy. A change replaces nothing. If not set, the defaults apply.
	// +optional
	Remediation NovaControlPlaneRemediationSpec `json:"remediation,omitempty,omitzero"`
}

// DefaultMachineNaming is the template of the names of machines.
const DefaultMachineNaming = "{{ .controlPlane.name }}-{{ .random }}"

// MachineNamingSpec sets the names of new machines.
// +kubebuilder:validation:MinProperties=1
type MachineNamingSpec struct {
	// template is the name, with the variables {{ .cluster.name }},
	// {{ .controlPlane.name }} and {{ .random }}. {{ .random }} is required and stands
	// for five random characters. The infrastructure machine, the NovaConfig and the
	// Node have the same name. A name of more than 63 characters is cut to 58 and gets a
	// random suffix. A change applies to new machines and replaces nothing. Defaults to
	// {{ .controlPlane.name }}-{{ .random }}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]|[{][{] *[.](cluster[.]name|controlPlane[.]name|random) *[}][}])([-a-z0-9]|[{][{] *[.](cluster[.]name|controlPlane[.]name|random) *[}][}])*$') && !self.endsWith('-')",message="template must be lower case letters, digits, dashes and the variables {{ .cluster.name }}, {{ .controlPlane.name }} and {{ .random }}"
	// +kubebuilder:validation:XValidation:rule="self.matches('[{][{] *[.]random *[}][}]')",message="template must contain {{ .random }}: the replacement of a machine exists beside it"
	Template string `json:"template,omitempty"`
}

// GetTemplate returns the template or its default.
func (m *MachineNamingSpec) GetTemplate() string {
	return cmp.Or(m.Template, DefaultMachineNaming)
}

// EndpointSpec configures the provider of the API server's address.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.kubeVIP) || !has(self.provider) || self.provider == 'KubeVIP'",message="kubeVIP can only be set with provider KubeVIP"
type EndpointSpec struct {
	// provider is KubeVIP, or External for a load balancer that is operated elsewhere.
	// Defaults to KubeVIP.
	// +optional
	Provider EndpointProvider `json:"provider,omitempty"`

	// kubeVIP configures kube-vip. If not set, the defaults apply.
	// +optional
	KubeVIP KubeVIPSpec `json:"kubeVIP,omitempty,omitzero"`
}

// KubeVIPSpec configures kube-vip.
// +kubebuilder:validation:MinProperties=1
type KubeVIPSpec struct {
	// image is the image of kube-vip. Defaults to ghcr.io/kube-vip/kube-vip:v0.9.1.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// interface is the network interface that gets the address. If not set, it is the
	// interface with the address of the node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
}

// NovaControlPlaneMachineTemplate is the template of the machines.
type NovaControlPlaneMachineTemplate struct {
	// metadata holds labels and annotations for the machines and their objects. A
	// change is applied in place and replaces nothing. If not set, none are added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the machines. Each field documents whether a change replaces
	// control plane machines.
	// +required
	Spec NovaControlPlaneMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// NovaControlPlaneMachineTemplateSpec is the spec of the machines.
type NovaControlPlaneMachineTemplateSpec struct {
	// infrastructureRef names the template of the infrastructure machines. Its kind must
	// be one of Cluster API's infrastructure machine templates, because the manager
	// creates objects from it with its own permissions. A change replaces control plane
	// machines, unless rollout.inPlace allows changes in place and the template differs
	// only in larger sizes that the VMs can have while they run.
	// +kubebuilder:validation:XValidation:rule="self.apiGroup == 'infrastructure.cluster.x-k8s.io' && self.kind.endsWith('MachineTemplate')",message="must be an infrastructure machine template: a kind of infrastructure.cluster.x-k8s.io that ends in MachineTemplate"
	// +required
	InfrastructureRef clusterv1.ContractVersionedObjectReference `json:"infrastructureRef,omitempty,omitzero"`

	// readinessGates are conditions that a machine's Ready waits for besides the
	// health of the control plane's components on it. A change is applied in place and
	// replaces nothing. If not set, Ready waits for these components alone.
	// +optional
	// +listType=map
	// +listMapKey=conditionType
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=27
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`

	// deletion sets timeouts of the deletion of a machine. A change is applied in place
	// and replaces nothing. If not set, the defaults of Cluster API apply.
	// +optional
	Deletion NovaControlPlaneMachineDeletionSpec `json:"deletion,omitempty,omitzero"`

	// taints are taints that Cluster API keeps on the nodes. A change is applied in
	// place and replaces nothing. If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []clusterv1.MachineTaint `json:"taints,omitempty"`
}

// NovaControlPlaneMachineDeletionSpec sets timeouts of the deletion of a machine.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneMachineDeletionSpec struct {
	// nodeDrainTimeoutSeconds is the timeout of the drain. A change replaces nothing.
	// If not set or 0, there is none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDrainTimeoutSeconds *int32 `json:"nodeDrainTimeoutSeconds,omitempty"`

	// nodeVolumeDetachTimeoutSeconds is the timeout of the wait for volumes to be
	// detached. A change replaces nothing. If not set or 0, there is none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeVolumeDetachTimeoutSeconds *int32 `json:"nodeVolumeDetachTimeoutSeconds,omitempty"`

	// nodeDeletionTimeoutSeconds is the timeout of the deletion of the Node. The value
	// 0 means no timeout. A change replaces nothing. Defaults to 10, as in Cluster
	// API.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDeletionTimeoutSeconds *int32 `json:"nodeDeletionTimeoutSeconds,omitempty"`
}

// NovaControlPlaneStatus is the observed state of a control plane.
type NovaControlPlaneStatus struct {
	// conditions are Available, Initialized, CertificatesAvailable,
	// EtcdClusterHealthy, ControlPlaneComponentsHealthy, EndpointHealthy,
	// MachinesReady, MachinesUpToDate, SettingsApplied, RollingOut, ScalingUp, ScalingDown,
	// Remediating, Deleting and Paused. They are not set before the first reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization holds the state that Cluster API waits for. It is not set before
	// the control plane accepts requests.
	// +optional
	Initialization NovaControlPlaneInitializationStatus `json:"initialization,omitempty,omitzero"`

	// selector selects the machines, for the scale subresource. It is not set before the
	// first reconcile.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Selector string `json:"selector,omitempty"`

	// replicas is the number of machines.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of machines whose Ready condition is true.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// availableReplicas is the number of machines whose Available condition
	// is true.
	// +optional
	AvailableReplicas *int32 `json:"availableReplicas,omitempty"`

	// upToDateReplicas is the number of machines that match the spec.
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`

	// versions are the Kubernetes versions of the API servers of this control plane,
	// from old to new, with the number of replicas. A machine whose API server has not
	// been read yet counts with the version of the Machine.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Versions []clusterv1.StatusVersion `json:"versions,omitempty"`

	// lastRemediation is the last remediation. It is not set if there was none.
	// +optional
	LastRemediation LastRemediationStatus `json:"lastRemediation,omitempty,omitzero"`

	// etcd is the state of snapshots of etcd. It is not set if etcd.snapshots is not
	// set.
	// +optional
	Etcd EtcdStatus `json:"etcd,omitempty,omitzero"`

	// observedGeneration is the generation that was last reconciled.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// NovaControlPlaneInitializationStatus is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneInitializationStatus struct {
	// controlPlaneInitialized is true once the control plane accepts requests. It never
	// becomes false again.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novacontrolplanes,scope=Namespaced,categories=cluster-api,shortName=novacp
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Available",type="string",JSONPath=".status.conditions[?(@.type=='Available')].status",description="Whether the control plane accepts requests"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".spec.replicas",description="Desired number of machines"
// +kubebuilder:printcolumn:name="Current",type="integer",JSONPath=".status.replicas",description="Machines that exist"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyReplicas",description="Machines that are ready"
// +kubebuilder:printcolumn:name="Up-to-date",type="integer",JSONPath=".status.upToDateReplicas",description="Machines that match the spec"
// +kubebuilder:printcolumn:name="Initialized",type="boolean",JSONPath=".status.initialization.controlPlaneInitialized",description="Whether kubeadm init has completed",priority=10
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version",description="Desired Kubernetes version"
// +kubebuilder:printcolumn:name="Rollout",type="string",JSONPath=".status.conditions[?(@.type=='RollingOut')].message",description="Message of the condition RollingOut",priority=10
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",description="Whether reconciliation is paused",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Available')].message",description="Message of the condition Available"

// NovaControlPlane is the control plane of a workload cluster, on machines that it
// creates.
// +kubebuilder:validation:XValidation:rule="self.spec.version == oldSelf.spec.version || !has(self.status) || !has(self.status.versions) || int(self.spec.version.split('.')[1]) >= int(self.status.versions[0].version.split('.')[1])",message="version cannot go below the oldest minor version that the control plane runs"
type NovaControlPlane struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaControlPlaneSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. It is not set before the first reconcile.
	// +optional
	Status NovaControlPlaneStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (c *NovaControlPlane) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NovaControlPlane) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// GetReplicas returns the desired number of machines or its default.
func (c *NovaControlPlane) GetReplicas() int32 {
	if c.Spec.Replicas == nil {
		return DefaultReplicas
	}
	return *c.Spec.Replicas
}

// GetProvider returns the provider of the address or its default.
func (e *EndpointSpec) GetProvider() EndpointProvider {
	return cmp.Or(e.Provider, EndpointProviderKubeVIP)
}

// GetImage returns the image of kube-vip or its default.
func (k *KubeVIPSpec) GetImage() string {
	return cmp.Or(k.Image, DefaultKubeVIPImage)
}

// +kubebuilder:object:root=true

// NovaControlPlaneList is a list of NovaControlPlanes.
type NovaControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaControlPlane `json:"items"`
}

// NovaControlPlaneTemplateSpec holds the template.
type NovaControlPlaneTemplateSpec struct {
	// template is the template of a NovaControlPlane.
	// +required
	Template NovaControlPlaneTemplateResource `json:"template,omitempty,omitzero"`
}

// NovaControlPlaneTemplateResource is the template of a NovaControlPlane.
type NovaControlPlaneTemplateResource struct {
	// metadata holds labels and annotations for the control plane. If not set, none are
	// added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the control plane without replicas, version and infrastructure
	// machines, which the topology sets. If not set, the defaults apply.
	// +optional
	Spec NovaControlPlaneTemplateResourceSpec `json:"spec,omitempty,omitzero"`
}

// NovaControlPlaneTemplateResourceSpec is a NovaControlPlaneSpec without the fields
// that the topology sets.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneTemplateResourceSpec struct {
	// machineTemplate is the template of the machines. Each field documents whether a
	// change replaces control plane machines. If not set, the settings of the topology
	// apply.
	// +optional
	MachineTemplate NovaControlPlaneTemplateMachineTemplate `json:"machineTemplate,omitempty,omitzero"`

	// machineNaming sets the names of new machines. A change replaces nothing. If not
	// set, the name of a machine is that of the NovaControlPlane with a random suffix.
	// +optional
	MachineNaming MachineNamingSpec `json:"machineNaming,omitempty,omitzero"`

	// config configures control plane nodes. A change replaces control plane machines.
	// If not set, the nodes have the defaults.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.roles) || 'control-plane' in self.roles",message="roles of control plane machines must include control-plane"
	Config bootstrapv1.NodeConfigSpec `json:"config,omitempty,omitzero"`

	// platform holds the settings of the whole workload cluster, workers included. Each
	// field documents whether a change replaces control plane machines; workers are
	// not replaced by it. If not set, the defaults apply.
	// +optional
	Platform bootstrapv1.PlatformSpec `json:"platform,omitempty,omitzero"`

	// endpoint configures the provider of the API server's address. A change replaces
	// control plane machines. If not set, kube-vip announces it.
	// +optional
	Endpoint EndpointSpec `json:"endpoint,omitempty,omitzero"`

	// etcd selects where etcd runs, configures it and schedules its snapshots. Each
	// field documents whether a change replaces control plane machines. If not set,
	// etcd runs on the control plane machines and no snapshots are taken.
	// +optional
	Etcd EtcdSpec `json:"etcd,omitempty,omitzero"`

	// rollout configures when and how machines that differ from the spec are replaced.
	// A change replaces nothing by itself, except before and after. If not set, machines
	// are replaced one at a time, and each replacement is created first.
	// +optional
	Rollout NovaControlPlaneRolloutSpec `json:"rollout,omitempty,omitzero"`

	// remediation limits the replacement of machines that a MachineHealthCheck marked
	// unhealthy. A change replaces nothing. If not set, the defaults apply.
	// +optional
	Remediation NovaControlPlaneRemediationSpec `json:"remediation,omitempty,omitzero"`
}

// NovaControlPlaneTemplateMachineTemplate is the template of the machines.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneTemplateMachineTemplate struct {
	// metadata holds labels and annotations for the machines. A change is applied in
	// place and replaces nothing. If not set, none are added.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the spec of the machines. Each field documents whether a change replaces
	// control plane machines. If not set, the defaults apply.
	// +optional
	Spec NovaControlPlaneTemplateMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// NovaControlPlaneTemplateMachineTemplateSpec is the spec of the machines
// without the fields that the topology sets.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneTemplateMachineTemplateSpec struct {
	// deletion sets timeouts of the deletion of a machine. A change is applied in place
	// and replaces nothing. If not set, the defaults of Cluster API apply.
	// +optional
	Deletion NovaControlPlaneMachineDeletionSpec `json:"deletion,omitempty,omitzero"`

	// taints are taints that Cluster API keeps on the nodes. A change is applied in
	// place and replaces nothing. If not set, none are added.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []clusterv1.MachineTaint `json:"taints,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novacontrolplanetemplates,scope=Namespaced,categories=cluster-api,shortName=novacpt
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"

// NovaControlPlaneTemplate is a template for ClusterClasses.
type NovaControlPlaneTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. It is immutable.
	// +required
	Spec NovaControlPlaneTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// NovaControlPlaneTemplateList is a list of NovaControlPlaneTemplates.
type NovaControlPlaneTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaControlPlaneTemplate `json:"items"`
}
