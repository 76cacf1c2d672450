"""The sshd of the tests runs commands, serves files and rejects unknown keys."""

import subprocess

import paramiko

from tests.services.sshd import NAME, Sshd, make_key, node

__all__ = ["node"]


def test_it_runs_commands_and_refuses_other_keys(node: Sshd) -> None:
    output = subprocess.run([*node.ssh, NAME, "echo $((6 * 7))"], capture_output=True, check=True)
    assert output.stdout == b"42\n"
    make_key(node.folder / "unknown")
    strange = ["-o", "BatchMode=yes", "-o", f"IdentityFile={node.folder / 'unknown'}"]
    alone = [*strange, "-o", f"UserKnownHostsFile={node.known_hosts}", "-p", str(node.port)]
    command = ["ssh", "-F", "/dev/null", *alone, f"{node.user}@127.0.0.1", "true"]
    refused = subprocess.run(command, capture_output=True)
    assert refused.returncode == 255
    assert b"Permission denied" in refused.stderr


def test_it_serves_files(node: Sshd) -> None:
    with paramiko.SSHClient() as client:
        client.load_host_keys(str(node.known_hosts))
        client.connect("127.0.0.1", node.port, node.user, key_filename=str(node.key))
        with client.open_sftp() as sftp, sftp.open(str(node.known_hosts)) as file:
            assert file.read() == node.known_hosts.read_bytes()
