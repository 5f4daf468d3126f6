package schema

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every pattern of the facts is valid, and every named format is known.
func TestFactsAreComplete(t *testing.T) {
	seen := 0
	var walk func(path string, p *Property)
	walk = func(path string, p *Property) {
		seen++
		if p.Pattern != "" {
			if _, err := regexp.Compile("^" + p.Pattern + "$"); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if p.Format != nil && p.Format.Properties == nil {
			base := strings.TrimSuffix(p.Format.Name, "-list")
			if verifiers[p.Format.Name] == nil && verifiers[base] == nil && load().formats[p.Format.Name] == nil {
				t.Errorf("%s: the format %s is not known", path, p.Format.Name)
			}
		}
		if p.Format != nil {
			for name, child := range p.Format.Properties {
				walk(path+"."+name, child)
			}
		}
		if p.Items != nil {
			walk(path+"[]", p.Items)
		}
	}
	for _, o := range Operations() {
		for name, p := range o.Parameters {
			walk(o.Method+" "+o.Path+" "+name, p)
		}
	}
	for name, properties := range load().formats {
		for key, p := range properties {
			walk(name+"."+key, p)
		}
	}
	if seen < 1000 {
		t.Errorf("only %d properties were checked", seen)
	}
}

// The texts are those of PVE::JSONSchema (pve-common) and PVE::RESTHandler.
func TestCheck(t *testing.T) {
	const clone = "POST /nodes/pve1/qemu/9000/clone"
	const config = "PUT /nodes/pve1/qemu/100/config"
	for _, test := range []struct {
		name, request string
		params        map[string]any
		want          map[string]string
	}{
		{"valid", clone, map[string]any{"newid": "100", "full": "1"}, nil},
		{"missing", clone, nil, map[string]string{"newid": "property is missing and it is not optional"}},
		{"unknown", clone, map[string]any{"newid": "100", "tags": "a"}, map[string]string{
			"tags": "property is not defined in schema and the schema does not allow additional properties",
		}},
		{"no boolean", clone, map[string]any{"newid": "100", "full": "true"}, map[string]string{"full": "type check ('boolean') failed - got 'true'"}},
		{"JSON boolean", clone, map[string]any{"newid": "100", "full": true}, nil},
		{"no integer", clone, map[string]any{"newid": "x"}, map[string]string{"newid": "type check ('integer') failed - got 'x'"}},
		{"small", clone, map[string]any{"newid": "42"}, map[string]string{"newid": "invalid format - value does not look like a valid VM ID\n"}},
		{"name", clone, map[string]any{"newid": "100", "name": "a_b"}, map[string]string{"name": "invalid format - value does not look like a valid DNS name\n"}},
		{"enum", config, map[string]any{"bios": "efi"}, map[string]string{"bios": "value 'efi' does not have a value in the enumeration 'seabios, ovmf'"}},
		{"long", config, map[string]any{"description": strings.Repeat("a", 8193)}, map[string]string{"description": "value may only be 8192 characters long"}},
		{"net", config, map[string]any{"net0": "virtio,bridge=vmbr0,tag=12,firewall=1"}, nil},
		{"net with MAC", config, map[string]any{"net31": "virtio=BC:24:11:00:00:01,bridge=vmbr0"}, nil},
		{"net index", config, map[string]any{"net32": "virtio"}, map[string]string{
			"net32": "property is not defined in schema and the schema does not allow additional properties",
		}},
		{"pattern of index", config, map[string]any{"net[n]": "virtio"}, map[string]string{
			"net[n]": "property is not defined in schema and the schema does not allow additional properties",
		}},
		{"net key", config, map[string]any{"net0": "virtio,vlan=3"}, map[string]string{
			"net0": "invalid format - invalid key in comma-separated list property: vlan\n",
		}},
		{"multicast MAC", config, map[string]any{"net0": "virtio=01:24:11:00:00:01,bridge=vmbr0"}, map[string]string{
			"net0": "invalid format - format error\nnet0.macaddr: invalid format - value does not look like a valid unicast MAC address\n",
		}},
		{"disk", config, map[string]any{"scsi1": "local-lvm:20,iothread=on,discard=on,ssd=1"}, nil},
		{"cdrom", config, map[string]any{"ide2": "none,media=cdrom"}, nil},
		{"tags", config, map[string]any{"tags": "a;b_c"}, nil},
		{"bad tags", config, map[string]any{"tags": "a/b"}, map[string]string{"tags": "invalid format - invalid characters in tag\n"}},
		{"smbios", config, map[string]any{"smbios1": "uuid=x"}, map[string]string{
			"smbios1": "invalid format - format error\nsmbios1.uuid: value does not match the regex pattern\n",
		}},
		{"boot", config, map[string]any{"boot": "order=scsi0;net0"}, nil},
		{"boot device", config, map[string]any{"boot": "order=efidisk0"}, map[string]string{
			"boot": "invalid format - format error\nboot.order: invalid format - invalid boot device 'efidisk0'\n",
		}},
		{"CPU", config, map[string]any{"cpu": "x86-64-v2-AES,flags=+aes"}, nil},
		{"unknown CPU", config, map[string]any{"cpu": "pentium5"}, map[string]string{
			"cpu": "invalid format - Built-in cputype 'pentium5' is not defined (missing 'custom-' prefix?)\n",
		}},
		{"requires", config, map[string]any{"force": "1"}, map[string]string{"delete": "missing property required by 'force'"}},
		{"no type of rule", "POST /cluster/ha/rules", map[string]any{"rule": "r1", "resources": "vm:100,vm:101"}, map[string]string{
			"type": "property is missing and it is not optional",
		}},
		{"list", "POST /cluster/ha/rules", map[string]any{
			"rule": "r1", "type": "resource-affinity", "affinity": "negative", "resources": []any{"vm:100", "vm:101"},
		}, nil},
		{"snippets", "POST /nodes/pve1/storage/local/upload", map[string]any{"content": "snippets", "filename": "a.yaml"}, map[string]string{
			"content": "value 'snippets' does not have a value in the enumeration 'iso, vztmpl, import'",
		}},
		{"size", "PUT /nodes/pve1/qemu/100/resize", map[string]any{"disk": "scsi0", "size": "20 G"}, map[string]string{
			"size": "value does not match the regex pattern",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			method, path, _ := strings.Cut(test.request, " ")
			o, params := Find(method, path)
			if o == nil {
				t.Fatalf("no operation %s", test.request)
			}
			maps.Copy(params, test.params)
			err := o.Check(params)
			if test.want == nil {
				if err != nil {
					t.Errorf("rejected: %v", err)
				}
				return
			}
			var refused *Error
			if !errors.As(err, &refused) || refused.Status != 400 || refused.Message != "Parameter verification failed.\n" {
				t.Fatalf("got %v", err)
			}
			for name, text := range test.want {
				if got := refused.Errors[name]; got != text {
					t.Errorf("%s: got %q, want %q", name, got, text)
				}
			}
			if len(refused.Errors) != len(test.want) {
				t.Errorf("got %v", refused.Errors)
			}
		})
	}
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		method, path, want string
		params             map[string]any
	}{
		{"GET", "/version", "/version", nil},
		{"GET", "/nodes/pve1/qemu/100/config", "/nodes/{node}/qemu/{vmid}/config", map[string]any{"node": "pve1", "vmid": "100"}},
		{
			"DELETE", "/nodes/pve1/storage/local/content/local:iso/a.iso", "/nodes/{node}/storage/{storage}/content/{volume}",
			map[string]any{"volume": "local:iso/a.iso", "storage": "local"},
		},
		{"GET", "/nodes/pve1/qemu/100/nothing", "", nil},
		{"PATCH", "/version", "", nil},
		{"GET", "/nodes//qemu", "", nil},
	} {
		o, params := Find(test.method, test.path)
		if o == nil {
			if test.want != "" {
				t.Errorf("%s %s was not found", test.method, test.path)
			}
			continue
		}
		if o.Path != test.want {
			t.Errorf("%s %s is %s", test.method, test.path, o.Path)
		}
		for name, value := range test.params {
			if params[name] != value {
				t.Errorf("%s %s: %s is %v", test.method, test.path, name, params[name])
			}
		}
	}
}

func TestParseOption(t *testing.T) {
	net, err := ParseOption("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=on")
	if err != nil || net["model"] != "virtio" || net["macaddr"] != "BC:24:11:00:00:01" || net["firewall"] != "1" {
		t.Errorf("got %v, %v", net, err)
	}
	if _, err := ParseOption("cores", "2"); err == nil {
		t.Error("a number was parsed as a property string")
	}
	if got := SplitList("a,b; c"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %q", got)
	}
}
