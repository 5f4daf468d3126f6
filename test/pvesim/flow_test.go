package pvesim

import (
	"net/http"
	"strings"
	"testing"
)

const (
	get  = http.MethodGet
	post = http.MethodPost
	put  = http.MethodPut
	del  = http.MethodDelete
)

// A VM is created, configured, started, stopped and deleted as a driver does.
func TestLifeOfVM(t *testing.T) {
	c := start(t, Options{})
	vm := "/nodes/pve1/qemu/100"
	c.task(post, "/nodes/pve1/qemu/9000/clone", "newid=100", "name=node-1", "full=1", "description=owner")
	config := c.config("pve1", 100)
	if config["name"] != "node-1" || config["description"] != "owner" || config["template"] != nil || config["lock"] != nil {
		t.Errorf("got %v", config)
	}
	if config["net0"] == c.config("pve1", 9000)["net0"] {
		t.Error("the clone has the MAC address of the template")
	}
	if disk, _ := config["scsi0"].(string); !strings.Contains(disk, "vm-100-disk-0") || !strings.Contains(disk, "size=20G") {
		t.Errorf("the disk is %q", disk)
	}
	c.task(put, vm+"/resize", "disk=scsi0", "size=30G")
	c.fails("shrinking disks is not supported", put, vm+"/resize", "disk=scsi0", "size=10G")

	res := c.upload("/nodes/pve1/storage/local/upload", [][2]string{{"content", "iso"}}, "node-1.iso", []byte("data"))
	if upid, _ := res.Data.(string); res.Status != http.StatusOK || c.wait(upid) != "OK" {
		t.Fatalf("the upload got %+v", res)
	}
	c.task(post, vm+"/config", "cores=4", "memory=8192", "ide2=local:iso/node-1.iso,media=cdrom", "agent=enabled=1", "tags=B;a", "digest="+c.digest("pve1", 100))
	config = c.config("pve1", 100)
	if config["cores"] != 4.0 || config["memory"] != "8192" || config["tags"] != "a;b" || config["ide2"] != "local:iso/node-1.iso,media=cdrom,size=4" {
		t.Errorf("got %v", config)
	}
	c.refused(500, "VM 100 is not running", get, vm+"/agent/network-get-interfaces")
	c.task(post, vm+"/status/start")
	c.refused(500, "QEMU guest agent is not running", get, vm+"/agent/network-get-interfaces")
	c.fails("VM 100 already running", post, vm+"/status/start")
	c.refused(500, "VM 100 is running - destroy failed", del, vm)
	c.ok(put, vm+"/config", "ide2=none,media=cdrom")
	c.task(del, "/nodes/pve1/storage/local/content/local:iso/node-1.iso")
	c.task(post, vm+"/status/shutdown")
	c.task(del, vm, "purge=1", "destroy-unreferenced-disks=0")
	c.refused(500, "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist", get, vm+"/config")
	volumes, err := c.server.Cluster.Volumes("shared")
	if err != nil || len(volumes) != 1 {
		t.Errorf("volumes are left: %v, %v", volumes, err)
	}
}

// digest returns the digest of a VM's configuration.
func (c *client) digest(node string, vmid int) string {
	digest, _ := c.config(node, vmid)["digest"].(string)
	return digest
}
