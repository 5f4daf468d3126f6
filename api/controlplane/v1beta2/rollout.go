package v1beta2

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultMaxSurge is how many machines more than replicas a rollout may make.
const DefaultMaxSurge = int32(1)

// RolloutStrategyType says how machines that differ from the spec are replaced.
// +kubebuilder:validation:Enum=RollingUpdate;OnDelete
type RolloutStrategyType string

// Rollout strategies.
const (
	// RollingUpdateStrategy replaces one machine after another.
	RollingUpdateStrategy RolloutStrategyType = "RollingUpdate"
	// OnDeleteStrategy replaces a machine when somebody deletes it.
	OnDeleteStrategy RolloutStrategyType = "OnDelete"
)

// NovaControlPlaneRolloutSpec says when and how machines are replaced.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneRolloutSpec struct {
	// before replaces machines ahead of an event. Empty means never.
	// +optional
	Before NovaControlPlaneRolloutBeforeSpec `json:"before,omitempty,omitzero"`

	// after replaces all machines created before this time, once it has
	// passed. Empty means never.
	// +optional
	After *metav1.Time `json:"after,omitempty"`

	// strategy says how machines are replaced. Empty means one after another,
	// the new one first.
	// +optional
	Strategy NovaControlPlaneRolloutStrategy `json:"strategy,omitempty,omitzero"`
}

// NovaControlPlaneRolloutBeforeSpec names events that machines are replaced
// ahead of.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneRolloutBeforeSpec struct {
	// certificatesExpiryDays replaces a machine so many days before the first
	// of its certificates expires. Empty means never. It is ignored if a new
	// machine would be replaced within a day, as with 365 days or more where
	// kubeadm's certificates last a year; the condition RollingOut says so.
	// +optional
	// +kubebuilder:validation:Minimum=7
	// +kubebuilder:validation:Maximum=3650
	CertificatesExpiryDays int32 `json:"certificatesExpiryDays,omitempty"`
}

// NovaControlPlaneRolloutStrategy says how machines are replaced.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.rollingUpdate) || !has(self.type) || self.type == 'RollingUpdate'",message="rollingUpdate can only be set with type RollingUpdate"
type NovaControlPlaneRolloutStrategy struct {
	// type is RollingUpdate or OnDelete. Empty means RollingUpdate.
	// +optional
	Type RolloutStrategyType `json:"type,omitempty"`

	// rollingUpdate holds the settings of RollingUpdate. Empty takes the
	// defaults.
	// +optional
	RollingUpdate NovaControlPlaneRollingUpdate `json:"rollingUpdate,omitempty,omitzero"`
}

// NovaControlPlaneRollingUpdate holds the settings of RollingUpdate.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneRollingUpdate struct {
	// maxSurge is how many machines more than replicas a rollout may make: 1
	// makes the new machine first, 0 takes the old one away first, which needs
	// 3 replicas at least. Empty means 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	MaxSurge *int32 `json:"maxSurge,omitempty"`
}

// GetType returns the strategy or its default.
func (s *NovaControlPlaneRolloutStrategy) GetType() RolloutStrategyType {
	if s.Type == "" {
		return RollingUpdateStrategy
	}
	return s.Type
}

// GetAfter returns when machines created before are replaced; zero means never.
func (s *NovaControlPlaneRolloutSpec) GetAfter() time.Time {
	if s.After == nil {
		return time.Time{}
	}
	return s.After.Time
}

// GetMaxSurge returns the surge or its default.
func (u *NovaControlPlaneRollingUpdate) GetMaxSurge() int32 {
	if u.MaxSurge == nil {
		return DefaultMaxSurge
	}
	return *u.MaxSurge
}

// GetWindow returns how long before the expiry of its certificates a machine
// is replaced; 0 means never.
func (b *NovaControlPlaneRolloutBeforeSpec) GetWindow() time.Duration {
	return time.Duration(b.CertificatesExpiryDays) * 24 * time.Hour
}
