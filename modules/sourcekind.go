package modules

import (
	"fmt"
	"slices"
	"strings"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// ociCharts is the scheme of Helm repositories in OCI registries.
const ociCharts = "oci://"

// sourceOf returns the source of a module in the set.
func (c Content) sourceOf(m *addonsv1.Module) *addonsv1.Source {
	for i := range c.Sources {
		if c.Sources[i].Name == m.Source {
			return &c.Sources[i]
		}
	}
	return &c.Sources[0]
}

// checkSource returns why Flux could not take a module from its source.
func (c Content) checkSource(m *addonsv1.Module) error {
	known := func(s addonsv1.Source) bool { return s.Name == m.Source }
	if len(c.Sources) == 0 || m.Source != "" && !slices.ContainsFunc(c.Sources, known) {
		return fmt.Errorf("source: the set has no source %q", m.Source)
	}
	s := c.sourceOf(m)
	artifact := s.OCI.URL != "" || s.Ref.Kind == addonsv1.OCIRepository
	switch {
	case m.Chart == nil && (s.Helm.URL != "" || s.Ref.Kind == addonsv1.HelmRepository):
		return fmt.Errorf("kustomize: the source %q has charts only: use a source of the kind git or oci", s.Name)
	case m.Chart == nil:
		return nil
	case artifact && (m.Chart.Name != "" || m.Chart.Version != ""):
		return fmt.Errorf("chart: the artifact of the source %q is the chart itself: do not set name and version, or use a source of the kind helm with the URL of the folder of charts", s.Name)
	case !artifact && m.Chart.Name == "":
		return fmt.Errorf("chart: name is required, because the source %q can have several charts", s.Name)
	}
	return nil
}

// sourceKind is the kind of the Flux source.
func sourceKind(s *addonsv1.Source) addonsv1.SourceKind {
	switch {
	case s.Ref.Name != "":
		return s.Ref.Kind
	case s.Git.URL != "":
		return addonsv1.GitRepository
	case s.OCI.URL != "", strings.HasPrefix(s.Helm.URL, ociCharts):
		return addonsv1.OCIRepository
	default:
		return addonsv1.HelmRepository
	}
}
