package machine

import (
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// release lets the object of a VM that is gone go.
func (s *scope[M]) release() {
	controllerutil.RemoveFinalizer(s.infra, infrav1.MachineFinalizer)
}
