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

	// PuppetCertificateRevokedEventReason: the certificate of a deleted machine was
	// revoked at the Puppet server.
	//
	// Action: none.
	PuppetCertificateRevokedEventReason = "PuppetCertificateRevoked"

	// PuppetRevocationFailedEventReason: the certificate of a deleted machine could not be
	// revoked at the Puppet server. The request is repeated for 5 minutes, and the deletion
	// of the Machine waits.
	//
	// Action: check the Puppet server, and the Secret that the message names.
	PuppetRevocationFailedEventReason = "PuppetRevocationFailed"

	// PuppetCertificateKeptEventReason: the certificate was not revoked within 5 minutes,
	// and the Machine was deleted without.
	//
	// Action: revoke the certificate by hand; see
	// docs/configuration-manager.md#revocation.
	PuppetCertificateKeptEventReason = "PuppetCertificateKept"
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
