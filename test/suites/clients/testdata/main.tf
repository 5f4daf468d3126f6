terraform {
  required_providers {
    vsphere = {
      source  = "hashicorp/vsphere"
      version = "1.26.0"
    }
  }
}

variable "template" { type = string }
variable "cpus" { type = number }
variable "memory" { type = number }
variable "data" { type = number }
variable "color" { type = string }

data "vsphere_datacenter" "dc" {
  name = "DC0"
}

data "vsphere_datastore" "store" {
  name          = "LocalDS_1"
  datacenter_id = data.vsphere_datacenter.dc.id
}

data "vsphere_compute_cluster" "cluster" {
  name          = "DC0_C0"
  datacenter_id = data.vsphere_datacenter.dc.id
}

data "vsphere_resource_pool" "pool" {
  name          = "DC0_C0/Resources/DC0_C0_RP1"
  datacenter_id = data.vsphere_datacenter.dc.id
}

data "vsphere_network" "network" {
  name          = "DC0_DVPG0"
  datacenter_id = data.vsphere_datacenter.dc.id
}

data "vsphere_virtual_machine" "template" {
  name          = var.template
  datacenter_id = data.vsphere_datacenter.dc.id
}

resource "vsphere_tag_category" "owner" {
  name             = "terraform"
  cardinality      = "SINGLE"
  associable_types = ["VirtualMachine"]
}

resource "vsphere_tag" "owner" {
  name        = "blue"
  category_id = vsphere_tag_category.owner.id
}

resource "vsphere_folder" "folder" {
  path          = "terraform"
  type          = "vm"
  datacenter_id = data.vsphere_datacenter.dc.id
}

resource "vsphere_virtual_machine" "vm" {
  count            = 2
  name             = "tf-${count.index}"
  resource_pool_id = data.vsphere_resource_pool.pool.id
  datastore_id     = data.vsphere_datastore.store.id
  folder           = vsphere_folder.folder.path
  num_cpus         = var.cpus
  memory           = var.memory
  guest_id         = data.vsphere_virtual_machine.template.guest_id
  scsi_type        = data.vsphere_virtual_machine.template.scsi_type
  firmware         = data.vsphere_virtual_machine.template.firmware
  annotation       = "made by Terraform"
  tags             = [vsphere_tag.owner.id]
  extra_config     = { "guestinfo.color" = var.color }

  wait_for_guest_net_timeout = 0
  shutdown_wait_timeout      = 1

  network_interface {
    network_id   = data.vsphere_network.network.id
    adapter_type = data.vsphere_virtual_machine.template.network_interface_types[0]
  }

  disk {
    label            = "disk0"
    size             = data.vsphere_virtual_machine.template.disks[0].size
    thin_provisioned = data.vsphere_virtual_machine.template.disks[0].thin_provisioned
  }

  disk {
    label       = "data"
    size        = var.data
    unit_number = 1
  }

  clone {
    template_uuid = data.vsphere_virtual_machine.template.id
  }
}
