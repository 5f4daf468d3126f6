package template

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// report sets the status from the result of the reconcile. No other function
// sets it.
func (s *scope[T]) report(err error) {
	s.failure = err
	if hypervisor.IsTransient(err) && conditions.Has(s.template, infrav1.CapacityKnownCondition) {
		return
	}
	if err != nil {
		// A known size is kept: the size of a node does not change because the
		// hypervisor is unreachable.
		conditions.Set(s.template, kit.Failure(s.template, infrav1.CapacityKnownCondition, err))
		return
	}
	status := s.template.Capacity()
	status.Capacity, status.NodeInfo = capacity(*s.size), nodeInfo(*s.size)
	conditions.Set(s.template, metav1.Condition{
		Type: infrav1.CapacityKnownCondition, Status: metav1.ConditionTrue, Reason: infrav1.CapacityKnownReason,
	})
}

// capacity returns the capacity that a node will report. Unknown values are left
// out, because with zero cluster-autoscaler would never choose the template.
func capacity(size hypervisor.Size) corev1.ResourceList {
	known := corev1.ResourceList{}
	set := func(name corev1.ResourceName, amount int64, format resource.Format) {
		if amount > 0 {
			known[name] = *resource.NewQuantity(amount, format)
		}
	}
	set(corev1.ResourceCPU, size.CPUs, resource.DecimalSI)
	set(corev1.ResourceMemory, size.MemoryBytes, resource.BinarySI)
	set(corev1.ResourceEphemeralStorage, size.DiskBytes, resource.BinarySI)
	for device, count := range size.Devices {
		set(corev1.ResourceName(device), count, resource.DecimalSI)
	}
	return known
}

// usual is the architecture of machines whose hypervisor does not say it.
const usual = "amd64"

// nodeInfo returns all system information that a node will report, because
// cluster-autoscaler treats a missing value as an empty label: no pod that
// selects an architecture would fit.
func nodeInfo(size hypervisor.Size) infrav1.NodeInfo {
	return infrav1.NodeInfo{Architecture: cmp.Or(size.Architecture, usual), OperatingSystem: "linux"}
}
