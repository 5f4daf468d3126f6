package vcenter_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// The form of requests.
const (
	cloneForm = `<CloneVM_Task xmlns="urn:vim25"><_this type="VirtualMachine">vm-1</_this><folder type="Folder">group-v3</folder><name>m</name>` +
		`<spec><location>LOCATION</location><template>false</template>CONFIG<powerOn>false</powerOn>LATER</spec></CloneVM_Task>`
	deviceForm = `<config><deviceChange xsi:type="VirtualDeviceConfigSpec"><operation>remove</operation>DEVICE</deviceChange></config>`
)

func clone(parts ...string) string {
	form := cloneForm
	for i := 0; i < len(parts); i += 2 {
		form = strings.ReplaceAll(form, parts[i], parts[i+1])
	}
	return strings.NewReplacer("LOCATION", "", "CONFIG", "", "LATER", "").Replace(form)
}

func device(xml string) string { return clone("CONFIG", strings.Replace(deviceForm, "DEVICE", xml, 1)) }

// Requests that a real vCenter rejects, or may reject, are rejected before
// anything is done.
func TestRequestsFitTheAPI(t *testing.T) {
	const current = "urn:vim25/8.0.3.0"
	tests := []struct {
		name, action, body, says string
	}{
		{"fits", current, clone(), ""},
		{"an older version", "urn:vim25/6.7.3", clone(), ""},
		{"govmomi's own version", "urn:vim25/9.1.0.0", clone(), ""},
		{"no namespace and no version", "/", clone(), `unsupported version URI "/"`},
		{"no version", "urn:vim25/", clone(), `unsupported version URI "urn:vim25/"`},
		{"an unknown version", "urn:vim25/8.1", clone(), `unsupported version URI "urn:vim25/8.1"`},
		{"another service", "urn:pbm/", clone(), `unsupported version URI "urn:pbm/"`},
		{"an unknown method", current, strings.ReplaceAll(clone(), "CloneVM_Task", "CopyVM_Task"), "unknown method CopyVM_Task"},
		{"an unknown property", current, clone("LATER", "<linked>true</linked>"), `VirtualMachineCloneSpec has no property "linked"`},
		{"a property out of order", current, clone("LATER", "<template>false</template>"), `property "template" is out of order`},
		{"a missing property", current, strings.Replace(clone(), "<name>m</name>", "", 1), `required property "name" of CloneVM_Task is missing`},
		{"a missing structure", current, strings.Replace(clone(), "<location></location>", "", 1), `required property "location"`},
		{"a reference without a type", current, clone("LOCATION", "<datastore>datastore-1</datastore>"), `spec.location.datastore: a reference to an object of type ""`},
		{"a reference of an unknown type", current, clone("LOCATION", `<datastore type="Store">datastore-1</datastore>`), `of type "Store"`},
		{"an empty reference", current, clone("LOCATION", `<datastore type="Datastore"></datastore>`), "a reference without a value"},
		{"a locator without a datastore", current, clone("LOCATION", "<disk><diskId>2000</diskId></disk>"), `spec.location.disk[0]: required property "datastore"`},
		{"an abstract device", current, device(`<device xsi:type="VirtualEthernetCard"><key>4000</key></device>`), "device: VirtualEthernetCard is abstract"},
		{"a device without a type", current, device(`<device><key>4000</key></device>`), "device: VirtualDevice is abstract"},
		{"a device of an unknown type", current, device(`<device xsi:type="VirtualCard"><key>4000</key></device>`), `device: unknown type "VirtualCard"`},
		{"no device", current, device(`<device xsi:type="OptionValue"><key>4000</key></device>`), "OptionValue is no BaseVirtualDevice"},
		{"a device", current, device(`<device xsi:type="VirtualVmxnet3"><key>4000</key></device>`), ""},
		{"an unknown operation", current, strings.Replace(device(`<device xsi:type="VirtualVmxnet3"><key>4000</key></device>`), "remove", "drop", 1), `has no value "drop"`},
		{"no number", current, device(`<device xsi:type="VirtualVmxnet3"><key>first</key></device>`), "device.key"},
		{"a property of the version", current, clone("LATER", "<tpmProvisionPolicy>replace</tpmProvisionPolicy>"), ""},
		{"a property of a later version", "urn:vim25/6.7.3", clone("LATER", "<tpmProvisionPolicy>replace</tpmProvisionPolicy>"), "exists since version 8.0.0.1 of the API"},
	}
	b := startUnchecked(t, vcenter.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			before := len(b.server.Violations())
			req, err := http.NewRequestWithContext(b.ctx, http.MethodPost, b.server.URL().String(), strings.NewReader(
				`<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Body>`+tt.body+`</Body></Envelope>`))
			g.Expect(err).NotTo(HaveOccurred())
			req.Header.Set("SoapAction", tt.action)
			res, err := b.client.Client.Client.Do(req)
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = res.Body.Close() }()
			answer, err := io.ReadAll(res.Body)
			g.Expect(err).NotTo(HaveOccurred())
			found := b.server.Violations()[before:]
			if tt.says == "" {
				g.Expect(found).To(BeEmpty())
				g.Expect(string(answer)).NotTo(ContainSubstring("InvalidRequest"))
				return
			}
			g.Expect(found).To(ConsistOf(ContainSubstring(tt.says)))
			g.Expect(res.StatusCode).To(Equal(http.StatusInternalServerError))
			g.Expect(string(answer)).To(ContainSubstring("InvalidRequestFault"))
		})
	}
}
