package v1beta2

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// EtcdRestoreFinishedAnnotation stands on a NovaEtcdRestore that is over and
// holds its last phase. It lies there because a status does not survive a move,
// and a restore must never be carried out twice.
const EtcdRestoreFinishedAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-restore-finished"

// EtcdRestoredAnnotation stands on a NovaEtcdRestore once etcd works again with
// what was restored, and names the Machine. Further machines are about to join.
const EtcdRestoredAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-restored"

// EtcdRestoreIDAnnotation holds the UID that a NovaEtcdRestore had when the
// controller first reconciled it. A move and a backup give the object another
// UID and keep its annotations.
const EtcdRestoreIDAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-restore-id"

// EtcdRestoresConfigMap is the ConfigMap in the namespace kube-system of the
// workload cluster that has a key for each restore that was carried out there:
// the ID of the NovaEtcdRestore. A management cluster that is restored from an
// older backup does not carry out such a restore again.
const EtcdRestoresConfigMap = "nova-etcd-restores"

// EtcdRestoreUnauthenticatedAnnotation on a NovaEtcdRestore, with any value,
// accepts a snapshot that is not signed with the key of the cluster.
const EtcdRestoreUnauthenticatedAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-restore-unauthenticated"

// EtcdRestoreSecretType is the type of the Secret that lies beside a
// NovaEtcdRestore, with its name, from when its snapshot was found whole until
// it is over. It tells the machine that restores where to have it.
const EtcdRestoreSecretType = "controlplane.cluster.x-k8s.io/nova-etcd-restore"

// Keys of that Secret.
const (
	// EtcdRestoreSnapshotKey holds the snapshot's name.
	EtcdRestoreSnapshotKey = "snapshot"
	// EtcdRestoreURLKey holds a URL that is good for a while.
	EtcdRestoreURLKey = "url"
	// EtcdRestoreExpiresKey holds until when, in RFC 3339.
	EtcdRestoreExpiresKey = "expires"
	// EtcdRestoreSHA256Key holds the hash of what lies there, in hexadecimal.
	EtcdRestoreSHA256Key = "sha256"
	// EtcdRestoreCAKey holds the certificates that the server is verified
	// against; empty for those of the system.
	EtcdRestoreCAKey = "ca.crt"
)

// EtcdRestorePhase is how far a restore is.
// +kubebuilder:validation:Enum=Pending;Preparing;Removing;Restoring;Joining;Succeeded;Failed
type EtcdRestorePhase string

// Phases of a restore.
const (
	// EtcdRestorePending: it waits for another one, for its control plane, or
	// for the end of a pause.
	EtcdRestorePending EtcdRestorePhase = "Pending"
	// EtcdRestorePreparing: the snapshot is looked for in the bucket and
	// verified, or taken from the surviving member. Nothing is lost yet:
	// deleting the object ends it.
	EtcdRestorePreparing EtcdRestorePhase = "Preparing"
	// EtcdRestoreRemoving: all control plane machines are taken away.
	EtcdRestoreRemoving EtcdRestorePhase = "Removing"
	// EtcdRestoreRestoring: a new machine restores the snapshot and initialises
	// the control plane with it.
	EtcdRestoreRestoring EtcdRestorePhase = "Restoring"
	// EtcdRestoreJoining: what is gone is cleaned up, and further control
	// plane machines join until all are there.
	EtcdRestoreJoining EtcdRestorePhase = "Joining"
	// EtcdRestoreSucceeded: the control plane is whole.
	EtcdRestoreSucceeded EtcdRestorePhase = "Succeeded"
	// EtcdRestoreFailed: it cannot be carried out, and nothing was changed.
	EtcdRestoreFailed EtcdRestorePhase = "Failed"
)

// EtcdRestoreReadyCondition is true once a restore is through.
const EtcdRestoreReadyCondition = clusterv1.ReadyCondition

const (
	// EtcdRestoreSucceededReason: the control plane is whole.
	EtcdRestoreSucceededReason = "Succeeded"
	// EtcdRestoreProgressingReason: it goes on, the message says what it waits for.
	EtcdRestoreProgressingReason = "Progressing"
	// EtcdRestoreSourceReason: what is to be restored cannot be had, the
	// message says why. It is tried again.
	EtcdRestoreSourceReason = "SourceUnavailable"
	// EtcdRestoreRefusedReason: it cannot be carried out, the message says
	// why. Make another one.
	EtcdRestoreRefusedReason = "Refused"
	// EtcdRestoreUnknownMachineReason: spec.fencing names a Machine that is not
	// a control plane Machine of the cluster. Nothing is done until the name is
	// corrected.
	EtcdRestoreUnknownMachineReason = "UnknownMachine"
)

// NovaEtcdRestoreSpec says which control plane gets back what.
// +kubebuilder:validation:XValidation:rule="self.controlPlaneRef == oldSelf.controlPlaneRef && self.source == oldSelf.source && has(self.s3) == has(oldSelf.s3) && (!has(self.s3) || self.s3 == oldSelf.s3)",message="only fencing of a restore can be changed: delete it and create another one"
// +kubebuilder:validation:XValidation:rule="!has(self.s3) || !has(self.source.externalEtcd)",message="s3 cannot be set with source externalEtcd: nothing is read from a bucket"
// +kubebuilder:validation:XValidation:rule="!has(self.fencing) || !has(self.source.machine) || !(self.source.machine.name in self.fencing.machines)",message="the Machine of source cannot be in fencing.machines: a snapshot is taken of its member"
type NovaEtcdRestoreSpec struct {
	// controlPlaneRef is the NovaControlPlane in the same namespace whose etcd
	// is restored. All its machines are replaced.
	// +required
	ControlPlaneRef NovaEtcdRestoreControlPlaneReference `json:"controlPlaneRef,omitempty,omitzero"`

	// source is what is restored.
	// +required
	Source NovaEtcdRestoreSource `json:"source,omitempty,omitzero"`

	// s3 is the bucket. Empty takes that of the control plane's snapshots.
	// +optional
	S3 S3Spec `json:"s3,omitempty,omitzero"`

	// fencing names machines that the restore does not wait for. It can be
	// changed while the restore goes on. If not set, the restore waits until
	// the VM of each control plane machine is deleted.
	// +optional
	Fencing NovaEtcdRestoreFencing `json:"fencing,omitempty,omitzero"`
}

// NovaEtcdRestoreFencing names machines that a person has fenced.
type NovaEtcdRestoreFencing struct {
	// machines are control plane Machines of which a person has made sure that
	// they do not run and cannot reach the network: their host is powered off
	// or disconnected. The restore deletes them and does not wait until their
	// VMs are deleted. If such a machine does run, it may serve the old data at
	// the address of the control plane beside the restored machine.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Machines []string `json:"machines,omitempty"`
}

// Names reports whether the fencing names a machine.
func (f *NovaEtcdRestoreFencing) Names(machine string) bool {
	return slices.Contains(f.Machines, machine)
}

// NovaEtcdRestoreControlPlaneReference names a NovaControlPlane.
type NovaEtcdRestoreControlPlaneReference struct {
	// name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// NovaEtcdRestoreSource is what is restored.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="[has(self.snapshot), has(self.machine), has(self.externalEtcd)].filter(x, x).size() == 1",message="exactly one of snapshot, machine and externalEtcd must be set"
type NovaEtcdRestoreSource struct {
	// snapshot is a snapshot in the bucket.
	// +optional
	Snapshot NovaEtcdRestoreSnapshot `json:"snapshot,omitempty,omitzero"`

	// machine is a control plane Machine whose member of etcd still runs. A
	// snapshot is taken of it first and put into the bucket. The manager must
	// reach its address at port 2379.
	// +optional
	Machine NovaEtcdRestoreMachine `json:"machine,omitempty,omitzero"`

	// externalEtcd uses the data that external etcd holds: one new machine runs
	// kubeadm init against it. It is for a control plane whose machines are
	// lost, and refused while its API server answers.
	// +optional
	ExternalEtcd *NovaEtcdRestoreExternalEtcd `json:"externalEtcd,omitempty"`
}

// NovaEtcdRestoreExternalEtcd selects the data that external etcd holds. It has
// no fields.
type NovaEtcdRestoreExternalEtcd struct{}

// NovaEtcdRestoreSnapshot is a snapshot in the bucket.
type NovaEtcdRestoreSnapshot struct {
	// name is its name as status.etcd.lastSnapshot of the NovaControlPlane
	// says it, or Latest. Latest is refused where the newest one and the one
	// before it are not of the same control plane.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9-]+$')",message="name must be the name of a snapshot, such as 20260102t150405z, or Latest"
	Name string `json:"name,omitempty"`

	// cluster is the Cluster whose snapshot it is. Its snapshots are read from
	// <prefix>/<namespace>/<cluster>/ with the namespace of the restore. If not
	// set, it is the Cluster of the control plane.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="cluster must be the name of a Cluster"
	Cluster string `json:"cluster,omitempty"`
}

// LatestEtcdSnapshot stands for the newest snapshot in the bucket.
const LatestEtcdSnapshot = "Latest"

// NovaEtcdRestoreMachine is a surviving control plane Machine.
type NovaEtcdRestoreMachine struct {
	// name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// NovaEtcdRestoreStatus is how far a restore is.
type NovaEtcdRestoreStatus struct {
	// conditions are Ready. Empty until the first reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is how far it is. Empty until the first reconcile.
	// +optional
	Phase EtcdRestorePhase `json:"phase,omitempty"`

	// snapshot is what is restored. Empty until it is known.
	// +optional
	Snapshot EtcdSnapshotStatus `json:"snapshot,omitempty,omitzero"`

	// machine is the machine that restores it. Empty until it is made.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// completionTime is when it was over. Empty until then.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// observedGeneration is the generation that was last reconciled.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novaetcdrestores,scope=Namespaced,categories=cluster-api,shortName=novaer
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:printcolumn:name="ControlPlane",type="string",JSONPath=".spec.controlPlaneRef.name",description="Control plane whose etcd is restored"
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase",description="How far it is"
// +kubebuilder:printcolumn:name="Snapshot",type="string",JSONPath=".status.snapshot.name",description="What is restored"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".status.machine",description="Machine that restores it"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What it waits for"

// NovaEtcdRestore brings a control plane back from a snapshot of etcd, from one
// surviving member, or from the data of an external etcd. All control plane machines are replaced.
type NovaEtcdRestore struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaEtcdRestoreSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Empty until the first reconcile.
	// +optional
	Status NovaEtcdRestoreStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (r *NovaEtcdRestore) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions.
func (r *NovaEtcdRestore) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// Finished returns the last phase of a restore that is over, or nothing. The
// annotation survives a move and the status that somebody replaces the object:
// either is enough.
func (r *NovaEtcdRestore) Finished() EtcdRestorePhase {
	if phase := r.Annotations[EtcdRestoreFinishedAnnotation]; phase != "" {
		return EtcdRestorePhase(phase)
	}
	switch r.Status.Phase {
	case EtcdRestoreSucceeded, EtcdRestoreFailed:
		return r.Status.Phase
	default:
		return ""
	}
}

// Restored reports whether etcd works again with what was restored. As with
// Finished, annotation or status is enough.
func (r *NovaEtcdRestore) Restored() bool {
	_, restored := r.Annotations[EtcdRestoredAnnotation]
	return restored || r.Status.Phase == EtcdRestoreJoining || r.Status.Phase == EtcdRestoreSucceeded
}

// NextEtcdRestore returns the restore of a control plane whose turn it is: the
// oldest that is not over.
func NextEtcdRestore(all []NovaEtcdRestore, controlPlane string) (*NovaEtcdRestore, bool) {
	var next *NovaEtcdRestore
	for i := range all {
		r := &all[i]
		if r.Spec.ControlPlaneRef.Name != controlPlane || r.Finished() != "" || !r.DeletionTimestamp.IsZero() {
			continue
		}
		older := next == nil || r.CreationTimestamp.Before(&next.CreationTimestamp) ||
			r.CreationTimestamp.Equal(&next.CreationTimestamp) && r.Name < next.Name
		if older {
			next = r
		}
	}
	return next, next != nil
}

// +kubebuilder:object:root=true

// NovaEtcdRestoreList is a list of NovaEtcdRestores.
type NovaEtcdRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaEtcdRestore `json:"items"`
}
