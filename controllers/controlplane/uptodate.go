package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// differences names the fields of the spec that a machine was not made with.
// What is passed on in place (metadata, timeouts, gates, taints) is not among
// them. An infrastructure machine or a config that is not there says nothing.
func differences(controlPlane *controlplanev1.NovaControlPlane, machine *clusterv1.Machine,
	infra *metav1.PartialObjectMetadata, config *bootstrapv1.NovaConfig,
) []string {
	var diff []string
	spec := &controlPlane.Spec
	if machine.Spec.Version != spec.Version {
		diff = append(diff, fmt.Sprintf("version is %s instead of %s", machine.Spec.Version, spec.Version))
	}
	if infra != nil && !clonedFrom(infra, spec.MachineTemplate.Spec.InfrastructureRef) {
		diff = append(diff, "machineTemplate.spec.infrastructureRef")
	}
	if config != nil {
		diff = append(diff, changed("config", fieldHashes(config.Spec), fieldHashes(spec.Config))...)
	}
	if recorded, ok := machine.Annotations[controlplanev1.SettingsAnnotation]; ok {
		was := map[string]string{}
		if err := json.Unmarshal([]byte(recorded), &was); err != nil {
			return append(diff, "annotation "+controlplanev1.SettingsAnnotation+" is not readable")
		}
		diff = append(diff, changed("", was, settings(controlPlane))...)
	}
	return diff
}

// clonedFrom reports whether an infrastructure machine was made from ref. One
// that does not say is taken for it.
func clonedFrom(infra *metav1.PartialObjectMetadata, ref clusterv1.ContractVersionedObjectReference) bool {
	name, ok := infra.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
	if !ok {
		return true
	}
	groupKind := schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}
	return name == ref.Name && infra.Annotations[clusterv1.TemplateClonedFromGroupKindAnnotation] == groupKind.String()
}

// changed names the fields whose hashes differ.
func changed(prefix string, was, is map[string]string) []string {
	all := maps.Clone(was)
	maps.Copy(all, is)
	var diff []string
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if was[field] == is[field] {
			continue
		}
		if prefix != "" {
			field = prefix + "." + field
		}
		diff = append(diff, field)
	}
	return diff
}

// settings are the hashes of the cluster-wide settings that reach a machine
// without standing in its NovaConfig. How names are resolved is not among
// them: modules carry that out.
func settings(controlPlane *controlplanev1.NovaControlPlane) map[string]string {
	hashes := map[string]string{}
	platform := controlPlane.Spec.Platform
	platform.DNS = bootstrapv1.DNSSpec{}
	for field, hash := range fieldHashes(platform) {
		hashes["platform."+field] = hash
	}
	for field, hash := range fieldHashes(controlPlane.Spec.Endpoint) {
		hashes["endpoint."+field] = hash
	}
	return hashes
}

// encodeSettings returns what the settings annotation of a new machine holds.
func encodeSettings(controlPlane *controlplanev1.NovaControlPlane) (string, error) {
	encoded, err := json.Marshal(settings(controlPlane))
	if err != nil {
		return "", fmt.Errorf("encoding settings: %w", err)
	}
	return string(encoded), nil
}

// fieldHashes hashes each field of a struct by its JSON name. Empty fields are
// left out, so a field that a newer version adds changes no machine.
func fieldHashes(of any) map[string]string {
	hashes := map[string]string{}
	encoded, err := json.Marshal(of)
	if err != nil {
		return hashes
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return hashes
	}
	for field, value := range fields {
		sum := sha256.Sum256(value)
		hashes[field] = hex.EncodeToString(sum[:4])
	}
	return hashes
}
