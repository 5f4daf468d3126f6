package inplace

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

var controlPlaneLabels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}

func TestPreparation(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) map[string]string {
		return map[string]string{drainStartedAnnotation: now.Add(d).Format(time.RFC3339)}
	}
	for name, tc := range map[string]struct {
		reason      string
		is, version string
		noPrograms  bool
		cordoned    bool
		annotations map[string]string
		machine     func(*clusterv1.Machine)
		want        preparation
	}{
		"Same":           {reason: "the version does not change", is: "v1.36.3", version: "v1.36.3"},
		"Patch":          {reason: "a patch version needs no drain", is: "v1.36.3", version: "v1.36.5"},
		"NoVersion":      {reason: "the Machine has none", is: "v1.36.3"},
		"Begins":         {reason: "nothing has begun", is: "v1.35.4", version: "v1.36.3", want: preparation{cordon: true, drain: true, since: now}},
		"Continues":      {reason: "the time stays", is: "v1.35.4", version: "v1.36.3", cordoned: true, annotations: at(-time.Hour), want: preparation{drain: true, since: now.Add(-time.Hour)}},
		"Uncordoned":     {reason: "a user has uncordoned it", is: "v1.35.4", version: "v1.36.3", annotations: at(-time.Hour), want: preparation{cordon: true, drain: true, since: now.Add(-time.Hour)}},
		"CordonedBefore": {reason: "the time is recorded too", is: "v1.35.4", version: "v1.36.3", cordoned: true, want: preparation{cordon: true, drain: true, since: now}},
		"Malformed":      {reason: "a tenant has changed it", is: "v1.35.4", version: "v1.36.3", cordoned: true, annotations: map[string]string{drainStartedAnnotation: "x"}, want: preparation{cordon: true, drain: true, since: now}},
		"Future":         {reason: "a tenant has changed it", is: "v1.35.4", version: "v1.36.3", cordoned: true, annotations: at(time.Hour), want: preparation{cordon: true, drain: true, since: now}},
		"Skipped": {
			reason: "the MachineDeployment changed twice", is: "v1.35.4", version: "v1.37.0",
			want: preparation{blocked: "the kubelet has version v1.35.4: v1.37.0 is not its next minor version"},
		},
		"Former": {
			reason: "as with one that is skipped", is: "v1.37.0", version: "v1.36.3",
			want: preparation{blocked: "the kubelet has version v1.37.0: v1.36.3 is not its next minor version"},
		},
		"Unknown": {
			reason: "it cannot be compared", is: "", version: "v1.36.3",
			want: preparation{blocked: "the kubelet has version : v1.36.3 is not its next minor version"},
		},
		"UnknownWithoutPrograms": {reason: "the version does not change", version: "v1.36.3", noPrograms: true},
		"NoPrograms": {
			reason: "they were removed during the change", is: "v1.35.4", version: "v1.36.3", noPrograms: true,
			want: preparation{blocked: "the kubelet has version v1.35.4, and platform.kubernetesPrograms does not have v1.36.3"},
		},
		"ControlPlane": {
			reason: "its other pods have the same rules", is: "v1.35.4", version: "v1.36.3",
			machine: func(m *clusterv1.Machine) { m.Labels = controlPlaneLabels },
			want:    preparation{cordon: true, drain: true, since: now},
		},
		"PatchOfControlPlane": {
			reason: "as on workers", is: "v1.36.3", version: "v1.36.5",
			machine: func(m *clusterv1.Machine) { m.Labels = controlPlaneLabels },
		},
		"Excluded": {
			reason: "as before a deletion", is: "v1.35.4", version: "v1.36.3",
			machine: func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""}
			},
		},
		"BeforeTheTimeout": {
			reason: "a second is left", is: "v1.35.4", version: "v1.36.3", cordoned: true, annotations: at(-59 * time.Second),
			machine: func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(60)) },
			want:    preparation{drain: true, since: now.Add(-59 * time.Second)},
		},
		"AfterTheTimeout": {
			reason: "the change continues", is: "v1.35.4", version: "v1.36.3", cordoned: true, annotations: at(-time.Minute),
			machine: func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(60)) },
		},
		"NoTimeout": {
			reason: "0 is no limit", is: "v1.35.4", version: "v1.36.3", cordoned: true, annotations: at(-24 * time.Hour),
			machine: func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(0)) },
			want:    preparation{drain: true, since: now.Add(-24 * time.Hour)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node, machine := &corev1.Node{}, &clusterv1.Machine{}
			node.Status.NodeInfo.KubeletVersion, machine.Spec.Version = tc.is, tc.version
			node.Annotations, node.Spec.Unschedulable = tc.annotations, tc.cordoned
			if tc.machine != nil {
				tc.machine(machine)
			}
			if got := prepare(node, machine, !tc.noPrograms, now); got != tc.want {
				t.Errorf("%s: %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

// drainRig is a node whose kubelet gets the next minor version, with a pod that another
// node may run.
type drainRig struct {
	update               func() *runtimehooksv1.UpdateMachineResponse
	workload, management client.Client
	// budget rejects evictions. failAt is the request of the workload cluster that fails.
	budget           bool
	failAt, requests int
}

func newDrainRig(t *testing.T, cordoned bool, rules ...client.Object) *drainRig {
	t.Helper()
	answer := make(chan struct{})
	close(answer)
	e, update, inner := updating(t, "blue-1", answer)
	r := &drainRig{update: update, workload: inner, management: e.Client}
	count := func() error {
		if r.requests++; r.requests == r.failAt {
			return errors.New("the connection was closed")
		}
		return nil
	}
	watched, is := inner.(client.WithWatch)
	if !is {
		t.Fatal("no client with watches")
	}
	counted := interceptor.NewClient(watched, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, options...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, subresource string, o, sub client.Object, options ...client.SubResourceCreateOption) error {
			if err := count(); err != nil {
				return err
			}
			if _, is := sub.(*policyv1.Eviction); is && r.budget {
				return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			}
			return c.SubResource(subresource).Create(ctx, o, sub, options...)
		},
	})
	e.WorkloadClusters = clustercache.NewFakeClusterCache(counted, client.ObjectKey{Namespace: "tenants", Name: "blue"})
	settings := e.Settings
	e.Settings = func(ctx context.Context, c *clusterv1.Cluster, m *clusterv1.Machine, config *bootstrapv1.NovaConfig, hardware nodeconfig.Hardware) (nodesettings.Settings, error) {
		s, err := settings(ctx, c, m, config, hardware)
		s.Programs = true
		return s, err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "blue-1"}}
	for _, o := range []client.Object{
		pod, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "blue-2"}},
	} {
		if err := inner.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range rules {
		if err := e.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	r.change(t, func(node *corev1.Node) { node.Spec.Unschedulable = cordoned })
	r.report(t, "v1.35.4", "first-boot")
	return r
}

func (r *drainRig) node(t *testing.T) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := r.workload.Get(t.Context(), client.ObjectKey{Name: "blue-1"}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

func (r *drainRig) change(t *testing.T, how func(*corev1.Node)) {
	t.Helper()
	node := r.node(t)
	how(node)
	if err := r.workload.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// report sets the version of the kubelet, and the report of the host agent.
func (r *drainRig) report(t *testing.T, version, revision string) {
	t.Helper()
	node := r.node(t)
	node.Status.NodeInfo.KubeletVersion = version
	node.Status.Conditions = []corev1.NodeCondition{{Type: nodeconfig.ConfiguredCondition, Status: corev1.ConditionTrue, Message: nodeconfig.ReportMessage(revision, "applied")}}
	if err := r.workload.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// hasSettings reports whether the node has its settings, and hasPod whether its pod
// runs.
func (r *drainRig) hasSettings(t *testing.T) bool {
	t.Helper()
	key := client.ObjectKey{Namespace: nodeconfig.SettingsNamespace, Name: nodeconfig.SettingsName("blue-1")}
	return r.workload.Get(t.Context(), key, &corev1.Secret{}) == nil
}

func (r *drainRig) hasPod(t *testing.T) bool {
	t.Helper()
	return r.workload.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &corev1.Pod{}) == nil
}

// A node is drained before it gets the settings with another minor version, and the
// drain respects budgets. Afterward the Node is as schedulable as before.
func TestDrain(t *testing.T) {
	for name, cordoned := range map[string]bool{"Schedulable": false, "Cordoned": true} {
		t.Run(name, func(t *testing.T) {
			r := newDrainRig(t, cordoned)
			r.budget = true
			for range 2 {
				if got := r.update(); got.RetryAfterSeconds != 5 || !strings.Contains(got.Message, "Pod shop/web: cannot evict pod as it would violate the pod's disruption budget.") {
					t.Errorf("%q, retry after %d s", got.Message, got.RetryAfterSeconds)
				}
			}
			if node := r.node(t); !node.Spec.Unschedulable || (node.Annotations[cordonedAnnotation] != "") == cordoned || node.Annotations[drainStartedAnnotation] == "" {
				t.Errorf("unschedulable: %t, annotations %v", node.Spec.Unschedulable, node.Annotations)
			}
			if r.hasSettings(t) {
				t.Fatal("the node has its settings before it is drained")
			}
			r.budget = false
			r.complete(t)
			if node := r.node(t); node.Spec.Unschedulable != cordoned || len(node.Annotations) > 0 {
				t.Errorf("unschedulable: %t, annotations %v", node.Spec.Unschedulable, node.Annotations)
			}
		})
	}
}

// complete repeats the request until the update is complete.
func (r *drainRig) complete(t *testing.T) {
	t.Helper()
	for range 10 {
		got := r.update()
		switch {
		case got.Status == runtimehooksv1.ResponseStatusSuccess && got.RetryAfterSeconds == 0:
			return
		case r.hasSettings(t):
			if r.hasPod(t) {
				t.Fatal("the node has its settings before it is drained")
			}
			r.report(t, "v1.36.3", "abc")
		}
	}
	t.Fatal("the update does not end")
}

// Whichever request fails, or is the last one before the manager ends, the update is
// completed.
func TestDrainContinues(t *testing.T) {
	whole := newDrainRig(t, false)
	whole.complete(t)
	if whole.requests < 10 {
		t.Fatalf("%d requests", whole.requests)
	}
	for at := 1; at <= whole.requests; at++ {
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			r := newDrainRig(t, false)
			r.failAt = at
			failed := false
			for !failed && r.requests < at {
				failed = r.update().Status == runtimehooksv1.ResponseStatusFailure
				if r.hasSettings(t) {
					r.report(t, "v1.36.3", "abc")
				}
			}
			r.failAt = 0
			r.complete(t)
			if node := r.node(t); node.Spec.Unschedulable || len(node.Annotations) > 0 {
				t.Errorf("unschedulable: %t, annotations %v", node.Spec.Unschedulable, node.Annotations)
			}
		})
	}
}

// MachineDrainRules decide about pods as they do before the deletion of a Machine.
func TestDrainRules(t *testing.T) {
	rule := &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "stays"}}
	rule.Spec.Drain.Behavior = clusterv1.MachineDrainRuleDrainBehaviorSkip
	rule.Spec.Pods = []clusterv1.MachineDrainRulePodSelector{{NamespaceSelector: &metav1.LabelSelector{}}}
	r := newDrainRig(t, false, rule)
	r.update()
	if !r.hasSettings(t) || !r.hasPod(t) {
		t.Errorf("settings: %t, pod: %t", r.hasSettings(t), r.hasPod(t))
	}
}

// Static pods of a control plane node stay, and its other pods are moved.
func TestDrainOfControlPlane(t *testing.T) {
	r := newDrainRig(t, false)
	machine := &clusterv1.Machine{}
	if err := r.management.Get(t.Context(), client.ObjectKey{Namespace: "tenants", Name: "blue-1"}, machine); err != nil {
		t.Fatal(err)
	}
	machine.Labels = controlPlaneLabels
	if err := r.management.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	static := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "etcd", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "1"}}}
	static.Spec.NodeName = "blue-1"
	if err := r.workload.Create(t.Context(), static); err != nil {
		t.Fatal(err)
	}
	r.complete(t)
	if err := r.workload.Get(t.Context(), client.ObjectKeyFromObject(static), static); err != nil {
		t.Error(err)
	}
}

// A pod that no other node may run stays: it would not run during the change, which may
// depend on it.
func TestDrainWithoutAnotherNode(t *testing.T) {
	r := newDrainRig(t, false)
	if err := r.workload.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "blue-2"}}); err != nil {
		t.Fatal(err)
	}
	r.budget = true // it rejects evictions, and there are none
	r.update()
	if node := r.node(t); !r.hasSettings(t) || !r.hasPod(t) || !node.Spec.Unschedulable {
		t.Errorf("settings: %t, pod: %t, unschedulable: %t", r.hasSettings(t), r.hasPod(t), node.Spec.Unschedulable)
	}
	r.report(t, "v1.36.3", "abc")
	r.update()
	if node := r.node(t); node.Spec.Unschedulable || len(node.Annotations) > 0 {
		t.Errorf("unschedulable: %t, annotations %v", node.Spec.Unschedulable, node.Annotations)
	}
}

func TestMayRun(t *testing.T) {
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node, *corev1.Pod) {
		return func(n *corev1.Node, _ *corev1.Pod) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
	}
	const plane = "node-role.kubernetes.io/control-plane"
	for name, tc := range map[string]struct {
		reason string
		change func(*corev1.Node, *corev1.Pod)
		want   bool
	}{
		"Plain":     {"nothing speaks against it", func(*corev1.Node, *corev1.Pod) {}, true},
		"Taint":     {"the pod does not tolerate it", taint(plane, corev1.TaintEffectNoSchedule), false},
		"NoExecute": {"the pod does not tolerate it", taint("own", corev1.TaintEffectNoExecute), false},
		"Prefer":    {"the scheduler may ignore it", taint(plane, corev1.TaintEffectPreferNoSchedule), true},
		"NotReady":  {"it will be ready again", taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), true},
		"Cordoned": {"it will be schedulable again", func(n *corev1.Node, p *corev1.Pod) {
			taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)(n, p)
			n.Spec.Unschedulable = true
		}, true},
		"Tolerated": {"the pod tolerates the taint", func(n *corev1.Node, p *corev1.Pod) {
			taint(plane, corev1.TaintEffectNoSchedule)(n, p)
			p.Spec.Tolerations = []corev1.Toleration{{Key: plane, Operator: corev1.TolerationOpExists}}
		}, true},
		"Selector": {"the node has no such label", func(_ *corev1.Node, p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }, false},
		"Selected": {"the node has the label", func(n *corev1.Node, p *corev1.Pod) {
			p.Spec.NodeSelector, n.Labels = map[string]string{"disk": "fast"}, map[string]string{"disk": "fast"}
		}, true},
		"Affinity": {"the node has another zone", func(n *corev1.Node, p *corev1.Pod) {
			n.Labels = map[string]string{corev1.LabelTopologyZone: "b"}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}},
				}}},
			}}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			node, pod := &corev1.Node{}, &corev1.Pod{}
			tc.change(node, pod)
			if got := mayRun(node, pod); got != tc.want {
				t.Errorf("%s: %t", tc.reason, got)
			}
		})
	}
}

func TestMovablePods(t *testing.T) {
	now := metav1.Now()
	selected := corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "fast"}}}
	ending := *selected.DeepCopy()
	ending.DeletionTimestamp = &now
	for name, tc := range map[string]struct {
		reason string
		pod    corev1.Pod
		nodes  movablePods
		want   bool
	}{
		"Alone":    {"there is no other Node", corev1.Pod{}, movablePods{known: true}, false},
		"Movable":  {"another Node may run it", corev1.Pod{}, movablePods{known: true, others: make([]corev1.Node, 2)}, true},
		"Bound":    {"no other Node may run it", selected, movablePods{known: true, others: make([]corev1.Node, 2)}, false},
		"Ending":   {"it ends anyway", ending, movablePods{known: true}, true},
		"TooLarge": {"the other Nodes are not known", selected, movablePods{others: make([]corev1.Node, maxNodes)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.nodes.has(&tc.pod); got != tc.want {
				t.Errorf("%s: %t", tc.reason, got)
			}
		})
	}
}
