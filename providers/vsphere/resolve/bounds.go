package resolve

import (
	"regexp"
	"slices"
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
)

// Bounds are the objects of a vCenter that an identity allows. The zero value
// allows all objects: a cluster with a Secret of its own is limited by the
// vCenter user's permissions only.
//
// Clusters with different bounds share sessions and the names that these have
// resolved. Therefore a driver checks the bounds each time, on the object that
// was found and not on the name that led to it.
type Bounds struct {
	// identity is the name of the identity; empty if there is none.
	identity string
	vspherev1.NovaVSphereBounds
}

// BoundsOf returns the bounds of the identity that has the credentials.
func BoundsOf(login credentials.Login) Bounds {
	identity, ok := login.Identity.(*vspherev1.NovaVSphereIdentity)
	if !ok {
		return Bounds{}
	}
	return Bounds{identity: identity.Name, NovaVSphereBounds: identity.Spec.Bounds}
}

// isWithin reports whether one of entries allows the object with an inventory
// path. An entry with a leading slash is a path, any other entry is a name.
// Both allow the object and all objects below it.
func isWithin(entries, path []string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		if !strings.HasPrefix(entry, "/") {
			return slices.Contains(path, entry)
		}
		allowed := strings.Split(strings.Trim(entry, "/"), "/")
		return len(allowed) <= len(path) && slices.Equal(allowed, path[:len(allowed)])
	})
}

// outOfBounds returns the Error for a field whose value is outside of bound.
func (b *Bounds) outOfBounds(field, value, bound string) error {
	return hypervisor.Failure(infrav1.OutOfBoundsReason, "%s %q is outside of spec.bounds.%s of NovaVSphereIdentity %q", field, value, bound, b.identity)
}

// allowedKeys are the keys of hardware.extraConfig that any identity allows:
// settings of processors, memory, clocks and passthrough devices that have no
// effect outside of the VM. Other keys attach devices (pciPassthru0.id), name
// files (sched.swap.dir) or open ports (RemoteDisplay.vnc.port).
var allowedKeys = []string{
	"cpuid.coresPerSocket", "devices.hotplug", "hypervisor.cpuid.v0", "log.keepOld", "log.rotateSize", "mem.hotadd", "monitor_control.",
	"numa.", "pciPassthru.", "sched.cpu.", "sched.mem.", "sched.swap.vmxSwapEnabled", "time.synchronize.", "tools.syncTime", "vcpu.hotadd",
}

// deviceSettings matches settings of a passthrough device that do not select
// the device.
var deviceSettings = regexp.MustCompile(`(?i)^pciPassthru[0-9]+\.(cfg\..+|msiEnabled)$`)

// checkExtraConfig checks the keys of hardware.extraConfig.
func (b *Bounds) checkExtraConfig(options []vspherev1.NovaVSphereExtraConfig) error {
	if b.identity == "" {
		return nil
	}
	for i := range options {
		key := options[i].Name
		if !isAllowedKey(allowedKeys, key) && !isAllowedKey(b.ExtraConfigKeys, key) && !deviceSettings.MatchString(key) {
			return b.outOfBounds("hardware.extraConfig", key, "extraConfigKeys")
		}
	}
	return nil
}

// isAllowedKey reports whether entries contain a key or a prefix of it that
// ends in a period or an asterisk. vCenter ignores the case of keys.
func isAllowedKey(entries []string, key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc(entries, func(entry string) bool {
		entry = strings.ToLower(entry)
		prefix := strings.TrimSuffix(entry, "*")
		return key == entry || (prefix != entry || strings.HasSuffix(entry, ".")) && strings.HasPrefix(key, prefix)
	})
}
