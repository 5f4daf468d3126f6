package manifests

import (
	"os"
	"path/filepath"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/kustomize"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// The statuses that Flux computes for a Cluster.
const (
	current    = "Current"
	inProgress = "InProgress"
	failed     = "Failed"
)

// stage is a Kustomization of the sample.
func stage(name string) *kustomizev1.Kustomization {
	GinkgoHelper()
	file, err := os.ReadFile(filepath.Join(tools.Root(), "templates", "gitops", "flux", name+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	k := &kustomizev1.Kustomization{}
	Expect(yaml.UnmarshalStrict(file, k)).To(Succeed())
	return k
}

// evaluates evaluates an expression over objects in the environment that
// github.com/fluxcd/pkg/runtime/cel has.
func evaluates(expression string, objects map[string]any) (bool, error) {
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders())
	Expect(err).NotTo(HaveOccurred())
	ast, issues := env.Parse(expression)
	Expect(issues.Err()).NotTo(HaveOccurred())
	program, err := env.Program(ast)
	Expect(err).NotTo(HaveOccurred())
	value, _, err := program.Eval(objects)
	if err != nil {
		return false, err
	}
	Expect(value.Value()).To(BeAssignableToTypeOf(true))
	return value.Value().(bool), nil
}

// fluxStatus computes the status of a Cluster like Flux' StatusEvaluator.
func fluxStatus(check kustomize.HealthCheckExpressions, cluster *clusterv1.Cluster) string {
	GinkgoHelper()
	if observed := cluster.Status.ObservedGeneration; observed != 0 && observed != cluster.Generation {
		return inProgress
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	Expect(err).NotTo(HaveOccurred())
	for _, e := range []struct{ expression, means string }{
		{check.InProgress, inProgress}, {check.Failed, failed}, {check.Current, current},
	} {
		if e.expression == "" {
			continue
		}
		is, err := evaluates(e.expression, object)
		if err != nil {
			return "Unknown"
		}
		if is {
			return e.means
		}
	}
	return inProgress
}

var _ = DescribeTable("a stage of the management repository", func(became func(*clusterv1.Cluster), want string) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	set(cluster, clusterv1.ClusterAvailableCondition, metav1.ConditionTrue, clusterv1.ClusterAvailableReason)
	set(cluster, clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionTrue, clusterv1.ClusterTopologyReconcileSucceededReason)
	set(cluster, clusterv1.ClusterRollingOutCondition, metav1.ConditionFalse, clusterv1.ClusterNotRollingOutReason)
	set(cluster, "modules.addons.cluster.x-k8s.io/nova-modules.base", metav1.ConditionTrue, "Applied")
	cluster.Status.ObservedGeneration = cluster.Generation
	became(cluster)
	for _, name := range []string{"tenants-test", "tenants-production"} {
		k := stage(name)
		Expect(k.Spec.Wait).To(BeTrue(), name)
		Expect(k.Spec.HealthCheckExprs).To(HaveLen(1))
		Expect(k.Spec.HealthCheckExprs[0].APIVersion).To(Equal(clusterv1.GroupVersion.String()))
		Expect(k.Spec.HealthCheckExprs[0].Kind).To(Equal("Cluster"))
		Expect(fluxStatus(k.Spec.HealthCheckExprs[0].HealthCheckExpressions, cluster)).To(Equal(want), name)
	}
},
	Entry("is ready with a cluster in which all has arrived", func(*clusterv1.Cluster) {}, current),
	Entry("waits for a cluster that has not reported yet", func(c *clusterv1.Cluster) { c.Status = clusterv1.ClusterStatus{} }, "Unknown"),
	Entry("waits for a cluster that is not available", func(c *clusterv1.Cluster) {
		set(c, clusterv1.ClusterAvailableCondition, metav1.ConditionFalse, clusterv1.ClusterNotAvailableReason)
	}, inProgress),
	Entry("waits while the core has not seen a change", func(c *clusterv1.Cluster) { c.Generation++ }, inProgress),
	Entry("waits while a change is not handed down", func(c *clusterv1.Cluster) {
		c.Generation++
		c.Status.ObservedGeneration = c.Generation
		set(c, clusterv1.ClusterAvailableCondition, metav1.ConditionTrue, clusterv1.ClusterAvailableReason)
		set(c, clusterv1.ClusterRollingOutCondition, metav1.ConditionFalse, clusterv1.ClusterNotRollingOutReason)
	}, inProgress),
	Entry("waits while an upgrade is handed down to one after the other", func(c *clusterv1.Cluster) {
		set(c, clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionFalse, clusterv1.ClusterTopologyReconciledClusterUpgradingReason)
	}, inProgress),
	Entry("waits while machines are replaced", func(c *clusterv1.Cluster) {
		set(c, clusterv1.ClusterRollingOutCondition, metav1.ConditionTrue, clusterv1.ClusterRollingOutReason)
	}, inProgress),
	Entry("waits while it is not known whether machines are replaced", func(c *clusterv1.Cluster) {
		set(c, clusterv1.ClusterRollingOutCondition, metav1.ConditionUnknown, clusterv1.ClusterRollingOutUnknownReason)
	}, inProgress),
	Entry("waits for a cluster that is paused", func(c *clusterv1.Cluster) {
		set(c, clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionFalse, clusterv1.ClusterTopologyReconcilePausedReason)
	}, inProgress),
	Entry("fails at once when a change cannot be handed down", func(c *clusterv1.Cluster) {
		set(c, clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionFalse, clusterv1.ClusterTopologyReconciledFailedReason)
	}, failed),
	Entry("waits when the change before could not be handed down", func(c *clusterv1.Cluster) {
		set(c, clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionFalse, clusterv1.ClusterTopologyReconciledFailedReason)
		c.Generation++
		c.Status.ObservedGeneration = c.Generation
	}, inProgress),
)

// set sets a condition as Cluster API does: it is about the generation at hand.
func set(cluster *clusterv1.Cluster, condition string, status metav1.ConditionStatus, reason string) {
	conditions.Set(cluster, metav1.Condition{Type: condition, Status: status, Reason: reason})
}

var _ = It("production begins when test was found well twice", func() {
	test, production := stage("tenants-test"), stage("tenants-production")
	// Beside an expression Flux does not ask whether the dependency is ready and
	// of the same commit, so that has an entry of its own.
	Expect(production.Spec.DependsOn).To(HaveLen(2))
	Expect(production.Spec.DependsOn[0]).To(Equal(kustomizev1.DependencyReference{Name: test.Name}))
	Expect(production.Spec.DependsOn[1].Name).To(Equal(test.Name))
	begins := func() bool {
		dep, err := runtime.DefaultUnstructuredConverter.ToUnstructured(test)
		Expect(err).NotTo(HaveOccurred())
		is, err := evaluates(production.Spec.DependsOn[1].ReadyExpr, map[string]any{"dep": dep})
		return err == nil && is
	}
	reconciled := func(digest, how string) { test.Status.History.Upsert(digest, metav1.Now().Time, 0, how, nil) }
	Expect(begins()).To(BeFalse(), "never reconciled")
	for _, digest := range []string{"one", "two"} {
		reconciled(digest, fluxmeta.HealthCheckFailedReason)
		reconciled(digest, fluxmeta.HealthCheckFailedReason)
		reconciled(digest, fluxmeta.ReconciliationSucceededReason)
		Expect(begins()).To(BeFalse(), "found well once")
		reconciled(digest, fluxmeta.ReconciliationSucceededReason)
		Expect(begins()).To(BeTrue())
	}
	Expect(test.Spec.Interval.Duration).To(BeNumerically("<=", test.GetRetryInterval()), "and not long after")
	Expect(ptr.Deref(test.Spec.Timeout, metav1.Duration{})).NotTo(BeZero())
})
