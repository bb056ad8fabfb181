"""Files are replaced at once or not at all."""

import os
from functools import partial

import pytest

import mmort.ort
from mmort.onnx.graph.files import check_output, load, replacing
from mmort.onnx.verify.sessions import open_session


def names(directory):
    return sorted(file.name for file in directory.iterdir())


def test_draft_replaces_the_file_with_all_that_was_written_beside_it(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with replacing(path) as draft:
        draft.write_bytes(b"new")
        draft.with_name("model.onnx.data").write_bytes(b"tensors")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert (tmp_path / "model.onnx.data").read_bytes() == b"tensors"
    assert names(tmp_path) == ["model.onnx", "model.onnx.data"]


@pytest.mark.parametrize("keep_neighbours", [False, True])
def test_nothing_changes_if_the_block_raises(keep_neighbours, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")

    def write():
        with replacing(path, keep_neighbours=keep_neighbours) as draft:
            draft.write_bytes(b"new")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["model.onnx"]


def test_directory_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^output directory does not exist: .*nowhere$"):
        replacing(tmp_path / "nowhere" / "model.onnx").__enter__()


def test_draft_lies_beside_the_files_that_it_refers_to(tmp_path):
    (tmp_path / "weights").write_bytes(b"tensors")
    with replacing(tmp_path / "model.onnx", keep_neighbours=True) as draft:
        draft.write_bytes(b"new")
        assert draft.with_name("weights").read_bytes() == b"tensors"
    assert names(tmp_path) == ["model.onnx", "weights"]


def test_written_files_have_the_usual_permissions(tmp_path):
    (tmp_path / "other").touch()
    for keep_neighbours in (False, True):
        with replacing(tmp_path / "model.onnx", keep_neighbours=keep_neighbours) as draft:
            draft.write_bytes(b"new")
        assert (tmp_path / "model.onnx").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_no_models(tmp_path):
    """A pipe would be waited for, and an empty file is a message without fields."""
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "empty.onnx").touch()
    for name, reason in (("pipe", "it is a pipe or a device"), ("empty", "it has no graph")):
        with pytest.raises(ValueError, match=rf"{name}.onnx is not an ONNX model: {reason}$"):
            load(tmp_path / f"{name}.onnx")
    (tmp_path / "epoch_12.pth").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"epoch_12\.pth is not an ONNX model: .*; mmort export makes one of a checkp"):
        load(tmp_path / "epoch_12.pth")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)


@pytest.mark.parametrize("use", [partial(check_output, force=False), load, mmort.ort.session, open_session])
def test_names_that_are_not_utf8(use, tmp_path):
    with pytest.raises(ValueError, match=r"^the name of an ONNX file must be UTF-8, got '.*\\udcff\.onnx'"):
        use(os.path.join(tmp_path, "\udcff.onnx"))
