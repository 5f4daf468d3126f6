"""Renders network configurations, by name on standard input, as cloud-init does.

Writes the text of all files that are made, by name and renderer.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from cloudinit import distros
from cloudinit.net import eni, netplan, network_manager, network_state, networkd, sysconfig
from cloudinit.sources.helpers import openstack

RENDERERS = {
    "eni": (eni, {"eni_path": "etc/network/interfaces", "netrules_path": None}),
    "network-manager": (network_manager, {}),
    "netplan": (netplan, {"netplan_path": "etc/netplan/50-cloud-init.yaml"}),
    "networkd": (networkd, {}),
    "sysconfig": (sysconfig, distros.fetch("rhel").renderer_configs["sysconfig"]),
}

out = {}
for name, forms in json.load(sys.stdin).items():
    config = forms.get("network") or openstack.convert_net_json(forms["openstack"], known_macs={})
    for kind, (module, settings) in RENDERERS.items():
        with tempfile.TemporaryDirectory() as target:
            state = network_state.parse_net_config_data(config)
            module.Renderer(settings).render_network_state(network_state=state, target=target + "/")
            root, errors = pathlib.Path(target), ""
            if kind == "netplan":
                # netplan writes the files of networkd, which reads nothing else.
                done = subprocess.run(["netplan", "generate", "--root-dir", target], capture_output=True, text=True)
                root, errors = root / "run/systemd/network", done.stderr if done.returncode else ""
            files = sorted(p for p in root.rglob("*") if p.is_file())
            out.setdefault(name, {})[kind] = "\n".join([p.read_text() for p in files] + [errors])
json.dump(out, sys.stdout)
