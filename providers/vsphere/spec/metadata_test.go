package spec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	. "github.com/onsi/gomega"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// vmID is the instance UUID of a VM.
var vmID = uuid.MustParse("6ba7b810-9dad-51d1-80b4-00c04fd430c8")

func options(t *testing.T, l hypervisor.CreateOptions) map[string]string {
	t.Helper()
	plain, err := NewNICs(vmID, []vspherev1.NovaVSphereInterface{{Network: "n"}}, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	values, err := guestinfo("m", vmID, plain, l)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	out := map[string]string{}
	for _, v := range values {
		out[v.GetOptionValue().Key], _ = v.GetOptionValue().Value.(string)
	}
	return out
}

func TestMetadata(t *testing.T) {
	g := NewWithT(t)
	got := options(t, hypervisor.CreateOptions{UserData: []byte("data")})
	document, err := base64.StdEncoding.DecodeString(got["guestinfo.metadata"])
	g.Expect(err).NotTo(HaveOccurred())
	want := `{"instance-id":"6ba7b810-9dad-51d1-80b4-00c04fd430c8","local-hostname":"m",` +
		`"network":{"ethernets":{"eth0":{"dhcp4":true,"dhcp6":false,"match":{"macaddress":"66:bb:fd:8f:40:01"},"set-name":"eth0"}},"version":2}}`
	if diff := cmp.Diff(want, string(document)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	g.Expect(got).To(HaveKeyWithValue("guestinfo.metadata.encoding", "base64"))
}

func TestLargeUserData(t *testing.T) {
	g := NewWithT(t)
	data := []byte(strings.Repeat("line\n", maxPlain))
	got := options(t, hypervisor.CreateOptions{UserData: data, Format: "cloud-config"})
	g.Expect(got).To(HaveKeyWithValue("guestinfo.userdata.encoding", "gzip+base64"))
	packed, err := base64.StdEncoding.DecodeString(got["guestinfo.userdata"])
	g.Expect(err).NotTo(HaveOccurred())
	r, err := gzip.NewReader(bytes.NewReader(packed))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(io.ReadAll(r)).To(Equal(data))
}

// Data that cannot be compressed is rejected from the first byte over the
// limit, before a VM exists.
func TestTooLongUserData(t *testing.T) {
	guestNICs, err := NewNICs(vmID, []vspherev1.NovaVSphereInterface{{Network: "n"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 2*maxPlain)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for _, format := range []string{"cloud-config", "ignition"} {
		for size, want := range map[int]bool{maxPlain: true, maxPlain + 1: false, 2 * maxPlain: false} {
			_, err := guestinfo("m", vmID, guestNICs, hypervisor.CreateOptions{UserData: noise[:size], Format: format})
			if want != (err == nil) {
				t.Errorf("%d bytes of %s: %v", size, format, err)
			}
			if err != nil && (!hypervisor.IsTerminal(err) || !strings.Contains(err.Error(), "KiB, compressed and in base64, and a guest can read 64 KiB at most")) {
				t.Errorf("%d bytes of %s: %v", size, format, err)
			}
		}
	}
}

func TestIgnition(t *testing.T) {
	got := options(t, hypervisor.CreateOptions{UserData: []byte("{}"), Format: "ignition"})
	want := map[string]string{"guestinfo.ignition.config.data": "e30=", "guestinfo.ignition.config.data.encoding": "base64"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
