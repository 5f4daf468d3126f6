package pve

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// A server of a tenant may send any list.
func TestListsOfATenantsServer(t *testing.T) {
	for name, c := range map[string]struct {
		list string
		want int
		err  string
	}{
		"nothing":          {`null`, 0, "is not a list"},
		"no entries":       {`[]`, 0, ""},
		"null among VMs":   {`[null,{"type":"qemu","vmid":1},null]`, 1, ""},
		"no list":          {`{"type":"qemu"}`, 0, "is not a list"},
		"another type":     {`[1]`, 0, "reading list of guests"},
		"too many entries": {`[` + strings.Repeat(`{},`, maxResources) + `{}]`, 0, "more than 200000 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var envelope struct {
				Data Resources `json:"data"`
			}
			err := json.Unmarshal([]byte(`{"data":`+c.list+`}`), &envelope)
			if c.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(envelope.Data).To(HaveLen(c.want))
		})
	}
}

// A guest reports any number of interfaces, addresses and characters.
func TestInterfacesOfAGuestAreLimited(t *testing.T) {
	g := NewWithT(t)
	var one GuestInterface
	g.Expect(json.Unmarshal([]byte(`{"name":"`+strings.Repeat("n", 1000)+`","ip-addresses":[`+strings.Repeat(`{"ip-address":"10.0.0.1"},`, 99)+`{}]}`), &one)).To(Succeed())
	found := GuestInterfaces{}
	for range 1000 {
		found.Result = append(found.Result, one)
	}
	found.Limit()
	g.Expect(found.Result).To(HaveLen(64))
	g.Expect(found.Result[0].Addresses).To(HaveLen(32))
	g.Expect(found.Result[0].Name).To(HaveLen(64))
	g.Expect(found.Result).To(HaveCap(64))
}

func TestMissingVolumes(t *testing.T) {
	g := NewWithT(t)
	for detail, want := range map[string]bool{
		"volume 'shared:iso/a.iso' does not exist":                                                           true,
		"unable to activate storage 'shared' - directory '/mnt/pve/shared' does not exist or is unreachable": false,
		"storage 'shared' does not exist":                                                                    false,
		"unlinking 'shared:iso/a.iso' failed: No such file or directory":                                     true,
	} {
		g.Expect(IsMissingVolume(&Error{Status: 500, Detail: detail})).To(Equal(want), detail)
	}
}
