package v1beta2

// Machine's events.
const (
	// CertificateDeniedEventReason: a certificate request was denied: it was for another
	// node, came after the machine had joined or with a second key, or has a name or
	// address that is not of the machine.
	//
	// Action: find the message in docs/troubleshooting.md#a-machine-is-denied-its-certificate.
	// An attacker may have the bootstrap data of the machine.
	CertificateDeniedEventReason = "CertificateDenied"

	// CertificatePendingEventReason: a request is left pending, for instance because the
	// hypervisor has not reported an address of the node yet.
	//
	// Action: wait. If the request stays pending, see
	// docs/troubleshooting.md#kubectl-logs-and-kubectl-exec-fail-with-a-tls-error.
	CertificatePendingEventReason = "CertificatePending"
)

// Cluster's events.
const (
	// CertificatesAPIUnavailableEventReason: the API server of the workload cluster does not
	// serve certificates.k8s.io/v1, so no machine can join. It is checked once a minute.
	//
	// Action: check the argument runtime-config of the API server, or the other control
	// plane provider.
	CertificatesAPIUnavailableEventReason = "CertificatesAPIUnavailable"
)
