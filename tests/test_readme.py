"""The README's Python example runs as it stands, but for the length of its training."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert "200_000" in example
    monkeypatch.chdir(tmp_path)
    exec(compile(example.replace("200_000", "2_000"), "README.md", "exec"), {})
    evaluation, coverage = capsys.readouterr().out.splitlines()[-2:]
    assert "eval/explore/coverage@100" in evaluation
    assert 0 < float(coverage) <= 1
    assert (tmp_path / "my-agent" / "config.json").exists()


def test_every_linked_file_exists() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / link).exists(), link
