package facts

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// The cache of a workload cluster stores the fields that Facts are read from,
// and little of an object of megabytes.
func TestKeepUsed(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	now := time.Now().Truncate(time.Second)
	node := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cp", UID: "u", ResourceVersion: "7", Labels: map[string]string{RoleControlPlane: "", nodeconfig.AuthoritiesLabel: "0123456789abcdef", "l": large},
			Annotations:   map[string]string{clusterv1.MachineAnnotation: "m", "a": large},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: large}},
		},
		Spec: corev1.NodeSpec{ProviderID: "vsphere://1", Taints: []corev1.Taint{
			{Key: RoleControlPlane, Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: "Other", Message: large}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: large}},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: large}, {Type: corev1.NodeInternalIP, Address: "10.0.0.4"},
			},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.2"},
			Images:   []corev1.ContainerImage{{Names: []string{large}}},
		},
	}
	tainted := *node.DeepCopy()
	tainted.Name, tainted.Spec.Taints = "tainted", append(tainted.Spec.Taints, corev1.Taint{Key: large, Effect: corev1.TaintEffectNoExecute})
	pod := func(component string, status corev1.ContainerStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: component, UID: "p", Labels: map[string]string{ComponentLabel: component, TierLabel: TierControlPlane, "l": large},
				Annotations: map[string]string{"a": large},
			},
			Spec: corev1.PodSpec{NodeName: "cp", Containers: []corev1.Container{
				{Image: "r/" + component + ":v1.36.3", Command: []string{component, large}, Args: []string{"--secure-port=7443"}, Env: []corev1.EnvVar{{Value: large}}},
			}},
			Status: corev1.PodStatus{Message: large, ContainerStatuses: []corev1.ContainerStatus{status}},
		}
	}
	vip := pod(KubeVIPName, corev1.ContainerStatus{
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Message: large, StartedAt: metav1.NewTime(now.Add(-2 * time.Second)), FinishedAt: metav1.NewTime(now.Add(-time.Second)),
		}},
	})
	vip.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: large}}
	pods := []corev1.Pod{
		pod(APIServerName, corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: large}}}),
		pod(EtcdName, corev1.ContainerStatus{RestartCount: 3, ImageID: large}), vip,
	}
	nodes := []corev1.Node{node, tainted}
	small := func(kept any) {
		t.Helper()
		data, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 2<<10 {
			t.Errorf("%d bytes of %T are kept", len(data), kept)
		}
	}
	keptNodes := make([]corev1.Node, 0, len(nodes))
	for i := range nodes {
		kept := must[*corev1.Node](t, &nodes[i])
		small(kept)
		keptNodes = append(keptNodes, *kept)
	}
	keptPods := make([]corev1.Pod, 0, len(pods))
	for i := range pods {
		kept := must[*corev1.Pod](t, &pods[i])
		small(kept)
		keptPods = append(keptPods, *kept)
	}
	if diff := cmp.Diff(newNodes(nodes, pods, now), newNodes(keptNodes, keptPods, now)); diff != "" {
		t.Errorf("the cached fields give other facts (-want +got)\n%s", diff)
	}
	if was, is := Fingerprint(nil, nil, pods), Fingerprint(nil, nil, keptPods); was != is {
		t.Errorf("fingerprint() = %q, want %q", is, was)
	}
	config := must[*corev1.ConfigMap](t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kubeadm.FieldsAnnotation: "{}", "other": large}},
		Data:       map[string]string{kubeadm.ConfigurationKey: "stored", "other": large},
	})
	small(config)
	if got := kubeadm.DocumentIn(config, kubeadm.ConfigurationKey); got != (kubeadm.Document{Content: "stored", Fields: "{}"}) {
		t.Errorf("kept %v", got)
	}
}

func must[O any](t *testing.T, o runtime.Object) O {
	t.Helper()
	kept, err := Keep(o)
	if err != nil {
		t.Fatal(err)
	}
	return kept.(O)
}
