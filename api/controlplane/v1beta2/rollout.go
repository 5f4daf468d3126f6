package v1beta2

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// DefaultMaxSurge is the default number of machines above replicas during a rollout.
const DefaultMaxSurge = int32(1)

// RolloutStrategyType is how machines that differ from the spec are replaced.
// +kubebuilder:validation:Enum=RollingUpdate;OnDelete
type RolloutStrategyType string

// Rollout strategies.
const (
	// RollingUpdateStrategy replaces one machine at a time.
	RollingUpdateStrategy RolloutStrategyType = "RollingUpdate"
	// OnDeleteStrategy replaces a machine when a user deletes it.
	OnDeleteStrategy RolloutStrategyType = "OnDelete"
)

// NovaControlPlaneRolloutSpec configures when and how machines are replaced.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneRolloutSpec struct {
	// paused stops changes and replacements of machines that are not up to date. The
	// condition RollingOut of the NovaControlPlane and UpToDate of each Machine show the
	// changes of a rollout and their order. It stops rollouts for after and before too. A
	// change in place that Cluster API has begun continues. Machines are created and
	// deleted for replicas and remediation nevertheless; new ones have the new settings. Defaults to false.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// before replaces machines ahead of an event. If not set, no machine is replaced for
	// one.
	// +optional
	Before NovaControlPlaneRolloutBeforeSpec `json:"before,omitempty,omitzero"`

	// after replaces all machines that were created before this time, once it has passed.
	// If not set, no machine is replaced for its age.
	// +optional
	After *metav1.Time `json:"after,omitempty"`

	// authoritiesAfter replaces the CAs of the cluster, and all certificates that they have
	// signed, once this time has passed, if the CAs were made before it. All machines first
	// trust a second CA, then have certificates of it, and then trust only it: each of the
	// three changes control plane machines as a rollout does, and then workers: in place if
	// they were created with rollout.inPlace, else their MachineDeployments replace them. The
	// condition AuthoritiesRotated shows the progress. A removed, or later,
	// time restores the former CAs as long as they are trusted. With platform.pki the new CAs
	// have their keys in the StarVault, wherever those of the former ones are. CAs in Secrets
	// that a user has created are not replaced. If not set, no CA is replaced.
	// +optional
	AuthoritiesAfter *metav1.Time `json:"authoritiesAfter,omitempty"`

	// inPlace defines whether a change of other fields changes machines in place. Never:
	// machines are replaced. Prefer: machines are changed if all changed fields allow
	// that, and replaced otherwise; a machine whose change does not end within 10 minutes
	// is replaced, and a sole machine is always replaced. Only: machines are changed, or
	// nothing is changed if a field needs a replacement; RollingOut lists these fields.
	// The API server of a sole machine restarts then. Cluster API must have the feature
	// gates RuntimeSDK and InPlaceUpdates and the ExtensionConfig of nova-bootstrap;
	// without them a change does not end. Machines that were created with Never cannot be
	// changed. A change of this field replaces nothing. Defaults to Never.
	// +optional
	// +kubebuilder:validation:Enum=Never;Prefer;Only
	InPlace bootstrapv1.InPlaceMode `json:"inPlace,omitempty"`

	// strategy is how machines are replaced. A change replaces nothing. If not set,
	// machines are replaced one at a time, and each replacement is created first.
	// +optional
	Strategy NovaControlPlaneRolloutStrategy `json:"strategy,omitempty,omitzero"`
}

// NovaControlPlaneRolloutBeforeSpec holds the events ahead of which machines are
// replaced.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneRolloutBeforeSpec struct {
	// certificatesExpiryDays replaces a machine this number of days before the first of
	// its certificates expires, or renews its certificates if inPlace is Prefer or Only.
	// It is ignored if a new machine would be replaced within a day, for instance with
	// 365 days while certificates are valid for a year; the condition RollingOut reports
	// that. If not set, no machine is replaced for it.
	// +optional
	// +kubebuilder:validation:Minimum=7
	// +kubebuilder:validation:Maximum=3650
	CertificatesExpiryDays int32 `json:"certificatesExpiryDays,omitempty"`
}

// NovaControlPlaneRolloutStrategy configures how machines are replaced.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.rollingUpdate) || !has(self.type) || self.type == 'RollingUpdate'",message="rollingUpdate can only be set with type RollingUpdate"
type NovaControlPlaneRolloutStrategy struct {
	// type is RollingUpdate or OnDelete. Defaults to RollingUpdate.
	// +optional
	Type RolloutStrategyType `json:"type,omitempty"`

	// rollingUpdate configures RollingUpdate. If not set, the defaults apply.
	// +optional
	RollingUpdate NovaControlPlaneRollingUpdate `json:"rollingUpdate,omitempty,omitzero"`
}

// NovaControlPlaneRollingUpdate configures RollingUpdate.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneRollingUpdate struct {
	// maxSurge is the number of machines above replicas during a rollout. With 1 the
	// replacement is created first. With 0 the old machine is deleted first, which needs
	// at least 3 replicas. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	MaxSurge *int32 `json:"maxSurge,omitempty"`
}

// GetType returns the strategy or its default.
func (s *NovaControlPlaneRolloutStrategy) GetType() RolloutStrategyType {
	return cmp.Or(s.Type, RollingUpdateStrategy)
}

// IsPaused reports whether rollouts are paused.
func (s *NovaControlPlaneRolloutSpec) IsPaused() bool { return s.Paused != nil && *s.Paused }

// GetAfter returns the time before which machines must have been created to be
// replaced. Zero means never.
func (s *NovaControlPlaneRolloutSpec) GetAfter() time.Time {
	if s.After == nil {
		return time.Time{}
	}
	return s.After.Time
}

// GetAuthoritiesAfter returns the time before which CAs must have been made to be
// replaced. Zero means never.
func (s *NovaControlPlaneRolloutSpec) GetAuthoritiesAfter() time.Time {
	if s.AuthoritiesAfter == nil {
		return time.Time{}
	}
	return s.AuthoritiesAfter.Time
}

// GetInPlace returns the mode of changes in place or its default.
func (s *NovaControlPlaneRolloutSpec) GetInPlace() bootstrapv1.InPlaceMode {
	return cmp.Or(s.InPlace, bootstrapv1.InPlaceNever)
}

// GetMaxSurge returns the surge or its default.
func (u *NovaControlPlaneRollingUpdate) GetMaxSurge() int32 {
	if u.MaxSurge == nil {
		return DefaultMaxSurge
	}
	return *u.MaxSurge
}

// GetWindow returns how long before the expiry of its certificates a machine is
// replaced. Zero means never.
func (b *NovaControlPlaneRolloutBeforeSpec) GetWindow() time.Duration {
	return time.Duration(b.CertificatesExpiryDays) * 24 * time.Hour
}
