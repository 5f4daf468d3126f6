package machine

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// conditionSet holds the conditions whose changes are reported as events.
type conditionSet struct{ provisioned, synced, bootstrapped metav1.Condition }

func snapshot(from conditions.Getter) conditionSet {
	unreported := metav1.Condition{Status: metav1.ConditionUnknown}
	return conditionSet{
		provisioned:  ptr.Deref(conditions.Get(from, infrav1.VirtualMachineProvisionedCondition), unreported),
		synced:       ptr.Deref(conditions.Get(from, infrav1.VirtualMachineSyncedCondition), unreported),
		bootstrapped: ptr.Deref(conditions.Get(from, infrav1.NodeBootstrappedCondition), unreported),
	}
}

func changed(was, is metav1.Condition) bool {
	return was.Reason != is.Reason || was.Message != is.Message
}

// announce records events for the changes after they are written. If the write fails, the next
// reconcile finds the change again and reports it then. An unchanged condition gets no second event,
// and a wait for a slot in the queue gets none.
func (r *Reconciler[M]) announce(s *scope[M], before conditionSet) {
	if s.released {
		r.forget(s, s.key())
		r.event(s, corev1.EventTypeNormal, "Deleted", "The VM was deleted")
		return
	}
	now := snapshot(s.infra)
	if written, known := r.writtenConditions.Swap(s.key(), now); known {
		before = written
	}
	states.record(machineKey{r.kind(s), s.key()}, s.infra.GetLabels()[clusterv1.ClusterNameLabel], now.provisioned, now.bootstrapped)
	if hypervisor.IsWaiting(s.failure) {
		return
	}
	if s.syncsRunningVM() && s.syncFailure() != nil && changed(before.synced, now.synced) {
		r.event(s, corev1.EventTypeWarning, now.synced.Reason, now.synced.Message)
	}
	if c := now.bootstrapped; changed(before.bootstrapped, c) && (c.Status == metav1.ConditionFalse || c.Reason == infrav1.BootstrapRetryingReason) {
		r.event(s, corev1.EventTypeWarning, c.Reason, c.Message[:min(len(c.Message), maxNote)])
	}
	if changed(before.provisioned, now.provisioned) {
		r.announceVM(s, before.provisioned, now.provisioned)
	}
}

// announceVM records the event for a change of the VM itself.
func (r *Reconciler[M]) announceVM(s *scope[M], was, now metav1.Condition) {
	switch {
	case s.failure != nil && !s.syncsRunningVM(), now.Reason == infrav1.VMNotFoundReason, now.Reason == infrav1.PoweredOffReason:
		r.event(s, corev1.EventTypeWarning, now.Reason, now.Message)
	case s.firstProvisioned:
		provisionSeconds.WithLabelValues(r.kind(s)).Observe(time.Since(s.infra.GetCreationTimestamp().Time).Seconds())
		r.event(s, corev1.EventTypeNormal, infrav1.ProvisionedReason, "The VM is up"+s.location())
	case now.Status == metav1.ConditionTrue && wasUnreadable(was):
		r.event(s, corev1.EventTypeNormal, infrav1.ProvisionedReason, "The hypervisor is reachable again, and the VM is up"+s.location())
	case now.Status == metav1.ConditionTrue:
		r.event(s, corev1.EventTypeNormal, infrav1.ProvisionedReason, "The VM is up again"+s.location())
	}
}

// wasUnreadable reports whether the hypervisor could not be read, so that the VM may have been up all
// the time.
func wasUnreadable(was metav1.Condition) bool {
	return was.Reason == infrav1.EndpointUnreachableReason || was.Reason == infrav1.CredentialsInvalidReason
}

// event records one event. The note is never used as a format string: it contains text from the
// hypervisor.
func (r *Reconciler[M]) event(s *scope[M], kind, reason, note string) {
	action := s.action
	if action == "" {
		action = wait // nothing was decided: the hypervisor was unreachable
	}
	r.Recorder.Eventf(s.infra, nil, kind, reason, string(action), "%s", note)
}

// forget drops everything that is remembered about a deleted machine.
func (r *Reconciler[M]) forget(s *scope[M], key types.NamespacedName) {
	r.retries.Forget(key)
	r.shutdownRequests.Forget(key)
	states.Forget(machineKey{r.kind(s), key})
	r.writtenConditions.Forget(key)
}

// count increments the counter for the result of the due action. An action that was accepted and
// failed later is counted under both results.
func (r *Reconciler[M]) count(s *scope[M], result string) {
	actionsTotal.WithLabelValues(strings.ToLower(string(s.action)), r.kind(s), result).Inc()
}

// kind returns the kind of machine for metric labels.
func (r *Reconciler[M]) kind(s *scope[M]) string {
	gvk, err := apiutil.GVKForObject(s.infra, r.Client.Scheme())
	if err != nil {
		return ""
	}
	return gvk.Kind
}
