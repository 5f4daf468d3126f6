package bed

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// Values that are planted in an event, a status and a log are found, also after
// the objects and the Secrets were deleted.
func TestObserver(t *testing.T) {
	g := NewWithT(t)
	e, err := env.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	logs := t.TempDir()
	o, err := observe(e.Config, logs)
	g.Expect(err).NotTo(HaveOccurred())

	secret := func(name string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"password": []byte("planted-" + name)}}
		g.Expect(e.Client.Create(t.Context(), s)).To(Succeed())
		return s
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "event"},
		InvolvedObject: corev1.ObjectReference{Namespace: "default"}, Reason: "Failed", Message: "Cannot log in by planted-event",
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue"}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AnyCluster", Name: "c"},
	}}
	secrets := []*corev1.Secret{secret("event"), secret("status"), secret("log"), secret("kept")}
	g.Expect(e.Client.Create(t.Context(), event)).To(Succeed())
	g.Expect(e.Client.Create(t.Context(), cluster)).To(Succeed())
	cluster.Status.Conditions = []metav1.Condition{{
		Type: "Available", Status: metav1.ConditionFalse, Reason: "Failed", Message: "planted-status is wrong", LastTransitionTime: metav1.Now(),
	}}
	g.Expect(e.Client.Status().Update(t.Context(), cluster)).To(Succeed())
	g.Eventually(func() (string, error) {
		text, err := os.ReadFile(filepath.Join(logs, observedLog))
		return string(text), err
	}, "1m").Should(And(ContainSubstring("planted-event"), ContainSubstring("planted-status")))
	g.Eventually(o.values.Len, "1m").Should(BeNumerically(">=", len(secrets)))
	g.Expect(e.Client.Delete(t.Context(), event)).To(Succeed())
	g.Expect(e.Client.Delete(t.Context(), cluster)).To(Succeed())
	for _, s := range secrets {
		g.Expect(e.Client.Delete(t.Context(), s)).To(Succeed())
	}
	g.Expect(os.WriteFile(filepath.Join(logs, "nova-vsphere.log"), []byte("logging in by planted-log\n"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(logs, "vcenter.log"), []byte("a login by planted-kept\n"), 0o600)).To(Succeed())

	err = o.end()
	for _, name := range []string{"event", "status", "log"} {
		g.Expect(err).To(MatchError(ContainSubstring("key password of Secret default/" + name)))
	}
	g.Expect(err).NotTo(MatchError(ContainSubstring("default/kept")), "a simulator may log its requests")
	g.Expect(err).NotTo(MatchError(ContainSubstring("planted-")))
	g.Expect((*observer)(nil).end()).To(Succeed())
}
