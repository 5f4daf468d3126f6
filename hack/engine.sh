# shellcheck shell=bash
# Functions for the API of an oVirt engine. An administrator reads them into a shell:
#
#   . hack/engine.sh
#
# ZVIRT_SERVER is the name of the engine, ZVIRT_ADMIN is the user and the password
# of its administrator as USER:PASSWORD, and out/ca.pem is its CA. Placement of the
# template: ZVIRT_CLUSTER and ZVIRT_STORAGE_DOMAIN.

# api PATH [OPTION...] sends a request with these options of curl.
api() {
	curl -fsS --cacert out/ca.pem -u "$ZVIRT_ADMIN" -H 'Version: 4' -H 'Content-Type: application/xml' \
		"https://$ZVIRT_SERVER/ovirt-engine/api/$1" "${@:2}"
}

# id_of NAME prints the ID of the element NAME of a response. It fails if the
# response has no such element, for instance because the request failed.
id_of() {
	tr -d '\n' | sed -n "s/.*<$1 [^>]*id=\"\([^\"]*\)\".*/\1/p" | grep .
}

# await PATH ELEMENT VALUE waits until an object has this value, at most half an hour.
await() {
	local i
	for ((i = 0; i < 900; i++)); do
		if api "$1" | grep -q "<$2>$3<"; then
			return
		fi
		sleep 2
	done
	echo "engine.sh: $1 is not $3 after half an hour" >&2
	return 1
}

# make_template NAME uploads out/NAME.qcow2, a disk of 20 GiB, and makes a template
# of the same name. The VM that the engine needs for this is removed.
make_template() {
	local cluster domain disk transfer url vm template size
	size=$(stat -c %s "out/$1.qcow2") &&
		cluster=$(api "clusters?search=name%3D$ZVIRT_CLUSTER" | id_of cluster) &&
		domain=$(api "storagedomains?search=name%3D$ZVIRT_STORAGE_DOMAIN" | id_of storage_domain) &&
		disk=$(api disks -d "<disk><name>$1</name><format>cow</format><sparse>true</sparse>
			<provisioned_size>$((20 << 30))</provisioned_size><initial_size>$size</initial_size>
			<storage_domains><storage_domain id=\"$domain\"/></storage_domains></disk>" | id_of disk) &&
		await "disks/$disk" status ok &&
		transfer=$(api imagetransfers -d "<image_transfer><disk id=\"$disk\"/><direction>upload</direction>
			<format>cow</format></image_transfer>" | id_of image_transfer) &&
		await "imagetransfers/$transfer" phase transferring &&
		url=$(api "imagetransfers/$transfer" | sed -n 's/.*<proxy_url>\([^<]*\)<.*/\1/p') &&
		curl -fS --cacert out/ca.pem -T "out/$1.qcow2" "$url" &&
		api "imagetransfers/$transfer/finalize" -o /dev/null -d '<action/>' &&
		await "disks/$disk" status ok &&
		vm=$(api vms -d "<vm><name>$1</name><cluster id=\"$cluster\"/><template><name>Blank</name></template>
			<os><type>other_linux</type></os></vm>" | id_of vm) &&
		api "vms/$vm/diskattachments" -o /dev/null -d "<disk_attachment><disk id=\"$disk\"/><interface>virtio_scsi</interface>
			<bootable>true</bootable><active>true</active></disk_attachment>" &&
		template=$(api templates -d "<template><name>$1</name><vm id=\"$vm\"/></template>" | id_of template) &&
		await "templates/$template" status ok &&
		await "vms/$vm" status down &&
		api "vms/$vm" -o /dev/null -X DELETE
}
