"""Renders network configurations, by name on standard input, as cloud-init does.

Writes the text of all files that are made, by name and renderer.
"""
import json
import pathlib
import sys
import tempfile

from cloudinit import distros
from cloudinit.net import eni, network_manager, network_state, networkd, sysconfig

RENDERERS = {
    "eni": (eni, {"eni_path": "etc/network/interfaces", "netrules_path": None}),
    "network-manager": (network_manager, {}),
    "networkd": (networkd, {}),
    "sysconfig": (sysconfig, distros.fetch("rhel").renderer_configs["sysconfig"]),
}

out = {}
for name, config in json.load(sys.stdin).items():
    for kind, (module, settings) in RENDERERS.items():
        with tempfile.TemporaryDirectory() as target:
            state = network_state.parse_net_config_data(config)
            module.Renderer(settings).render_network_state(network_state=state, target=target + "/")
            files = sorted(p for p in pathlib.Path(target).rglob("*") if p.is_file())
            out.setdefault(name, {})[kind] = "\n".join(p.read_text() for p in files)
json.dump(out, sys.stdout)
