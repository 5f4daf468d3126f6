package modules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// Content is the part of a set that defines its revision: the part that is
// applied to workload clusters. The selector, the rollout strategy and the
// removal settings are not part of it, so a change of those rolls out nothing.
type Content struct {
	Sources         []addonsv1.Source `json:"sources,omitempty"`
	Release         addonsv1.Release  `json:"release,omitzero"`
	Modules         []addonsv1.Module `json:"modules,omitempty"`
	IntervalSeconds int32             `json:"intervalSeconds,omitempty"`
	Shard           string            `json:"shard,omitempty"`
}

// ContentOf returns the content of a set.
func ContentOf(s *addonsv1.NovaModuleSetSpec) Content {
	return Content{
		Sources: s.Sources, Release: s.Release, Modules: s.Modules,
		IntervalSeconds: s.IntervalSeconds, Shard: s.Shard,
	}
}

// Revision identifies a content: it is the same for the same content in every
// process.
func (c Content) Revision() string {
	data, err := json.Marshal(c)
	if err != nil {
		// Values are stored as the API server accepted them, so they are JSON.
		data = fmt.Appendf(nil, "%+v", c)
	}
	return digest(data)
}

// digest is a short hash of data.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:10]
}

// Validate checks the parts of a content that do not depend on the Cluster:
// cycles, unknown names, sources that do not fit, expressions and templates that do not compile, invalid
// version ranges. A template is only parsed, as it may use facts that some
// Clusters lack.
func (c Content) Validate() error {
	if _, err := Order(c.Modules); err != nil {
		return err
	}
	for i := range c.Modules {
		err := c.checkSource(&c.Modules[i])
		if err == nil {
			err = validate(&c.Modules[i])
		}
		if err != nil {
			return fmt.Errorf("module %q: %w", c.Modules[i].Name, err)
		}
	}
	return nil
}

func validate(m *addonsv1.Module) error {
	if m.When != "" {
		if _, err := compile(m.When); err != nil {
			return fmt.Errorf("when: %w", err)
		}
	}
	if _, err := Fits("v1.0.0", m.Kubernetes); err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	if m.Chart != nil {
		if _, err := parseTemplate(m.Chart.ValuesTemplate); err != nil {
			return fmt.Errorf("valuesTemplate: %w", err)
		}
	}
	if m.Kustomize != nil {
		for _, v := range m.Kustomize.Substitute {
			if v.Value == nil {
				continue
			}
			if _, err := parseTemplate(*v.Value); err != nil {
				return fmt.Errorf("substitute %s: %w", v.Name, err)
			}
		}
	}
	return nil
}
