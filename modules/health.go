package modules

import (
	"github.com/fluxcd/pkg/apis/kustomize"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

func expressions(in []addonsv1.HealthExpression) []kustomize.CustomHealthCheck {
	var out []kustomize.CustomHealthCheck
	for _, e := range in {
		out = append(out, kustomize.CustomHealthCheck{
			APIVersion: e.APIVersion, Kind: e.Kind,
			HealthCheckExpressions: kustomize.HealthCheckExpressions{Current: e.Current, InProgress: e.InProgress, Failed: e.Failed},
		})
	}
	return out
}
