package plan

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/google/uuid"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// MarkPrefix begins the comment of a VM of ours.
const MarkPrefix = "nova-machine/"

// Mark is what the comment of a VM says: whose it is and, for whoever comes
// after a crash, what cannot be seen otherwise.
type Mark struct {
	ID uuid.UUID
	// Zone is the failure domain the VM was made for.
	Zone string
	// Document is the format of the first-boot document, as long as the VM's
	// settings hold it.
	Document string
	// Addresses are those that the VM was given when it was created, separated
	// by commas. Those of DHCP are not among them.
	Addresses string
	// Machine is the name of the machine, if the VM has another name.
	Machine string
	// Devices are the host devices that were chosen for the VM, as Devices writes
	// them.
	Devices string
}

// String is the comment that says it.
func (m Mark) String() string {
	values := url.Values{}
	if m.Zone != "" {
		values.Set("zone", m.Zone)
	}
	if m.Document != "" {
		values.Set("user-data", m.Document)
	}
	if m.Addresses != "" {
		values.Set("addresses", m.Addresses)
	}
	if m.Machine != "" {
		values.Set("machine", m.Machine)
	}
	if m.Devices != "" {
		values.Set("devices", m.Devices)
	}
	return (&url.URL{Path: MarkPrefix + m.ID.String(), RawQuery: values.Encode()}).String()
}

// ReadMark reads the comment of a VM.
func ReadMark(comment string) (Mark, bool) {
	u, err := url.Parse(strings.TrimSpace(comment))
	if err != nil {
		return Mark{}, false
	}
	text, ok := strings.CutPrefix(u.Path, MarkPrefix)
	id, err := uuid.Parse(text)
	query := u.Query()
	return Mark{
		ID: id, Zone: query.Get("zone"), Document: query.Get("user-data"), Addresses: query.Get("addresses"), Machine: query.Get("machine"),
		Devices: query.Get("devices"),
	}, ok && err == nil
}

// Subject returns the UUID in the comment of a VM, or nothing.
func Subject(comment string) string {
	if m, ok := ReadMark(comment); ok {
		return m.ID.String()
	}
	return ""
}

// diskName is the name of a disk of ours. Nobody gives a disk such a name by
// chance.
func diskName(machine, disk string, id uuid.UUID) string {
	return machine + "-" + disk + diskSuffix(id)
}

func diskSuffix(id uuid.UUID) string { return "-" + id.String()[:8] }

// Identify returns the UUID that marks the VM behind the machine called key in
// the cluster with the given ID.
func Identify(clusterID string, key hypervisor.Key) (uuid.UUID, error) {
	if clusterID == "" {
		return uuid.Nil, Failure(infrav1.WaitingForInfrastructureReason, "the NovaZVirtCluster has no ID yet")
	}
	space, err := uuid.Parse(clusterID)
	if err != nil {
		return uuid.Nil, fmt.Errorf("parsing the cluster's ID in the annotation %s: %w", infrav1.ClusterIDAnnotation, err)
	}
	return uuid.NewSHA1(space, []byte(key.Namespace+"/"+key.Name)), nil
}
