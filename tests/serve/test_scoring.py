"""What a replica answers: real scoring processes on sockets of their own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.core.diagnosis.log_tail import Ending, finding
from tests.frameworks.environments import environment
from tests.support import until

pytestmark = pytest.mark.medium
INSIDE = Path(__file__).parents[2] / "src" / "allranks" / "agent" / "inside"


class Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self.path))


class Replica:
    def __init__(
        self, folder: Path, *words: str, python: object = sys.executable, **env: str
    ) -> None:
        self.path = folder / "s"
        env = {
            **os.environ,
            "PYTHONPATH": str(INSIDE),
            "ALLRANKS_SERVE_SOCKET": str(self.path),
            **env,
        }
        command = [str(python), "-m", "allranks_scoring", *words]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def listens_or_ended(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.path))
            return True
        return self.process.poll() is not None

    def ask(
        self, body: object = b"", path: str = "/score", method: str = "POST", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        connection = Connection(self.path)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        found = answer.status, answer.read().decode(), dict(answer.getheaders())
        connection.close()
        return found

    def end(self) -> str:
        self.process.terminate()
        return self.process.communicate(timeout=30)[0]


Started = Callable[..., Replica]


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Started]:
    made: list[Replica] = []

    def start(script: str = "", *words: str, **env: Any) -> Replica:
        if script:
            (tmp_path / "score.py").write_text(script)
            words = ("--script", "score.py", *words)
        made.append(Replica(tmp_path, *words, **env))
        until(made[-1].listens_or_ended)
        return made[-1]

    yield start
    for each in made:
        if each.process.stdout is not None and not each.process.stdout.closed:
            each.end()


AZURE = """
import json, os
def init():
    global text
    text = open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "my model.txt")).read()
def run(data):
    print("got", data)
    found = json.loads(data)
    if found == "exit": raise SystemExit(3)
    if found == "set": return {1}
    if found == "nan": return {"a": [float("nan"), float("inf"), 1.5]}
    return [text, found["x"]]
"""


def test_a_scoring_script_of_azure(replica: Started, tmp_path: Path):
    (tmp_path / "stored").write_text("weights")
    one = replica(AZURE, "--model", "stored", "--model-name", "my model.txt")
    assert one.ask({"x": 1})[:2] == (200, '["weights", 1]')
    status, text, headers = one.ask({"y": 1})
    assert (status, json.loads(text)["error"]["message"]) == (500, "KeyError: 'x'")
    assert headers["x-ms-run-function-failed"] == "True"
    assert "which JSON cannot hold" in one.ask("set")[1] or "JSON cannot hold" in one.ask("set")[1]
    assert one.ask("nan")[1] == '{"a": [null, null, 1.5]}'
    assert one.ask("exit")[0] == 500
    assert one.ask(path="/", method="GET")[:2] == (200, "Healthy")
    assert one.ask(path="/nowhere")[0] == 404
    assert "/score" in json.loads(one.ask(path="/swagger.json", method="GET")[1])["paths"]
    printed = one.end()
    assert "got" in printed
    assert "KeyError: 'x'" in printed
    assert "allranks_scoring" not in printed.partition("Traceback")[2].partition("KeyError")[0]
    assert not one.path.exists()
    # At the same socket.
    inside = AZURE.replace("my model.txt", "models/my model.txt")
    two = replica(inside, "--model", "stored", "--model-name", "models/my model.txt")
    assert two.ask({"x": 1})[:2] == (200, '["weights", 1]')


RAW = """
from azureml.contrib.services.aml_request import AMLRequest, rawhttp
from azureml.contrib.services.aml_response import AMLResponse
def init(): pass
@rawhttp
def run(request):
    if request.method == "GET":
        return AMLResponse(request.args["q"], 200)
    answer = AMLResponse({"size": len(request.get_data(False))}, 201, json_str=True)
    answer.headers["Access-Control-Allow-Origin"] = request.headers.get("Origin")
    return answer
"""


def test_raw_http(replica: Started):
    one = replica(RAW)
    status, text, headers = one.ask(b"\xff\x00", Origin="http://here")
    assert (status, text) == (201, '{"size": 2}')
    assert headers["Access-Control-Allow-Origin"] == "http://here"
    assert one.ask(path="/score?q=a%20b", method="GET")[:2] == (200, "a b")


FORM = """
from azureml_inference_server_http.api.aml_request import AMLRequest, rawhttp
from azureml.contrib.services.aml_response import AMLResponse
@rawhttp
def run(request):
    if request.method == "GET":
        return AMLResponse(str.encode(request.full_path), 200)
    if not request.files:
        return AMLResponse(request.form.getlist("a"), 200, {"x-kind": "form"})
    image = request.files["image"]
    image.save("kept")
    one = [file.filename for file in request.files.getlist("image")]
    message = {"size": len(open("kept", "rb").read()), "names": one, "a": request.form["a"]}
    answer = AMLResponse(b"bytes", 202, response_headers={"x-of": ascii(message)})
    answer.mimetype = image.mimetype
    return answer
"""
MULTIPART = (
    b'--x--y\r\nContent-Disposition: form-data; name="a"\r\n\r\nb c\r\n'
    b'--x--y\r\nContent-Disposition: form-data; name="image"; filename="caf\xc3\xa9.png"\r\n'
    b"Content-Type: image/png\r\n\r\n\r\n--\x00\r\xff\n\r\n--x--y--\r\n"
)


def test_forms_files_and_bytes(replica: Started, tmp_path: Path):
    (tmp_path / "swagger3.json").write_text('{"mine": 3}')
    one = replica(FORM)
    kind = 'multipart/form-data; boundary="x--y"'
    status, _, headers = one.ask(MULTIPART, Content_Type=kind)
    assert (status, headers["content-type"]) == (202, "image/png")
    assert headers["x-of"] == ascii({"size": 8, "names": ["café.png"], "a": "b c"})
    assert (tmp_path / "kept").read_bytes() == b"\r\n--\x00\r\xff\n"
    form = "application/x-www-form-urlencoded"
    status, text, headers = one.ask(b"a=1&a=2+3&b=", Content_Type=form)
    assert (status, text, headers["x-kind"]) == (200, '["1", "2 3"]', "form")
    assert one.ask(path="/score?q=1", method="GET")[1] == "/score?q=1"
    # A description beside the script, or one that is made.
    assert one.ask(path="/swagger.json?version=3", method="GET")[1] == '{"mine": 3}'
    assert json.loads(one.ask(path="/swagger.json", method="GET")[1])["swagger"] == "2.0"
    (tmp_path / "swagger3.json").unlink()
    made = json.loads(one.ask(path="/swagger.json?version=3", method="GET")[1])
    assert "requestBody" in made["paths"]["/score"]["post"]


SAGEMAKER = """
import os
def model_fn(model_dir): return float(open(os.path.join(model_dir, "m")).read())
def predict_fn(data, model): return [[model * cell for cell in row] for row in data]
"""


def test_handlers_of_sagemaker(replica: Started, tmp_path: Path):
    (tmp_path / "m").write_text("2")
    one = replica(SAGEMAKER, "--model", "m")
    assert one.ask([[1, 2]], "/invocations")[:2] == (200, "[[2.0, 4.0]]")
    said = one.ask(b"1,2\n3,4\n", "/invocations", Content_Type="text/csv", Accept="text/csv")
    assert said[:2] == (200, "2.0,4.0\n6.0,8.0\n")
    assert one.ask(b"{", "/invocations")[0] == 400
    assert one.ask(path="/ping", method="GET")[0] == 200


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("def score(x): pass", (), "neither run(data)"),
        ("import nosuch", (), "No module named 'nosuch'"),
        ("def init():\n  int('x')\ndef run(x): pass", (), "init() failed at score.py:2\nTraceback"),
        ("", ("--script", "gone.py"), "gone.py was not found"),
        ("", ("--model", "README"), "needs a scoring script"),
    ],
)
def test_what_cannot_start_says_why(
    replica: Started, tmp_path: Path, script: str, words: Any, said: str
):
    (tmp_path / "README").write_text("no model")
    one = replica(script, *words)
    printed = one.process.communicate(timeout=30)[0]
    assert one.process.returncode == 1
    assert said in printed


def test_a_pickle_without_a_script(replica: Started, tmp_path: Path):
    (tmp_path / "kept.py").write_text(
        "class Twice:\n    def predict(self, rows): return [2 * row[0] for row in rows]\n"
    )
    make = "import kept, pickle; pickle.dump(kept.Twice(), open('m.pkl', 'wb'))"
    subprocess.run([sys.executable, "-c", make], cwd=tmp_path, check=True)
    one = replica("", "--model", "m.pkl")
    for body in ([[3]], {"data": [[3]]}, {"input_data": [[3]]}, {"instances": [[3]]}):
        assert one.ask(body)[:2] == (200, "[6]"), body
    columns = {"input_data": {"columns": ["x"], "index": [0], "data": [[3]]}}
    assert one.ask(columns)[:2] == (200, "[6]")
    assert one.ask([[3]], "/invocations")[:2] == (200, '{"predictions": [6]}')
    assert one.ask(b"no json")[0] == 400


TORCH = """
import torch
class Twice(torch.nn.Module):
    def forward(self, x): return 2 * x
torch.jit.trace(Twice(), torch.ones(1, 2)).save("m.pt")
"""
ONNX = """
import onnx
from onnx import TensorProto, helper
tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", 2]) for n in "xy"]
node = helper.make_node("Add", ["x", "x"], ["y"])
graph = helper.make_graph([node], "twice", tensors[:1], tensors[1:])
opset = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "m.onnx")
"""
MLFLOW = """
import mlflow
class Twice(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None): return model_input["x"] * 2
mlflow.pyfunc.save_model("m", python_model=Twice(), pip_requirements=[])
"""


def made(script: str, folder: Path, env: str) -> object:
    python = environment(env) / "bin" / "python" if env else sys.executable
    subprocess.run([python, "-c", script], cwd=folder, check=True, capture_output=True)
    return python


@pytest.mark.slow
@pytest.mark.torch
def test_torchscript_without_a_script(replica: Started, tmp_path: Path):
    one = replica("", "--model", "m.pt", python=made(TORCH, tmp_path, ""))
    assert one.ask({"input_data": [[1.0, 2.0]]})[:2] == (200, "[[2.0, 4.0]]")


@pytest.mark.slow
@pytest.mark.frameworks
def test_onnx_without_a_script(replica: Started, tmp_path: Path):
    one = replica("", "--model", "m.onnx", python=made(ONNX, tmp_path, "onnx"))
    for body in ([[1, 2], [3, 4]], {"input_data": {"x": [[1, 2], [3, 4]]}}):
        assert one.ask(body)[:2] == (200, "[[2.0, 4.0], [6.0, 8.0]]"), body
    status, text, _ = one.ask({"input_data": {"z": [[1, 2]]}})
    assert (status, "the model has the inputs x, not z" in text) == (400, True)


@pytest.mark.slow
@pytest.mark.frameworks
def test_mlflow_without_a_script(replica: Started, tmp_path: Path):
    python = made(MLFLOW, tmp_path, "mlflow3")
    one = replica("", "--model", "m", python=python)
    split = {"columns": ["x"], "data": [[1], [2]]}
    assert one.ask({"input_data": split})[:2] == (200, "[2, 4]")
    answer = (200, '{"predictions": [2, 4]}')
    assert one.ask({"dataframe_split": split}, "/invocations")[:2] == answer

    # A batch deployment of it reads tables.
    (tmp_path / "a.csv").write_text("x\n1.5\n")
    batch = "from allranks_scoring import batch; m = batch.Mlflow('m'); m.init(); "
    words = [str(python), "-c", batch + "print(m.run(['a.csv']))"]
    env = {**os.environ, "PYTHONPATH": str(INSIDE)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout == """['[0, 3.0, "a.csv"]']\n""", done.stderr


def test_a_request_that_runs_is_answered_before_the_end(replica: Started, tmp_path: Path):
    script = (
        "import os, time\ndef run(data):\n    open('began', 'w').close()\n"
        "    while not os.path.exists('go'): time.sleep(0.01)\n    return 'done'\n"
    )
    one = replica(script)
    connection = Connection(one.path)
    connection.request("POST", "/score", b"x")
    until((tmp_path / "began").exists)
    one.process.terminate()
    until(lambda: not one.path.exists())
    (tmp_path / "go").touch()
    assert connection.getresponse().read() == b'"done"'
    connection.close()
    assert one.process.wait(30) == 0


def test_a_replica_whose_requests_take_too_long_is_not_ready(replica: Started, tmp_path: Path):
    script = (
        "import os, time\ndef run(data):\n"
        "    while not os.path.exists('go'): time.sleep(0.01)\n    return 'done'\n"
    )
    one = replica(script, "--timeout", "0.1")
    connection = Connection(one.path)
    connection.request("POST", "/score", b"x")
    until(lambda: one.ask(b"", "/", method="GET")[0] == 503)
    status, text, _ = one.ask(b"x")
    assert (status, "longer than anybody waits" in text) == (503, True)
    (tmp_path / "go").touch()
    assert connection.getresponse().read() == b'"done"'
    connection.close()
    assert one.ask(b"", "/", method="GET")[0] == 200
    assert one.ask(b"x")[:2] == (200, '"done"')


ECHO = """
from azureml.contrib.services.aml_request import rawhttp
from azureml.contrib.services.aml_response import AMLResponse
@rawhttp
def run(request):
    answer = AMLResponse("ok", 200)
    answer.headers.update({"x-name": request.get_data(as_text=True), "content-length": "9"})
    return answer
"""


def test_headers_of_a_script_and_an_answer_without_a_body(replica: Started):
    made = replica(ECHO)
    status, text, headers = made.ask(b"a\r\nx-other: b")
    assert (status, text, headers["x-name"], headers.get("x-other")) == (
        200,
        "ok",
        "a x-other: b",
        None,
    )
    status, text, headers = made.ask(path="/health", method="HEAD")
    assert (status, text, headers["content-length"]) == (200, "", "7")


@pytest.mark.parametrize("status", [1, 3])
def test_an_exit_is_not_blamed_on_an_earlier_request(replica: Started, status: int):
    made = replica(
        "import os\ndef init(): pass\ndef run(data):\n"
        f"  if 'exit' in data: os._exit({status})\n  raise KeyError('bad key')\n"
    )
    assert made.ask({})[0] == 500
    with contextlib.suppress(OSError, http.client.HTTPException):
        made.ask({"exit": 1})
    lines = made.process.communicate(timeout=30)[0].splitlines()
    assert made.process.returncode == status
    found = finding(lines, Ending(status))
    assert found is not None
    assert found.at is not None
    assert lines[found.at] == f"score.py:4: os._exit({status}) is called"
    assert f"score.py:4 ends the replica by os._exit({status})" in found.fix
    # Nor where native code ends the process, which nobody can name.
    assert finding(lines[:-1], Ending(status)) is None
