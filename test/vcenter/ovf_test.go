package vcenter

import (
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

func TestOVFEnvironment(t *testing.T) {
	const head = `<?xml version="1.0" encoding="UTF-8"?><Environment xmlns="http://schemas.dmtf.org/ovf/environment/1"` +
		` xmlns:oe="http://schemas.dmtf.org/ovf/environment/1"><PropertySection>`
	want := head + `<Property oe:key="instance-id" oe:value="id-ovf"/><Property oe:key="hostname" oe:value="a&amp;&#34;b&#34;"/></PropertySection></Environment>`
	info := cloudImage()
	info.Property[1].Value = `a&"b"`
	if got := ovfEnvironment(info); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := ovfEnvironment(nil); got != "" {
		t.Errorf("without properties: %s", got)
	}
	if got := ovfEnvironment(&types.VmConfigInfo{OvfEnvironmentTransport: []string{"iso"}}); got != "" {
		t.Errorf("on a disk: %s", got)
	}
}
