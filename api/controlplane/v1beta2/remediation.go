package v1beta2

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of remediation.
const (
	// DefaultMaxRetry is no limit.
	DefaultMaxRetry = int32(-1)
	// DefaultMinHealthyPeriod is after which time a failure is a new one.
	DefaultMinHealthyPeriod = time.Hour
)

// RemediatingCondition is true while a machine that a MachineHealthCheck gave
// up is to be replaced, with a message that says how far it is.
const RemediatingCondition = "Remediating"

const (
	// RemediatingReason: a machine is being replaced.
	RemediatingReason = "Remediating"
	// RemediationDeferredReason: it has to wait, the message says what for.
	RemediationDeferredReason = "RemediationDeferred"
	// RemediationLimitReachedReason: too many replacements failed, somebody
	// has to look.
	RemediationLimitReachedReason = "RetryLimitReached"
	// NotRemediatingReason: no machine is to be replaced.
	NotRemediatingReason = "NotRemediating"
)

// NovaControlPlaneRemediationSpec bounds the replacement of machines that a
// MachineHealthCheck gave up.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneRemediationSpec struct {
	// maxRetry is how often the replacement of a machine may be replaced in
	// turn when it fails too. Empty means without end, 0 never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRetry *int32 `json:"maxRetry,omitempty"`

	// retryPeriodSeconds is the least time between such replacements. Empty
	// means none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetryPeriodSeconds *int32 `json:"retryPeriodSeconds,omitempty"`

	// minHealthyPeriodSeconds is after which time the failure of a replacement
	// is a new one, which does not count as a retry. Empty means 1 hour.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinHealthyPeriodSeconds *int32 `json:"minHealthyPeriodSeconds,omitempty"`
}

// LastRemediationStatus is the remediation that was begun last.
type LastRemediationStatus struct {
	// machine is the one that was replaced.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// time is when that was begun.
	// +required
	Time *metav1.Time `json:"time,omitempty"`

	// retryCount is how many replacements before it failed too.
	// +required
	// +kubebuilder:validation:Minimum=0
	RetryCount *int32 `json:"retryCount,omitempty"`
}

// GetMaxRetry returns the limit or its default.
func (s *NovaControlPlaneRemediationSpec) GetMaxRetry() int32 {
	if s.MaxRetry == nil {
		return DefaultMaxRetry
	}
	return *s.MaxRetry
}

// GetRetryPeriod returns the least time between replacements or its default.
func (s *NovaControlPlaneRemediationSpec) GetRetryPeriod() time.Duration {
	if s.RetryPeriodSeconds == nil {
		return 0
	}
	return time.Duration(*s.RetryPeriodSeconds) * time.Second
}

// GetMinHealthyPeriod returns after which time a failure is a new one, or its
// default.
func (s *NovaControlPlaneRemediationSpec) GetMinHealthyPeriod() time.Duration {
	if s.MinHealthyPeriodSeconds == nil {
		return DefaultMinHealthyPeriod
	}
	return time.Duration(*s.MinHealthyPeriodSeconds) * time.Second
}
