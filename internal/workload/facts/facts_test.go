package facts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestNodeOf(t *testing.T) {
	nodes := []Node{{Name: "n1", ProviderID: "vsphere://1"}, {Name: "n2", ProviderID: "vsphere://2"}}
	for name, tc := range map[string]struct {
		reason  string
		machine clusterv1.Machine
		want    string
	}{
		"Reference": {
			reason: "Cluster API's annotation takes precedence",
			machine: clusterv1.Machine{
				ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: clusterv1.MachineSpec{ProviderID: "vsphere://1"},
				Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "n2"}},
			},
			want: "n2",
		},
		"ProviderID": {
			reason:  "Cluster API may look later than this",
			machine: clusterv1.Machine{Spec: clusterv1.MachineSpec{ProviderID: "vsphere://2"}}, want: "n2",
		},
		"Name": {
			reason:  "at first only the name is known",
			machine: clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, want: "n1",
		},
		"OtherProviderID": {
			reason: "a node of the same name with another ID is another's",
			machine: clusterv1.Machine{
				ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: clusterv1.MachineSpec{ProviderID: "vsphere://3"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if node := NodeOf(&tc.machine, nodes); node != nil {
				got = node.Name
			}
			if got != tc.want {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

func TestNewNodes(t *testing.T) {
	nodes := []corev1.Node{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "cp", Labels: map[string]string{RoleControlPlane: ""}},
			Spec: corev1.NodeSpec{ProviderID: "vsphere://1", Taints: []corev1.Taint{
				{Key: RoleControlPlane, Effect: corev1.TaintEffectNoSchedule},
			}},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeHostName, Address: "cp"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.4"},
				},
				NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.2"},
			},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "worker"},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "cordoned"}, Spec: corev1.NodeSpec{Unschedulable: true},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}},
		},
	}
	pods := []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{ComponentLabel: APIServerName}},
		Spec: corev1.PodSpec{NodeName: "cp", Containers: []corev1.Container{{
			Image: "r/kube-apiserver:v1.36.3", Command: []string{"kube-apiserver", "--secure-port=7443"},
		}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}}
	want := []Node{
		{
			Name: "cp", ProviderID: "vsphere://1", ControlPlane: true, Ready: true, Schedulable: true, Address: "10.0.0.4",
			Kubelet: "v1.36.2", APIServer: "v1.36.3", APIServerPort: "7443", Components: Components{APIServer: Component{State: Running}},
		},
		{Name: "worker"},
		{Name: "cordoned", Unreachable: true},
	}
	if diff := cmp.Diff(want, newNodes(nodes, pods, time.Now())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMatters(t *testing.T) {
	node := func(status corev1.ConditionStatus, heartbeat string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: heartbeat},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: heartbeat}}},
		}
	}
	etcdPod := func(status corev1.ConditionStatus, version string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Labels: map[string]string{ComponentLabel: EtcdName}},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
		}
	}
	for name, tc := range map[string]struct {
		was, is client.Object
		want    bool
	}{
		"Heartbeat":   {was: node(corev1.ConditionTrue, "1"), is: node(corev1.ConditionTrue, "2")},
		"NodeLost":    {was: node(corev1.ConditionTrue, "1"), is: node(corev1.ConditionUnknown, "2"), want: true},
		"PodSame":     {was: etcdPod(corev1.ConditionTrue, "1"), is: etcdPod(corev1.ConditionTrue, "2")},
		"PodNotReady": {was: etcdPod(corev1.ConditionTrue, "1"), is: etcdPod(corev1.ConditionFalse, "2"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Changed().Update(event.UpdateEvent{ObjectOld: tc.was, ObjectNew: tc.is}); got != tc.want {
				t.Errorf("want %t, got %t", tc.want, got)
			}
		})
	}
}
