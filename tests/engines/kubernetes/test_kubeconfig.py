"""What is wrong with a kubeconfig is one sentence, and the hint says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from allranks.engines.kubernetes.kubeconfig import Denied, load
from allranks.errors import Refused

EXEC = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never"
GOOD = f"""\
apiVersion: v1
kind: Config
current-context: one
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:1"}}}}]
users:
- {{name: u, user: {{token: secret}}}}
- {{name: gone, user: {{exec: {{{EXEC}, command: no-such-plugin}}}}}}
- {{name: told, user: {{exec: {{{EXEC}, command: ./no-such-plugin, installHint: "Get it at x"}}}}}}
- {{name: fails, user: {{exec: {{{EXEC}, command: "false"}}}}}}
- {{name: odd, user: {{exec: {{{EXEC}, command: echo, args: [hello]}}}}}}
contexts:
- {{name: one, context: {{cluster: c, user: u, namespace: team}}}}
- {{name: gone, context: {{cluster: c, user: gone}}}}
- {{name: told, context: {{cluster: c, user: told}}}}
- {{name: fails, context: {{cluster: c, user: fails}}}}
- {{name: odd, context: {{cluster: c, user: odd}}}}
- {{name: no-cluster, context: {{cluster: x, user: u}}}}
- {{name: no-user, context: {{cluster: c, user: x}}}}
- {{name: nobody, context: {{cluster: c}}}}
"""
NAMES = "contexts of this file: one, gone, told, fails, odd, no-cluster, no-user, nobody"


def loaded(file: Path, context: str | None = None) -> tuple[str, Any]:
    configuration = Configuration()
    return load(configuration, {"kubeconfig": str(file), "context": context}), configuration


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(GOOD)
    return path


def test_a_context_gives_the_address_the_credentials_and_the_namespace(file: Path) -> None:
    namespace, configuration = loaded(file)
    assert (namespace, configuration.host) == ("team", "https://127.0.0.1:1")
    assert configuration.api_key == {"BearerToken": "Bearer secret"}
    assert loaded(file, "nobody")[0] == "default"


@pytest.mark.parametrize(
    ("context", "message", "hint"),
    [
        ("nowhere", "the kubeconfig has no context 'nowhere'", NAMES),
        ("no-cluster", "the context 'no-cluster' names a cluster that is not there: 'x'", NAMES),
        ("no-user", "the context 'no-user' names a user that is not there: 'x'", NAMES),
    ],
)
def test_a_context_that_is_not_there_or_incomplete(
    file: Path, context: str, message: str, hint: str
) -> None:
    with pytest.raises(Refused) as caught:
        loaded(file, context)
    assert (caught.value.message, caught.value.where) == (message, str(file))
    assert str(caught.value.hint).endswith(hint)


@pytest.mark.parametrize(
    ("context", "message", "hint"),
    [
        ("gone", "`no-such-plugin`, which .* 'gone', is not installed", "the server's PATH"),
        ("told", "`./no-such-plugin`, which .* 'told', is not installed", "Get it at x"),
        ("fails", "`false`, which .* 'fails', failed", "kubectl get pods --context fails"),
        ("odd", "`echo`, which .* 'odd', failed", "kubectl get pods --context odd"),
    ],
)
def test_a_program_that_gives_no_credentials(
    file: Path, context: str, message: str, hint: str
) -> None:
    with pytest.raises(Denied, match=message) as caught:
        loaded(file, context)
    assert hint in str(caught.value.hint)


def program(folder: Path, code: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "plug").write_text(f"#!/bin/sh\n{code}\n")
    (folder / "plug").chmod(0o755)


@pytest.mark.parametrize("place", ["~/kube/config", "{}/none:~/kube/config", "{0}/one:{0}/two"])
def test_a_program_beside_the_file_that_fails_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    program(tmp_path / "kube", "exit 1")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "kube/config").write_text(GOOD.replace("no-such-plugin", "./plug"))
    (tmp_path / "one").write_text("apiVersion: v1\nkind: Config\n")
    (tmp_path / "two").symlink_to("kube/config")
    program(tmp_path, "exit 1")
    with pytest.raises(Denied, match=r"`./plug`, which .* 'gone', failed"):
        loaded(Path(place.format(tmp_path)), "gone")


def test_a_program_is_started_in_the_folder_of_the_file_with_the_cluster(tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    told = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "x"}}
    plug = f"echo '{json.dumps(told)}'"
    users, cluster = tmp_path / "users", tmp_path / "cluster"
    for folder in (users, cluster):
        folder.mkdir()
    head, _, contexts = GOOD.partition("users:\n")
    of_users, _, of_contexts = contexts.partition("contexts:\n")
    (users / "config").write_text(f"users:\n{of_users}".replace("no-such-plugin", "./plug"))
    (cluster / "config").write_text(f"{head}contexts:\n{of_contexts}")
    place = Path(f"{users}/config:{cluster}/config")
    program(users, plug)
    with pytest.raises(Denied, match=r"`./plug`, which .* 'gone', is not installed") as caught:
        loaded(place, "gone")
    assert f"it must be at {cluster}/plug" in str(caught.value.hint)
    program(cluster, plug)
    assert loaded(place, "gone")[0] == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not a kubeconfig"),
        ("hello", "this is not a kubeconfig"),
        ("[]", "this is not a kubeconfig"),
        ("contexts: [3]", "this is not a kubeconfig"),
        ("a: [b\nc: }", "this is not a kubeconfig: its line 2 is not valid YAML"),
        ("apiVersion: v1\nkind: Config\n", "the kubeconfig has no current context"),
        (GOOD.replace("{server", "{certificate-authority: /x, server"), "'one' cannot be used: "),
    ],
)
def test_what_is_no_kubeconfig(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(Refused) as caught:
        loaded(file)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_file_that_cannot_be_read(file: Path) -> None:
    for path, message in ((file / "x", "no such file"), (file.parent, "is a directory")):
        with pytest.raises(Refused, match=f"the kubeconfig cannot be read: {message}") as caught:
            loaded(path)
        assert "--kubeconfig FILE" in str(caught.value.hint)


def test_a_missing_key_is_named_and_no_value_is_shown(file: Path) -> None:
    values = "client-id: a-client, client-secret: hidden-1, refresh-token: hidden-2"
    provider = f"{{auth-provider: {{name: oidc, config: {{{values}}}}}}}"
    file.write_text(GOOD.replace("{token: secret}", provider))
    with pytest.raises(Refused) as caught:
        loaded(file)
    message = "the context 'one' cannot be used: the key 'id-token' is missing"
    assert caught.value.message == message


def test_what_the_client_logs_of_a_program_has_no_values(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    variables = "env: [{name: ID, value: hidden}, {name: KEY}]"
    file.write_text(GOOD.replace("command: no-such-plugin", f'command: "true", {variables}'))
    with pytest.raises(Denied, match=r"`true`, which .* 'gone', failed"):
        loaded(file, "gone")
    assert caplog.messages == ["the key 'value' is missing"]


def test_a_list_of_files_as_in_kubeconfig(file: Path) -> None:
    other = file.with_name("other")
    other.write_text(GOOD.replace("name: one,", "name: more,"))
    assert loaded(Path(f"{file}:{other}"), "more")[0] == "team"
