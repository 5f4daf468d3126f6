package deployments

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// FromTemplate returns a function that finds the selected MachineDeployments that use a
// NovaConfigTemplate.
func FromTemplate(reader client.Reader, selected func(*clusterv1.MachineDeployment) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		list := &clusterv1.MachineDeploymentList{}
		if err := reader.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing MachineDeployments")
			return nil
		}
		var requests []ctrl.Request
		for i := range list.Items {
			if d := &list.Items[i]; TemplateOf(&d.Spec.Template.Spec) == o.GetName() && selected(d) {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)})
			}
		}
		return requests
	}
}

// TemplateOf returns the name of the NovaConfigTemplate of machines, or an empty string
// if they use another kind.
func TemplateOf(spec *clusterv1.MachineSpec) string {
	ref := spec.Bootstrap.ConfigRef
	if ref.Kind != "NovaConfigTemplate" || ref.APIGroup != bootstrapv1.GroupVersion.Group {
		return ""
	}
	return ref.Name
}
