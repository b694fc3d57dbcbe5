"""The files of the fleet that people copy: the programs accept them, and every command in them exists."""

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import yaml

from roundtrip.cli.commands import serve
from roundtrip.cli.parsing import OptionsAnywhere
from tests.kit.hosts import ROOT, WAIT
from tests.kit.programs import needs

FLEET = ROOT / "examples" / "fleet"
UNIT = FLEET / "systemd" / "shop@.service"
PORTS = [8001, 8002, 8003]


def parsed(words: list[str]) -> Namespace:
    """Return the settings that `roundtrip serve` reads from a command line."""
    program, command, *arguments = words
    assert (Path(program).name, command) == ("roundtrip", "serve")
    parser = OptionsAnywhere(exit_on_error=False)
    serve.COMMAND.configure(parser)
    return parser.parse_args(arguments)


def port_of(words: list[str]) -> int:
    assert parsed(words).sessions
    return int(parsed(words).port)


def in_folder(target: str) -> Path:
    """Return the file of a `MODULE:SERVER` in the folder of the example."""
    module, _, name = target.partition(":")
    assert name == "server"
    return FLEET / module


def compose() -> dict[str, Any]:
    return yaml.safe_load((FLEET / "compose.yaml").read_text(encoding="utf-8"))


def test_nginx_and_the_containers_mean_the_same_instances() -> None:
    text = (FLEET / "nginx.conf").read_text(encoding="utf-8")
    shops = [service for name, service in compose()["services"].items() if name.startswith("shop-")]
    assert [port_of(shop["command"]) for shop in shops] == PORTS
    for name, port in zip("abc", PORTS, strict=True):
        assert f"server 127.0.0.1:{port} fail_timeout" in text
        assert f"upstream {name} {{ server 127.0.0.1:{port};" in text
        assert f'"~:{port}$" {name};' in text


def test_the_containers_find_their_server_keys_and_redis() -> None:
    services = compose()["services"]
    for name, service in services.items():
        if name.startswith("shop-"):
            assert in_folder(parsed(service["command"]).target).is_file()
            assert service["environment"]["ROUNDTRIP_KEY_FILE"] == "/run/secrets/keys"
            assert service["environment"]["SHOP_REDIS"].startswith("redis://redis:")
            assert service["network_mode"] == "service:nginx"
    assert {"redis", "nginx"} <= services.keys()
    assert services["nginx"]["volumes"] == ["./nginx.conf:/etc/nginx/nginx.conf:ro"]
    assert services["redis"]["command"][-2:] == ["--maxmemory-policy", "noeviction"]


def test_the_unit_runs_a_command_that_there_is() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False, delimiters=["="])
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read(UNIT)
    # `%i` is the name of the instance, which is its port.
    words = shlex.split(unit["Service"]["ExecStart"].replace("%i", "8001"))
    assert port_of(words) == PORTS[0]
    assert in_folder(parsed(words).target).is_file()


@needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = str(shutil.which("systemd-analyze"))
    text = UNIT.read_text(encoding="utf-8")
    # It looks whether the program is there.
    text = text.replace("/srv/shop/.venv/bin/roundtrip", str(Path(sys.executable).with_name("roundtrip")))
    (tmp_path / "shop@8001.service").write_text(text, encoding="utf-8")
    command = [program, "verify", "--man=no", str(tmp_path / "shop@8001.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False, env={**os.environ})
    about_us = [line for line in done.stderr.splitlines() if "shop@" in line]
    assert (done.returncode, about_us) == (0, []), done.stderr
