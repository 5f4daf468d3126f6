package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func node(ready corev1.ConditionStatus) corev1.Node {
	return corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func TestMilestones(t *testing.T) {
	yes := true
	var s snapshot
	steps := []func(){
		func() {},
		func() { s.cluster.Status.Initialization.InfrastructureProvisioned = &yes },
		func() {
			m := clusterv1.Machine{}
			m.Status.Initialization.InfrastructureProvisioned = &yes
			s.machines = append(s.machines, clusterv1.Machine{}, m)
		},
		func() { s.cluster.Status.Initialization.ControlPlaneInitialized = &yes },
		func() {
			s.nodes = []corev1.Node{node(corev1.ConditionTrue), node(corev1.ConditionFalse), node(corev1.ConditionTrue)}
		},
	}
	for reached, step := range steps {
		step()
		for i, stone := range milestones("vCenter", 2) {
			if got, want := stone.reached(s), i < reached; got != want {
				t.Errorf("after step %d: %q reached = %t, want %t", reached, stone.name, got, want)
			}
		}
	}
}

func TestTroubles(t *testing.T) {
	m := &clusterv1.Machine{}
	m.Name = "demo-1"
	at := metav1.NewTime(time.Unix(0, 0))
	m.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "NotReady", Message: "* The VM boots\n* No node yet", LastTransitionTime: at},
		{Type: clusterv1.InfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready", Message: "All is well", LastTransitionTime: at},
		{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: "NotPaused", Message: "Not paused", LastTransitionTime: at},
		{Type: "NodeReady", Status: metav1.ConditionUnknown, Reason: "NotSeen", Message: "No node yet", LastTransitionTime: at},
		{Type: clusterv1.DeletingCondition, Status: metav1.ConditionTrue, Reason: "Draining", Message: "Drains the node", LastTransitionTime: at},
	}
	got := troubles(m)
	want := trouble{Object: "Machine demo-1", Conditions: []string{
		"Deleting=True (Draining): Drains the node",
		"NodeReady=Unknown (NotSeen): No node yet",
		"Ready=False (NotReady): * The VM boots * No node yet",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("troubles (-want +got):\n%s", diff)
	}
}

func TestTree(t *testing.T) {
	s := snapshot{machines: make([]clusterv1.Machine, 2), nodes: []corev1.Node{node(corev1.ConditionTrue)}}
	s.cluster.Name, s.machines[0].Name, s.machines[1].Name, s.nodes[0].Name = "demo", "demo-1", "demo-2", "demo-1"
	var got []string
	for _, o := range tree(s) {
		got = append(got, fmt.Sprintf("%d %s %s", o.depth, o.name, o.phase))
	}
	want := []string{"0 Cluster demo Pending", "1 Machine demo-1 Pending", "2 Node demo-1 Ready", "1 Machine demo-2 Pending"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

func TestReport(t *testing.T) {
	r := result{Ready: true, Nodes: 3, Seconds: 40.4, WithModules: 44.6}
	var text, data bytes.Buffer
	q := quickstart{output: "text", modules: true}
	q.options.Name = defaultName
	if err := q.report(&text, r, "Nodes\n"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Nodes\n", "make quickstart-shell", "make quickstart-page", "make quickstart-down", "docs/day2.md#upgrade", "\nquickstart: ready nodes=3 seconds=40 with_modules=45\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text has no %q:\n%s", want, text.String())
		}
	}
	q.output = "json"
	if err := q.report(&data, r, "Nodes\n"); err != nil {
		t.Fatal(err)
	}
	var got result
	if err := json.Unmarshal(data.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("json (-want +got):\n%s", diff)
	}
}

// A script reads why no cluster was made from the standard output, and finds the progress elsewhere.
func TestFailureIsReportedAsJSON(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = out
	q := quickstart{output: "json"}
	q.cluster.Hypervisor = "abacus"
	failure := q.run(t.Context())
	os.Stdout = stdout
	if failure == nil {
		t.Fatal("an unknown hypervisor is accepted")
	}
	data, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	var got result
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatalf("%v: %q", err, data)
	}
	if got.Ready || got.Error != failure.Error() {
		t.Errorf("got %+v, want the error %q", got, failure)
	}
}

// Each step that bed.Start and this command report is counted before they begin.
func TestStepsAreCounted(t *testing.T) {
	for _, modules := range []bool{false, true} {
		q := quickstart{modules: modules}
		q.options.Flux = modules
		want := 11
		if modules {
			want = 13 // the build of Flux, and the modules
		}
		if got := q.steps("vCenter"); got != want {
			t.Errorf("with modules=%t there are %d steps, want %d", modules, got, want)
		}
	}
}
