package modules

import (
	"regexp"

	"github.com/fluxcd/pkg/apis/kustomize"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// selector selects objects as Flux does. Flux reads each field as a regular
// expression that matches the whole text, and an API group contains dots.
func selector(t addonsv1.DriftTarget) *kustomize.Selector {
	if t == (addonsv1.DriftTarget{}) {
		return nil
	}
	return &kustomize.Selector{
		Group: regexp.QuoteMeta(t.Group), Kind: t.Kind,
		Namespace: regexp.QuoteMeta(t.Namespace), Name: regexp.QuoteMeta(t.Name),
	}
}
