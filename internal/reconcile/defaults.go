package reconcile

import (
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetDefaults sets the clients and the recorder of a reconciler called name to those of the manager,
// unless they are set. A reconciler that does not use one of them passes nil.
func SetDefaults(mgr ctrl.Manager, name string, c *client.Client, live *client.Reader, recorder *events.EventRecorder) {
	if c != nil && *c == nil {
		*c = mgr.GetClient()
	}
	if live != nil && *live == nil {
		*live = mgr.GetAPIReader()
	}
	if recorder != nil && *recorder == nil {
		*recorder = mgr.GetEventRecorder(name)
	}
}
