package machine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// announce tells people what changed, once it is written. A change that could
// not be written is found again, and told then; what stays as it is is not
// told twice.
func (r *Reconciler[M]) announce(s *scope[M], before metav1.Condition) {
	if s.do == release && s.failure == nil {
		r.retries.forget(s.key())
		r.event(s, corev1.EventTypeNormal, "Deleted", "The VM is gone")
		return
	}
	now := conditions.Get(s.infra, infrav1.VirtualMachineProvisionedCondition)
	if now == nil || now.Reason == before.Reason && now.Message == before.Message {
		return
	}
	switch {
	case s.failure != nil, now.Reason == infrav1.LostReason, now.Reason == infrav1.PoweredOffReason:
		r.event(s, corev1.EventTypeWarning, now.Reason, now.Message)
	case s.first:
		provisionSeconds.WithLabelValues(r.kind(s)).Observe(time.Since(s.infra.GetCreationTimestamp().Time).Seconds())
		r.event(s, corev1.EventTypeNormal, infrav1.ProvisionedReason, "The VM is up")
	case now.Status == metav1.ConditionTrue:
		r.event(s, corev1.EventTypeNormal, infrav1.ProvisionedReason, "The VM is up again")
	}
}

// event records one event. The note is never a format: it holds words of the
// hypervisor.
func (r *Reconciler[M]) event(s *scope[M], kind, reason, note string) {
	doing := s.do
	if doing == "" {
		doing = wait // nothing was decided: the hypervisor was out of reach
	}
	r.Recorder.Eventf(s.infra, nil, kind, reason, string(doing), "%s", note)
}
