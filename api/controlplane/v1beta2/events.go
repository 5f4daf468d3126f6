package v1beta2

// NovaControlPlane's events.
const (
	// CertificatesInvalidEventReason: a Secret does not contain a valid certificate or key;
	// CertificatesAvailable reports it too.
	//
	// Action: find the message in docs/controlplane.md#certificates.
	CertificatesInvalidEventReason = "CertificatesInvalid"

	// CertificatesLostEventReason: a certificate Secret of a running cluster is missing.
	//
	// Action: restore the Secret from a backup; the nodes would not trust a new
	// certificate.
	CertificatesLostEventReason = "CertificatesLost"

	// ConfigurationNotStoredEventReason: the configuration of kubeadm cannot be stored in the
	// workload cluster. No machine is created and no old machine is replaced.
	//
	// Action: fix the cause in the message; see
	// docs/controlplane.md#upgrades-in-the-workload-cluster.
	ConfigurationNotStoredEventReason = "ConfigurationNotStored"

	// AddonsUpgradeFailedEventReason: kube-proxy or CoreDNS could not be updated. It is
	// retried.
	//
	// Action: fix the cause in the message; see
	// docs/controlplane.md#upgrades-in-the-workload-cluster.
	AddonsUpgradeFailedEventReason = "AddonsUpgradeFailed"

	// EndpointNotMovedEventReason: no other machine took the address of the endpoint from a
	// machine that is being deleted or changed in place.
	//
	// Action: check kube-vip on the other machines; see docs/controlplane.md#endpoint.
	EndpointNotMovedEventReason = "EndpointNotMoved"

	// MachineCreationFailedEventReason: the Machine that restores etcd could not be created.
	// It is retried.
	//
	// Action: fix the cause in the message.
	MachineCreationFailedEventReason = "MachineCreationFailed"

	// EtcdSnapshotFailedEventReason: a snapshot failed or was not taken;
	// EtcdSnapshotsHealthy reports a failure too.
	//
	// Action: see docs/etcd.md#snapshot-health.
	EtcdSnapshotFailedEventReason = "EtcdSnapshotFailed"
)

// NovaEtcdRestore's events.
const (
	// RestoreAlreadyDoneEventReason: the workload cluster records that the restore was
	// carried out before. It is not carried out again.
	//
	// Action: none. To restore once more, create another NovaEtcdRestore.
	RestoreAlreadyDoneEventReason = "RestoreAlreadyDone"
)
