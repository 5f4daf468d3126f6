package v1beta2

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of remediation.
const (
	// DefaultMaxRetry is no limit.
	DefaultMaxRetry = int32(-1)
	// DefaultMinHealthyPeriod is the time after which a failure does not count as a
	// retry.
	DefaultMinHealthyPeriod = time.Hour
)

// NovaControlPlane's Remediating condition and corresponding reasons.
const (
	// RemediatingCondition is true while a machine that a MachineHealthCheck marked
	// unhealthy has to be replaced. It has negative polarity.
	RemediatingCondition = "Remediating"

	// RemediatingReason: a machine is being replaced.
	//
	// Action: wait.
	RemediatingReason = "Remediating"

	// RemediationDeferredReason: the replacement has to wait for another step; the message
	// gives the cause.
	//
	// Action: wait, or find the message in
	// docs/controlplane.md#conditions-of-the-novacontrolplane.
	RemediationDeferredReason = "RemediationDeferred"

	// RemediationLimitReachedReason: more replacements failed than remediation.maxRetry
	// allows. With one replica: after two remediations in an hour.
	//
	// Action: find the cause, then delete the machine or raise maxRetry. Remediation
	// continues automatically after minHealthyPeriodSeconds; see
	// docs/controlplane.md#remediation.
	RemediationLimitReachedReason = "RetryLimitReached"

	// NotRemediatingReason: no machine has to be replaced.
	//
	// Action: none.
	NotRemediatingReason = "NotRemediating"
)

// NovaControlPlaneRemediationSpec limits the replacement of machines that a
// MachineHealthCheck marked unhealthy.
// +kubebuilder:validation:MinProperties=1
type NovaControlPlaneRemediationSpec struct {
	// maxRetry is how many times a replacement that fails is replaced again. The value 0
	// means never. If not set, there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRetry *int32 `json:"maxRetry,omitempty"`

	// retryPeriodSeconds is the minimum time between such replacements. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetryPeriodSeconds *int32 `json:"retryPeriodSeconds,omitempty"`

	// minHealthyPeriodSeconds is the time after which the failure of a replacement does
	// not count as a retry. Defaults to 3600.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinHealthyPeriodSeconds *int32 `json:"minHealthyPeriodSeconds,omitempty"`
}

// LastRemediationStatus is the last remediation.
type LastRemediationStatus struct {
	// machine is the name of the Machine that was replaced.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// time is the start of the remediation.
	// +required
	Time *metav1.Time `json:"time,omitempty"`

	// retryCount is the number of failed replacements before it.
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

// GetRetryPeriod returns the minimum time between replacements or its default.
func (s *NovaControlPlaneRemediationSpec) GetRetryPeriod() time.Duration {
	if s.RetryPeriodSeconds == nil {
		return 0
	}
	return time.Duration(*s.RetryPeriodSeconds) * time.Second
}

// GetMinHealthyPeriod returns the time after which a failure does not count as a retry,
// or its default.
func (s *NovaControlPlaneRemediationSpec) GetMinHealthyPeriod() time.Duration {
	if s.MinHealthyPeriodSeconds == nil {
		return DefaultMinHealthyPeriod
	}
	return time.Duration(*s.MinHealthyPeriodSeconds) * time.Second
}
