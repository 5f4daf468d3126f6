package vcenter

import (
	"encoding/xml"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// guestInfoTransport hands a guest the properties of an OVA as one of its
// settings, ovfKey.
const (
	guestInfoTransport = "com.vmware.guestInfo"
	ovfKey             = guestInfoPrefix + "ovfEnv"
)

// cloudImage is the vApp configuration of a VM that was made from Ubuntu's OVA.
func cloudImage() *types.VmConfigInfo {
	return &types.VmConfigInfo{
		OvfEnvironmentTransport: []string{guestInfoTransport},
		Property: []types.VAppPropertyInfo{
			{Key: 0, Id: "instance-id", Type: "string", DefaultValue: "id-ovf"},
			{Key: 1, Id: "hostname", Type: "string", DefaultValue: "ubuntuguest"},
		},
	}
}

// ovfEnvironment is the document with the properties of an OVA that a VM's guest
// finds; empty, if it finds none.
func ovfEnvironment(config types.BaseVmConfigInfo) string {
	if config == nil {
		return ""
	}
	info := config.GetVmConfigInfo()
	if !slices.Contains(info.OvfEnvironmentTransport, guestInfoTransport) {
		return ""
	}
	var out strings.Builder
	out.WriteString(`<?xml version="1.0" encoding="UTF-8"?><Environment xmlns="http://schemas.dmtf.org/ovf/environment/1"` +
		` xmlns:oe="http://schemas.dmtf.org/ovf/environment/1"><PropertySection>`)
	for _, p := range info.Property {
		value := p.Value
		if value == "" {
			value = p.DefaultValue
		}
		out.WriteString(`<Property oe:key="` + attribute(p.Id) + `" oe:value="` + attribute(value) + `"/>`)
	}
	out.WriteString("</PropertySection></Environment>")
	return out.String()
}

func attribute(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a Builder takes all
	return out.String()
}
