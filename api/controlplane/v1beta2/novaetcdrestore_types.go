package v1beta2

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// EtcdRestoreFinishedAnnotation is set on a finished NovaEtcdRestore and holds its last
// phase. It is an annotation because a status does not survive clusterctl move, and a
// restore must never run twice. An admission policy protects it.
const EtcdRestoreFinishedAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-restore-finished"

// EtcdRestoredAnnotation is set on a NovaEtcdRestore once etcd runs with the restored
// data, and holds the name of the Machine. Further machines join after that.
const EtcdRestoredAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-restored"

// EtcdRestoreIDAnnotation holds the UID that a NovaEtcdRestore had when the
// controller first reconciled it. A move and a backup give the object another
// UID and keep its annotations.
const EtcdRestoreIDAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-restore-id"

// EtcdRestoresConfigMap is the ConfigMap in the namespace kube-system of the
// workload cluster that has a key for each restore that ran there: the ID of the
// NovaEtcdRestore. A management cluster that is restored from an older backup does not
// run such a restore again.
const EtcdRestoresConfigMap = "nova-etcd-restores"

// EtcdRestoreUnauthenticatedAnnotation on a NovaEtcdRestore, with any value,
// accepts a snapshot that is not signed with the key of the cluster.
const EtcdRestoreUnauthenticatedAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-restore-unauthenticated"

// EtcdRestoreSecretType is the type of the Secret that has the name of a
// NovaEtcdRestore. It exists from the verification of the snapshot until the restore is
// finished, and holds the location of the snapshot for the machine that restores it.
const EtcdRestoreSecretType = "controlplane.cluster.x-k8s.io/nova-etcd-restore"

// Keys of that Secret.
const (
	// EtcdRestoreSnapshotKey holds the name of the snapshot.
	EtcdRestoreSnapshotKey = "snapshot"
	// EtcdRestoreURLKey holds a presigned URL.
	EtcdRestoreURLKey = "url"
	// EtcdRestoreExpiresKey holds the expiry of the URL, in RFC 3339.
	EtcdRestoreExpiresKey = "expires"
	// EtcdRestoreSHA256Key holds the SHA-256 of the snapshot, in hexadecimal.
	EtcdRestoreSHA256Key = "sha256"
	// EtcdRestoreCAKey holds the CA certificates that the server is verified against. If
	// not set, those of the system are used.
	EtcdRestoreCAKey = "ca.crt"
)

// EtcdRestorePhase is the phase of a restore.
// +kubebuilder:validation:Enum=Pending;Preparing;Removing;Restoring;Joining;Succeeded;Failed
type EtcdRestorePhase string

// Phases of a restore.
const (
	// EtcdRestorePending: the restore waits for another restore, for its control plane,
	// or for the end of a pause.
	EtcdRestorePending EtcdRestorePhase = "Pending"
	// EtcdRestorePreparing: the snapshot is searched in the bucket and verified, or taken
	// from the surviving member. Nothing was changed yet: deleting the object cancels
	// the restore.
	EtcdRestorePreparing EtcdRestorePhase = "Preparing"
	// EtcdRestoreRemoving: all control plane machines are being deleted.
	EtcdRestoreRemoving EtcdRestorePhase = "Removing"
	// EtcdRestoreRestoring: a new machine restores the snapshot and initializes the
	// control plane with it.
	EtcdRestoreRestoring EtcdRestorePhase = "Restoring"
	// EtcdRestoreJoining: objects of deleted machines are cleaned up, and further control
	// plane machines join until all replicas exist.
	EtcdRestoreJoining EtcdRestorePhase = "Joining"
	// EtcdRestoreSucceeded: all control plane replicas are available.
	EtcdRestoreSucceeded EtcdRestorePhase = "Succeeded"
	// EtcdRestoreFailed: the restore cannot run, and nothing was changed.
	EtcdRestoreFailed EtcdRestorePhase = "Failed"
)

// NovaEtcdRestore's Ready condition and corresponding reasons.
const (
	// EtcdRestoreReadyCondition is true once a restore has succeeded. status.phase shows
	// the current step.
	EtcdRestoreReadyCondition = clusterv1.ReadyCondition

	// EtcdRestoreSucceededReason: all control plane replicas are available.
	//
	// Action: none.
	EtcdRestoreSucceededReason = "Succeeded"

	// EtcdRestoreProgressingReason: the restore is running. The message names the step
	// that it waits for, also a pause, or a Secret of a deleted restore of the same name
	// that still exists.
	//
	// Action: wait, or see docs/etcd.md#how-far-is-it. If the restore waits for a machine
	// on a failed host, see docs/etcd.md#a-machine-on-a-dead-host.
	EtcdRestoreProgressingReason = "Progressing"

	// EtcdRestoreSourceReason: the snapshot or the surviving member cannot be read.
	// Nothing was changed. It is retried.
	//
	// Action: check the bucket and its Secret, or the member that the message names.
	EtcdRestoreSourceReason = "SourceUnavailable"

	// EtcdRestoreRefusedReason: the restore cannot run. Nothing was changed. The message
	// gives the cause.
	//
	// Action: fix the cause, and create another NovaEtcdRestore.
	EtcdRestoreRefusedReason = "Refused"

	// EtcdRestoreUnknownMachineReason: spec.fencing names a Machine that is not a control
	// plane Machine of the cluster. The restore waits.
	//
	// Action: correct the name.
	EtcdRestoreUnknownMachineReason = "UnknownMachine"
)

// NovaEtcdRestoreSpec selects a control plane and the data that it is restored from.
// +kubebuilder:validation:XValidation:rule="self.controlPlaneRef == oldSelf.controlPlaneRef && self.source == oldSelf.source && has(self.s3) == has(oldSelf.s3) && (!has(self.s3) || self.s3 == oldSelf.s3)",message="only fencing can be changed: delete the restore and create another one"
// +kubebuilder:validation:XValidation:rule="!has(self.s3) || !has(self.source.externalEtcd)",message="s3 cannot be set with source externalEtcd: nothing is read from a bucket"
// +kubebuilder:validation:XValidation:rule="!has(self.fencing) || !has(self.source.machine) || !(self.source.machine.name in self.fencing.machines)",message="the Machine of source cannot be in fencing.machines: a snapshot is taken of its member"
type NovaEtcdRestoreSpec struct {
	// controlPlaneRef is the NovaControlPlane in the same namespace whose etcd
	// is restored. All its machines are replaced.
	// +required
	ControlPlaneRef NovaEtcdRestoreControlPlaneReference `json:"controlPlaneRef,omitempty,omitzero"`

	// source is the source of the data.
	// +required
	Source NovaEtcdRestoreSource `json:"source,omitempty,omitzero"`

	// s3 is the bucket. Defaults to etcd.snapshots.s3 of the NovaControlPlane.
	// +optional
	S3 S3Spec `json:"s3,omitempty,omitzero"`

	// fencing names machines that the restore does not wait for. It can be
	// changed while the restore is running. If not set, the restore waits until
	// the VM of each control plane machine is deleted.
	// +optional
	Fencing NovaEtcdRestoreFencing `json:"fencing,omitempty,omitzero"`
}

// NovaEtcdRestoreFencing names machines that an administrator has fenced.
type NovaEtcdRestoreFencing struct {
	// machines are control plane Machines that do not run or cannot reach the network,
	// because an administrator has powered off or disconnected their host. The restore
	// deletes them and does not wait until their VMs are deleted. If such a machine does
	// run, it may serve the old data at the address of the control plane beside the
	// restored machine.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Machines []string `json:"machines,omitempty"`
}

// Names reports whether the fencing contains a machine.
func (f *NovaEtcdRestoreFencing) Names(machine string) bool {
	return slices.Contains(f.Machines, machine)
}

// NovaEtcdRestoreControlPlaneReference names a NovaControlPlane.
type NovaEtcdRestoreControlPlaneReference struct {
	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// NovaEtcdRestoreSource is the source of the restored data.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="[has(self.snapshot), has(self.machine), has(self.externalEtcd)].filter(x, x).size() == 1",message="exactly one of snapshot, machine and externalEtcd must be set"
type NovaEtcdRestoreSource struct {
	// snapshot is a snapshot in the bucket. Exactly one source must be set.
	// +optional
	Snapshot NovaEtcdRestoreSnapshot `json:"snapshot,omitempty,omitzero"`

	// machine is a control plane Machine whose etcd member still runs. A snapshot of it
	// is first stored in the bucket. The manager must reach its address at port 2379.
	// Exactly one source must be set.
	// +optional
	Machine NovaEtcdRestoreMachine `json:"machine,omitempty,omitzero"`

	// externalEtcd uses the data that external etcd holds: one new machine runs
	// kubeadm init against it. It is for a control plane whose machines are lost, and
	// rejected while its API server responds. Exactly one source must be set.
	// +optional
	ExternalEtcd *NovaEtcdRestoreExternalEtcd `json:"externalEtcd,omitempty"`
}

// NovaEtcdRestoreExternalEtcd selects the data that external etcd holds. It has
// no fields.
type NovaEtcdRestoreExternalEtcd struct{}

// NovaEtcdRestoreSnapshot is a snapshot in the bucket.
type NovaEtcdRestoreSnapshot struct {
	// name is the name of the snapshot, as in status.etcd.lastSnapshot of the
	// NovaControlPlane, or Latest. Latest is rejected if the newest two snapshots are not
	// of the same control plane.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9-]+$')",message="name must be the name of a snapshot, such as 20260102t150405z, or Latest"
	Name string `json:"name,omitempty"`

	// cluster is the Cluster of the snapshot. Its snapshots are read from
	// <prefix>/<namespace>/<cluster>/ with the namespace of the restore. Defaults to the
	// Cluster of the control plane.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="cluster must be the name of a Cluster"
	Cluster string `json:"cluster,omitempty"`
}

// LatestEtcdSnapshot selects the newest snapshot in the bucket.
const LatestEtcdSnapshot = "Latest"

// NovaEtcdRestoreMachine is a surviving control plane Machine.
type NovaEtcdRestoreMachine struct {
	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// NovaEtcdRestoreStatus is the observed state of a restore.
type NovaEtcdRestoreStatus struct {
	// conditions are Ready. They are not set before the first reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is the phase of the restore.
	// +optional
	Phase EtcdRestorePhase `json:"phase,omitempty"`

	// snapshot is the snapshot. It is not set before it is selected.
	// +optional
	Snapshot EtcdSnapshotStatus `json:"snapshot,omitempty,omitzero"`

	// machine is the Machine that restores the snapshot. It is not set before the Machine
	// exists.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// completionTime is the time at which the restore finished.
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
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase",description="Phase of the restore"
// +kubebuilder:printcolumn:name="Snapshot",type="string",JSONPath=".status.snapshot.name",description="Snapshot that is restored"
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".status.machine",description="Machine that restores the snapshot"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of the condition Ready"

// NovaEtcdRestore restores a control plane from a snapshot of etcd, from one surviving
// member, or from the data of an external etcd. All control plane machines are replaced.
type NovaEtcdRestore struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaEtcdRestoreSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. It is not set before the first reconcile.
	// +optional
	Status NovaEtcdRestoreStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (r *NovaEtcdRestore) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions.
func (r *NovaEtcdRestore) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// Finished returns the last phase of a finished restore, or nothing. The annotation
// survives clusterctl move, and the status survives kubectl replace: either is enough.
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

// Restored reports whether etcd runs with the restored data. As with Finished, the
// annotation or the status is enough.
func (r *NovaEtcdRestore) Restored() bool {
	_, restored := r.Annotations[EtcdRestoredAnnotation]
	return restored || r.Status.Phase == EtcdRestoreJoining || r.Status.Phase == EtcdRestoreSucceeded
}

// NextEtcdRestore returns the oldest restore of a control plane that is not finished.
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
