package v1beta2

// Failed requests to a StarVault: reasons of CertificatesAvailable and DataSecretAvailable.
const (
	// VaultUnreachableReason: the StarVault does not respond, or its certificate is not
	// trusted. Clusters run; new machines and renewals wait.
	//
	// Action: check server and caBundle of the NovaStarVaultIdentity, and the network.
	VaultUnreachableReason = "VaultUnreachable"

	// VaultSealedReason: the StarVault is sealed, in standby or overloaded. Clusters run;
	// new machines and renewals wait.
	//
	// Action: unseal the StarVault.
	VaultSealedReason = "VaultSealed"

	// VaultCredentialsRejectedReason: the StarVault rejects the credentials of the manager,
	// or they have expired.
	//
	// Action: write new credentials into the Secret of the NovaStarVaultIdentity in the
	// namespace of the manager: docs/starvault.md#set-up.
	VaultCredentialsRejectedReason = "VaultCredentialsRejected"

	// VaultForbiddenReason: the policies of the manager do not allow a request.
	//
	// Action: write the policies of the release again: docs/starvault.md#set-up.
	VaultForbiddenReason = "VaultForbidden"

	// VaultNotFoundReason: an engine, a role or an auth method does not exist, or the
	// namespace of the StarVault is another one.
	//
	// Action: check namespace, mountPath and paths of the NovaStarVaultIdentity.
	VaultNotFoundReason = "VaultNotFound"

	// VaultRefusedReason: the StarVault refuses a request.
	//
	// Action: read the message.
	VaultRefusedReason = "VaultRefused"

	// VaultRoleUnsuitableReason: a role of the StarVault was changed, so that it signs more
	// or other certificates than it should. They are not used.
	//
	// Action: restore the setting of the role that the message names, and find out in the
	// audit log of the StarVault who changed it.
	VaultRoleUnsuitableReason = "VaultRoleUnsuitable"

	// VaultIdentityUnusableReason: the NovaStarVaultIdentity does not exist, does not allow
	// the namespace of the cluster, or has no valid credentials.
	//
	// Action: read the message.
	VaultIdentityUnusableReason = "VaultIdentityUnusable"
)
