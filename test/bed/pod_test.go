package bed

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestAggregate(t *testing.T) {
	g := NewWithT(t)
	objects, err := parse([]byte(`
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: whole}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {into: whole}}]}
rules: []
---
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: part, labels: {into: whole}}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: other, labels: {into: another}}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(aggregate(objects)).To(Succeed())
	resources := func(object *unstructured.Unstructured) []any {
		var out []any
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		g.Expect(err).NotTo(HaveOccurred())
		for _, rule := range rules {
			out = append(out, rule.(map[string]any)["resources"].([]any)...)
		}
		return out
	}
	g.Expect(resources(objects[0])).To(ConsistOf("secrets"))
	g.Expect(resources(objects[1])).To(ConsistOf("secrets"))
	g.Expect(resources(objects[2])).To(ConsistOf("nodes"))
}
