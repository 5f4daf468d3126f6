package ovirtsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// How a VM is initialized when it is started.
type initMode int

const (
	// initStored uses the stored initialization of the VM, until it has been up
	// once.
	initStored initMode = iota
	initNone
	initAlways
	initCloud
	initIgnition
)

// initializationMode returns the kind of initialization that a start request
// sets.
func initializationMode(body *elem) (initMode, error) {
	mode, requested := initStored, 0
	for name, means := range map[string]initMode{
		"use_cloud_init": initCloud, "use_ignition": initIgnition, "use_initialization": initAlways, "use_sysprep": initAlways,
	} {
		switch body.str(name) {
		case "true":
			mode = means
			requested++
		case "false":
			if mode == initStored {
				mode = initNone
			}
		}
	}
	if requested > 1 {
		return mode, conflict("Cannot run VM. Only one of Cloud-Init, Ignition and Sysprep can be used.")
	}
	return mode, nil
}

// ignition reports whether an operating system is configured by Ignition.
func ignition(os string) bool {
	return strings.HasPrefix(os, "rhcos") || strings.HasPrefix(os, "fcos")
}

// drive makes the configuration drive for a start, or none.
func (s *Server) drive(v *vm, c *config, mode initMode) (map[string][]byte, error) {
	init := c.initialization
	cdrom := slices.ContainsFunc(c.payloads.all("payload"), func(p *elem) bool { return p.str("type") == "cdrom" })
	switch {
	case mode == initNone, strings.HasPrefix(c.os, "windows"):
		return map[string][]byte{}, nil
	case mode == initStored && (v.initialized || init == nil || cdrom):
		return map[string][]byte{}, nil
	}
	if mode == initIgnition || mode != initCloud && ignition(c.os) {
		return ignitionDrive(init)
	}
	return cloudInitDrive(init)
}

// cloudInitDrive makes the drive that the engine makes for cloud-init.
func cloudInitDrive(init *elem) (map[string][]byte, error) {
	user := map[string]string{
		"disable_root": "disable_root: false\n",
		"output":       "output:\n  all: '>> /var/log/cloud-init-output.log'\n",
		"runcmd": "runcmd:\n- 'sed -i ''/^datasource_list: /d'' /etc/cloud/cloud.cfg; echo ''datasource_list:\n" +
			"  [\"NoCloud\", \"ConfigDrive\"]'' >> /etc/cloud/cloud.cfg'\n",
		"chpasswd":   "chpasswd:\n  expire: false\n",
		"ssh_pwauth": "ssh_pwauth: true\n",
	}
	for path, key := range map[string]string{"root_password": "password", "user_name": "user", "timezone": "timezone"} {
		if value := init.str(path); value != "" {
			user[key] = key + ": " + yamlScalar(value) + "\n"
		}
	}
	if value := init.str("regenerate_ssh_keys"); value != "" {
		user["ssh_deletekeys"] = "ssh_deletekeys: " + value + "\n"
	}
	var text strings.Builder
	text.WriteString("#cloud-config\n")
	for _, key := range javaOrder(user) {
		text.WriteString(user[key])
	}
	text.WriteString(init.str("custom_script"))
	return configDrive(init, text.String())
}

// yamlScalar quotes a value when a plain one would be read as something else.
func yamlScalar(value string) string {
	if strings.ContainsAny(value, ":#'\"{}[]&*!|>%@`\n") || strings.TrimSpace(value) != value {
		return "'" + strings.ReplaceAll(value, "'", "''") + "'"
	}
	return value
}

// javaOrder is the order in which Java's HashMap of 16 buckets lists its keys:
// users have come to know the engine's document by it.
func javaOrder(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	bucket := func(key string) uint32 {
		var h uint32
		for _, c := range []byte(key) {
			h = 31*h + uint32(c)
		}
		return (h ^ h>>16) & 15
	}
	slices.SortFunc(keys, func(a, b string) int {
		if x, y := bucket(a), bucket(b); x != y {
			return int(x) - int(y)
		}
		return strings.Compare(a, b)
	})
	return keys
}

// configDrive writes user data and metadata to a drive.
func configDrive(init *elem, userData string) (map[string][]byte, error) {
	files := map[string][]byte{"openstack/latest/user_data": []byte(userData)}
	metadata := map[string]any{
		"uuid":              newID(),
		"meta":              map[string]string{"dsmode": "local", "essential": "false", "role": "server"},
		"launch_index":      "0",
		"availability_zone": "nova",
	}
	if name := init.str("host_name"); name != "" {
		metadata["hostname"], metadata["name"] = name, name
	}
	if keys := strings.FieldsFunc(init.str("authorized_ssh_keys"), func(r rune) bool { return r == '\n' || r == '\r' }); len(keys) > 0 {
		metadata["public_keys"] = keys
	}
	if init.str("cloud_init_network_protocol") == "eni" {
		if interfaces := eni(init); interfaces != "" {
			metadata["network-interfaces"] = interfaces
			metadata["network_config"] = map[string]string{"content_path": "/content/0000", "path": "/etc/network/interfaces"}
			files["openstack/content/0000"] = []byte(interfaces)
		}
	} else if network := networkData(init); len(network) > 0 {
		data, err := json.MarshalIndent(network, "", "  ")
		if err != nil {
			return nil, err
		}
		files["openstack/latest/network_data.json"] = data
	}
	data, err := json.MarshalIndent(metadata, "", "  ")
	if err != nil {
		return nil, err
	}
	files["openstack/latest/meta_data.json"] = data
	return files, nil
}

// eni writes the network as Debian's interfaces file, without IPv6 as the
// engine does.
func eni(init *elem) string {
	var out strings.Builder
	for _, nic := range init.all("nic_configurations/nic_configuration") {
		name := nic.str("name")
		if nic.str("on_boot") == "true" {
			fmt.Fprintf(&out, "auto %s\n", name)
		}
		protocol := strings.ToLower(nic.str("boot_protocol"))
		orDefault(&protocol, "none")
		fmt.Fprintf(&out, "iface %s inet %s\n", name, protocol)
		for _, key := range []string{"address", "netmask", "gateway"} {
			if value := nic.str("ip/" + key); value != "" {
				fmt.Fprintf(&out, "  %s %s\n", key, value)
			}
		}
		if servers := init.str("dns_servers"); servers != "" {
			fmt.Fprintf(&out, "  dns-nameservers %s\n", servers)
		}
		if domains := init.str("dns_search"); domains != "" {
			fmt.Fprintf(&out, "  dns-search %s\n", domains)
		}
	}
	return out.String()
}

// networkData writes the network as OpenStack's metadata.
func networkData(init *elem) map[string]any {
	var cards, networks, services []map[string]any
	for _, nic := range init.all("nic_configurations/nic_configuration") {
		found := false
		for _, family := range []struct{ protocol, path, kind string }{{"boot_protocol", "ip", "ipv4"}, {"ipv6_boot_protocol", "ipv6", "ipv6"}} {
			if network := nicNetwork(init, nic, family.protocol, family.path, family.kind); network != nil {
				networks = append(networks, network)
				found = true
			}
		}
		if found {
			cards = append(cards, map[string]any{"id": nic.str("name"), "name": nic.str("name"), "type": "vif"})
		}
	}
	for server := range strings.FieldsSeq(init.str("dns_servers")) {
		services = append(services, map[string]any{"type": "dns", "address": server})
	}
	out := map[string]any{}
	for key, list := range map[string][]map[string]any{"links": cards, "networks": networks, "services": services} {
		if len(list) > 0 {
			out[key] = list
		}
	}
	return out
}

func nicNetwork(init, nic *elem, protocol, path, kind string) map[string]any {
	network := map[string]any{"id": nic.str("name"), "link": nic.str("name")}
	switch strings.ToLower(nic.str(protocol)) {
	case "dhcp":
		network["type"] = kind + "_dhcp"
	case "static":
		network["type"] = kind
		network["ip_address"] = nic.str(path + "/address")
		for _, key := range []string{"netmask", "gateway"} {
			if value := nic.str(path + "/" + key); value != "" {
				network[key] = value
			}
		}
	default:
		return nil
	}
	if servers := strings.Fields(init.str("dns_servers")); len(servers) > 0 {
		network["dns_nameservers"] = servers
	}
	if domains := strings.Fields(init.str("dns_search")); len(domains) > 0 {
		network["dns_search"] = domains
	}
	return network
}

// ignitionVersion is the version of Ignition that the engine uses for these
// operating systems.
const ignitionVersion = "2.3.0"

// ignitionDrive passes the custom script on as Ignition's configuration, with
// version, host name and user added.
func ignitionDrive(init *elem) (map[string][]byte, error) {
	script := init.str("custom_script")
	orDefault(&script, "{}")
	document := map[string]any{}
	if err := json.Unmarshal([]byte(script), &document); err != nil {
		return nil, errors.Join(conflict("Cannot run VM. The Ignition configuration is no valid JSON."), err)
	}
	changed := false
	section := inside(document, "ignition")
	if _, ok := section["version"]; !ok {
		section["version"], changed = ignitionVersion, true
	}
	if name := init.str("host_name"); name != "" && !strings.Contains(script, `"/etc/hostname"`) {
		storage := inside(document, "storage")
		files, _ := storage["files"].([]any)
		storage["files"] = append(files, map[string]any{
			"filesystem": "root", "path": "/etc/hostname", "mode": 420, "contents": map[string]any{"source": "data:," + name},
		})
		changed = true
	}
	if name := init.str("user_name"); name != "" && !strings.Contains(script, `"`+name+`"`) {
		passwd := inside(document, "passwd")
		users, _ := passwd["users"].([]any)
		user := map[string]any{"name": name, "passwordHash": init.str("root_password")}
		if keys := strings.FieldsFunc(init.str("authorized_ssh_keys"), func(r rune) bool { return r == '\n' || r == '\r' }); len(keys) > 0 {
			user["sshAuthorizedKeys"] = keys
		}
		passwd["users"] = append(users, user)
		changed = true
	}
	if changed {
		data, err := json.Marshal(document)
		if err != nil {
			return nil, err
		}
		script = string(data)
	}
	return configDrive(init, script)
}

// inside is an object in an object, made when it is missing.
func inside(document map[string]any, key string) map[string]any {
	if found, ok := document[key].(map[string]any); ok {
		return found
	}
	made := map[string]any{}
	document[key] = made
	return made
}
