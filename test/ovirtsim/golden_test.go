package ovirtsim

// leftOut are elements of real engines that are not shown here: nothing that
// manages VMs depends on them.
var leftOut = map[string][]string{
	"nics":            {"reported_devices"},
	"diskattachments": {"logical_name"},
	// The stop of a VM that has never been stopped is not shown.
	"vms":             {"large_icon", "small_icon", "sso", "cpu_profile", "quota", "stop_time"},
	"templates":       {"large_icon", "small_icon", "sso"},
	"vnic_profiles":   {"network_filter"},
	"storage_domains": {"supports_discard", "supports_discard_zeroes_data"},
	"data_centers":    {"supported_versions", "mac_pool"},
	"disks":           {"disk_profile", "quota"},
	"clusters": {
		"custom_scheduling_policy_properties", "error_handling", "fencing_policy", "firewall_type", "ksm", "log_max_memory_used_threshold",
		"log_max_memory_used_threshold_type", "migration", "required_rng_sources", "switch_type", "threads_as_cores", "trusted_service",
		"tunnel_migration", "mac_pool", "scheduling_policy",
	},
	"hosts": {
		"auto_numa_status", "device_passthrough", "external_status", "hardware_information", "iscsi", "kdump_status", "ksm", "libvirt_version",
		"numa_supported", "os", "power_management", "se_linux", "spm", "transparent_hugepages", "update_available", "version", "vgpu_placement",
	},
}
